//! The search's bytes are those of the judge, whatever was changed before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use remat_ir::ErrorKind;

use super::problem::Problem;
use super::state::{Hold, State};
use super::{Effort, Rematerialized, least_memory, pareto, rematerialize, rematerialize_from, replayed, runs};
use crate::bound::bound;
use crate::examples::{Gpt, Keep, Random, chain};
use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::{BufferId, StepId};
use crate::memory::plan_memory;
use crate::random::SplitMix;
use crate::repeat::{Expanded, Schedule};
use crate::schedule::{peak, schedule};

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
    let mut state = State::new(&problem, problem.keep_all());
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
            assert_eq!(u128::from(judged.time), state.time);
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
    // A value that stays behind its last reader is counted up to the end of its gap.
    assert!(counts[0] > 6_000 && counts[2] == 0, "equal, less and more by the judge: {counts:?}");
}

#[test]
fn changes_of_random_graphs_have_the_bytes_of_the_judge() {
    let mut random = Random(5);
    let mut counts = [0; 3];
    for seed in 0..400 {
        let steps = 2 + random.below(20);
        compare(&random.graph(steps), seed, &mut counts);
    }
    // A result that lies in the memory of an output is known to in most orders only.
    assert!(counts[0] > 6_000 && counts[2] < 60, "equal, less and more by the judge: {counts:?}");
}

/// The least time of a schedule within a limit, by trying all: the steps first run in their order, any step may run again once its operands
/// are there, and any value may be freed at any time. No results are in place and nothing is scratch memory.
fn least_time(graph: &Graph, limit: usize) -> Option<u64> {
    let count = graph.steps.len();
    let bytes =
        |live: u32| -> usize { (0..count).filter(|i| live >> i & 1 == 1).map(|i| graph.bytes(BufferId::new(i))).sum() };
    let reads = |step: usize| graph.steps[StepId::new(step)].reads.iter().fold(0u32, |mask, b| mask | 1 << b.index());
    let mut best: HashMap<(usize, u32), u64> = HashMap::new();
    let mut queue = BinaryHeap::from([Reverse((0u64, 0usize, 0u32))]);
    while let Some(Reverse((time, next, live))) = queue.pop() {
        if next == count {
            return Some(time);
        }
        if best.get(&(next, live)).is_some_and(|&before| before <= time) {
            continue;
        }
        best.insert((next, live), time);
        for value in (0..count).filter(|i| live >> i & 1 == 1) {
            queue.push(Reverse((time, next, live & !(1 << value))));
        }
        for step in (0..=next).filter(|&step| reads(step) & !live == 0) {
            let after = live | 1 << step;
            if bytes(after) <= limit {
                let cost = graph.steps[StepId::new(step)].cost;
                queue.push(Reverse((time + cost, next.max(step + 1), after)));
            }
        }
    }
    None
}

/// Most plans of small graphs take the least time of all schedules. The rest need a value for a part of the time between two readers, which
/// the search does not try; such graphs are rare where steps are many.
#[test]
fn small_graphs_are_planned_nearly_as_well_as_by_trying_all_schedules() {
    let mut random = SplitMix(11);
    let (mut best, mut worse, mut impossible) = (0, 0, 0);
    while best + worse < 100 {
        let steps = 4 + random.below(5);
        let mut graph = plain(&mut random, steps);
        graph.steps.iter_mut().for_each(|step| step.in_place.clear());
        let order: Vec<StepId> = graph.steps.indices().collect();
        let peak = peak(&graph, &order);
        for share in [95, 85, 75] {
            let limit = peak * share / 100;
            let plan = rematerialize(&graph, &order, limit, Effort::of(6_000));
            match (plan, least_time(&graph, limit)) {
                (Ok(plan), Some(least)) => {
                    assert!(plan.judged.peak <= limit && plan.judged.time >= least && plan.bound <= least, "{plan:?}");
                    *(if plan.judged.time == least { &mut best } else { &mut worse }) += 1;
                }
                (Err(_), Some(_)) => worse += 1,
                (Err(error), None) => {
                    assert!(error.to_string().contains(&format!("at most {limit} bytes")), "{error}");
                    impossible += 1;
                }
                (Ok(plan), None) => panic!("{plan:?} cannot be"),
            }
        }
    }
    assert!(best >= 80 && impossible > 100, "{best} best, {worse} worse, {impossible} impossible");
}

