//! The operations on tensors, one file per subject.
//!
//! Every method consists of one or a few operations, which are computed at once, or staged while a function is traced. Methods take `&self`
//! and return a tensor. If operands or arguments do not fit, the result is a failed tensor, whose error names the operation, the types and
//! your own line. There is no promotion between dtypes, no operation in place, and no view.

mod activation;
mod argument;
mod collective;
mod construct;
mod conv;
mod convert;
mod device;
mod display;
mod einsum;
mod elementwise;
mod gather;
mod index;
mod join;
mod linalg;
mod marker;
#[cfg(feature = "ndarray")]
mod ndarray;
mod nested;
mod normalise;
mod operators;
mod pool;
mod read;
mod reduce;
mod shape;
mod solve;
mod sort;
#[cfg(test)]
mod tests;
mod update;

pub(crate) use argument::axis;
pub use argument::{Argument, Axes, Dims, Int, Keep, Operand, Scalar, keep};
pub use collective::{AxisNames, axis_index, axis_size};
pub use conv::{ConvConfig, Padding};
pub(crate) use conv::{convolution, spatial_numbers};
pub use einsum::einsum;
pub use gather::{Starts, non_negative};
pub use index::{AsIndex, Ellipsis, Index, IndexRange, Indices, NewAxis, span, step};
pub use marker::{debug_print, optimization_barrier};
pub use nested::Nested;
pub use pool::PoolConfig;
pub(crate) use reduce::reduced_size;
pub use solve::TriangularConfig;
pub use update::At;
