//! The user-facing transformations, on closures over trees.
//!
//! Each takes a function of one tree, traces it once, transforms the program, and runs it or adds it to the open trace. Values that a
//! closure captures are constant for the transformation.

mod associative;
mod batch;
mod checkpoint;
pub(crate) mod control;
pub(crate) mod custom;
mod custom_remat;
mod differentiate;
mod jacobian;
mod jit;
mod layers;
mod limit;
pub(crate) mod linear_map;
pub(crate) mod linearization;
mod plan;
mod program;
mod programs;
pub(crate) mod residuals;
mod settings;
mod shard;
mod skeleton;
mod stages;
mod update;

pub use associative::{AssociativeScanOptions, associative_scan, associative_scan_with};
pub use batch::{BatchAxes, VmapOptions, vmap, vmap_with};
pub use checkpoint::checkpoint;
pub use control::{ScanOptions, cond, fori_loop, map, scan, scan_with, switch, while_loop};
pub(crate) use custom::without_derivative;
pub use custom::{custom_jvp, custom_vjp};
pub use custom_remat::custom_remat;
pub(crate) use differentiate::value_and_grad_at;
pub use differentiate::{
    grad, grad_aux, jvp, linear_transpose, linearize, value_and_grad, value_and_grad_aux, vjp, vjp_aux,
};
pub use jacobian::{JacobianOf, hessian, jacfwd, jacrev};
pub use jit::{JitOptions, Jitted, jit, jit_with};
pub(crate) use layers::repeated;
pub use layers::{Layers, checkpoint_layers};
pub use limit::{Bytes, OverLimit};
pub use linear_map::LinearMap;
pub use plan::{Explanation, Plan, plan};
pub use program::{eval_shape, make_jaxpr};
pub use shard::{ShardMapOptions, Shardings, Specs, pmean, psum, shard_map, shard_map_with};
pub use stages::{Compiled, Lowered, Traced};
