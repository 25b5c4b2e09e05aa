//! JAX-style program transformation for Rust, built around rematerialization.

extern crate self as remat;

pub mod random;
#[allow(dead_code)]
mod rules;
mod tensor;
#[allow(dead_code, unused_imports)]
mod trace;

pub use remat_ir::{
    Array, Aval, CumulativeKind, DType, Element, Error, ErrorKind, MemorySpace, Policy, Result, bf16, f16,
};
pub use remat_macros::Tree;
pub use tensor::*;
pub use trace::{Output, Path, Segment, Structure, Tensor, Tree, Walk, leaves, named_scope};

#[doc(hidden)]
pub mod testing;
