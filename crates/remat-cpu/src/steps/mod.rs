//! Steps: the form of a program between equations and kernels.
//!
//! [`form`] is the table of forms that operations take. [`views`] turns changes of layout into views, [`fuse`] groups equations into loops,
//! [`order`] orders them, and [`merge`] drops duplicate work within loops. [`check`] verifies the result. [`moves`] changes steps, in less time
//! or less memory, by what [`cost`] says of them and [`facts`] of their values. [`placement`] tells where the values of loops are.

mod check;
mod cost;
mod facts;
mod form;
mod fuse;
mod ir;
mod lower;
mod merge;
mod moves;
mod order;
mod placement;
#[cfg(test)]
mod tests;
mod views;

pub(crate) use ir::{Blocks, FusedLoop, Step, Steps, Value};
pub(crate) use moves::parts::Part;
pub(crate) use moves::{Change, MOVERS, Mover, Program, Proposal};
pub(crate) use placement::{aliases, no_function, spec};
