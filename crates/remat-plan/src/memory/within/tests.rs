//! What lies in outputs before they are written.

use crate::align::aligned;
use crate::bound::{bound, bound_within_outputs};
use crate::examples::{Gpt, Keep, Net, Random};
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};
use crate::memory::{Location, MemoryPlan, plan_memory};
use crate::schedule::schedule;

const KIB: usize = 1024;

fn program_order(graph: &Graph) -> Vec<StepId> {
    graph.steps.indices().collect()
}

/// The plan of a graph in its own order, in which every output may hold every temporary, and the bytes of the arena without that.
fn planned(net: &Net) -> (MemoryPlan, usize) {
    let order = program_order(&net.graph);
    let plan = plan_memory(&net.graph, &order).unwrap_or_else(|e| panic!("{e}"));
    let before = plan.arena;
    let plan = plan.within_outputs(&net.graph, &order, |_, _| true).unwrap_or_else(|e| panic!("{e}"));
    assert!(plan.arena <= before && plan.arena >= plan.peak);
    assert_eq!(plan.timeline.iter().max(), Some(&plan.peak));
    let live: usize = plan.live.iter().map(|live| aligned(live.bytes())).sum();
    assert_eq!(live, plan.peak);
    (plan, before)
}

fn within(output: BufferId, offset: usize) -> Location {
    Location::Within { output, offset }
}

/// An argument of 1 KiB.
fn net() -> (Net, BufferId) {
    let mut net = Net::default();
    let x = net.buffer(KIB, BufferKind::Argument);
    (net, x)
}

#[test]
fn a_temporary_lies_in_an_output_until_the_step_before_its_first_write() {
    let (mut net, x) = net();
    let a = net.product(&[x], 4 * KIB);
    let b = net.product(&[a], 2 * KIB);
    let output = net.step(&[b], 4 * KIB, BufferKind::Output, false);
    let (plan, before) = planned(&net);
    assert_eq!((before, plan.arena), (6 * KIB, 2 * KIB));
    assert_eq!((plan.locations[a], plan.locations[b]), (within(output, 0), Location::Arena(0)));
    // The step that writes it reads the temporary.
    net.graph.steps[StepId::new(2)].reads.push(a);
    let (plan, before) = planned(&net);
    assert_eq!((plan.arena, plan.locations[a]), (before, plan.locations[a]));
    assert!(matches!(plan.locations[a], Location::Arena(_)));
}

#[test]
fn an_output_that_later_steps_read_is_not_free_again() {
    let (mut net, x) = net();
    let output = net.step(&[x], 4 * KIB, BufferKind::Output, false);
    let a = net.product(&[output], 4 * KIB);
    let b = net.product(&[a, output], 4 * KIB);
    net.step(&[b], KIB, BufferKind::Output, false);
    let (plan, before) = planned(&net);
    assert_eq!((plan.arena, plan.locations[a]), (before, Location::Arena(0)));
}

#[test]
fn an_output_holds_several_at_other_offsets_and_at_other_times() {
    let (mut net, x) = net();
    let [a, b] = [(); 2].map(|()| net.product(&[x], 2 * KIB));
    let c = net.product(&[a, b], KIB);
    let d = net.product(&[c], 3 * KIB);
    let e = net.product(&[d], KIB);
    let output = net.step(&[e], 4 * KIB, BufferKind::Output, false);
    let (plan, before) = planned(&net);
    assert_eq!((before, plan.arena), (5 * KIB, KIB));
    let mut offsets = [a, b, d].map(|value| plan.locations[value]);
    offsets[..2].sort_by_key(|location| matches!(location, Location::Within { offset: 2048, .. }));
    assert_eq!(offsets, [within(output, 0), within(output, 2 * KIB), within(output, 0)]);
}

#[test]
fn the_output_that_is_written_first_is_taken() {
    let (mut net, x) = net();
    let a = net.product(&[x], 2 * KIB);
    let b = net.product(&[a], KIB);
    let [first, last] = [b; 2].map(|b| net.step(&[b], 2 * KIB, BufferKind::Output, false));
    let (plan, _) = planned(&net);
    assert_eq!(plan.locations[a], within(first, 0));
    net.graph.steps.swap(StepId::new(2), StepId::new(3));
    let (plan, _) = planned(&net);
    assert_eq!(plan.locations[a], within(last, 0));
}

#[test]
fn elements_end_where_the_output_does() {
    // The last 36 of 100 bytes hold 36 bytes, and not 37.
    for (bytes, is_inside) in [(36, true), (37, false)] {
        let (mut net, x) = net();
        let values = [64, bytes].map(|bytes| net.product(&[x], bytes));
        let last = net.product(&values, 32);
        let output = net.step(&[last], 100, BufferKind::Output, false);
        let (plan, _) = planned(&net);
        let locations = values.map(|value| plan.locations[value]);
        assert_eq!(locations.contains(&within(output, 64)), is_inside, "{locations:?}");
    }
}

#[test]
fn a_temporary_that_becomes_an_output_ends_its_free_time() {
    let (mut net, x) = net();
    let a = net.product(&[x], 4 * KIB);
    let b = net.product(&[a], KIB);
    let early = net.product(&[b], 4 * KIB);
    let c = net.product(&[b], 2 * KIB);
    let d = net.product(&[c], KIB);
    let output = net.step(&[early, d], 4 * KIB, BufferKind::Output, true);
    let (plan, _) = planned(&net);
    assert_eq!(plan.locations[early], Location::Buffer(output));
    assert_eq!(plan.locations[a], within(output, 0));
    assert!(matches!(plan.locations[c], Location::Arena(_)));
}

