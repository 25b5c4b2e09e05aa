//! Reports: what the backward pass keeps and why, the programs of both passes, and what takes the memory of a program.
//!
//! Reports are made from the traced program and run nothing. So they are the same before the first step and after it, for a model of any
//! size.

mod decisions;
mod highlight;
mod programs;
mod residuals;

pub use decisions::{PolicyDecision, PolicyDecisions, policy_decisions};
pub use programs::{FwdBwd, fwd_bwd, print_fwd_bwd};
pub use remat_ir::{
    LiveKind, LiveRange, LiveRanges, LiveValue, MemoryReport, MemoryStats, Move, Moves, Place, Profile, ProfiledGroup,
    ProfiledStep, RangeStep, readable_bytes,
};
pub use residuals::{print_saved_residuals, saved_residuals};

pub use crate::api::residuals::{Residuals, SavedKind, SavedResidual};
pub use crate::transform::log::Reason;
pub use crate::transform::origin::Through;
