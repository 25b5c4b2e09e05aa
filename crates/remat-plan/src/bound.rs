//! A lower bound of the time of every schedule within a limit.
//!
//! When a step runs for the first time, each value that an earlier step has computed and a later one reads is either in memory or is
//! computed again later. So the bytes above the limit at that place have to go, at the least price at which they can: a knapsack, whose
//! fractional solution (Dantzig 1957) is a lower bound. The bound of a program is the largest of its places.
//!
//! Until a step writes an output, a value may lie in its memory from which the output is computed in place. Which one that is depends on the
//! schedule, so from the first of them on the bytes of the output count as free. Where outputs hold any temporaries before they are written
//! ([`MemoryPlan::within_outputs`](crate::MemoryPlan::within_outputs)), they count as free from the first step on.

use std::cmp::Reverse;

use oxc_index::{IndexVec, index_vec};

use crate::align::aligned;
use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::{BufferId, StepId};

/// The most steps that are looked at in all places together. The places that exceed the limit by most come first, and with some thousand
/// steps all of them are reached.
const VISITS: usize = 1 << 24;

/// A lower bound of the time, in picoseconds, that recomputed steps take in any schedule whose steps first run in this order and in which
/// at most `limit` bytes are live at one time. Even the fastest schedule may take more. The order has each step of the graph once.
///
/// ```
/// use remat_plan::{bound, examples::chain};
/// let mut graph = chain(12, None, 1024);
/// graph.steps.iter_mut().for_each(|step| step.cost = 1000);
/// let order: Vec<_> = graph.steps.indices().collect();
/// assert_eq!(bound(&graph, &order, usize::MAX), 0);
/// assert_eq!(bound(&graph, &order, 5 * 1024), 6000);
/// ```
///
/// # Panics
/// If the order has a step that the graph does not have.
pub fn bound(graph: &Graph, order: &[StepId], limit: usize) -> u64 {
    bound_at(&Places::new(graph, order, &|_| false), limit)
}

/// As [`bound`], of schedules in which `limit` is that of the arena, and temporaries may also lie in those outputs that `may_hold` some, until
/// a step writes them.
///
/// ```
/// use remat_plan::{bound, bound_within_outputs, examples::chain};
/// let mut graph = chain(12, None, 1024);
/// graph.steps.iter_mut().for_each(|step| step.cost = 1000);
/// let order: Vec<_> = graph.steps.indices().collect();
/// assert!(bound_within_outputs(&graph, &order, 5 * 1024, |_| true) <= bound(&graph, &order, 5 * 1024));
/// ```
///
/// # Panics
/// If the order has a step that the graph does not have.
pub fn bound_within_outputs(graph: &Graph, order: &[StepId], limit: usize, may_hold: impl Fn(BufferId) -> bool) -> u64 {
    bound_at(&Places::new(graph, order, &may_hold), limit)
}

