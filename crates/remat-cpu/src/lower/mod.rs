//! Lowering: from a program to steps over buffers.
//!
//! [`flat`] inlines calls, [`algebra`] drops equations that change nothing, [`parts`] and [`turned`] rewrite products of slices
//! and transposed ones, [`stacks`] what loops stack, [`steps`] turns changes of layout into views, [`fuse`] decides which
//! equations compute together, [`order`] in which order, [`recompute`] what is not worth keeping.

mod algebra;
mod flat;
mod fuse;
mod order;
mod parts;
mod recompute;
mod stacks;
mod steps;
#[cfg(test)]
mod tests;
mod turned;

pub(crate) use flat::Flat;
pub(crate) use fuse::Group;
pub(crate) use steps::{Step, Steps, Value};
