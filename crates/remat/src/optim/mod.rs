//! Optimizers: plain values with an `init` and an `update`.
//!
//! `AdamW::new(3e-4)` has the default options and this learning rate, a number or a [`Schedule`]. Methods set its other fields, as in
//! `AdamW::new(3e-4).weight_decay(0.1)`.
//!
//! An update is a function from the model, its gradients and the optimizer state to a new model and a new state. It can run directly or
//! inside `jit`. The state is a [`Tree`] whose parts have the model's own type, so it is stored, mapped and reported like the model.
//!
//! Steps before an update are functions of the gradients ([`clip_by_global_norm`], [`clip_by_value`], [`add_decayed_weights`]). Wrappers of
//! an update are optimizers that hold others ([`Accumulate`], [`Partition`] with [`Frozen`]) or a value that is passed along
//! ([`LossScale`]). Steps after an update are functions of the model ([`Ema`]).
//!
//! ```
//! use remat::optim::Optimizer;
//! use remat::{Tensor, Tree, optim};
//!
//! #[derive(Tree)]
//! struct Model { weight: Tensor }
//!
//! let adam = optim::AdamW::new(0.1);
//! let mut model = Model { weight: Tensor::new([5.0f32]) };
//! let mut state = adam.init(&model);
//! for _ in 0..100 {
//!     let gradient = Model { weight: &model.weight * 2 };
//!     (model, state) = adam.update(&model, &gradient, &state)?;
//! }
//! assert!(model.weight.to_vec::<f32>()?[0].abs() < 0.5);
//! # Ok::<(), remat::Error>(())
//! ```
//!
//! Parameters in f16 and bf16 are updated in f32 and rounded once, and their states are f32: an average that keeps 0.999 of its value in
//! each step needs more digits than these dtypes have. A leaf of the model that is not a float stays as it is, and its state is empty.
//!
//! Inside a [`shard_map`](crate::shard_map) an optimizer sees the shard of a parameter. [`AdamW`], [`Sgd`] and [`Lion`] work element by
//! element, so the result is the same. Values that depend on many elements are computed from those of the shard: [`global_norm`] and
//! [`clip_by_global_norm`], the averages of [`Adafactor`], the matrices of [`Muon`], the blocks and the minimum size of [`Adam8bit`]. If
//! these should cover whole parameters, pass `jit` the [`Shardings`](crate::Shardings) of the parameters instead.
//!
//! Inside `jit`, if model and state are moved into the step, the new values are written into the memory of the old ones, and each gradient
//! is freed as soon as it is consumed: [`Jitted::memory`](crate::Jitted::memory) reports the peak (`donated_peak`). A scan over layers
//! returns the gradients of all its layers at once, so there they are all in memory.
//!
//! The layers of a stacked [`Stack`](crate::nn::Stack) are updated separately, like those of a list: the axis of layers does not turn a
//! bias into a matrix, and no average runs along it.
//!
//! Steps are counted from 0. A [`Schedule`] receives the number of the current step, as in optax.

mod accumulate;
mod adafactor;
mod adam8bit;
mod adamw;
mod clip;
mod code;
mod decay;
mod ema;
mod leaves;
mod lion;
mod loss_scale;
mod mask;
mod muon;
mod partition;
mod schedule;
mod sgd;
mod step;

pub use accumulate::{Accumulate, Accumulated};
pub use adafactor::{Adafactor, Factored};
pub use adam8bit::{Adam8bit, Moments8bit};
pub use adamw::{AdamW, Moments};
pub use clip::{clip_by_global_norm, clip_by_value, global_norm};
pub use decay::add_decayed_weights;
pub use ema::{Averaged, Ema};
pub use lion::{Lion, Momentum};
pub use loss_scale::LossScale;
pub use mask::Mask;
pub use muon::{Muon, MuonMoments};
pub use partition::{Frozen, Partition, Parts};
pub use schedule::Schedule;
pub use sgd::{Sgd, Velocity};
pub use step::step;

use remat_ir::Result;

use crate::Tree;

/// An optimizer: it updates the parameters of a model from their gradients, and keeps a state between steps.
///
/// ```
/// use remat::optim::{AdamW, Optimizer, Sgd};
/// use remat::{Tensor, grad};
///
/// /// The parameter after 100 steps.
/// fn minimise(optimizer: impl Optimizer) -> remat::Result<f32> {
///     let mut x = Tensor::from(3.0f32);
///     let mut state = optimizer.init(&x);
///     for _ in 0..100 {
///         let gradient = grad(|x: &Tensor| (x - 1).square())(&x)?;
///         (x, state) = optimizer.update(&x, &gradient, &state)?;
///     }
///     x.item()
/// }
///
/// assert!((minimise(Sgd::new(0.1))? - 1.0).abs() < 1e-3);
/// assert!((minimise(AdamW::new(0.1))? - 1.0).abs() < 0.1);
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Optimizer {
    /// The state that is kept between steps for a model of type `M`.
    type State<M: Tree>: Tree;

    /// The state before the first step. If a leaf of the model is a failed tensor, so is its state.
    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Self::State<M>;

    /// The model with the state before the first step, the state of [`step`](fn@step).
    #[track_caller]
    fn start<M: Tree>(&self, model: M) -> (M, Self::State<M>) {
        let state = self.init(&model);
        (model, state)
    }

    /// The model and the state after a step. Parameters keep their dtypes; a gradient may have another float dtype.
    ///
    /// # Errors
    /// If the gradients or the state differ from the model in structure, a gradient does not have the shape of its parameter, the state
    /// belongs to another optimizer, a pattern of a [`Mask`] matches no path of the model, or a tensor has failed.
    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Self::State<M>) -> Result<(M, Self::State<M>)>;
}

impl<O: Optimizer> Optimizer for &O {
    type State<M: Tree> = O::State<M>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Self::State<M> {
        (**self).init(model)
    }

    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Self::State<M>) -> Result<(M, Self::State<M>)> {
        (**self).update(model, gradients, state)
    }
}
