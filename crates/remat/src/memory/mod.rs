//! What a training step needs memory for, and which change would help most.
//!
//! [`report`](fn@report) plans the step of a loss and an optimizer, to which model and state are moved, and divides the bytes that are live at its peak among
//! parameters, optimizer, gradients and activations. Then it plans the step again under each change that is known to help
//! (policies around the layers, optimizers with a smaller state, parameters of half the bytes), so that what it says of a change is a plan too, and
//! no rule of thumb. Nothing runs, and the model may be abstract.
//!
//! ```
//! use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
//! use remat::optim::AdamW;
//! use remat::{DType, Tensor, memory, random};
//! let config = Gpt2Config { vocab_size: 50, n_positions: 64, n_embd: 16, n_layer: 4, n_head: 2, ..Gpt2Config::default() };
//! let model = Gpt2::init(random::key(0), &config, DType::F32);
//! let tokens = Tensor::arange(0..256).reshape([4, 64]) % 50;
//! let report = memory::report(&AdamW::default(), &model, |model| next_token_loss(&model.apply(&tokens), &tokens, None))?;
//! assert_eq!(report.largest(), memory::Part::Activations);
//! let best = report.best().expect("a policy");
//! assert!(best.peak < report.peak);
//! println!("{report}");
//! # Ok::<(), remat::Error>(())
//! ```

mod levers;
mod parts;
mod text;

pub use levers::{Change, Lever};
pub use parts::Part;

use remat_ir::{Policy, Result};

use crate::optim::Optimizer;
use crate::trace::Output;
use crate::{Layers, Tensor, Tree};

use parts::{Bytes, Step};

/// What [`report_with`] tries.
#[derive(Clone, Debug)]
pub struct Options {
    /// The layers that a policy is put around. Those called `block` by default.
    pub layers: Layers,
    /// The policies that are tried there: [`Policy::Dots`], [`Policy::DotsWithNoBatchDims`] and [`Policy::Nothing`] by default.
    pub policies: Vec<Policy>,
    /// The chips that a fully sharded step is estimated for. 8 by default; 1 for no estimate.
    pub chips: usize,
}

impl Default for Options {
    fn default() -> Options {
        let policies = vec![Policy::Dots, Policy::DotsWithNoBatchDims, Policy::Nothing];
        Options { layers: Layers::named("block"), policies, chips: 8 }
    }
}

/// The memory of a training step at its peak, and what would lower that.
#[derive(Clone, Debug)]
pub struct TrainingMemory {
    /// The most bytes that are live at one time, model, state and batch included.
    pub peak: usize,
    /// The bytes that are saved for the backward pass: residuals that are neither parameters nor batch.
    pub saved: usize,
    /// Changes with the peak that each has, lowest first.
    pub levers: Vec<Lever>,
    /// Why a policy could not be tried, where one could not.
    pub note: Option<String>,
    bytes: Bytes,
}

impl TrainingMemory {
    /// The bytes of a part at the peak. All parts together are the peak.
    pub fn bytes(&self, part: Part) -> usize {
        self.bytes.of(part)
    }

    /// The part with the most bytes.
    pub fn largest(&self) -> Part {
        self.bytes.largest()
    }

    /// The change that lowers the peak most, of those that keep the results if there is any; none where no change lowers it.
    pub fn best(&self) -> Option<&Lever> {
        let lower = || self.levers.iter().filter(|lever| lever.peak < self.peak);
        lower().find(|lever| lever.change.keeps_results()).or_else(|| lower().next())
    }
}

/// The memory of a step of `loss` with respect to `model`, and of `optimizer`, as [`report_with`] with the default options.
///
/// # Errors
/// As [`report_with`].
#[track_caller]
pub fn report<M: Tree, O: Optimizer, R: Output<Tree = Tensor>>(
    optimizer: &O,
    model: &M,
    loss: impl Fn(&M) -> R,
) -> Result<TrainingMemory> {
    report_with(&Options::default(), optimizer, model, loss)
}

/// The memory of a step of `loss` with respect to `model`, and of `optimizer`, on this CPU's own engine. The step is the one that trains:
/// it computes loss and gradient and updates, and model and state are donated to it. What `loss` captures is the batch.
///
/// ```
/// use remat::memory::{Options, Part, report_with};
/// use remat::optim::Sgd;
/// use remat::{DType, Policy, Tensor};
/// let (x, w) = (Tensor::ones([4, 8], DType::F32), Tensor::ones([8, 8], DType::F32));
/// let options = Options { policies: vec![Policy::Nothing], chips: 1, ..Options::default() };
/// let report = report_with(&options, &Sgd::default(), &w, |w: &Tensor| x.matmul(w).tanh().sum(..))?;
/// assert_eq!((report.bytes(Part::Parameters), report.bytes(Part::Batch)), (4 * 64, 4 * 32));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside `loss` or the optimizer; if a tensor of the model has failed.
#[track_caller]
pub fn report_with<M: Tree, O: Optimizer, R: Output<Tree = Tensor>>(
    options: &Options,
    optimizer: &O,
    model: &M,
    loss: impl Fn(&M) -> R,
) -> Result<TrainingMemory> {
    let step = Step::plan(optimizer, model, &loss)?;
    let saved = crate::report::saved_residuals(&loss, &parts::shape_only(model)?)?.intermediate_bytes();
    let (mut levers, note) = levers::of_policies(options, optimizer, model, &loss, &step)?;
    levers.extend(levers::of_optimizers(model, &loss, &step)?);
    levers.extend(levers::of_precision(optimizer, model, &loss, &step));
    levers.extend(levers::of_chips(options, &step));
    levers.sort_by_key(|lever| lever.peak);
    Ok(TrainingMemory { peak: step.peak, saved, levers, note, bytes: step.bytes })
}
