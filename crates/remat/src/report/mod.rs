//! Reports: what the backward pass keeps and why, the programs of both passes, what takes the memory of a program.
//!
//! To make a report runs no program: it is made from the traced one, so reports are the same before the first step as
//! after it, whatever the size of the model.

mod decisions;
mod highlight;
mod programs;
mod residuals;

pub use decisions::{PolicyDecision, PolicyDecisions, policy_decisions};
pub use programs::{FwdBwd, fwd_bwd, print_fwd_bwd};
pub use remat_ir::{LiveKind, LiveValue, MemoryReport, MemoryStats, readable_bytes};
pub use residuals::{print_saved_residuals, saved_residuals};

pub use crate::api::residuals::{Residuals, SavedKind, SavedResidual};
pub use crate::transform::log::Reason;
pub use crate::transform::origin::Through;
