//! A graph as the search sees it: steps by their place in the order, the values that they exchange, and the gaps between readers.

use super::state::Hold;
use oxc_index::{IndexVec, index_vec};

use crate::align::aligned;
use crate::graph::{BufferKind, Graph};
use crate::ids::{BufferId, StepId};
use crate::outputs::in_outputs;

/// The steps in an order. Steps, values and gaps have numbers; a step's number is its place in the order.
pub(crate) struct Problem {
    pub(crate) steps: Vec<Step>,
    pub(crate) values: Vec<Value>,
    pub(crate) gaps: Vec<Gap>,
    /// The ends of the gaps, which are looked at more often than all else: those of a value are in one line of the cache.
    ends: Vec<u32>,
    /// The step at each place.
    pub(crate) order: Vec<StepId>,
    /// The sum of all costs, in picoseconds.
    pub(crate) time: u128,
}

/// A step.
pub(crate) struct Step {
    /// The temporaries that it reads and writes.
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    /// Pairs of temporaries of equal bytes that may share memory.
    pub(crate) in_place: Vec<(u32, u32)>,
    /// Bytes that it needs while it runs.
    pub(crate) scratch: i64,
    /// Bytes of its outputs, which need memory of their own if it runs again.
    pub(crate) outputs: i64,
    pub(crate) cost: u64,
    /// The last place at which it may run.
    pub(crate) until: u32,
    /// The values of which a gap ends here though the step does not read them.
    pub(crate) passes: Vec<u32>,
}

/// A temporary.
pub(crate) struct Value {
    /// The bytes that it adds to the arena.
    pub(crate) bytes: i64,
    /// The bytes that a copy needs that nothing reads.
    pub(crate) unused: i64,
    pub(crate) producer: u32,
    /// Its gaps: from this number on, this many.
    first: u32,
    count: u32,
}

/// The places between two consecutive readers of a value, or between the step that computes it and its first reader.
///
/// A value may also stay behind its last reader, for those that are computed from it and are computed again. The gaps there end where values
/// that are computed from it are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) value: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Whether it lies behind the last reader.
    pub(crate) is_behind: bool,
}

/// The most gaps behind the last reader of a value.
const BEHIND: usize = 6;

/// Up to this many gaps of a value are compared at once, which takes less time than to search among them.
const FEW: usize = 16;

impl Problem {
    /// The steps of a graph in this order.
    pub(crate) fn new(graph: &Graph, order: &[StepId]) -> Problem {
        let mut value_of: IndexVec<BufferId, Option<u32>> = index_vec![None; graph.buffers.len()];
        let mut values: Vec<Value> = Vec::new();
        let mut readers: Vec<Vec<u32>> = Vec::new();
        let mut tokens: Vec<u32> = Vec::new();
        let in_outputs = without_copies(graph, in_outputs(graph));
        for (place, &number) in order.iter().enumerate() {
            for &buffer in &graph.steps[number].writes {
                if graph.is_temporary(buffer) {
                    value_of[buffer] = Some(values.len() as u32);
                    if graph.buffers[buffer].bytes == 0 {
                        tokens.push(values.len() as u32);
                    }
                    let unused = graph.bytes(buffer) as i64;
                    let bytes = if in_outputs[buffer] { 0 } else { unused };
                    values.push(Value { bytes, unused, producer: place as u32, first: 0, count: 0 });
                    readers.push(Vec::new());
                }
            }
        }
        let value = |buffer: &BufferId| value_of[*buffer];
        let mut steps: Vec<Step> = Vec::with_capacity(order.len());
        for (place, &number) in order.iter().enumerate() {
            let step = &graph.steps[number];
            let reads: Vec<u32> = step.reads.iter().filter_map(value).collect();
            reads.iter().for_each(|&read| readers[read as usize].push(place as u32));
            let outputs = step.writes.iter().filter(|&&b| graph.buffers[b].kind == BufferKind::Output);
            let pair = |&(input, output): &(BufferId, BufferId)| {
                let fits = graph.buffers[input].bytes == graph.buffers[output].bytes;
                let (input, output) = (value_of[input]?, value_of[output]?);
                // What lies in the memory of an output from the beginning has none to give.
                let is_counted = values[input as usize].bytes > 0 && values[output as usize].bytes > 0;
                (fits && is_counted).then_some((input, output))
            };
            steps.push(Step {
                reads,
                writes: step.writes.iter().filter_map(value).collect(),
                in_place: step.in_place.iter().filter_map(pair).collect(),
                scratch: aligned(step.scratch) as i64,
                outputs: outputs.map(|&b| graph.bytes(b) as i64).sum(),
                cost: step.cost,
                until: if step.runs_once { place as u32 } else { u32::MAX },
                passes: Vec::new(),
            });
        }
        // A step that waits for a token may overwrite what the step before the token reads.
        for token in tokens {
            let step = &mut steps[values[token as usize].producer as usize];
            step.until = readers[token as usize].iter().fold(step.until, |until, &reader| until.min(reader));
        }
        let mut gaps = Vec::new();
        for number in 0..values.len() {
            let value = &mut values[number];
            value.first = gaps.len() as u32;
            let mut from = value.producer;
            let behind = places_behind(number, &steps, &readers);
            let ends = readers[number].iter().map(|&to| (to, false)).chain(behind.iter().map(|&to| (to, true)));
            for (to, is_behind) in ends {
                gaps.push(Gap { value: number as u32, from, to, is_behind });
                from = to;
            }
            value.count = gaps.len() as u32 - value.first;
            for place in behind {
                steps[place as usize].passes.push(number as u32);
            }
        }
        let time = steps.iter().map(|step| u128::from(step.cost)).sum();
        let ends = gaps.iter().map(|gap: &Gap| gap.to).collect();
        Problem { steps, values, gaps, ends, order: order.to_vec(), time }
    }

