//! Small graphs about which one rule of the checker decides alone. Each rule was taken out of the source once, and a test failed:
//!
//! | rule | test |
//! |---|---|
//! | scratch memory lies in the arena | `memory::tests::locations_outside_of_their_memory_are_found` |
//! | it overwrites what it covers | `scratch_memory_over_a_part_of_a_value_is_found` |
//! | no result lies over it | `memory::tests::memory_that_is_overwritten_is_found` |
//! | in place: a pair of the step | `a_result_in_the_memory_of_an_operand_that_is_not_its_pair_is_found` |
//! | in place: the same memory, of one size | `a_result_in_the_memory_of_an_operand_of_another_size_is_found` |
//! | outputs are there in the end | `an_output_over_a_value_is_found` |
//! | temporaries may lie in outputs of their size, and nothing else in another's memory | `memory::tests::locations_outside_of_their_memory_are_found`, `outputs_lie_in_their_own_memory` |
//! | one argument for an output, and one output for an argument | `an_output_takes_the_memory_of_one_argument_that_no_other_takes` |
//! | donations are of one size and are followed | `memory::tests::donations_that_are_not_allowed_are_found` |
//! | last use: operands are there | `an_output_over_a_value_is_found` |
//! | a write over a part of a value | `memory::tests::memory_that_is_overwritten_is_found` |
//! | no two results in one place | `two_results_in_one_place_are_found` |
//! | each step once, each buffer one writer | `memory::tests::steps_that_do_not_run_once_are_found`, `memory::tests::buffers_without_one_writer_are_found` |
//!
//! The tests named without a module are here. Live ranges and runs have such tests in `repeat::tests`.

use super::check;
use crate::examples::Net;
use crate::graph::{BufferKind, StepNode};
use crate::ids::{BufferId, StepId};
use crate::liveness::InPlace;
use crate::memory::{Location, MemoryPlan, plan_memory};

pub(crate) const KIB: usize = 1024;

/// An argument, and temporaries of these KiB computed one from the other.
pub(crate) fn line(kib: &[usize]) -> (Net, Vec<BufferId>) {
    let mut net = Net::default();
    let mut values = vec![net.buffer(KIB, BufferKind::Argument)];
    for kib in kib {
        values.push(net.product(&values[values.len() - 1..], kib * KIB));
    }
    (net, values)
}

/// Adds a step of several results, which may take the memory of its operands as `in_place` says.
pub(crate) fn step(net: &mut Net, reads: &[BufferId], writes: &[BufferId], in_place: &[(BufferId, BufferId)]) {
    let (reads, writes, in_place) = (reads.into(), writes.into(), in_place.into());
    net.graph.steps.push(StepNode { reads, writes, in_place, ..StepNode::default() });
}

/// The checker's message about the plan of a graph in its own order after `change`.
fn fault(net: &Net, change: impl FnOnce(&mut MemoryPlan)) -> String {
    let order: Vec<StepId> = net.graph.steps.indices().collect();
    let mut plan = plan_memory(&net.graph, &order).unwrap_or_else(|e| panic!("{e}"));
    plan.arena += 64 * KIB;
    assert!(check(&net.graph, &order, &plan).is_ok());
    change(&mut plan);
    let error = check(&net.graph, &order, &plan).expect_err("the plan is wrong");
    error.message().strip_prefix("the memory plan is wrong: ").unwrap_or(error.message()).to_string()
}

/// The place of a value behind the start of another.
fn behind(plan: &MemoryPlan, value: BufferId, bytes: usize) -> usize {
    match plan.locations[value] {
        Location::Arena(offset) => offset + bytes,
        Location::Buffer(_) => panic!("a temporary of the arena"),
    }
}

#[test]
fn scratch_memory_over_a_part_of_a_value_is_found() {
    let (mut net, values) = line(&[4]);
    let other = net.product(&values[..1], KIB);
    net.product(&[values[1], other], KIB);
    net.graph.steps[StepId::new(1)].scratch = KIB;
    for bytes in [0, KIB, 3 * KIB] {
        let over = |plan: &mut MemoryPlan| plan.scratch[StepId::new(1)] = behind(plan, values[1], bytes);
        assert_eq!(fault(&net, over), "step2 reads b1, which was not written or was overwritten", "{bytes}");
        net.graph.steps[StepId::new(1)].reads[0] = values[1];
        assert_eq!(fault(&net, over), "step1 overwrites its operand b1", "{bytes}");
        net.graph.steps[StepId::new(1)].reads[0] = values[0];
    }
}

