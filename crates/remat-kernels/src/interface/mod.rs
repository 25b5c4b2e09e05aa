//! The interface between lowering and kernels: layouts, operands, the description of a fused loop, and the trait of kernels.
//!
//! Lowering describes a step with these types and never looks inside a kernel; kernels never see a program.

mod kernel;
pub(crate) mod layout;
mod loops;
mod operand;

pub use kernel::Kernel;
pub use layout::{Layout, Strides};
pub use loops::{
    BlockedLoops, Extent, LoopEquation, LoopInput, LoopOperand, LoopPhase, LoopSource, LoopSpec, PhaseMemory,
};
pub(crate) use operand::with_word;
pub use operand::{Source, Target};
