//! Graphs in which values are dropped and computed again, as tight plans of training steps have them.

use oxc_index::{IndexVec, index_vec};

use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::{BufferId, StepId};

use super::Random;

/// The steps that a runtime with dynamic tensor rematerialization (Kirisame et al. 2021) would run for a graph: it drops values when those
/// in memory take more than `budget` bytes, and computes them again when they are read. Here each value has a random price instead of its
/// time.
///
/// Steps that run again write buffers of their own. The live bytes may exceed the budget where steps need more, and after the first `most`
/// steps.
///
/// ```
/// use remat_plan::examples::{Random, chain, evict};
/// use remat_plan::{peak, schedule};
///
/// let kept = chain(100, None, 4096);
/// let tight = evict(&kept, 50 * 4096, 400, &mut Random(0));
/// assert!(tight.steps.len() > kept.steps.len());
/// assert!(peak(&tight, &schedule(&tight)) < peak(&kept, &schedule(&kept)) * 2 / 3);
/// ```
pub fn evict(graph: &Graph, budget: usize, most: usize, random: &mut Random) -> Graph {
    let mut runtime = Runtime::new(graph, budget, most, random);
    for step in graph.steps.indices() {
        runtime.run(step);
        for &buffer in &graph.steps[step].reads {
            runtime.readers[buffer] -= 1;
            runtime.drop_if_unread(buffer);
        }
        for &buffer in &graph.steps[step].writes {
            runtime.drop_if_unread(buffer);
        }
    }
    runtime.result
}

struct Runtime<'a> {
    graph: &'a Graph,
    budget: usize,
    most: usize,
    /// How readily each value is dropped.
    price: IndexVec<BufferId, usize>,
    has_run: IndexVec<StepId, bool>,
    writer: IndexVec<BufferId, Option<StepId>>,
    /// How many steps of the graph have yet to read each buffer.
    readers: IndexVec<BufferId, usize>,
    /// The buffer of the result that holds each value now.
    copy: IndexVec<BufferId, Option<BufferId>>,
    /// When each value was last used, counted in steps.
    used: IndexVec<BufferId, usize>,
    /// How many steps that are about to run need each value.
    locks: IndexVec<BufferId, usize>,
    live: usize,
    result: Graph,
}

impl<'a> Runtime<'a> {
    fn new(graph: &'a Graph, budget: usize, most: usize, random: &mut Random) -> Runtime<'a> {
        let mut writer = index_vec![None; graph.buffers.len()];
        let mut readers = index_vec![0; graph.buffers.len()];
        for (number, step) in graph.steps.iter_enumerated() {
            step.writes.iter().for_each(|&buffer| writer[buffer] = Some(number));
            step.reads.iter().for_each(|&buffer| readers[buffer] += 1);
        }
        let is_there = |buffer: BufferId| (!graph.is_temporary(buffer)).then_some(buffer);
        Runtime {
            graph,
            budget,
            most,
            price: graph.buffers.indices().map(|_| 1 + random.below(8)).collect(),
            has_run: index_vec![false; graph.steps.len()],
            writer,
            readers,
            copy: graph.buffers.indices().map(is_there).collect(),
            used: index_vec![0; graph.buffers.len()],
            locks: index_vec![0; graph.buffers.len()],
            live: 0,
            result: Graph { buffers: graph.buffers.clone(), ..Graph::default() },
        }
    }

    /// Runs a step once all that it reads is there. The first time it writes the buffers of the graph.
    fn run(&mut self, step: StepId) {
        let node = &self.graph.steps[step];
        node.reads.iter().for_each(|&buffer| self.locks[buffer] += 1);
        for &buffer in &node.reads {
            if self.copy[buffer].is_none()
                && let Some(writer) = self.writer[buffer]
            {
                self.run(writer);
            }
        }
        let missing = |buffer: &&BufferId| self.graph.is_temporary(**buffer) && self.copy[**buffer].is_none();
        let bytes: usize = node.writes.iter().filter(missing).map(|&buffer| self.graph.bytes(buffer)).sum();
        self.make_room(bytes + node.scratch);
        let mut copy = StepNode { scratch: node.scratch, ..StepNode::default() };
        copy.reads = node.reads.iter().filter_map(|&buffer| self.copy[buffer]).collect();
        for &buffer in &node.writes {
            let node = BufferNode { bytes: self.graph.buffers[buffer].bytes, kind: BufferKind::Temporary };
            let written = if self.has_run[step] { self.result.buffers.push(node) } else { buffer };
            copy.writes.push(written);
            if self.graph.is_temporary(buffer) && self.copy[buffer].replace(written).is_none() {
                self.live += self.graph.bytes(buffer);
            }
            self.used[buffer] = self.result.steps.len();
        }
        let position = |list: &[BufferId], buffer| list.iter().position(|&other| other == buffer);
        for &(input, output) in &node.in_place {
            if let (Some(i), Some(o)) = (position(&node.reads, input), position(&node.writes, output)) {
                copy.in_place.push((copy.reads[i], copy.writes[o]));
            }
        }
        self.result.steps.push(copy);
        self.has_run[step] = true;
        for &buffer in &node.reads {
            self.locks[buffer] -= 1;
            self.used[buffer] = self.result.steps.len();
        }
    }

    /// Drops values until this many bytes fit: those that were not used for long.
    fn make_room(&mut self, bytes: usize) {
        while self.live + bytes > self.budget && self.result.steps.len() < self.most {
            let now = self.result.steps.len() + 1;
            let can_go = |&buffer: &BufferId| {
                let is_there = self.graph.is_temporary(buffer) && self.copy[buffer].is_some();
                is_there && self.locks[buffer] == 0 && self.graph.bytes(buffer) > 0
            };
            let candidates = self.graph.buffers.indices().filter(can_go);
            let Some(buffer) = candidates.max_by_key(|&b| (now - self.used[b]) * self.price[b]) else { return };
            self.forget(buffer);
        }
    }

    fn forget(&mut self, buffer: BufferId) {
        if self.graph.is_temporary(buffer) && self.copy[buffer].take().is_some() {
            self.live -= self.graph.bytes(buffer);
        }
    }

    fn drop_if_unread(&mut self, buffer: BufferId) {
        if self.readers[buffer] == 0 && self.locks[buffer] == 0 {
            self.forget(buffer);
        }
    }
}
