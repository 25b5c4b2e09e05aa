//! The parts of a step's memory, from the plan of the step.

use remat_ir::{ErrorKind, LiveKind, LiveValue, Result};

use super::PlannedStep;
use crate::optim::Optimizer;
use crate::stages::Compiled;
use crate::trace::ScalarOutput;
use crate::{Cpu, JitOptions, Tree, eval_shape, jit_with, tree, value_and_grad};

/// The purpose of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Part {
    /// The model.
    Parameters,
    /// The state of the optimizer.
    Optimizer,
    /// Gradients that no update has consumed yet.
    Gradients,
    /// Values of the forward and the backward pass: saved ones and those in computation, including those in the bodies of loops.
    Activations,
    /// Memory that kernels need while they run: packed panels, windows.
    Scratch,
    /// Values that the loss captures.
    Batch,
    /// The rest: results that take no argument's memory, gaps of alignment, lists of arguments.
    Overhead,
}

impl Part {
    /// All parts, in the order of reports.
    pub const ALL: [Part; 7] = [
        Part::Parameters,
        Part::Optimizer,
        Part::Gradients,
        Part::Activations,
        Part::Scratch,
        Part::Batch,
        Part::Overhead,
    ];
}

/// The bytes of each part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bytes([usize; Part::ALL.len()]);

impl Bytes {
    pub(super) fn of(&self, part: Part) -> usize {
        self.0[part as usize]
    }

    pub(super) fn largest(&self) -> Part {
        // The first of equal parts.
        Part::ALL.into_iter().rev().max_by_key(|&part| self.of(part)).unwrap_or(Part::Parameters)
    }

    fn add(&mut self, part: Part, bytes: usize) {
        self.0[part as usize] += bytes;
    }
}

/// The plan of a step.
pub(super) struct Step {
    pub(super) peak: usize,
    pub(super) bytes: Bytes,
    /// Its floating-point operations.
    pub(super) flops: u64,
    program: Compiled,
}

/// The name of gradients while their step is planned, which no model uses.
const GRADIENT: &str = "remat::memory::gradient";

impl Step {
    /// # Errors
    /// The first error inside `loss` or the optimizer.
    #[track_caller]
    pub(super) fn plan<M: Tree, O: Optimizer, R: ScalarOutput>(
        optimizer: &O,
        model: &M,
        loss: impl Fn(&M) -> R,
    ) -> Result<Step> {
        let model = shape_only(model)?;
        let state = eval_shape(|model: &M| optimizer.init(model))(&model)?;
        let (parameters, states) = (tree::leaves(&model).len(), tree::leaves(&state).len());
        let update = |(model, state): &(M, O::State<M>)| {
            let (loss, gradients) = value_and_grad(&loss)(model)?;
            let gradients = tree::map(&gradients, |leaf| leaf.named(GRADIENT));
            let (model, state) = optimizer.update(model, &gradients, state)?;
            Result::Ok((loss, model, state))
        };
        // The peak is computed without the limit of the environment.
        let device = Some(Cpu::default().into());
        let options = JitOptions { device, memory_limit: Some(usize::MAX), ..JitOptions::default() };
        let lowered = jit_with(&options, update).lower(&(model, state))?;
        let captured = lowered.jaxpr().ins.len() - parameters - states;
        let program = lowered.compile()?;
        let report = program.memory_report();
        let mut bytes = Bytes::default();
        for value in &report.donated {
            bytes.add(part(value, captured, parameters), value.bytes);
        }
        let peak = report.stats.donated_peak;
        let listed = Part::ALL.iter().map(|&part| bytes.of(part)).sum::<usize>();
        bytes.add(Part::Overhead, peak.saturating_sub(listed));
        Ok(Step { peak, bytes, flops: lowered.cost().flops, program })
    }

    /// The fastest plan of the step within a limit, if one is found.
    ///
    /// # Errors
    /// If a plan is wrong, which is a defect.
    pub(super) fn within(&self, limit: usize) -> Result<Option<PlannedStep>> {
        match self.program.plan()?.for_bytes(limit) {
            Ok(plan) => Ok(Some(PlannedStep { limit, peak: plan.peak(), overhead: plan.overhead() })),
            Err(error) if error.kind() == ErrorKind::Memory => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The part that a live value belongs to.
fn part(value: &LiveValue, captured: usize, parameters: usize) -> Part {
    match value.kind {
        LiveKind::Constant => Part::Batch,
        // Paths and numbers are those of the program's inputs; captured values come first.
        LiveKind::Argument(i) if i < captured => Part::Batch,
        LiveKind::Argument(i) if i < captured + parameters => Part::Parameters,
        LiveKind::Argument(_) => Part::Optimizer,
        LiveKind::Temporary if value.name.as_deref() == Some(GRADIENT) => Part::Gradients,
        LiveKind::Temporary => Part::Activations,
        LiveKind::Scratch => Part::Scratch,
        LiveKind::Output => Part::Overhead,
    }
}

/// The model with abstract tensors, so that a plan keeps none of its elements.
///
/// # Errors
/// If a tensor has failed.
pub(super) fn shape_only<M: Tree>(model: &M) -> Result<M> {
    eval_shape(|model: &M| tree::map(model, |leaf| leaf.clone()))(model)
}
