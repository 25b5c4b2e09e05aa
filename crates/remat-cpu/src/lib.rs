//! The native engine: compiles a whole program for the CPU and runs it in memory that is known before.
//!
//! A program passes through these modules, each of which uses only those before it and beside it in this list (a test holds
//! this):
//!
//! 1. `simd`, `threads`: vector instructions, and the only way to run in parallel
//! 2. `tile`: what computes some hundred elements in the first-level cache
//! 3. `kernels`: what computes one step, over operands that lie in memory already
//! 4. `lower`: inlines calls, and rewrites equations
//! 5. `steps`: turns changes of layout into views, groups elementwise operations and reductions into loops
//! 6. `schedule`: orders the steps for a low peak of memory
//! 7. `plan`: gives every value its offset in one arena
//! 8. `arena`, `program`: the memory of a run, and the run
//! 9. `compile`, `control`: do all of this; the bodies of loops and branches are programs too
//! 10. `device`: what users are given
//! 11. `eager`: runs single operations as programs

mod arena;
mod compile;
mod control;
mod device;
mod eager;
mod kernels;
mod lower;
mod plan;
mod program;
mod schedule;
mod simd;
mod steps;
mod threads;
mod tile;

pub use device::Cpu;
pub use eager::{apply, run};
