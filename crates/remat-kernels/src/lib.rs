//! The kernels of the native engine: each computes one step of a compiled program over operands that are in memory.
//!
//! [`kernel`] returns the kernel of an operation, [`LoopSpec::kernel`] that of a fused loop of elementwise operations and reductions, and
//! [`copy`] one that copies between layouts. Everything that can be decided when a program is compiled is decided then; a run allocates
//! nothing. Not here: programs, schedules and memory plans, which belong to the engine (`remat-cpu`).
//!
//! Each of these modules uses only those before it and beside it in this list (a test checks this):
//!
//! 1. `isa`, `simd`, `threads`: instruction sets, vector instructions, and the only way to run in parallel
//! 2. `interface`, `test_support`: the types that lowering and kernels share; what the tests of kernels share
//! 3. `number`: arithmetic of elements: traits, rounding to f16 and bf16, functions that are vectorised
//! 4. `tile`: functions that compute some hundred elements in the first-level cache
//! 5. `base`: what kernels of several families are made of
//! 6. `kernels`: the kernels, one file or folder for each family of operations
//! 7. `dispatch`: which kernel computes an operation

mod base;
mod dispatch;
mod interface;
mod isa;
mod kernels;
mod number;
mod simd;
#[cfg(test)]
mod test_support;
mod threads;
mod tile;

pub use base::precision::{Precision, matmul_precision};
pub use base::{ceiling, read_rate, used_isa};
pub use dispatch::{copy, kernel};
pub use interface::{
    BlockedLoops, Extent, Kernel, Layout, LoopEquation, LoopInput, LoopOperand, LoopPhase, LoopSource, LoopSpec,
    PhaseMemory, Source, Strides, Target,
};
pub use isa::{Isa, max_cpu_isa};
pub use kernels::choice::{AlgorithmInfo, algorithms, forced_algorithms};
pub use threads::Threads;
