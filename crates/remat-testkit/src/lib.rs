//! Shared by the tests of remat's crates.
//!
//! [`FileTests`] runs tests that are text files: a program and what a transformation makes of it. [`layers`] holds the
//! order of a crate's modules that its documentation lists. [`arrays`] makes arrays and compares them. [`all_samples`] are
//! applications of every first-order operation, which the generic tests run over. [`sized`] says how much a test does,
//! [`installed`] what it needs of the machine, and [`not_tested`] that it cannot run.
//! Deliberately absent: anything that a user needs.

pub mod arrays;
mod filetests;
mod installed;
pub mod layers;
mod samples;
mod sized;

pub use filetests::{Args, FileTests};
pub use installed::{installed, not_tested};
pub use samples::{Sample, all_samples};
pub use sized::sized;
