//! Checkpoints: folders with the state of a training run, from which it resumes exactly.
//!
//! ```text
//! run/
//!   step-000100/
//!     model.safetensors      a file for each tree
//!     optimizer.safetensors
//!     state.json             format, step, seed, position in the data, configuration; length and checksum of each file, and a checksum of these
//!   step-000200/
//!   .step-000300.partial/    being written, or left by a run that was killed
//!   .step-000200.replaced/   while step 200 is written again, until the new one has its name
//!   step-000900.old/         of a run that went back to an earlier step: no longer read
//!   .lock                    held by the process that writes here
//! ```
//!
//! A folder is renamed to its final name only when all of it is on the disk. So every checkpoint with such a name is complete at any time,
//! and a killed process loses only the steps after the last checkpoint.

mod finite;
mod folder;
mod manifest;
mod read;
mod snapshot;
mod write;

pub use manifest::Progress;
pub use read::{Checkpoint, Latest};
pub use snapshot::Snapshot;
pub use write::{CheckpointOptions, Checkpoints};