fn bound_at(places: &Places<'_>, limit: usize) -> u64 {
    let mut over = places.over(limit);
    over.sort_unstable_by_key(|&(bytes, place)| (Reverse(bytes), place));
    let (mut most, mut visits) = (0, 0);
    for (bytes, place) in over {
        visits += place + 1;
        most = most.max(knapsack(places.items(place), bytes));
        if visits > VISITS {
            break;
        }
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

/// The bytes that a step needs while it runs, whatever else is in memory: of these temporaries those that it reads, those that it writes and
/// that cannot lie in the memory of an operand, and its scratch memory.
fn needs(graph: &Graph, step: &StepNode, counts: impl Fn(BufferId) -> bool) -> u128 {
    let bytes = |buffer: BufferId| graph.bytes(buffer) as u128;
    let counts = |&buffer: &BufferId| graph.is_temporary(buffer) && counts(buffer);
    let is_in_place = |result: BufferId| in_place(graph, step).any(|(_, output)| output == result);
    let reads: u128 = step.reads.iter().copied().filter(counts).map(bytes).sum();
    let writes: u128 = step.writes.iter().copied().filter(counts).filter(|&b| !is_in_place(b)).map(bytes).sum();
    reads + writes + aligned(step.scratch) as u128
}

/// The step that needs the most bytes by itself, whatever else is in memory and whichever values lie in the memory of outputs. `None` if the
/// graph has no steps.
pub(crate) fn largest_step(graph: &Graph) -> Option<(usize, StepId)> {
    let mut may_be_output: IndexVec<BufferId, bool> =
        graph.buffers.iter().map(|buffer| buffer.kind == BufferKind::Output).collect();
    for step in graph.steps.iter().rev() {
        for (input, output) in in_place(graph, step) {
            may_be_output[input] |= may_be_output[output];
        }
    }
    let all = graph.steps.iter_enumerated().map(|(number, step)| (needs(graph, step, |b| !may_be_output[b]), number));
    let (bytes, number) = all.max_by_key(|&(bytes, number)| (bytes, Reverse(number)))?;
    Some((usize::try_from(bytes).unwrap_or(usize::MAX), number))
}

/// The pairs of a temporary and a result that can lie in its memory.
fn in_place<'g>(graph: &'g Graph, step: &'g StepNode) -> impl Iterator<Item = (BufferId, BufferId)> + 'g {
    let fits = |input: BufferId, output: BufferId| graph.buffers[input].bytes == graph.buffers[output].bytes;
    step.in_place.iter().copied().filter(move |&(input, output)| graph.is_temporary(input) && fits(input, output))
}

/// The places of an order, and between which of them each temporary waits.
struct Places<'g> {
    graph: &'g Graph,
    order: &'g [StepId],
    /// The last place at which each buffer is read, or 0.
    last: IndexVec<BufferId, usize>,
    /// Whether an output holds temporaries before it is written.
    may_hold: &'g dyn Fn(BufferId) -> bool,
}

impl<'g> Places<'g> {
    fn new(graph: &'g Graph, order: &'g [StepId], may_hold: &'g dyn Fn(BufferId) -> bool) -> Places<'g> {
        let mut last: IndexVec<BufferId, usize> = index_vec![0; graph.buffers.len()];
        for (place, &step) in order.iter().enumerate() {
            graph.steps[step].reads.iter().for_each(|&buffer| last[buffer] = place);
        }
        Places { graph, order, last, may_hold }
    }

    /// The bytes above the limit that have to go at each place where some have to, with the place.
    fn over(&self, limit: usize) -> Vec<(u128, usize)> {
        let graph = self.graph;
        let count = self.order.len();
        // What is written before a place and read behind it; and what outputs have room for.
        let (mut waiting, mut free) = (Changes::new(count), Changes::new(count));
        // The first place at which a value is computed from which each buffer may be computed in place.
        let at_first = |(buffer, node): (BufferId, &BufferNode)| match node.kind {
            BufferKind::Output if (self.may_hold)(buffer) => 0,
            _ => usize::MAX,
        };
        let mut since: IndexVec<BufferId, usize> = graph.buffers.iter_enumerated().map(at_first).collect();
        for (place, &number) in self.order.iter().enumerate() {
            let step = &graph.steps[number];
            for (input, output) in in_place(graph, step) {
                since[output] = since[output].min(since[input]);
            }
            for &buffer in &step.writes {
                match graph.buffers[buffer].kind {
                    BufferKind::Temporary => {
                        since[buffer] = since[buffer].min(place);
                        waiting.add(place + 1, self.last[buffer], graph.bytes(buffer));
                    }
                    BufferKind::Output if since[buffer] < usize::MAX => {
                        free.add(since[buffer], place + 1, graph.bytes(buffer));
                    }
                    _ => {}
                }
            }
        }
        let (waiting, free) = (waiting.sums(), free.sums());
        let over = |(place, &number): (usize, &StepId)| {
            let step = &graph.steps[number];
            let again = step.reads.iter().filter(|&&read| graph.is_temporary(read) && self.last[read] > place);
            let again: u128 = again.map(|&read| graph.bytes(read) as u128).sum();
            let needed = waiting[place].saturating_sub(again) + needs(graph, step, |_| true);
            let bytes = needed.saturating_sub(free[place] + limit as u128);
            (bytes > 0).then_some((bytes, place))
        };
        self.order.iter().enumerate().filter_map(over).collect()
    }

    /// What waits across a place: for each step that may run again, its cost and the bytes of its results that the place does not read.
    fn items(&self, place: usize) -> Vec<(u64, u128)> {
        let graph = self.graph;
        let reads = &graph.steps[self.order[place]].reads;
        let item = |&number: &StepId| {
            let step = &graph.steps[number];
            let waits = |&&b: &&BufferId| graph.is_temporary(b) && self.last[b] > place && !reads.contains(&b);
            let bytes: u128 = step.writes.iter().filter(waits).map(|&buffer| graph.bytes(buffer) as u128).sum();
            (bytes > 0 && !step.runs_once).then_some((step.cost, bytes))
        };
        self.order[..place].iter().filter_map(item).collect()
    }
}

/// Bytes that are there for a range of places, as changes at its ends.
struct Changes(Vec<(u128, u128)>);

impl Changes {
    fn new(places: usize) -> Changes {
        Changes(vec![(0, 0); places + 1])
    }

    /// Adds bytes from a place on to before another.
    fn add(&mut self, from: usize, to: usize, bytes: usize) {
        if from < to {
            self.0[from].0 += bytes as u128;
            self.0[to].1 += bytes as u128;
        }
    }

    /// The bytes at each place.
    fn sums(self) -> Vec<u128> {
        let mut sum = 0;
        let at = |(more, less): (u128, u128)| {
            sum = sum + more - less;
            sum
        };
        self.0.into_iter().map(at).collect()
    }
}

/// The least price of this many bytes of items, of which a part may be taken. Prices are whole, so that it is rounded up.
fn knapsack(mut items: Vec<(u64, u128)>, mut bytes: u128) -> u128 {
    items.sort_unstable_by(|a, b| (u128::from(a.0) * b.1).cmp(&(u128::from(b.0) * a.1)));
    let mut price = 0;
    for (cost, of) in items {
        if of > bytes {
            return price + (u128::from(cost) * bytes).div_ceil(of);
        }
        price += u128::from(cost);
        bytes -= of;
    }
    price
}
