//! Exact scheduling of a few neighbouring steps: the best of all their orders.
//!
//! Dynamic programming over the sets of steps that have run, as in Ahn et al. 2020, "Ordering Chaos", on a window of an order that is
//! already good. The values that are live before and after a window do not depend on the order within it.

use oxc_index::IndexVec;
use smallvec::SmallVec;

use super::flow::Flow;
use crate::align::aligned;
use crate::ids::{BufferId, StepId};

/// The most steps of a window: the time grows with the number of their sets, 1024.
pub(super) const WINDOW: usize = 10;

/// A set of steps of the window, one bit each.
type Set = u32;

/// The effect of one step of a window.
struct Move {
    /// The steps of the window whose results it reads.
    after: Set,
    scratch: i64,
    /// The bytes of its results.
    writes: i64,
    /// The buffers that it reads and that die in the window. For each: its weight, the steps of the window that read it, and the bytes of
    /// the results that may take its memory in place.
    frees: SmallVec<[(i64, Set, i64); 4]>,
}

/// How a set of steps was reached: the lowest peak on the way, and the step taken last.
#[derive(Clone, Copy)]
struct Reached {
    peak: i64,
    last: usize,
}

/// The order of these steps with the lowest peak, or `None` if they already have it. They are neighbours in an order in which `position`
/// gives their positions.
pub(super) fn improve(flow: &Flow, window: &[StepId], position: &IndexVec<StepId, u32>) -> Option<Vec<StepId>> {
    let moves: SmallVec<[Move; WINDOW]> = window.iter().map(|&step| movement(flow, step, window, position)).collect();
    let all: Set = (1 << window.len()) - 1;
    let mut reached: Vec<Option<Reached>> = vec![None; all as usize + 1];
    // Live bytes beyond those before the window.
    let mut live = vec![0i64; all as usize + 1];
    reached[0] = Some(Reached { peak: i64::MIN, last: 0 });
    for set in 0..all {
        let Some(Reached { peak, .. }) = reached[set as usize] else { continue };
        for (i, step) in moves.iter().enumerate() {
            if set >> i & 1 == 1 || step.after & !set != 0 {
                continue;
            }
            let next = set | 1 << i;
            let (during, after) = step.run(live[set as usize], next);
            live[next as usize] = after;
            let peak = peak.max(during);
            if reached[next as usize].is_none_or(|best| peak < best.peak) {
                reached[next as usize] = Some(Reached { peak, last: i });
            }
        }
    }
    let (mut given, mut bytes) = (i64::MIN, 0);
    for (i, step) in moves.iter().enumerate() {
        let (during, after) = step.run(bytes, (2 << i) - 1);
        (given, bytes) = (given.max(during), after);
    }
    reached[all as usize].filter(|best| best.peak < given)?;
    let mut order = Vec::with_capacity(window.len());
    let mut set = all;
    while let Some(Reached { last, .. }) = reached[set as usize].filter(|_| set != 0) {
        order.push(window[last]);
        set &= !(1 << last);
    }
    order.reverse();
    Some(order)
}

impl Move {
    /// The live bytes while the step runs and after it, given `live` bytes before. `set` is the set of steps that have run when it ends.
    fn run(&self, live: i64, set: Set) -> (i64, i64) {
        let dying = self.frees.iter().filter(|(_, readers, _)| readers & !set == 0);
        let (freed, in_place) = dying.fold((0, 0), |sum, d| (sum.0 + d.0, sum.1 + d.2));
        let after = live + self.writes - freed;
        (live + self.writes - in_place.min(self.writes) + self.scratch, after)
    }
}

fn movement(flow: &Flow, number: StepId, window: &[StepId], position: &IndexVec<StepId, u32>) -> Move {
    let start = position[window[0]];
    // The position in the window. Steps after the window are beyond its end, and so are steps before it, by wrapping around.
    let within = |step: StepId| position[step].wrapping_sub(start) as usize;
    let step = &flow.graph.steps[number];
    let mut after = 0;
    let mut frees = SmallVec::new();
    for &buffer in &step.reads {
        let writer = flow.writer(buffer).map(within);
        if let Some(i) = writer.filter(|&i| i < window.len()) {
            after |= 1 << i;
        }
        let readers = flow.readers(buffer);
        let ends = readers.iter().all(|&reader| position[reader] < start + window.len() as u32);
        if flow.weight[buffer] > 0 && ends {
            let inside = readers.iter().map(|&reader| within(reader)).filter(|&i| i < window.len());
            let fits = |&&(input, output): &&(BufferId, BufferId)| {
                input == buffer && flow.graph.buffers[output].bytes == flow.graph.buffers[input].bytes
            };
            let taken = step.in_place.iter().find(fits).map_or(0, |&(_, output)| flow.weight[output]);
            frees.push((flow.weight[buffer], inside.fold(0, |set, i| set | 1 << i), taken));
        }
    }
    let writes = step.writes.iter().map(|&b| flow.weight[b]).sum();
    Move { after, scratch: aligned(step.scratch) as i64, writes, frees }
}
