//! Steps: what the equations of a program become.
//!
//! [`form`] says what form an operation takes, [`views`] turns changes of layout into views, [`fuse`] decides which equations
//! compute together, [`order`] in which order, [`recompute`] which values are not worth keeping, and [`check`] whether all of
//! them were right.

mod check;
mod form;
mod fuse;
mod ir;
mod order;
mod recompute;
#[cfg(test)]
mod tests;
mod views;

pub(crate) use ir::{Group, Step, Steps, Value};
