//! JAX-style program transformation for Rust, built around rematerialization.
//!
//! Write a model as a plain Rust function over [`Tensor`]s. [`grad`], [`vmap`], [`jit`] and others trace it once into a small typed program
//! and transform that program. [`checkpoint`] with a [`Policy`] decides what the backward pass keeps and what it computes again. Values and
//! gradients are the same under every policy (up to roundings in one case, which docs/DESIGN.md describes):
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
//! - A transformation takes a function of one tree. Values that the closure captures are constant for the transformation that takes the
//!   closure; [`checkpoint`] differentiates through them. So there are no argument numbers, no static arguments and no partition of a model:
//!   capture the values that are not differentiated.
//! - An error is an [`Error`], which names the operation, the types and your own line. Functions that make tensors defer it: methods of
//!   tensors, the layers of [`nn`] (including `init`) and [`random`] return failed tensors, which carry the error to the point where they
//!   are read. All others that can fail return a [`Result`]: reading shapes and values, transformations, loops, branches, optimizers,
//!   engines, and layers that are loops, have a cache or statistics, or change a model. Five return whatever the function that they wrap
//!   returns, a tree or a `Result`: [`checkpoint`], [`checkpoint_layers`], [`custom_jvp`], [`custom_vjp`] and [`custom_remat`].
//! - A model is a plain struct that derives [`Tree`]; its gradient has its type.
//!
//! This page lists what most programs use. The rest is in modules: [`nn`], [`optim`], [`random`]; [`cluster`] for several hosts; [`tree`]
//! for the leaves of models, [`index`] and [`argument`] for arguments of methods, [`layer`] for writing layers, [`report`] for residuals
//! and memory, [`stages`] and [`ir`] for programs, [`transform`] for transformations of these. A function whose name ends in `_with` takes
//! options first, by reference.
//!
//! Layers, each using only those above it in this list (a test checks this):
//!
//! 1. `rules`: the calculus of first-order operations
//! 2. [`transform`]: jaxpr to jaxpr
//! 3. `checks`: checks of values while programs run
//! 4. `trace`: tensors, open traces, trees
//! 5. `tensor`: the methods of tensors
//! 6. `files`, `api`: files that appear whole; the transformations of closures
//! 7. `loops`: loops that keep a bounded number of states for reverse mode
//! 8. [`report`]: reports of residuals, decisions of policies and memory
//! 9. [`random`], [`optim`], [`cluster`], `testing`: built on all of these
//! 10. [`nn`], [`memory`]: the layers of models; the memory of a training step

extern crate self as remat;

mod api;
mod checks;
pub mod cluster;
#[doc(hidden)]
pub mod files;
mod loops;
pub mod memory;
pub mod nn;
pub mod optim;
pub mod random;
pub mod report;
mod rules;
mod tensor;
mod trace;
pub mod transform;

pub use api::{
    AssociativeScanOptions, BatchAxes, Explanation, JitOptions, Jitted, Layers, LinearMap, OverLimit, Plan,
    ScanOptions, ShardMapOptions, Shardings, Specs, VmapOptions, associative_scan, associative_scan_with, checkpoint,
    checkpoint_layers, cond, custom_jvp, custom_remat, custom_vjp, eval_shape, fori_loop, grad, grad_aux, hessian,
    jacfwd, jacrev, jit, jit_with, jvp, linear_transpose, linearize, make_jaxpr, map, plan, pmean, psum, scan,
    scan_with, shard_map, shard_map_with, switch, value_and_grad, value_and_grad_aux, vjp, vjp_aux, vmap, vmap_with,
    while_loop,
};
pub use checks::Checks;
pub use loops::{LoopScheme, binomial_steps, scan_checkpointed, scan_checkpointed_with, while_loop_checkpointed};
pub use remat_cpu::Cpu;
/// Programs: traced functions, their operations, values and dtypes, and the traits of an engine.
pub use remat_ir as ir;
pub use remat_ir::{DType, Error, ErrorKind, Mesh, PartitionSpec, Policy, Result, Sharding, bf16, captured, f16, spec};
pub use remat_macros::Tree;
pub use tensor::{
    AxisNames, ConvConfig, Padding, PoolConfig, TriangularConfig, axis_index, axis_size, debug_print, einsum,
    optimization_barrier,
};
pub use trace::{Device, Tensor, Tree, named_scope};

/// Arguments of methods of tensors: operands, scalars, shapes, axes; numbers of bytes.
pub mod argument {
    pub use crate::api::Bytes;
    pub use crate::tensor::{Argument, Axes, Dims, Int, Keep, Nested, Operand, Scalar, Starts, keep};
}

/// Arguments of `x.index(..)` and `x.at(..)` other than numbers, ranges and tensors, and the result of `at`.
pub mod index {
    pub use crate::tensor::{AsIndex, At, Ellipsis, Index, IndexRange, Indices, NewAxis, non_negative, span, step};
}

/// Tools for writing layers, with which those of [`nn`] are written. The user of a layer sees one call, so its errors, and its values in
/// reports, are located at the line of this call, not inside the layer.
///
/// ```
/// use remat::layer::{deferred, pinned};
/// use remat::{DType, Tensor, Tree, named_scope};
///
/// #[derive(Clone, Tree)]
/// struct Gated {
///     up: Tensor,
///     gate: Tensor,
/// }
///
/// impl Gated {
///     #[track_caller]
///     fn apply(&self, x: &Tensor) -> Tensor {
///         pinned(|| named_scope("gated", || x.matmul(&self.up) * x.matmul(&self.gate).sigmoid()))
///     }
///
///     /// The same, divided by the square root of its width.
///     #[track_caller]
///     fn scaled(&self, x: &Tensor) -> Tensor {
///         deferred(|| {
///             let y = self.apply(x);
///             let width = y.dim(-1)?;
///             Ok(y / (width as f64).sqrt())
///         })
///     }
/// }
///
/// let layer = Gated { up: Tensor::ones([3, 4], DType::F32), gate: Tensor::ones([3, 4], DType::F32) };
/// let line = line!() + 1;
/// let error = layer.scaled(&Tensor::ones([2, 5], DType::F32)).item::<f32>().unwrap_err();
/// assert_eq!(error.message(), "the inner sizes of f32[2,5] and f32[3,4] differ: 5 and 3");
/// assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
/// ```
pub mod layer {
    pub use crate::trace::{apply, current_loc as location, deferred, pinned};
}

/// The stages of a jitted function: traced, lowered, compiled.
pub mod stages {
    pub use remat_ir::Pass;
    pub use remat_opt::cost::Cost;
    pub use remat_opt::{Stage, Stages};

    pub use crate::api::{Compiled, Lowered, Traced};
}

/// Targets of ahead-of-time compilation, which need not be in the machine, for [`Lowered::compile_for`](stages::Lowered::compile_for).
pub mod ahead {
    pub use remat_xla::{AheadOptions, Chip, ChipMemory, Effort, Target, serve_ahead};
}

/// Trees of tensors: their leaves, paths and structure; the parameters of a model.
pub mod tree {
    pub use crate::api::JacobianOf;
    pub use crate::trace::{
        Output, Path, ScalarOutput, Segment, Structure, Summary, Tree, Walk, leaves, map, map_nodes, map_with_path,
        map2, parameters, summary,
    };
}

#[doc(hidden)]
pub mod testing;
