//! Lowering: from a program to steps over buffers.
//!
//! [`flat`] inlines calls, [`steps`] turns changes of layout into views, [`fuse`] decides which equations compute
//! together.

mod flat;
mod fuse;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use flat::Flat;
pub(crate) use fuse::{Group, Member};
pub(crate) use steps::{Step, Steps, Value};
