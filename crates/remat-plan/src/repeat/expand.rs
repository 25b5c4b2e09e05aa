//! A schedule as a graph of its own, in which each run is a step.
//!
//! Nothing else needs to know about recomputation then: live ranges, results in place, offsets and the checker of memory plans are those of
//! any graph, and a schedule is judged by the same code that gives values their memory.

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Error, ErrorKind, Result};

use super::{Judgement, Schedule};
use crate::graph::{BufferKind, BufferNode, Graph, StepNode};
use crate::ids::{BufferId, StepId};
use crate::liveness::Liveness;

/// The graph of a schedule: a step for each run, in order. Buffers that a step writes when it first runs keep their numbers; each later run
/// has temporaries of its own, with the numbers after those.
#[derive(Clone, Debug)]
pub struct Expanded {
    /// The graph, whose program order is that of the runs.
    pub graph: Graph,
    /// The step of the original graph that each step runs.
    pub step_of: IndexVec<StepId, StepId>,
    /// For each buffer, the buffer of the original graph that it is, or is a copy of.
    pub buffer_of: IndexVec<BufferId, BufferId>,
}

impl Expanded {
    /// The graph of a schedule.
    ///
    /// # Errors
    /// If the schedule is wrong: a step is unknown, reads what no run has computed, never runs, or runs again though it must not. All are
    /// defects of the planner.
    pub fn new(graph: &Graph, schedule: &Schedule) -> Result<Expanded> {
        let mut expansion = Expansion::new(graph);
        for &step in &schedule.runs {
            expansion.run(step)?;
        }
        expansion.finish()
    }

    /// The time and the peak.
    pub fn judge(&self) -> Judgement {
        let order: Vec<StepId> = self.graph.steps.indices().collect();
        let (peak, position) = Liveness::new(&self.graph, &order).peak(&self.graph, &order);
        let time = self.graph.steps.iter().fold(0u64, |time, step| time.saturating_add(step.cost));
        Judgement { time, peak, position }
    }
}

/// The runs so far.
struct Expansion<'g> {
    original: &'g Graph,
    graph: Graph,
    step_of: IndexVec<StepId, StepId>,
    buffer_of: IndexVec<BufferId, BufferId>,
    /// The newest copy of each buffer, once there is one.
    newest: IndexVec<BufferId, Option<BufferId>>,
    has_run: IndexVec<StepId, bool>,
    /// Whether a step has run that waits for this one, so that it cannot run again: it may read what that step has overwritten.
    is_over: IndexVec<StepId, bool>,
    writer: IndexVec<BufferId, Option<StepId>>,
}

impl<'g> Expansion<'g> {
    fn new(original: &'g Graph) -> Expansion<'g> {
        let is_given = |kind| matches!(kind, BufferKind::Argument | BufferKind::Constant);
        let newest = original.buffers.iter_enumerated().map(|(number, b)| is_given(b.kind).then_some(number)).collect();
        let mut writer = index_vec![None; original.buffers.len()];
        for (number, step) in original.steps.iter_enumerated() {
            step.writes.iter().for_each(|&buffer| writer[buffer] = Some(number));
        }
        Expansion {
            original,
            graph: Graph { steps: IndexVec::new(), buffers: original.buffers.clone() },
            step_of: IndexVec::new(),
            buffer_of: original.buffers.indices().collect(),
            newest,
            has_run: index_vec![false; original.steps.len()],
            is_over: index_vec![false; original.steps.len()],
            writer,
        }
    }

    fn run(&mut self, number: StepId) -> Result<()> {
        let Some(step) = self.original.steps.get(number) else {
            return Err(internal(format!("there is no {number}")));
        };
        let is_again = std::mem::replace(&mut self.has_run[number], true);
        if is_again && (step.runs_once || self.is_over[number]) {
            return Err(internal(format!("{number} must not run again")));
        }
        let mut node =
            StepNode { scratch: step.scratch, cost: step.cost, runs_once: step.runs_once, ..StepNode::default() };
        for &read in &step.reads {
            let Some(copy) = self.newest[read] else {
                return Err(internal(format!("{number} reads {read}, which no run has computed")));
            };
            node.reads.push(copy);
            if self.original.buffers[read] == (BufferNode { bytes: 0, kind: BufferKind::Temporary })
                && let Some(writer) = self.writer[read]
            {
                self.is_over[writer] = true;
            }
        }
        let operands: Vec<BufferId> = node.reads.iter().copied().collect();
        for &write in &step.writes {
            let copy = if is_again { self.copy(write) } else { write };
            // The first copy of an output stays where the caller wants it.
            if !is_again || self.original.buffers[write].kind == BufferKind::Temporary {
                self.newest[write] = Some(copy);
            }
            node.writes.push(copy);
        }
        for &(input, output) in &step.in_place {
            let of = |from: &[BufferId], to: &[BufferId], b| from.iter().position(|&f| f == b).map(|i| to[i]);
            if let (Some(input), Some(output)) =
                (of(&step.reads, &operands, input), of(&step.writes, &node.writes, output))
            {
                node.in_place.push((input, output));
            }
        }
        self.graph.steps.push(node);
        self.step_of.push(number);
        Ok(())
    }

    /// A further copy of a buffer. The caller has the first of an output.
    fn copy(&mut self, buffer: BufferId) -> BufferId {
        self.buffer_of.push(buffer);
        self.graph.buffers.push(BufferNode { kind: BufferKind::Temporary, ..self.original.buffers[buffer] })
    }

    fn finish(self) -> Result<Expanded> {
        if let Some(number) = self.original.steps.indices().find(|&number| !self.has_run[number]) {
            return Err(internal(format!("{number} never runs")));
        }
        Ok(Expanded { graph: self.graph, step_of: self.step_of, buffer_of: self.buffer_of })
    }
}

/// The error of a schedule that cannot run.
fn internal(fault: String) -> Error {
    Error::new(ErrorKind::Internal, "plan", format!("the schedule is wrong: {fault}"))
}