/// A value lies in the memory of an output though two steps read it: the last one writes the output in its place.
#[test]
fn what_may_lie_in_an_output_does_not_have_to_go() {
    let mut graph = Graph::default();
    let mut buffer = |bytes, kind| graph.buffers.push(BufferNode { bytes, kind });
    let [v, w] = [1024, 64].map(|bytes| buffer(bytes, BufferKind::Temporary));
    let output = buffer(1024, BufferKind::Output);
    let step = |reads: &[BufferId], write, cost| StepNode {
        reads: reads.into(),
        writes: [write].into_iter().collect(),
        cost,
        ..StepNode::default()
    };
    graph.steps.extend([step(&[], v, 1000), step(&[v], w, 20), step(&[v, w], output, 20)]);
    graph.steps[StepId::new(2)].in_place.push((v, output));
    let order: Vec<StepId> = graph.steps.indices().collect();
    assert_eq!((peak(&graph, &order), bound(&graph, &order, 64)), (64, 0));
}

#[test]
fn no_plan_takes_less_time_than_the_lower_bound() {
    let mut random = Random(7);
    let mut plans = 0;
    for _ in 0..250 {
        let steps = 2 + random.below(24);
        let mut graph = random.graph(steps);
        graph.steps.iter_mut().for_each(|step| step.cost = random.below(1000) as u64);
        let order = schedule(&graph);
        let peak = peak(&graph, &order);
        for percent in [100, 95, 80, 60] {
            let Ok(plan) = rematerialize(&graph, &order, peak * percent / 100, Effort::of(500)) else {
                continue;
            };
            assert!(plan.judged.time >= plan.bound, "{percent} %: {plan:?} of {graph:?}");
            // Its own peak is the lowest limit that it keeps.
            let least = plan.once + bound(&graph, &order, plan.judged.peak);
            assert!(plan.judged.time >= least, "{percent} %: {plan:?}, at least {least}, of {graph:?}");
            plans += 1;
        }
    }
    assert!(plans > 250, "{plans}");
}

#[test]
fn plans_are_the_same_again_and_never_above_their_limits() {
    let graphs = [Gpt { layers: 4, keep: Keep::All, update: false }.graph(), chain(40, None, 4096)];
    for mut graph in graphs {
        graph.steps.iter_mut().enumerate().for_each(|(i, step)| step.cost = 100 + 37 * (i as u64 % 11));
        let order = schedule(&graph);
        let peak = peak(&graph, &order);
        for percent in [90, 70, 50, 40] {
            let limit = peak * percent / 100;
            let plan = |evaluations| rematerialize(&graph, &order, limit, Effort::of(evaluations)).unwrap();
            let quick = plan(4_000);
            assert_eq!(quick, plan(4_000));
            let expanded = Expanded::new(&graph, &quick.schedule).unwrap();
            let runs: Vec<StepId> = expanded.graph.steps.indices().collect();
            // The offsets are checked against the runs, and need little more than what is live.
            let memory = plan_memory(&expanded.graph, &runs).unwrap();
            assert_eq!(memory.peak, quick.judged.peak);
            assert!(memory.peak <= limit && memory.arena <= limit + limit / 20, "{} of {limit}", memory.arena);
            assert!(
                quick.judged.time >= quick.bound && plan(40_000).judged.time <= quick.judged.time + quick.once / 50
            );
        }
    }
}

#[test]
fn costs_and_sizes_that_no_machine_has_do_not_overflow() {
    let mut graph = chain(30, None, usize::MAX);
    graph.steps.iter_mut().for_each(|step| step.cost = u64::MAX / 2);
    let order: Vec<StepId> = graph.steps.indices().collect();
    let limit = peak(&graph, &order) / 2;
    let plan = rematerialize(&graph, &order, limit, Effort::of(2000)).unwrap();
    assert_eq!((plan.judged.time, plan.bound, plan.once), (u64::MAX, u64::MAX, u64::MAX));
    assert!(plan.judged.peak <= limit && plan.schedule.runs.len() > order.len());
}

