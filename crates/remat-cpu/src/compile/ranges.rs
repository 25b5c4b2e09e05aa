//! When each value of a program is live, for reports.

use std::collections::HashMap;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{LiveKind, LiveRange, LiveValue, Place, Role};
use remat_plan::{BufferId, Location, aligned};

use super::candidate::Ordered;
use super::kernels::Kernels;
use super::report::Stored;
use crate::ids::EqnId;
use crate::program::StepSource;

/// When each value is live: arguments and outputs in their order, also those of no bytes, then temporaries and scratch memory as the steps
/// begin that compute them. `sources` are those of the steps in order.
pub(super) fn ranges(
    kernels: &Kernels<'_>,
    Ordered { order, plan }: &Ordered,
    sources: &[StepSource],
) -> Vec<LiveRange> {
    let (graph, stored) = (kernels.graph(), Stored::new(kernels));
    // The positions after the last step that reads or writes each buffer.
    let mut ends: IndexVec<BufferId, usize> = index_vec![0; graph.buffers.len()];
    for (position, &step) in order.iter().enumerate() {
        let step = &graph.steps[step];
        step.reads.iter().chain(&step.writes).for_each(|&buffer| ends[buffer] = position + 1);
    }
    let of_callers = stored.of_callers();
    let at = 0..order.len();
    let whole = |value: LiveValue| {
        let (at, reserved) = (at.clone(), value.bytes);
        LiveRange { value, at, reserved, place: Place::Own, first: None }
    };
    let mut ranges: Vec<LiveRange> = of_callers.map(whole).collect();
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
        let range = |mut value: LiveValue, first: Option<usize>, end: usize, reserved: usize, place: Place| {
            if first.is_some() || source.loc.role == Role::Recomputed {
                value.loc.role = value.loc.role.max(Role::Recomputed);
            }
            LiveRange { value, at: position..end, reserved, place, first }
        };
        for &buffer in &node.writes {
            let bytes = graph.bytes(buffer);
            if !graph.is_temporary(buffer) || bytes == 0 || std::mem::replace(&mut is_born[buffer], true) {
                continue;
            }
            let (reserved, place) = match plan.locations[buffer] {
                Location::Arena(offset) => (bytes, Place::Arena(offset)),
                Location::Buffer(_) => (0, Place::Shared),
            };
            if let Place::Arena(offset) = place
                && let Some(before) = last_at.insert(offset, ranges.len()).and_then(|before| ranges.get_mut(before))
            {
                // Two values at one offset at a time: the result is computed in place.
                before.at.end = before.at.end.min(position);
            }
            let (value, first) = (stored.value(buffer, LiveKind::Temporary), first(stored.eqn(buffer)));
            ranges.push(range(value, first, ends[buffer], reserved, place));
        }
        if node.scratch > 0 {
            let (value, place) = (stored.scratch(step, node.scratch), Place::Arena(plan.scratch[step]));
            ranges.push(range(value, first(kernels.calls[step].eqn), position + 1, aligned(node.scratch), place));
        }
    }
    ranges
}
