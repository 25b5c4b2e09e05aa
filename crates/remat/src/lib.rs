//! JAX-style program transformation for Rust, built around rematerialization.

extern crate self as remat;

mod api;
pub mod optim;
pub mod random;
mod rules;
mod tensor;
mod trace;
pub mod transform;

pub use api::*;
pub use remat_ir::{
    Array, Atom, Aval, Candidate, ClosedJaxpr, CumulativeKind, DType, Decision, Device, Element, Error, ErrorKind,
    Executable, Jaxpr, Loc, MemorySpace, MemoryStats, Op, Policy, Reference, Result, bf16, f16,
};
pub use remat_macros::Tree;
pub use tensor::*;
pub use trace::{Output, Path, Segment, Structure, Tensor, Tree, Walk, leaves, map_leaves, map_leaves2, named_scope};

#[doc(hidden)]
pub mod testing;
