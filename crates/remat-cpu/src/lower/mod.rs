//! Lowering: from a program to steps over buffers.
//!
//! [`flat`] inlines calls, [`steps`] turns changes of layout into views, [`fuse`] decides which equations compute
//! together, [`recompute`] what is not worth keeping.

mod flat;
mod fuse;
mod recompute;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use flat::Flat;
pub(crate) use fuse::{Group, Member};
pub(crate) use steps::{Step, Steps, Value};
