//! The search's bytes are those of the judge, whatever was changed before.

use super::problem::Problem;
use super::runs;
use super::state::{Hold, State};
use crate::examples::Random;
use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::{BufferId, StepId};
use crate::random::SplitMix;
use crate::repeat::Expanded;

/// A graph of temporaries in which each step has one result.
fn plain(random: &mut SplitMix, steps: usize) -> Graph {
    let mut graph = Graph::default();
    for number in 0..steps {
        let bytes = 64 * random.below(6);
        let result = graph.buffers.push(BufferNode { bytes, kind: BufferKind::Temporary });
        let mut step = StepNode { cost: random.below(10) as u64, ..StepNode::default() };
        step.writes.push(result);
        for _ in 0..random.below(4).min(number) {
            let read = BufferId::new(random.below(number));
            if !step.reads.contains(&read) {
                step.reads.push(read);
                if random.below(3) == 0 {
                    step.in_place.push((read, result));
                }
            }
        }
        graph.steps.push(step);
    }
    graph
}

fn compare(graph: &Graph, seed: u64, counts: &mut [usize; 3]) {
    let mut random = SplitMix(seed);
    let order: Vec<StepId> = graph.steps.indices().collect();
    let problem = Problem::new(graph, &order);
    let mut state = State::new(&problem, vec![Hold::Keep; problem.gaps.len()]);
    if problem.gaps.is_empty() {
        return;
    }
    for _ in 0..30 {
        let before = (state.time, state.peak(), state.overflow(100));
        for _ in 0..1 + random.below(3) {
            let gap = random.below(problem.gaps.len()) as u32;
            state.set(gap, [Hold::Keep, Hold::Drop, Hold::Later][random.below(3)]);
        }
        if random.below(2) == 0 {
            state.measure();
        }
        if random.below(2) == 0 {
            state.undo();
            assert_eq!((state.time, state.peak(), state.overflow(100)), before);
        }
        state.measure();
        state.commit();
        let again = State::new(&problem, state.holds.clone());
        assert_eq!((state.time, state.peak(), state.faults), (again.time, again.peak(), again.faults));
        let all = |state: &State<'_>| state.stages.iter().map(|stage| stage.runs.clone()).collect::<Vec<_>>();
        assert_eq!(all(&state), all(&again));
        if state.faults == 0 {
            let judged = Expanded::new(graph, &runs(&state)).unwrap_or_else(|e| panic!("{e}")).judge();
            assert_eq!(judged.time, state.time);
            let peak = state.peak().0 as usize;
            counts[if judged.peak == peak { 0 } else { 1 + usize::from(judged.peak > peak) }] += 1;
        }
    }
}

#[test]
fn changes_of_plain_graphs_have_the_bytes_of_the_judge() {
    let mut random = SplitMix(3);
    let mut counts = [0; 3];
    for seed in 0..400 {
        let steps = 2 + random.below(20);
        compare(&plain(&mut random, steps), seed, &mut counts);
    }
    eprintln!("{counts:?}");
}

#[test]
fn changes_of_random_graphs_have_the_bytes_of_the_judge() {
    let mut random = Random(5);
    let mut counts = [0; 3];
    for seed in 0..400 {
        let steps = 2 + random.below(20);
        compare(&random.graph(steps), seed, &mut counts);
    }
    eprintln!("{counts:?}");
}
