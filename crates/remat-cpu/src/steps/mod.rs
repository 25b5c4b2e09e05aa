//! Steps: the form of a program between equations and kernels.
//!
//! [`form`] is the table of the forms that operations take, [`views`] turns changes of layout into views, [`fuse`] decides which equations
//! compute together, [`order`] in which order, [`recompute`] which values are not worth keeping, [`merge`] what loops need to compute only once,
//! [`check`] whether all of them were right, [`keep`], once there is a plan, which values there is memory for after all, and [`blocks`] which loops are
//! computed together.

mod blocks;
mod check;
mod form;
mod fuse;
mod ir;
mod keep;
mod merge;
mod order;
mod recompute;
#[cfg(test)]
mod tests;
mod views;

pub(crate) use ir::{Blocks, Group, Step, Steps, Value};
