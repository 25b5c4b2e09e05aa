//! List scheduling: among the steps that can run next it prefers one that frees memory, and otherwise the next of a given order.
//!
//! Plain list scheduling by freed memory, as in XLA's `ListMemoryScheduler`, strays from a good order. Among steps that all take memory it
//! prefers a small one far away to the large one that is next. So it starts to recompute a later layer, or leaves a cheap gradient to the
//! end and keeps its operands in memory. Here only steps that free memory (or take none) leave their position. Scheduling forward then
//! computes a weight's gradient as soon as that is the last use of its operands; scheduling backward computes each value as late as
//! possible, so that recomputation comes just before its first use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use oxc_index::{IndexVec, index_vec};

use super::flow::Flow;
use crate::ids::{BufferId, StepId};

/// Steps that can be taken next.
struct Ready<'a> {
    /// The position of each step in the given order, counted from the end at which scheduling begins.
    rank: &'a IndexVec<StepId, u32>,
    /// A step that adds no more than this to the live bytes is taken at once.
    most: i64,
    taken: Vec<bool>,
    /// All steps that can be taken, the first of the given order on top.
    all: BinaryHeap<Reverse<u32>>,
    /// The steps to take at once, with the bytes that they add, the least on top.
    eager: BinaryHeap<Reverse<(i64, u32)>>,
}

impl<'a> Ready<'a> {
    fn new(rank: &'a IndexVec<StepId, u32>, most: i64) -> Ready<'a> {
        let taken = vec![false; rank.len()];
        Ready { rank, most, taken, all: BinaryHeap::new(), eager: BinaryHeap::new() }
    }

    /// Adds a step that can be taken and adds this many bytes.
    fn add(&mut self, step: StepId, adds: i64) {
        self.all.push(Reverse(self.rank[step]));
        self.update(step, adds);
    }

    /// Notes that a ready step adds fewer bytes than before. Its older entry stays and is skipped when it comes up.
    fn update(&mut self, step: StepId, adds: i64) {
        if adds <= self.most {
            self.eager.push(Reverse((adds, self.rank[step])));
        }
    }

    /// The rank of the step to take.
    fn pop(&mut self) -> Option<usize> {
        while let Some(Reverse((_, rank))) = self.eager.pop() {
            if !std::mem::replace(&mut self.taken[rank as usize], true) {
                return Some(rank as usize);
            }
        }
        while let Some(Reverse(rank)) = self.all.pop() {
            if !std::mem::replace(&mut self.taken[rank as usize], true) {
                return Some(rank as usize);
            }
        }
        None
    }
}

/// Schedules from the first step to the last. A step that adds at most `most` bytes is taken as soon as it can run; the others are taken in
/// the given order.
pub(super) fn forward(flow: &Flow, order: &[StepId], most: i64) -> Vec<StepId> {
    let graph = flow.graph;
    let mut rank = index_vec![0u32; order.len()];
    order.iter().enumerate().for_each(|(i, &step)| rank[step] = i as u32);
    // The number of remaining readers of each buffer, and their exclusive or, which is the last reader once one is left.
    let buffers = || graph.buffers.indices();
    let mut count: IndexVec<BufferId, u32> = buffers().map(|b| flow.readers(b).len() as u32).collect();
    let mut last: IndexVec<BufferId, u32> =
        buffers().map(|b| flow.readers(b).iter().fold(0, |all, &step| all ^ step.raw())).collect();
    let mut adds = index_vec![0i64; order.len()];
    let mut waits = index_vec![0u32; order.len()];
    for (number, step) in graph.steps.iter_enumerated() {
        let dies = step.reads.iter().filter(|&&b| count[b] == 1);
        let freed: i64 = dies.map(|&b| flow.weight[b]).sum();
        adds[number] = step.writes.iter().map(|&b| flow.weight[b]).sum::<i64>() - freed;
        waits[number] = flow.inputs(number).count() as u32;
    }
    let mut ready = Ready::new(&rank, most);
    graph.steps.indices().filter(|&s| waits[s] == 0).for_each(|s| ready.add(s, adds[s]));
    let mut scheduled = Vec::with_capacity(order.len());
    while let Some(next) = ready.pop() {
        let number = order[next];
        scheduled.push(number);
        for &buffer in &graph.steps[number].reads {
            count[buffer] -= 1;
            last[buffer] ^= number.raw();
            if count[buffer] == 1 && flow.weight[buffer] > 0 {
                let reader = StepId::from_raw(last[buffer]);
                adds[reader] -= flow.weight[buffer];
                if waits[reader] == 0 {
                    ready.update(reader, adds[reader]);
                }
            }
        }
        for &buffer in &graph.steps[number].writes {
            for &reader in flow.readers(buffer) {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.add(reader, adds[reader]);
                }
            }
        }
    }
    scheduled
}

/// Schedules from the last step to the first. A step that adds at most `most` bytes to the memory that must be live before it is taken as
/// soon as all its readers are scheduled; the others are taken in the given order.
pub(super) fn backward(flow: &Flow, order: &[StepId], most: i64) -> Vec<StepId> {
    let graph = flow.graph;
    let count = order.len();
    let mut rank = index_vec![0u32; count];
    order.iter().rev().enumerate().for_each(|(i, &step)| rank[step] = i as u32);
    let mut is_live: IndexVec<BufferId, bool> = index_vec![false; graph.buffers.len()];
    let mut adds = index_vec![0i64; count];
    let mut waits = index_vec![0u32; count];
    for (number, step) in graph.steps.iter_enumerated() {
        let taken: i64 = step.reads.iter().map(|&b| flow.weight[b]).sum();
        adds[number] = taken - step.writes.iter().map(|&b| flow.weight[b]).sum::<i64>();
        waits[number] = step.writes.iter().map(|&b| flow.readers(b).len() as u32).sum();
    }
    let mut ready = Ready::new(&rank, most);
    graph.steps.indices().filter(|&s| waits[s] == 0).for_each(|s| ready.add(s, adds[s]));
    let mut scheduled = Vec::with_capacity(count);
    while let Some(next) = ready.pop() {
        let number = order[count - 1 - next];
        scheduled.push(number);
        for &buffer in &graph.steps[number].reads {
            if flow.weight[buffer] > 0 && !std::mem::replace(&mut is_live[buffer], true) {
                for &reader in flow.readers(buffer) {
                    adds[reader] -= flow.weight[buffer];
                    if waits[reader] == 0 {
                        ready.update(reader, adds[reader]);
                    }
                }
            }
        }
        for writer in flow.inputs(number).filter_map(|b| flow.writer(b)) {
            waits[writer] -= 1;
            if waits[writer] == 0 {
                ready.add(writer, adds[writer]);
            }
        }
    }
    scheduled.reverse();
    scheduled
}
