//! Dynamic tensor rematerialization (Kirisame and others 2021), as it would run the steps in their order.
//!
//! When a step needs room, the value with the least `cost / (bytes * staleness)` is dropped, again and again. The cost is that of computing it
//! again with all dropped values around it: those that it follows from, and those that follow from it and are still read. A dropped value is
//! computed again when a step reads it. The staleness is the time since it was last read or written. What no later step of the program reads
//! is dropped at once.

use remat_plan::{BufferId, Graph, Schedule, StepId};

/// The runs within this many bytes, if they do not exceed this multiple of the steps. Where nothing can be dropped, more bytes are taken: the
/// true peak counts.
const MOST_RUNS: usize = 20;

pub(crate) fn schedule(graph: &Graph, order: &[StepId], budget: usize) -> Option<Schedule> {
    let mut runtime = Runtime::new(graph, budget);
    for &step in order {
        runtime.run(step)?;
        for &buffer in &graph.steps[step].reads {
            runtime.readers[buffer.index()] -= 1;
            runtime.drop_if_unread(buffer);
        }
        graph.steps[step].writes.iter().for_each(|&buffer| runtime.drop_if_unread(buffer));
    }
    Some(Schedule { runs: runtime.runs })
}

struct Runtime<'g> {
    graph: &'g Graph,
    budget: usize,
    writer: Vec<Option<StepId>>,
    /// The steps that read each buffer, and how many of them have yet to run first.
    readers_of: Vec<Vec<StepId>>,
    readers: Vec<usize>,
    has_run: Vec<bool>,
    /// Whether each temporary is in memory, and how many runs that are about to begin need it.
    is_there: Vec<bool>,
    locks: Vec<usize>,
    used: Vec<u64>,
    clock: u64,
    live: usize,
    runs: Vec<StepId>,
}

impl<'g> Runtime<'g> {
    fn new(graph: &'g Graph, budget: usize) -> Runtime<'g> {
        let count = graph.buffers.len();
        let mut writer = vec![None; count];
        let mut readers_of = vec![Vec::new(); count];
        for (number, step) in graph.steps.iter_enumerated() {
            step.writes.iter().for_each(|buffer| writer[buffer.index()] = Some(number));
            step.reads.iter().for_each(|buffer| readers_of[buffer.index()].push(number));
        }
        Runtime {
            graph,
            budget,
            writer,
            readers: readers_of.iter().map(Vec::len).collect(),
            readers_of,
            has_run: vec![false; graph.steps.len()],
            is_there: vec![false; count],
            locks: vec![0; count],
            used: vec![0; count],
            clock: 0,
            live: 0,
            runs: Vec::new(),
        }
    }

    /// Runs a step once what it reads is there.
    fn run(&mut self, step: StepId) -> Option<()> {
        let graph = self.graph;
        let node = &graph.steps[step];
        let reads: Vec<BufferId> = node.reads.iter().copied().filter(|&b| graph.is_temporary(b)).collect();
        reads.iter().for_each(|read| self.locks[read.index()] += 1);
        for &read in &reads {
            if !self.is_there[read.index()] {
                self.run(self.writer[read.index()]?)?;
            }
        }
        let new: Vec<BufferId> =
            node.writes.iter().copied().filter(|&b| graph.is_temporary(b) && !self.is_there[b.index()]).collect();
        self.make_room(new.iter().map(|&buffer| graph.bytes(buffer)).sum::<usize>() + node.scratch);
        if self.runs.len() > MOST_RUNS * graph.steps.len() {
            return None;
        }
        self.runs.push(step);
        self.has_run[step.index()] = true;
        self.clock += node.cost;
        for &buffer in &new {
            self.is_there[buffer.index()] = true;
            self.live += graph.bytes(buffer);
        }
        reads.iter().chain(&new).for_each(|buffer| self.used[buffer.index()] = self.clock);
        for &read in &reads {
            self.locks[read.index()] -= 1;
            self.drop_if_unread(read);
        }
        Some(())
    }

    fn make_room(&mut self, bytes: usize) {
        while self.live + bytes > self.budget {
            let can_go = |buffer: &BufferId| {
                let is_free = self.is_there[buffer.index()] && self.locks[buffer.index()] == 0;
                let writer = self.writer[buffer.index()].map(|step| &self.graph.steps[step]);
                is_free && self.graph.bytes(*buffer) > 0 && writer.is_some_and(|step| !step.runs_once)
            };
            let all = self.graph.buffers.indices().filter(can_go).map(|buffer| (self.price(buffer), buffer));
            let Some((_, buffer)) = all.min_by(|a, b| a.0.total_cmp(&b.0)) else { return };
            self.forget(buffer);
        }
    }

    /// The cost of a value and of the dropped values around it, for its bytes and its staleness.
    fn price(&self, buffer: BufferId) -> f64 {
        let staleness = (self.clock - self.used[buffer.index()]).max(1) as f64;
        self.cost_around(buffer) as f64 / (self.graph.bytes(buffer) as f64 * staleness)
    }

    fn cost_around(&self, buffer: BufferId) -> u64 {
        let Some(writer) = self.writer[buffer.index()] else { return 0 };
        let mut steps = vec![writer];
        let mut is_counted = vec![false; self.graph.steps.len()];
        is_counted[writer.index()] = true;
        let mut cost = 0;
        // What it follows from, and then what follows from it.
        while let Some(step) = steps.pop() {
            cost += self.graph.steps[step].cost;
            for read in self.graph.steps[step].reads.iter().filter(|&&b| self.graph.is_temporary(b)) {
                let dropped = self.writer[read.index()].filter(|_| !self.is_there[read.index()]);
                if let Some(before) = dropped.filter(|s| !std::mem::replace(&mut is_counted[s.index()], true)) {
                    steps.push(before);
                }
            }
        }
        let mut buffers = vec![buffer];
        while let Some(buffer) = buffers.pop() {
            for &reader in self.readers_of[buffer.index()].iter().filter(|s| self.has_run[s.index()]) {
                let is_dropped = |b: &&BufferId| !self.is_there[b.index()] && self.readers[b.index()] > 0;
                let dropped: Vec<BufferId> =
                    self.graph.steps[reader].writes.iter().filter(is_dropped).copied().collect();
                if !dropped.is_empty() && !std::mem::replace(&mut is_counted[reader.index()], true) {
                    cost += self.graph.steps[reader].cost;
                    buffers.extend(dropped);
                }
            }
        }
        cost
    }

    fn forget(&mut self, buffer: BufferId) {
        if std::mem::replace(&mut self.is_there[buffer.index()], false) {
            self.live -= self.graph.bytes(buffer);
        }
    }

    fn drop_if_unread(&mut self, buffer: BufferId) {
        if self.readers[buffer.index()] == 0 && self.locks[buffer.index()] == 0 {
            self.forget(buffer);
        }
    }
}
