//! When each value of a program is live, for reports.

use std::collections::HashMap;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Call, Eqn, LiveKind, LiveRange, LiveValue, Occurrence, Op, Place, Role};
use remat_plan::{BufferId, Location, aligned};

use super::candidate::Ordered;
use super::kernels::Kernels;
use super::numbers::numbers;
use super::report::Stored;
use crate::ids::EqnId;
use crate::program::StepSource;
use crate::steps::Step;

/// When each value is live: arguments and outputs in their order, also those of no bytes, then temporaries and scratch memory as the steps
/// begin that compute them. `sources` are those of the steps in order.
pub(super) fn ranges(
    kernels: &Kernels<'_>,
    Ordered { order, plan }: &Ordered,
    sources: &[StepSource],
) -> Vec<LiveRange> {
    let (graph, stored) = (kernels.graph(), Stored::new(kernels));
    let (of_vars, mut unused) = numbers(&kernels.steps);
    let mut of_buffers: IndexVec<BufferId, Option<usize>> = index_vec![None; graph.buffers.len()];
    for (var, buffer) in kernels.buffers.owners() {
        of_buffers[buffer] = of_vars.get(var).copied().flatten();
    }
    let mut layers: HashMap<BufferId, Occurrence> = HashMap::new();
    for step in &kernels.steps.steps {
        let Step::Equation { eqn, outs, .. } = step else { continue };
        for (result, &out) in outs.iter().enumerate() {
            layers.extend(kernels.buffers.of_var(out).zip(inside(kernels.steps.eqn(*eqn), result)));
        }
    }
    let stored_value = |buffer: BufferId| {
        let mut value = stored.value(buffer, LiveKind::Temporary);
        value.loc.occurrence = layers.get(&buffer).copied().unwrap_or(value.loc.occurrence);
        value
    };
    // What is not a value of the program has a number of its own.
    let mut number = |buffer: Option<BufferId>| {
        buffer.and_then(|buffer| *of_buffers.get(buffer)?).unwrap_or_else(|| {
            unused += 1;
            unused - 1
        })
    };
    // The positions after the last step that reads or writes each buffer.
    let mut ends: IndexVec<BufferId, usize> = index_vec![0; graph.buffers.len()];
    for (position, &step) in order.iter().enumerate() {
        let step = &graph.steps[step];
        step.reads.iter().chain(&step.writes).for_each(|&buffer| ends[buffer] = position + 1);
    }
    let of_callers = kernels.buffers.arguments.iter().chain(kernels.buffers.outputs.iter());
    let at = 0..order.len();
    let whole = |(value, &buffer): (LiveValue, &BufferId)| {
        let (at, reserved) = (at.clone(), value.bytes);
        LiveRange { value, at, reserved, place: Place::Own, first: None, number: number(Some(buffer)) }
    };
    let mut ranges: Vec<LiveRange> = stored.of_callers().zip(of_callers).map(whole).collect();
    let mut is_born: IndexVec<BufferId, bool> = index_vec![false; graph.buffers.len()];
    // The position at which each equation first runs.
    let mut first_run: HashMap<EqnId, usize> = HashMap::new();
    // The last value at each offset of the arena.
    let mut last_at: HashMap<usize, usize> = HashMap::new();
    for (position, (&step, source)) in order.iter().zip(sources).enumerate() {
        let node = &graph.steps[step];
        let mut first = |eqn: Option<EqnId>| {
            let first = *first_run.entry(eqn?).or_insert(position);
            (first < position).then_some(first)
        };
        let range =
            |mut value: LiveValue, first: Option<usize>, end: usize, (reserved, place): (usize, Place), number| {
                if first.is_some() || source.loc.role == Role::Recomputed {
                    value.loc.role = value.loc.role.max(Role::Recomputed);
                }
                LiveRange { value, at: position..end, reserved, place, first, number }
            };
        for &buffer in &node.writes {
            let bytes = graph.bytes(buffer);
            if !graph.is_temporary(buffer) || bytes == 0 || std::mem::replace(&mut is_born[buffer], true) {
                continue;
            }
            let (reserved, place) = match plan.locations[buffer] {
                Location::Arena(offset) => (bytes, Place::Arena(offset)),
                Location::Buffer(_) | Location::Within { .. } => (0, Place::Shared),
            };
            if let Place::Arena(offset) = place
                && let Some(before) = last_at.insert(offset, ranges.len()).and_then(|before| ranges.get_mut(before))
            {
                // Two values at one offset at a time: the result is computed in place.
                before.at.end = before.at.end.min(position);
            }
            let (value, first) = (stored_value(buffer), first(stored.eqn(buffer)));
            ranges.push(range(value, first, ends[buffer], (reserved, place), number(Some(buffer))));
        }
        if node.scratch > 0 {
            let (mut offset, mut bytes, mut rest) = (plan.scratch[step], node.scratch, aligned(node.scratch));
            let first = first(kernels.calls[step].eqn);
            // The body of a loop has values of its own there.
            for value in kernels.calls[step].kernel.live() {
                let reserved = value.bytes.min(bytes);
                ranges.push(range(value.clone(), None, position + 1, (reserved, Place::Arena(offset)), number(None)));
                (offset, bytes, rest) = (offset + reserved, bytes - reserved, rest - reserved);
            }
            if bytes > 0 {
                let memory = (rest, Place::Arena(offset));
                ranges.push(range(stored.scratch(step, bytes), first, position + 1, memory, number(None)));
            } else if let Some(last) = ranges.last_mut() {
                last.reserved += rest;
            }
        }
    }
    ranges
}

/// The scope in which the body of a loop computes this result of it, such as the layer that a stack of residuals comes from.
fn inside(eqn: &Eqn, result: usize) -> Option<Occurrence> {
    let Op::Call(Call::Scan(op)) = &eqn.op else { return None };
    let var = op.jaxpr.outs.get(result)?.var()?;
    let maker = op.jaxpr.eqns.iter().find(|eqn| eqn.outs.contains(&var))?;
    let position = maker.outs.iter().position(|&out| out == var)?;
    let of = inside(maker, position).unwrap_or(maker.loc.occurrence);
    (of != Occurrence::NONE).then_some(of)
}
