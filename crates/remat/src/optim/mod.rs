//! Optimizers: plain values with an `init` and an `update`.
//!
//! An update is a function of the model, its gradients and the state of the optimizer, and gives a new model and a new
//! state: it runs as it is, or inside `jit`. The state is a [`Tree`](crate::Tree) whose parts have the model's own type,
//! so that it is stored, mapped and reported as the model is.
//!
//! ```
//! use remat::{Tensor, Tree, optim};
//!
//! #[derive(Tree)]
//! struct Model { weight: Tensor }
//!
//! let adam = optim::AdamW { learning_rate: 0.1.into(), ..optim::AdamW::default() };
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
//! Parameters in f16 and bf16 are updated in f32, rounded once, and their states are f32: 0.999 of something, added up
//! over steps, needs more digits than they have. A leaf of the model that is not a float stays as it is.
//!
//! The number of steps counts from 0, and a [`Schedule`] is asked for the rate of the step that is done, as in optax.

mod adamw;
mod clip;
mod leaves;
mod lion;
mod schedule;
mod sgd;

pub use adamw::{AdamW, Moments};
pub use clip::{clip_by_global_norm, global_norm};
pub use leaves::Mask;
pub use lion::{Lion, Momentum};
pub use schedule::Schedule;
pub use sgd::{Sgd, Velocity};
