//! The native engine: compiles a whole program for the CPU and runs it in memory that is planned ahead.
//!
//! Kernels and threads are a crate of their own (`remat-kernels`), and so are orders and memory plans (`remat-plan`). A program goes through
//! the passes of [`remat_opt::pipeline::CPU`], then through these modules. Each uses only modules before it and beside it in this list, which
//! a test checks:
//!
//! 1. `ids`: index types
//! 2. `steps`: turns changes of layout into views, groups elementwise operations and reductions into loops
//! 3. `arena`, `pool`, `program`, `peak`, `profile`: the memory of a run and of its results, the run, and its time
//! 4. `compile`, `control`: make a program of the steps, with kernels, an order and a memory plan; the bodies of loops and branches are
//!    programs too
//! 5. `device`: the public engine
//! 6. `eager`: runs single operations as programs

mod arena;
mod compile;
mod control;
mod device;
mod eager;
mod ids;
mod peak;
mod pool;
mod profile;
mod program;
mod steps;

pub use device::Cpu;
pub use eager::{apply, run};
