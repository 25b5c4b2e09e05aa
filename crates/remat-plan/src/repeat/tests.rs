//! Small graphs about which one rule of the judge of schedules decides alone: live ranges give an order its peak, and the runs of a schedule
//! are a graph of their own. Each rule was taken out of the source once, and a test failed:
//!
//! | where | rule | test |
//! |---|---|---|
//! | live ranges | scratch memory counts, rounded up | `scratch_memory_counts_while_its_step_runs` |
//! | | in place: once, of one size, at the last reader, live as long as the result | `a_result_takes_the_memory_of_an_operand_of_its_size_that_nothing_reads_later` |
//! | | outputs, and what becomes one, are not in the arena | `outputs_and_what_becomes_one_take_no_memory_but_further_copies_do` |
//! | | last use: freed behind it and not before | `a_value_is_live_from_its_step_to_its_last_reader` |
//! | | an argument is for outputs only | `memory::check::tests::an_output_takes_the_memory_of_one_argument_that_no_other_takes` |
//! | runs | scratch memory and places in place of later runs | `scratch_memory_counts_while_its_step_runs`, `a_result_takes_the_memory_of_an_operand_of_its_size_that_nothing_reads_later` |
//! | | outputs: the caller has the first copy, others are temporaries | `outputs_and_what_becomes_one_take_no_memory_but_further_copies_do` |
//! | | last use: of the newest copy, which is computed before | `a_run_reads_the_newest_copy` |
//! | | what must run once, and before tokens are read | `steps_run_once_if_they_must_and_before_their_tokens_are_read` |
//!
//! The tests named without a module are here.

use super::{Expanded, Schedule};
use crate::graph::{BufferKind, BufferNode, Graph};
use crate::ids::{BufferId, StepId};
use crate::memory::check::tests::{KIB, line, step};

/// The peak of the runs of these steps.
fn peak(graph: &Graph, runs: &[usize]) -> usize {
    expanded(graph, runs).judge().peak
}

fn expanded(graph: &Graph, runs: &[usize]) -> Expanded {
    let runs = runs.iter().map(|&run| StepId::new(run)).collect();
    Expanded::new(graph, &Schedule { runs }).unwrap_or_else(|e| panic!("{e}"))
}

/// The message about a schedule that is wrong.
fn error(graph: &Graph, runs: &[usize]) -> String {
    let runs = runs.iter().map(|&run| StepId::new(run)).collect();
    let error = Expanded::new(graph, &Schedule { runs }).expect_err("the schedule is wrong");
    error.message().strip_prefix("the schedule is wrong: ").unwrap_or(error.message()).to_string()
}

#[test]
fn scratch_memory_counts_while_its_step_runs() {
    let (mut net, _) = line(&[1, 2, 3]);
    net.graph.steps[StepId::new(1)].scratch = 3 * KIB + 1;
    assert_eq!(peak(&net.graph, &[0, 1, 2]), (1 + 2 + 3) * KIB + 64);
    // Also when a step runs again: the first value, the last, and the second one once more.
    assert_eq!(peak(&net.graph, &[0, 1, 2, 1]), (1 + 2 + 3) * KIB + 64);
    net.step(&[BufferId::new(3), BufferId::new(2)], 0, BufferKind::Output, false);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 1, 3]), (3 + 1 + 2 + 3) * KIB + 64);
}

#[test]
fn a_value_is_live_from_its_step_to_its_last_reader() {
    let (mut net, values) = line(&[8, 4, 2, 1]);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 3]), 12 * KIB, "freed behind its last reader, and not before");
    net.product(&[values[1]], KIB);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 3, 4]), (8 + 4 + 2) * KIB);
    // What no step reads is live while it is written.
    let (mut net, values) = line(&[1]);
    net.product(&[values[0]], 16 * KIB);
    net.product(&[values[1]], KIB);
    assert_eq!(peak(&net.graph, &[0, 1, 2]), 17 * KIB);
}

#[test]
fn a_run_reads_the_newest_copy() {
    // The first value is read at both ends.
    let (mut net, values) = line(&[8, 4, 4]);
    net.product(&[values[1], values[3]], KIB);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 3]), (8 + 4 + 4) * KIB);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 0, 3]), (4 + 8 + 1) * KIB);
    assert_eq!(error(&net.graph, &[0, 2, 1, 3]), "step2 reads b2, which no run has computed");
    assert_eq!(error(&net.graph, &[0, 1, 2]), "step3 never runs");
    assert_eq!(error(&net.graph, &[0, 1, 2, 3, 4]), "there is no step4");
}

#[test]
fn steps_run_once_if_they_must_and_before_their_tokens_are_read() {
    let (mut net, values) = line(&[1, 1]);
    let token = net.buffer(0, BufferKind::Temporary);
    net.graph.steps[StepId::new(0)].writes.push(token);
    net.graph.steps[StepId::new(1)].runs_once = true;
    step(&mut net, &[values[2], token], &[], &[]);
    assert_eq!(peak(&net.graph, &[0, 1, 0, 2]), 2 * KIB);
    assert_eq!(error(&net.graph, &[0, 1, 1, 2]), "step1 must not run again");
    assert_eq!(error(&net.graph, &[0, 1, 2, 0]), "step0 must not run again");
}

#[test]
fn a_result_takes_the_memory_of_an_operand_of_its_size_that_nothing_reads_later() {
    let (mut net, values) = line(&[4]);
    let value = values[1];
    let result = net.map(&[value]);
    assert_eq!(peak(&net.graph, &[0, 1]), 4 * KIB);
    // Its memory is live as long as the result is, also in a second run.
    let rest = net.product(&[values[0]], 8 * KIB);
    net.product(&[result, rest], KIB);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 3]), (4 + 8 + 1) * KIB);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 0, 1, 3]), (8 + 4 + 1) * KIB);
    net.graph.steps[StepId::new(3)].reads.push(value);
    assert_eq!(peak(&net.graph, &[0, 1, 2, 3]), (4 + 4 + 8 + 1) * KIB);
    // A result of another size, and two results.
    let (mut net, _) = line(&[4]);
    net.step(&[value], 2 * KIB, BufferKind::Temporary, true);
    assert_eq!(peak(&net.graph, &[0, 1]), (4 + 2) * KIB);
    let (mut net, _) = line(&[4]);
    let both = [(); 2].map(|()| net.buffer(4 * KIB, BufferKind::Temporary));
    step(&mut net, &[value], &both, &both.map(|result| (value, result)));
    assert_eq!(peak(&net.graph, &[0, 1]), (4 + 4) * KIB);
}

#[test]
fn outputs_and_what_becomes_one_take_no_memory_but_further_copies_do() {
    let (mut net, values) = line(&[4]);
    let output = net.step(&[values[1]], 4 * KIB, BufferKind::Output, true);
    assert_eq!(peak(&net.graph, &[0, 1]), 0, "the value lies in the output");
    // A second run has a temporary for its copy of the output, and later runs read the first one.
    let last = net.product(&[output], 2 * KIB);
    let graph = &net.graph;
    assert_eq!(peak(graph, &[0, 1, 2, 0, 1]), 4 * KIB);
    let again = expanded(graph, &[0, 1, 0, 1, 2]);
    assert_eq!(again.graph.buffers.last().map(|buffer| buffer.kind), Some(BufferKind::Temporary));
    assert_eq!(again.graph.steps.last().map(|step| step.reads.to_vec()), Some(vec![output]));
    assert_eq!(again.buffer_of.last(), Some(&output));
    assert_eq!(graph.buffers[last], BufferNode { bytes: 2 * KIB, kind: BufferKind::Temporary });
}
