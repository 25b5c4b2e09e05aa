//! JAX-style program transformation for Rust, built around rematerialization.

extern crate self as remat;

#[allow(dead_code)]
mod rules;
#[allow(dead_code, unused_imports)]
mod trace;

pub use remat_ir::{DType, Element, Error, ErrorKind, Policy, Result};
pub use remat_macros::Tree;
pub use trace::{Output, Path, Segment, Structure, Tensor, Tree, Walk, leaves, named_scope};

#[doc(hidden)]
pub mod testing;
