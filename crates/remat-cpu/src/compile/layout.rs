//! The layout of a program in memory: from the plan to the bytes of each operand.

use oxc_index::IndexVec;
use remat_ir::{Error, ErrorKind, Jaxpr, Literal, Result};
use remat_plan::{BufferId, Location, MemoryPlan, StepId, aligned};

use super::buffers::Owner;
use super::candidate::Ordered;
use super::kernels::{BufferSlice, KernelCall, Kernels};
use super::{donation, report};
use crate::ids::ResultId;
use crate::peak::list_bytes;
use crate::program::{CompiledProgram, Memory, ProgramResult, ProgramStep, Span};

/// The program that runs the steps in an order, in the memory of its plan.
///
/// # Errors
/// If an operand is outside of its memory, or a step runs twice. Both are defects that would be undefined behaviour in a run.
pub(super) fn program(
    jaxpr: &Jaxpr,
    kernels: &Kernels<'_>,
    results: &IndexVec<ResultId, ProgramResult>,
    Ordered { order, plan }: &Ordered,
) -> Result<CompiledProgram> {
    let table = |call: &KernelCall| CompiledProgram::table_bytes(call.ins.len(), call.outs.len());
    let table = kernels.calls.iter().map(table).max().unwrap_or(0);
    let (arena, table_offset) =
        if table > 0 { (aligned(plan.arena + table), Some(plan.arena)) } else { (plan.arena, None) };
    let mut spans = Vec::with_capacity(kernels.calls.len());
    for call in &kernels.calls {
        let ins = call.ins.iter().map(|slice| span(kernels, plan, slice)).collect::<Result<Vec<Span>>>()?;
        let outs = call.outs.iter().map(|&out| span(kernels, plan, &whole(kernels, out)));
        spans.push((ins, outs.collect::<Result<Vec<Span>>>()?));
    }
    let Kernels { buffers, calls, .. } = kernels;
    let donated = donation::donated_arguments(kernels, plan);
    let may_share = |input: &Span, out: &Span| match (input.memory, out.memory) {
        (Memory::Argument(argument), Memory::Output(out)) => donated[out] == Some(argument),
        (input_memory, memory) => input_memory == memory && input.offset == out.offset,
    };
    let scratch = |step: StepId, call: &KernelCall| plan.scratch[step]..plan.scratch[step] + call.scratch;
    let has_effect = |call: &KernelCall| call.eqn.is_some_and(|eqn| kernels.steps.eqn(eqn).op.has_effect());
    let steps: IndexVec<StepId, ProgramStep> = calls
        .iter_enumerated()
        .zip(spans)
        .map(|((step, call), (ins, outs))| ProgramStep {
            scratch: scratch(step, call),
            kernel: call.kernel.clone(),
            in_place: call.kernel.in_place().iter().copied().filter(|&(i, k)| may_share(&ins[i], &outs[k])).collect(),
            runs: outs.iter().any(|out: &Span| out.bytes > 0) || has_effect(call),
            ins,
            outs,
        })
        .collect();
    let (ins, outs) = (jaxpr.in_avals(), jaxpr.out_avals());
    Ok(CompiledProgram {
        list_bytes: list_bytes(&ins) + list_bytes(&outs),
        ins: ins.into(),
        results: results.clone(),
        result_avals: outs.into(),
        outputs: buffers.outputs.iter().map(|&buffer| buffers.aval(buffer).clone()).collect(),
        steps: in_order(steps, order)?,
        constants: buffers.constants.iter().map(constant).collect(),
        arena,
        table_offset,
        donated,
        timeline: plan.timeline.clone(),
        at: report::at(kernels, order, plan),
        live: report::live(kernels, plan),
        sources: report::sources(kernels, order),
        ranges: Vec::new(),
    })
}

/// The steps in the order in which they run, each once.
fn in_order<T>(steps: IndexVec<StepId, T>, order: &[StepId]) -> Result<Vec<T>> {
    let count = steps.len();
    let mut left: IndexVec<StepId, Option<T>> = steps.into_iter().map(Some).collect();
    let take = |&step: &StepId| {
        left.get_mut(step).and_then(Option::take).ok_or_else(|| internal(format!("{step} runs twice")))
    };
    let steps = order.iter().map(take).collect::<Result<Vec<T>>>()?;
    if steps.len() == count { Ok(steps) } else { Err(internal(format!("{} of {count} steps run", steps.len()))) }
}

/// All bytes of a buffer.
fn whole(kernels: &Kernels<'_>, buffer: BufferId) -> BufferSlice {
    let aval = kernels.buffers.aval(buffer);
    BufferSlice { buffer, dtype: aval.dtype, offset: 0, bytes: aval.bytes() }
}

/// The location of an operand's bytes.
fn span(kernels: &Kernels<'_>, plan: &MemoryPlan, slice: &BufferSlice) -> Result<Span> {
    let BufferSlice { buffer, dtype, offset, bytes } = *slice;
    let size = kernels.buffers.aval(buffer).bytes();
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        let message = format!("an operand of {bytes} bytes at {offset} is outside of {buffer}, which has {size} bytes");
        return Err(internal(message));
    }
    let (memory, start) = match plan.locations[buffer] {
        Location::Arena(offset) => (Memory::Arena, offset),
        Location::Within { output, offset } => match kernels.buffers.owner(output) {
            Owner::Output(out) if kernels.may_hold(output, buffer) => (Memory::Output(out), offset),
            _ => return Err(internal(format!("{buffer} lies in {output}, which cannot hold it"))),
        },
        Location::Buffer(target) => match kernels.buffers.owner(target) {
            Owner::Argument(argument) => (Memory::Argument(argument), 0),
            Owner::Output(out) => (Memory::Output(out), 0),
            Owner::Constant(constant) => (Memory::Constant(constant), 0),
            Owner::Temporary => return Err(internal(format!("the temporary {target} is not in the arena"))),
        },
    };
    Ok(Span { dtype, bytes, memory, offset: start + offset })
}

/// A constant as eight bytes, its own bytes first.
fn constant(literal: &Literal) -> u64 {
    let mut bytes = [0; 8];
    let bits = literal.bits().to_ne_bytes();
    let width = literal.dtype().size();
    let from = if cfg!(target_endian = "big") { 8 - width } else { 0 };
    bytes[..width].copy_from_slice(&bits[from..from + width]);
    u64::from_ne_bytes(bytes)
}

fn internal(fault: String) -> Error {
    Error::new(ErrorKind::Internal, "compile", fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_are_forgotten_or_run_twice_are_errors() {
        let order = |order: &[usize]| {
            let order: Vec<StepId> = order.iter().copied().map(StepId::new).collect();
            in_order(IndexVec::from_vec(vec!['a', 'b', 'c']), &order).map_err(|error| error.to_string())
        };
        assert_eq!(order(&[2, 0, 1]), Ok(vec!['c', 'a', 'b']));
        assert_eq!(order(&[2, 0]), Err("compile: 2 of 3 steps run".to_string()));
        assert_eq!(order(&[2, 0, 2]), Err("compile: step2 runs twice".to_string()));
    }
}
