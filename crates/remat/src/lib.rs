//! JAX-style program transformation for Rust, built around rematerialization.
//!
//! Write a model as a plain Rust function over [`Tensor`]s. [`grad`], [`vmap`], [`jit`] and their kin trace it once to a
//! small typed program and transform that. [`checkpoint`] says what the backward pass may keep and what it computes again,
//! by a [`Policy`], and the values and gradients are the same under each:
//!
//! ```
//! use remat::{DType, Policy, Tensor, Tree, checkpoint, value_and_grad};
//!
//! #[derive(Clone, Tree)]
//! struct Mlp {
//!     up: Tensor,
//!     down: Tensor,
//! }
//!
//! let model = Mlp { up: Tensor::full([3, 4], 0.5, DType::F32), down: Tensor::full([4, 3], 0.25, DType::F32) };
//! let x = Tensor::from(vec![1.0f32, 2.0, 3.0]);
//!
//! let loss = |policy: Policy| {
//!     let x = &x;
//!     move |model: &Mlp| {
//!         let block = checkpoint(policy.clone(), |m: &Mlp| x.matmul(&m.up).tanh().named("hidden").matmul(&m.down));
//!         block(model).square().sum(..)
//!     }
//! };
//! let (plain, gradient) = value_and_grad(loss(Policy::Everything))(&model)?;
//! let (again, recomputed) = value_and_grad(loss(Policy::names(["hidden"])))(&model)?;
//! assert_eq!(plain.item::<f32>()?, again.item::<f32>()?);
//! assert_eq!(gradient.up.to_vec::<f32>()?, recomputed.up.to_vec::<f32>()?);
//! # Ok::<(), remat::Error>(())
//! ```
//!
//! Three rules cover the interface:
//!
//! - A transformation takes a function of one tree, and what the closure captures is constant. So there are no argument
//!   numbers, no static arguments and no partition of a model: capture what is not differentiated.
//! - What returns a tensor never fails, it defers; everything else returns a [`Result`]. An [`Error`] names the operation,
//!   the types and your own line.
//! - A model is a plain struct that derives [`Tree`]; its gradient has its type.
//!
//! Layers, each using only those above it in this list (a test holds this):
//!
//! 1. `rules`: the calculus of first-order operations
//! 2. [`transform`]: jaxpr to jaxpr
//! 3. `trace`: tensors, open traces, trees
//! 4. `tensor`: the methods of tensors
//! 5. `api`: the transformations of closures
//! 6. `loops`: loops that keep a bounded number of states for reverse mode
//! 7. `inspect`: reports of what is saved
//! 8. [`random`], [`optim`], `testing`: what is built of all these
//! 9. [`nn`]: the layers of models

extern crate self as remat;

mod api;
mod inspect;
mod loops;
pub mod nn;
pub mod optim;
pub mod random;
mod rules;
mod tensor;
mod trace;
pub mod transform;

pub use api::*;
pub use inspect::*;
pub use loops::*;
pub use remat_cpu::Cpu;
pub use remat_ir::{
    Array, Atom, Aval, Call, Candidate, ClosedJaxpr, CumulativeKind, DType, Decision, Device, Element, Error,
    ErrorKind, Executable, Jaxpr, LiveKind, LiveValue, Loc, MemoryReport, MemorySpace, MemoryStats, Op, Policy, Prim,
    Reference, Result, bf16, f16, readable_bytes,
};
pub use remat_macros::Tree;
pub use remat_opt::{Pass, Stage, Stages};
pub use tensor::*;
pub use trace::{Output, Path, Segment, Structure, Tensor, Tree, Walk, leaves, map_leaves, map_leaves2, named_scope};

#[doc(hidden)]
pub mod testing;

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