#[test]
fn values_in_place_of_each_other_move_together() {
    let (mut net, x) = net();
    let a = net.product(&[x], 4 * KIB);
    let b = net.map(&[a]);
    let c = net.product(&[b], KIB);
    let output = net.step(&[c], 4 * KIB, BufferKind::Output, false);
    let (plan, _) = planned(&net);
    assert_eq!([a, b].map(|value| plan.locations[value]), [within(output, 0); 2]);
    // The output may not hold one of them.
    let order = program_order(&net.graph);
    let plan = plan_memory(&net.graph, &order).unwrap_or_else(|e| panic!("{e}"));
    let before = plan.arena;
    let plan = plan.within_outputs(&net.graph, &order, |_, value| value != b).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((plan.arena, plan.locations[a]), (before, plan.locations[b]));
}

#[test]
fn outputs_in_the_memory_of_donated_arguments_hold_nothing() {
    let (mut net, x) = net();
    let weight = net.buffer(4 * KIB, BufferKind::Argument);
    let a = net.product(&[x], 4 * KIB);
    let b = net.product(&[a], KIB);
    let output = net.step(&[weight, b], 4 * KIB, BufferKind::Output, true);
    let (plan, before) = planned(&net);
    assert_eq!((plan.donations.len(), plan.arena), (1, before));
    // Nor if a temporary takes the argument and becomes the output.
    net.graph.buffers[output].kind = BufferKind::Temporary;
    net.step(&[output], 4 * KIB, BufferKind::Output, true);
    let (plan, before) = planned(&net);
    assert_eq!((plan.donations.len(), plan.arena), (1, before));
    // One that is read again cannot be donated.
    net.product(&[weight], KIB);
    let (plan, before) = planned(&net);
    assert_eq!((plan.donations.len(), plan.arena), (0, before - 4 * KIB));
}

#[test]
fn nothing_moves_where_the_arena_would_not_be_smaller() {
    // The scratch memory of the last step needs more than the temporary.
    let (mut net, x) = net();
    let a = net.product(&[x], KIB);
    net.step(&[a], 4 * KIB, BufferKind::Output, false);
    net.step(&[x], 4 * KIB, BufferKind::Output, false);
    net.graph.steps[StepId::new(2)].scratch = 4 * KIB;
    let (plan, before) = planned(&net);
    assert_eq!((plan.arena, plan.locations[a], before), (4 * KIB, Location::Arena(0), 4 * KIB));
    // Nor outputs and temporaries of no bytes.
    let (mut net, x) = self::net();
    let a = net.product(&[x], 0);
    let b = net.product(&[a], KIB);
    net.step(&[b], 0, BufferKind::Output, false);
    assert_eq!(planned(&net).0.arena, KIB);
}

#[test]
fn plans_of_random_graphs_are_right() {
    let mut random = Random(7);
    let (mut smaller, mut held) = (0, 0);
    for steps in 0..60 {
        for _ in 0..20 {
            let graph = random.graph(steps);
            for order in [program_order(&graph), schedule(&graph)] {
                let seed = random.below(100);
                let may_hold =
                    |output: BufferId, value: BufferId| !(output.index() * 31 + value.index() + seed).is_multiple_of(5);
                let before = plan_memory(&graph, &order).unwrap_or_else(|e| panic!("{e}"));
                let plan = before.clone().within_outputs(&graph, &order, may_hold).unwrap_or_else(|e| panic!("{e}"));
                assert!(plan.arena <= before.arena);
                smaller += usize::from(plan.arena < before.arena);
                for (value, location) in plan.locations.iter_enumerated() {
                    if let Location::Within { output, .. } = *location {
                        assert!(may_hold(output, value) && plan.arena < before.arena);
                        held += 1;
                    }
                }
            }
        }
    }
    assert!(smaller > 500 && held > smaller, "{smaller} {held}");
}

#[test]
fn a_training_step_keeps_less_in_the_arena() {
    let graph = Gpt { layers: 6, keep: Keep::All, update: false }.graph();
    let order = schedule(&graph);
    let before = plan_memory(&graph, &order).unwrap_or_else(|e| panic!("{e}"));
    let plan = before.clone().within_outputs(&graph, &order, |_, _| true).unwrap_or_else(|e| panic!("{e}"));
    let outputs = graph.buffers.iter().filter(|buffer| buffer.kind == BufferKind::Output).map(|buffer| buffer.bytes);
    let (outputs, saved) = (outputs.sum::<usize>(), before.arena - plan.arena);
    assert!(saved > outputs / 4 && saved <= outputs, "{saved} of {outputs}, {} before", before.arena);
}

#[test]
fn a_run_within_the_arena_without_recomputation_has_a_lower_bound_of_zero() {
    let mut random = Random(11);
    let mut above = 0;
    for _ in 0..300 {
        let steps = 2 + random.below(24);
        let mut net = Net { graph: random.graph(steps) };
        net.graph.steps.iter_mut().for_each(|step| step.cost = 1 + random.below(1000) as u64);
        let (plan, _) = planned(&net);
        let order = program_order(&net.graph);
        assert_eq!(bound_within_outputs(&net.graph, &order, plan.arena, |_| true), 0, "{:?}", net.graph);
        above += usize::from(bound(&net.graph, &order, plan.arena) > 0);
    }
    // The bound without outputs does not hold for these.
    assert!(above > 10, "{above}");
}