#[test]
fn a_result_in_the_memory_of_an_operand_of_another_size_is_found() {
    let (mut net, values) = line(&[4]);
    let small = net.step(&values[1..], 2 * KIB, BufferKind::Temporary, true);
    let message = fault(&net, |plan| plan.locations[small] = plan.locations[values[1]]);
    assert_eq!(message, "step1 overwrites its operand b1");
}

/// A pair allows to share memory, and only what it names.
#[test]
fn a_result_in_the_memory_of_an_operand_that_is_not_its_pair_is_found() {
    let (mut net, values) = line(&[4]);
    let [other, pair] = [(); 2].map(|()| net.buffer(4 * KIB, BufferKind::Output));
    step(&mut net, &values[1..], &[other, pair], &[(values[1], pair)]);
    let message = fault(&net, |plan| plan.locations[values[1]] = Location::Buffer(other));
    assert_eq!(message, "step1 overwrites its operand b1");
    let (mut net, values) = line(&[4]);
    let [other, pair] = [(); 2].map(|()| net.buffer(4 * KIB, BufferKind::Temporary));
    step(&mut net, &values[1..], &[other, pair], &[(values[1], pair)]);
    let swapped = |plan: &mut MemoryPlan| plan.locations.swap(other, pair);
    assert_eq!(fault(&net, swapped), "step1 overwrites its operand b1");
}

#[test]
fn outputs_lie_in_their_own_memory() {
    let (mut net, values) = line(&[]);
    let outputs = [(); 2].map(|()| net.step(&values, KIB, BufferKind::Output, false));
    let message = fault(&net, |plan| plan.locations[outputs[0]] = Location::Buffer(outputs[1]));
    assert_eq!(message, "b1 cannot lie in the memory of b2");
    let message = fault(&net, |plan| plan.locations[outputs[0]] = Location::Arena(0));
    assert_eq!(message, "b1 is not a temporary and lies at 0 of the arena");
}

/// A value lies in the memory of an output, which another step writes before the value is read.
#[test]
fn an_output_over_a_value_is_found() {
    let (mut net, values) = line(&[1]);
    let output = net.step(&values[..1], KIB, BufferKind::Output, false);
    net.product(&[values[1]], KIB);
    let message = fault(&net, |plan| plan.locations[values[1]] = Location::Buffer(output));
    assert_eq!(message, "step2 reads b1, which was not written or was overwritten");
    // Written after the output, the value is what is there in the end.
    net.graph.steps.swap(StepId::new(0), StepId::new(1));
    let message = fault(&net, |plan| plan.locations[values[1]] = Location::Buffer(output));
    assert_eq!(message, "the output b2 is not there in the end");
}

#[test]
fn two_results_in_one_place_are_found() {
    let (mut net, values) = line(&[]);
    let results = [(); 2].map(|()| net.buffer(KIB, BufferKind::Temporary));
    step(&mut net, &values, &results, &[]);
    let message = fault(&net, |plan| plan.locations[results[0]] = plan.locations[results[1]]);
    assert_eq!(message, "another result of step0 overlaps b1");
}

#[test]
fn an_output_takes_the_memory_of_one_argument_that_no_other_takes() {
    let mut net = Net::default();
    let arguments = [(); 2].map(|()| net.buffer(KIB, BufferKind::Argument));
    let outputs = [(); 2].map(|()| net.step(&arguments[..1], KIB, BufferKind::Output, false));
    let [first, second] = outputs;
    let give = |pairs: &[(BufferId, BufferId)]| {
        let donation = |&(input, output)| InPlace { step: StepId::new(0), input, output };
        fault(&net, |plan| plan.donations = pairs.iter().map(donation).collect())
    };
    assert_eq!(give(&[(first, second)]), "b2 cannot be donated to b3");
    assert_eq!(give(&[(arguments[0], arguments[1])]), "b0 cannot be donated to b1");
    assert_eq!(give(&[(arguments[1], first), (arguments[1], second)]), "b1 is donated to b3, and one of them twice");
    assert_eq!(give(&[(arguments[0], first), (arguments[1], first)]), "b1 is donated to b2, and one of them twice");
    assert_eq!(give(&[(arguments[0], first)]), "step0 overwrites its operand b0");
    // A temporary of the arena takes no argument.
    let mut net = Net::default();
    let argument = net.buffer(KIB, BufferKind::Argument);
    let value = net.map(&[argument]);
    net.product(&[value], KIB);
    let order: Vec<StepId> = net.graph.steps.indices().collect();
    assert!(plan_memory(&net.graph, &order).is_ok_and(|plan| plan.donations.is_empty()));
}