#[test]
fn what_fits_is_left_as_it_is() {
    let graph = chain(10, None, 64);
    let order: Vec<StepId> = graph.steps.indices().collect();
    let plan = rematerialize(&graph, &order, peak(&graph, &order), Effort::GOOD).unwrap();
    assert_eq!((plan.schedule.runs, plan.bound), (order, plan.once));
    let empty = rematerialize(&Graph::default(), &[], 0, Effort::GOOD).unwrap();
    assert_eq!((empty.schedule.runs.len(), empty.judged.time, empty.overhead()), (0, 0, 0.0));
}

/// With so many changes the search would not end.
#[test]
fn a_limit_below_the_needs_of_a_step_is_an_error_at_once() {
    let mut graph = chain(100, None, 1024);
    graph.buffers.iter_mut().filter(|b| b.kind == BufferKind::Output).for_each(|b| b.kind = BufferKind::Temporary);
    let step = StepId::new(150);
    graph.steps[step].scratch = 10_000;
    // It reads two values of 1 KiB, and writes into the memory of one.
    let needs = 2 * 1024 + 10_048;
    let order: Vec<StepId> = graph.steps.indices().collect();
    let error = |limit| rematerialize(&graph, &order, limit, Effort::of(usize::MAX)).unwrap_err();
    let peak = peak(&graph, &order);
    let expected = format!(
        "plan: no schedule needs at most {} bytes at a time: step150 alone needs {needs}; without running steps again the program needs {peak}",
        needs - 1
    );
    assert_eq!((error(needs - 1).to_string(), error(0).kind()), (expected, ErrorKind::Memory));
    assert!(rematerialize(&graph, &order, needs, Effort::of(100)).is_err_and(|e| e.to_string().contains("was found")));
}

#[test]
fn orders_that_are_not_of_all_steps_are_errors() {
    let graph = chain(3, None, 64);
    let order: Vec<StepId> = graph.steps.indices().collect();
    let error = |order: &[StepId]| rematerialize(&graph, order, usize::MAX, Effort::QUICK).unwrap_err();
    let count = order.len();
    let message = |given: usize| format!("plan: an order has each of the {count} steps once, and this one has {given}");
    let mut twice = order.clone();
    twice.insert(2, order[1]);
    assert_eq!(error(&twice).to_string(), message(count + 1));
    assert_eq!(error(&order[1..]).to_string(), message(count - 1));
    let mut other = order.clone();
    other[count - 1] = order[0];
    assert!(error(&other).to_string().contains("never runs"));
    let backward: Vec<StepId> = order.iter().rev().copied().collect();
    assert!(error(&backward).to_string().contains("which no run has computed"));
    other[count - 1] = StepId::new(count);
    assert!(error(&other).to_string().contains("there is no step"));
}

#[test]
fn steps_that_must_not_run_again_do_not() {
    let mut graph = chain(12, None, 1024);
    graph.steps.iter_mut().for_each(|step| step.cost = 10);
    let order: Vec<StepId> = graph.steps.indices().collect();
    let limit = peak(&graph, &order) * 8 / 10;
    let free = rematerialize(&graph, &order, limit, Effort::QUICK).unwrap();
    let again =
        |plan: &Rematerialized, step: usize| plan.schedule.runs.iter().filter(|run| run.index() == step).count() > 1;
    let repeated: Vec<usize> = (0..12).filter(|&step| again(&free, step)).collect();
    assert!(!repeated.is_empty());
    graph.steps[StepId::new(repeated[0])].runs_once = true;
    let other = rematerialize(&graph, &order, limit, Effort::QUICK).unwrap();
    assert!(!again(&other, repeated[0]) && other.judged.peak <= limit);
}

