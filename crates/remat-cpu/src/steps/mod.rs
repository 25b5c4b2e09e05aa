//! Steps: the form of a program between equations and kernels.
//!
//! [`form`] is the table of forms that operations take. [`views`] turns changes of layout into views, [`fuse`] groups equations into loops,
//! [`order`] orders them, [`recompute`] computes values again that are not worth keeping, and [`merge`] drops duplicate work within loops.
//! [`check`] verifies the result. Once there is a memory plan, [`keep`] keeps values for which there is memory after all, [`blocks`] groups
//! loops to compute them block by block, and [`join`] joins other loops that share work.

mod blocks;
mod check;
mod form;
mod fuse;
mod ir;
mod join;
mod keep;
mod lower;
mod merge;
mod order;
mod parts;
mod recompute;
mod repeat;
#[cfg(test)]
mod tests;
mod views;

pub(crate) use ir::{Blocks, FusedLoop, Step, Steps, Value};
pub(crate) use parts::Part;
