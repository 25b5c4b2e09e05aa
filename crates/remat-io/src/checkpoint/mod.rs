//! Checkpoints: folders with the state of a training run, from which it goes on as if it had not stopped.
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
//! A folder has its name once all of it is on the disk: the last act of writing is to rename it. So at each instant there are whole checkpoints or none,
//! and a process that is killed loses what came after the last.

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
