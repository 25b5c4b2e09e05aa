//! The memory of a training step by purpose, and the changes that would lower it most.
//!
//! [`report`](fn@report) plans the step of a loss and an optimizer, with model and state moved in, and divides the bytes that are live at
//! its peak among parameters, optimizer, gradients and activations. It then plans the step again with each change that usually helps
//! (policies around the layers, optimizers with a smaller state, parameters in half precision), so its figures are plans too, not rules of
//! thumb. Nothing runs, and the model may be abstract.
//!
//! ```
//! use remat::nn::{Gpt2, Gpt2Config, next_token_loss};
//! use remat::optim::AdamW;
//! use remat::{Tensor, memory, random};
//! let config = Gpt2Config { vocab_size: 50, n_positions: 64, n_embd: 16, n_layer: 4, n_head: 2, ..Gpt2Config::default() };
//! let model = Gpt2::new(random::key(0), &config);
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
pub use parts::{Divided, Part, divided, gradients};

use remat_ir::{Policy, Result};

use crate::optim::Optimizer;
use crate::trace::ScalarOutput;
use crate::{Layers, Tree};

use parts::Step;

/// The options of [`report_with`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The layers around which policies are tried; by default the named scopes that run more than once, those around others alone.
    pub layers: Option<Layers>,
    /// The policies to try there: [`Policy::Dots`], [`Policy::DotsWithNoBatchDims`] and [`Policy::Nothing`] by default.
    pub policies: Vec<Policy>,
    /// The number of chips for which a fully sharded step is estimated: 8 by default, 1 for no estimate.
    pub chips: usize,
    /// Whether a [`Plan`](crate::Plan) is made for the least peak of these policies, which takes some seconds for a large step: true by default.
    pub plans: bool,
}

impl Default for Options {
    fn default() -> Options {
        let policies = vec![Policy::Dots, Policy::DotsWithNoBatchDims, Policy::Nothing];
        Options { layers: None, policies, chips: 8, plans: true }
    }
}

/// The memory of a training step at its peak, and changes that would lower it.
#[derive(Clone, Debug)]
pub struct TrainingMemory {
    /// The most bytes that are live at one time, including model, state and batch.
    pub peak: usize,
    /// The bytes that are saved for the backward pass: residuals that are neither parameters nor batch.
    pub saved: usize,
    /// Changes and the peak with each of them, lowest first.
    pub levers: Vec<Lever>,
    /// The fastest plan of the step without a policy that needs no more than the least peak of the policies: what a
    /// [memory limit](crate::JitOptions::memory_limit) of these bytes does. `None` if no policy lowers the peak, or none was found.
    pub planned: Option<PlannedStep>,
    /// Why a policy could not be tried, if that happened.
    pub note: Option<String>,
    divided: Divided,
}

/// A step that computes values again to stay within a limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlannedStep {
    /// The limit, in bytes.
    pub limit: usize,
    /// The peak, in bytes.
    pub peak: usize,
    /// The time beyond that of the step without a limit, by the cost model, as a share of it.
    pub overhead: f64,
}

impl TrainingMemory {
    /// The bytes of a part at the peak. Those of all parts add up to [`peak`](TrainingMemory::peak).
    pub fn bytes(&self, part: Part) -> usize {
        self.divided.bytes(part)
    }

    /// The part with the most bytes.
    pub fn largest(&self) -> Part {
        self.divided.largest()
    }

    /// The change that lowers the peak most among those that keep the results, or else among all, on this machine, which is not several chips;
    /// `None` if none lowers it by at least 1%.
    pub fn best(&self) -> Option<&Lever> {
        let here = || self.lower().filter(|lever| !matches!(lever.change, Change::Sharded(_)));
        here().find(|lever| lever.keeps_results).or_else(|| here().next())
    }

    /// The changes that lower the peak by a per cent at least: less than that depends on how a CPU packs its operands, and helps nobody.
    fn lower(&self) -> impl Iterator<Item = &Lever> {
        self.levers.iter().filter(|lever| lever.peak as f64 <= 0.99 * self.peak as f64)
    }
}

/// The memory of a training step of `loss`, a function of `model`, with `optimizer`: [`report_with`] with the default options.
///
/// # Errors
/// As [`report_with`].
#[track_caller]
pub fn report<M: Tree, O: Optimizer, R: ScalarOutput>(
    optimizer: &O,
    model: &M,
    loss: impl Fn(&M) -> R,
) -> Result<TrainingMemory> {
    report_with(&Options::default(), optimizer, model, loss)
}

/// The memory of a training step of `loss`, a function of `model`, with `optimizer`, on the CPU's native engine. The step computes loss and
/// gradient and updates the parameters; model and state are donated to it. Values that `loss` captures are the batch.
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
pub fn report_with<M: Tree, O: Optimizer, R: ScalarOutput>(
    options: &Options,
    optimizer: &O,
    model: &M,
    loss: impl Fn(&M) -> R,
) -> Result<TrainingMemory> {
    let step = Step::plan(optimizer, model, &loss)?;
    let saved = crate::report::saved_residuals(&loss, &parts::shape_only(model)?)?.intermediate_bytes();
    let (mut levers, note) = levers::of_policies(options, optimizer, model, &loss, &step)?;
    let peak = step.memory.peak;
    let least = levers.iter().map(|lever| lever.peak).min().filter(|&least| options.plans && least < peak);
    let planned = least.map(|limit| step.within(limit)).transpose()?.flatten();
    levers.extend(levers::of_optimizers(model, &loss, &step)?);
    levers.extend(levers::of_precision(optimizer, model, &loss, &step));
    levers.extend(levers::of_chips(options, &step));
    levers.sort_by_key(|lever| lever.peak);
    Ok(TrainingMemory { peak, saved, levers, planned, note, divided: step.memory })
}
