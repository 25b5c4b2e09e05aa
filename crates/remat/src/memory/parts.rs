//! The parts of a step's memory, from the plan of the step.

use remat_ir::{ErrorKind, LiveKind, LiveValue, Result};

use super::PlannedStep;
use crate::optim::Optimizer;
use crate::stages::Compiled;
use crate::trace::{ScalarOutput, cloned, pinned};
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

/// The memory of a program at its peak, by purpose: [`divided`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Divided {
    /// The most bytes that are live at one time in a call that gives up its arguments.
    pub peak: usize,
    bytes: [usize; Part::ALL.len()],
}

impl Divided {
    /// The bytes of a part. Those of all parts add up to the peak.
    pub fn bytes(&self, part: Part) -> usize {
        self.bytes[part as usize]
    }

    /// The parts that are not empty, with their bytes, in the order of reports.
    pub fn parts(&self) -> impl Iterator<Item = (Part, usize)> {
        let this = *self;
        Part::ALL.into_iter().map(move |part| (part, this.bytes(part))).filter(|(_, bytes)| *bytes > 0)
    }

    /// The part with the most bytes.
    pub fn largest(&self) -> Part {
        // The first of equal parts.
        Part::ALL.into_iter().rev().max_by_key(|&part| self.bytes(part)).unwrap_or(Part::Parameters)
    }

    fn add(&mut self, part: Part, bytes: usize) {
        self.bytes[part as usize] += bytes;
    }
}

/// The gradients of a step, as [`divided`] knows them.
///
/// They are named in the program: call it inside the step, on the gradients that the optimizer gets. The name changes nothing else.
#[track_caller]
pub fn gradients<T: Tree>(gradients: &T) -> T {
    pinned(|| tree::map(gradients, |leaf| leaf.named(GRADIENT)))
}

/// The memory of any program at its peak, by purpose. `arguments` has the part of each leaf of its arguments; tensors that it captures are
/// the batch. Temporaries are activations, unless they are [`gradients`]; XLA's are one number, with gradients among activations.
///
/// [`report`](fn@super::report) does this for the step of a loss and an optimizer; this is for steps that do more, such as accumulating or clipping
/// gradients.
///
/// ```
/// use remat::memory::{Part, divided, gradients};
/// use remat::{DType, Tensor, jit, value_and_grad};
/// let step = jit(|(w, x): &(Tensor, Tensor)| {
///     let (loss, gradient) = value_and_grad(|w: &Tensor| x.matmul(w).tanh().sum(..))(w)?;
///     let gradient = gradients(&gradient);
///     Ok::<_, remat::Error>((loss, w - gradient.clamp(-1.0, 1.0) * 0.1))
/// });
/// let (w, x) = (Tensor::shape_only([8, 8], DType::F32), Tensor::shape_only([4, 8], DType::F32));
/// let memory = divided(&step.lower(&(w, x))?.compile()?, &[Part::Parameters, Part::Batch]);
/// assert_eq!((memory.bytes(Part::Parameters), memory.bytes(Part::Batch)), (4 * 64, 4 * 32));
/// assert_eq!(memory.parts().map(|(_, bytes)| bytes).sum::<usize>(), memory.peak);
/// # Ok::<(), remat::Error>(())
/// ```
pub fn divided(program: &Compiled, arguments: &[Part]) -> Divided {
    let report = program.memory_report();
    let captured = program.captured();
    let part = |value: &LiveValue| match value.kind {
        LiveKind::Constant => Part::Batch,
        // Numbers are those of the program's inputs; captured values come first.
        LiveKind::Argument(i) => i.checked_sub(captured).and_then(|i| arguments.get(i)).copied().unwrap_or(Part::Batch),
        LiveKind::Temporary if value.name.as_deref() == Some(GRADIENT) => Part::Gradients,
        LiveKind::Temporary => Part::Activations,
        LiveKind::Scratch => Part::Scratch,
        LiveKind::Output => Part::Overhead,
    };
    let mut divided = Divided { peak: report.stats.donated_peak, ..Divided::default() };
    let is_listed = !report.donated.is_empty();
    let live = if is_listed { &report.donated } else { &report.live };
    // Where an engine does not know what is live, its list has outputs that share memory with arguments.
    for value in live.iter().filter(|value| is_listed || value.kind != LiveKind::Output) {
        divided.add(part(value), value.bytes);
    }
    let listed: usize = divided.bytes.iter().sum();
    divided.add(Part::Overhead, divided.peak.saturating_sub(listed));
    divided
}

/// The plan of a step.
pub(super) struct Step {
    pub(super) memory: Divided,
    /// Its floating-point operations.
    pub(super) flops: u64,
    program: Compiled,
}

/// The name of gradients, which no model uses.
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
            let gradients = self::gradients(&gradients);
            let (model, state) = optimizer.update(model, &gradients, state)?;
            Result::Ok((loss, model, state))
        };
        // The peak is computed without the limit of the environment.
        let device = Some(Cpu::default().into());
        let options = JitOptions { device, memory_limit: Some(usize::MAX), ..JitOptions::default() };
        let lowered = jit_with(&options, update).lower(&(model, state))?;
        let program = lowered.compile()?;
        let arguments = [vec![Part::Parameters; parameters], vec![Part::Optimizer; states]].concat();
        Ok(Step { memory: divided(&program, &arguments), flops: lowered.cost().flops, program })
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

/// The model with abstract tensors, so that a plan keeps none of its elements.
///
/// # Errors
/// If a tensor has failed.
pub(super) fn shape_only<M: Tree>(model: &M) -> Result<M> {
    eval_shape(cloned::<M>)(model)
}
