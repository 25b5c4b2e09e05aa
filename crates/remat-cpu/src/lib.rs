//! The native engine: compiles a whole program for the CPU and runs it in memory that is planned ahead.
//!
//! Kernels and threads are a crate of their own (`remat-kernels`). A program goes through the passes of [`remat_opt::pipeline::CPU`], then
//! through these modules. Each uses only modules before it and beside it in this list, which a test checks:
//!
//! 1. `ids`, `align`: index types, alignment
//! 2. `steps`: turns changes of layout into views, groups elementwise operations and reductions into loops
//! 3. `schedule`: orders the steps for a low peak of memory
//! 4. `plan`: gives every value its offset in one arena, and checks the plan
//! 5. `arena`, `program`, `peak`: the memory of a run, and the run
//! 6. `compile`, `control`: run all of the above; the bodies of loops and branches are programs too
//! 7. `device`: the public engine
//! 8. `eager`: runs single operations as programs

mod align;
mod arena;
mod compile;
mod control;
mod device;
mod eager;
mod ids;
mod peak;
mod plan;
mod program;
mod schedule;
mod steps;

pub use device::Cpu;
pub use eager::{apply, run};
