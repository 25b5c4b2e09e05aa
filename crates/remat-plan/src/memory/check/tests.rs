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
//! | temporaries lie inside of an output that is not yet written | `temporaries_outside_of_the_output_that_holds_them_are_found`, `what_an_output_holds_when_it_is_written_is_lost` |
//! | what lies in an output overlaps nothing there | `temporaries_in_one_place_of_an_output_are_found` |
//! | an output that holds temporaries takes no argument | `an_output_that_holds_a_temporary_takes_no_argument` |
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
        Location::Buffer(_) | Location::Within { .. } => panic!("a temporary of the arena"),
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

/// Two temporaries of 2 KiB, a third computed from them, and an output of 4 KiB computed from that.
fn held() -> (Net, [BufferId; 2], BufferId) {
    let (mut net, values) = line(&[]);
    let pair = [(); 2].map(|()| net.product(&values, 2 * KIB));
    let third = net.product(&pair, KIB);
    let output = net.step(&[third], 4 * KIB, BufferKind::Output, false);
    (net, pair, output)
}

/// The checker's message if the first of the two lies there.
fn fault_within(offset: usize, change: impl FnOnce(&mut Net, [BufferId; 2], BufferId)) -> String {
    let (mut net, pair, output) = held();
    change(&mut net, pair, output);
    fault(&net, |plan| plan.locations[pair[0]] = Location::Within { output, offset })
}

#[test]
fn temporaries_outside_of_the_output_that_holds_them_are_found() {
    let (net, [a, b], output) = held();
    let at = |offsets: [usize; 2]| {
        let order: Vec<StepId> = net.graph.steps.indices().collect();
        let mut plan = plan_memory(&net.graph, &order).unwrap_or_else(|e| panic!("{e}"));
        plan.locations[a] = Location::Within { output, offset: offsets[0] };
        plan.locations[b] = Location::Within { output, offset: offsets[1] };
        check(&net.graph, &order, &plan)
    };
    assert!(at([0, 2 * KIB]).is_ok() && at([2 * KIB, 0]).is_ok());
    for offset in [2 * KIB + 64, 32, usize::MAX - 63] {
        let message = fault_within(offset, |_, _, _| {});
        assert_eq!(message, format!("b1 of 2048 bytes at {offset} is outside of b4"));
    }
    // Only outputs hold others, and only temporaries lie in them.
    for target in [0, 3, 70] {
        let message = fault(&net, |plan| {
            plan.locations[a] = Location::Within { output: BufferId::new(target), offset: 0 };
        });
        assert_eq!(message, format!("b1 cannot lie in the memory of b{target}"));
    }
    let message = fault(&net, |plan| plan.locations[output] = Location::Within { output, offset: 0 });
    assert_eq!(message, "b4 cannot lie in the memory of b4");
}

#[test]
fn temporaries_in_one_place_of_an_output_are_found() {
    let (net, pair, output) = held();
    for offset in [0, 64, KIB] {
        let both = |plan: &mut MemoryPlan| {
            plan.locations[pair[0]] = Location::Within { output, offset: KIB };
            plan.locations[pair[1]] = Location::Within { output, offset };
        };
        assert_eq!(fault(&net, both), "step2 reads b1, which was not written or was overwritten", "{offset}");
    }
}

#[test]
fn what_an_output_holds_when_it_is_written_is_lost() {
    for offset in [0, 2 * KIB] {
        let read_after = |net: &mut Net, [a, _]: [BufferId; 2], _| {
            net.product(&[a], KIB);
        };
        let message = "step4 reads b1, which was not written or was overwritten";
        assert_eq!(fault_within(offset, read_after), message, "{offset}");
        let read_by_it = |net: &mut Net, [a, _]: [BufferId; 2], _| net.graph.steps[StepId::new(3)].reads.push(a);
        assert_eq!(fault_within(offset, read_by_it), "step3 overwrites its operand b1", "{offset}");
        // Written after the output.
        let (mut net, values) = line(&[]);
        let output = net.step(&values, 4 * KIB, BufferKind::Output, false);
        let late = net.product(&values, 2 * KIB);
        let message = fault(&net, |plan| plan.locations[late] = Location::Within { output, offset });
        assert_eq!(message, "the output b1 is not there in the end", "{offset}");
    }
    // A temporary that becomes the output in place writes it too.
    let (mut net, values) = line(&[4, 4]);
    let output = net.step(&values[2..], 4 * KIB, BufferKind::Output, true);
    let message = fault(&net, |plan| plan.locations[values[1]] = Location::Within { output, offset: 0 });
    assert_eq!(message, "step1 overwrites its operand b1");
}

#[test]
fn an_output_that_holds_a_temporary_takes_no_argument() {
    let (mut net, values) = line(&[2, 1]);
    let argument = net.buffer(4 * KIB, BufferKind::Argument);
    let output = net.step(&[argument, values[2]], 4 * KIB, BufferKind::Output, true);
    for offset in [0, 2 * KIB] {
        let message = fault(&net, |plan| {
            assert_eq!(plan.donations.len(), 1);
            plan.locations[values[1]] = Location::Within { output, offset };
        });
        assert_eq!(message, "step2 reads b3, which was not written or was overwritten");
    }
}