#[test]
fn the_least_memory_of_tiny_programs_is_found() {
    let mut random = SplitMix(13);
    for steps in 1..40 {
        let mut graph = plain(&mut random, 1 + steps % 5);
        graph.buffers.iter_mut().for_each(|buffer| buffer.bytes = 4);
        let order: Vec<StepId> = graph.steps.indices().collect();
        let least = least_memory(&graph, &order, Effort::of(100)).unwrap();
        assert!((64..=5 * 64).contains(&least.judged.peak), "{least:?}");
    }
    // Two scalars, of which the second lies in the memory of the first.
    let mut graph = Graph::default();
    let [a, b] = [(); 2].map(|()| graph.buffers.push(BufferNode { bytes: 4, kind: BufferKind::Temporary }));
    let first = StepNode { writes: [a].into_iter().collect(), ..StepNode::default() };
    let second = StepNode { reads: [a].into_iter().collect(), writes: [b].into_iter().collect(), ..first.clone() };
    graph.steps.extend([first, StepNode { in_place: [(a, b)].into_iter().collect(), ..second }]);
    let order: Vec<StepId> = graph.steps.indices().collect();
    assert_eq!(least_memory(&graph, &order, Effort::QUICK).unwrap().judged.peak, 64);
}

#[test]
fn a_curve_never_takes_more_time_for_more_bytes_and_begins_at_the_least() {
    let mut graph = chain(30, None, 4096);
    graph.steps.iter_mut().enumerate().for_each(|(i, step)| step.cost = 100 + 37 * (i as u64 % 11));
    let order: Vec<StepId> = graph.steps.indices().collect();
    let curve = pareto(&graph, &order, 9, Effort::of(4_000)).unwrap();
    assert_eq!(curve.last().map(|plan| plan.judged.peak), Some(peak(&graph, &order)));
    assert!(curve.len() > 5, "{}", curve.len());
    for pair in curve.windows(2) {
        assert!(pair[0].judged.peak < pair[1].judged.peak && pair[0].judged.time > pair[1].judged.time);
    }
    let least = least_memory(&graph, &order, Effort::of(4_000)).unwrap();
    assert_eq!(curve[0].judged.peak, least.judged.peak);
    // With one value kept of every six, a chain of thirty needs about eleven at a time; twenty would be far from that.
    assert!(least.judged.peak <= 16 * 4096, "{}", least.judged.peak);
    assert!(rematerialize(&graph, &order, least.judged.peak / 2, Effort::of(4_000)).is_err());
}

#[test]
fn a_plan_goes_on_from_another_and_is_replayed() {
    let mut graph = chain(24, None, 1024);
    graph.steps.iter_mut().enumerate().for_each(|(i, step)| step.cost = 1000 + i as u64);
    let order: Vec<StepId> = graph.steps.indices().collect();
    let few = Effort::of(5_000);
    let mut plan = rematerialize(&graph, &order, usize::MAX, few).unwrap();
    for kib in (7..24).rev() {
        let next = rematerialize_from(&plan, &graph, &order, kib * 1024, few).unwrap_or_else(|e| panic!("{kib}: {e}"));
        assert!(next.judged.peak <= kib * 1024 && next.judged.time >= next.bound, "{kib}: {:?}", next.judged);
        assert!(next == rematerialize_from(&plan, &graph, &order, kib * 1024, few).unwrap(), "{kib}: another plan");
        let again = replayed(&graph, &order, next.schedule.clone()).unwrap();
        assert_eq!((again.judged.peak, again.judged.time, again.once), (next.judged.peak, next.judged.time, next.once));
        plan = next;
    }
    // Schedules of other graphs.
    let mut runs = plan.schedule.runs.clone();
    runs.push(StepId::new(graph.steps.len()));
    assert!(replayed(&graph, &order, Schedule { runs }).is_err());
    let runs = plan.schedule.runs[1..].to_vec();
    assert!(replayed(&graph, &order, Schedule { runs }).is_err());
    assert!(replayed(&graph, &order, Schedule { runs: Vec::new() }).is_err());
}