    /// The decisions with which each step runs once.
    pub(crate) fn keep_all(&self) -> Vec<Hold> {
        self.gaps.iter().map(|gap| if gap.is_behind { Hold::Drop } else { Hold::Keep }).collect()
    }

    /// The gap of a value that begins at or before a stage and ends behind it.
    pub(crate) fn gap_after(&self, value: u32, stage: u32) -> Option<u32> {
        let Value { first, count, producer, .. } = self.values[value as usize];
        if stage < producer {
            return None;
        }
        let ends = &self.ends[first as usize..(first + count) as usize];
        let at = match ends.len() {
            0..=FEW => ends.iter().filter(|&&end| end <= stage).count(),
            _ => ends.partition_point(|&end| end <= stage),
        };
        (at < ends.len()).then_some(first + at as u32)
    }

    /// The gap of a value that begins before a stage and ends at it or behind it.
    pub(crate) fn gap_before(&self, value: u32, stage: u32) -> Option<u32> {
        stage.checked_sub(1).and_then(|before| self.gap_after(value, before))
    }

    /// The gaps of a value.
    pub(crate) fn gaps_of(&self, value: u32) -> std::ops::Range<u32> {
        let Value { first, count, .. } = self.values[value as usize];
        first..first + count
    }
}

/// Those of some temporaries in the memory of outputs whose reader never runs again, since all its results are outputs or lie in them.
fn without_copies(graph: &Graph, in_outputs: IndexVec<BufferId, bool>) -> IndexVec<BufferId, bool> {
    let is_in = |buffer: BufferId| in_outputs[buffer] || graph.buffers[buffer].kind == BufferKind::Output;
    let mut is_certain = in_outputs.clone();
    for step in graph.steps.iter().filter(|step| !step.writes.iter().all(|&write| is_in(write))) {
        step.reads.iter().for_each(|&read| is_certain[read] = false);
    }
    is_certain
}

/// The first places behind the last reader of a value at which values are read that are computed from it in one step or two.
fn places_behind(value: usize, steps: &[Step], readers: &[Vec<u32>]) -> Vec<u32> {
    let Some(&last) = readers[value].last() else { return Vec::new() };
    let from = |value: u32| readers[value as usize].iter().flat_map(|&place| &steps[place as usize].writes).copied();
    let next_reader = |value: u32| readers[value as usize].iter().copied().find(|&place| place > last);
    let mut places: Vec<u32> = Vec::new();
    for near in from(value as u32).take(BEHIND) {
        places.extend(next_reader(near));
        places.extend(from(near).take(BEHIND).filter_map(next_reader));
    }
    places.sort_unstable();
    places.dedup();
    places.truncate(BEHIND);
    places
}
