//! The native engine: compiles a whole program for the CPU and runs it in memory that is known before.
//!
//! A program passes through these modules, each of which uses only those before it:
//!
//! 1. `kernels`: what computes one step, over operands that lie in memory already; `tile` and `simd` are their loops
//! 2. `lower`: inlines calls, turns changes of layout into views, groups elementwise operations and reductions into loops
//! 3. `schedule`: orders the steps for a low peak of memory
//! 4. `plan`: gives every value its place in one arena
//! 5. `compile`: does all of this, loops and branches (`control`) included
//! 6. `device`: runs the program; `eager` runs single operations as programs

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
mod threads;
mod tile;

pub use device::Cpu;
pub use eager::{apply, run};
