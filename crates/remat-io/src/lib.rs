//! Saving and loading: trees of tensors as safetensors files, the whole state of a training run as folders ([`Checkpoints`]), what is
//! measured on the way ([`Metrics`]), and models of [Hugging Face](huggingface).
//!
//! ```
//! use remat::{DType, nn, random};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("model.safetensors");
//! let model = nn::Block::init(random::key(0), 16, 4, DType::F32);
//! remat_io::save(&path, &model)?;
//!
//! // `like` gives names, dtypes and shapes; its elements are not used.
//! let like = nn::Block::init(random::key(1), 16, 4, DType::F32);
//! let loaded = remat_io::load(&path, &like)?;
//! assert_eq!(loaded.mlp.up.weight.to_vec::<f32>()?, model.mlp.up.weight.to_vec::<f32>()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The name of a tensor is its path in the tree, as [`Path`](remat::tree::Path) prints it and PyTorch writes names: fields, positions in
//! sequences and tuples, and keys of maps, joined by dots: `blocks.0.attn.qkv.weight`. `Option`, `Box` and the variants of enums add
//! nothing. A stacked [`Stack`](remat::nn::Stack) has one tensor for each weight, with the axis of layers in front, and no layer numbers in
//! the names. A tree that is a single tensor has the name `tensor`. Values that are not tensors (numbers of heads, variants) are not in the
//! file: they are in the program, or in the configuration of a checkpoint.
//!
//! Files are written under a temporary name, synced to the disk, and then renamed over the old file in one step. So an error, a full disk
//! or a killed process leaves the old file unchanged.
//!
//! Layers, each of which uses only those above it in this list (a test checks this):
//!
//! 1. `failure`, `open`, `element`, `name`: errors of files, files that may come from anywhere, elements as bytes, names of tensors
//! 2. `atomic`, `header`: files that appear complete, the header of safetensors
//! 3. `safetensors`, `trace`, `report`, `metrics`: writing and reading trees; profiles as other programs read them; the memory of plans as a
//!    page; what is measured while training
//! 4. `checkpoint`, [`huggingface`]: folders of the state of training, and of models of Hugging Face

#[cfg(target_endian = "big")]
compile_error!("safetensors are little-endian, and so have to be the elements in memory");

mod atomic;
mod checkpoint;
mod element;
mod failure;
mod header;
pub mod huggingface;
mod metrics;
mod name;
mod open;
mod report;
mod safetensors;
mod trace;

pub use atomic::save_text;
pub use checkpoint::{Checkpoint, CheckpointOptions, Checkpoints, Latest, Progress, Snapshot};
pub use metrics::Metrics;
pub use name::names;
pub use report::{REPORTED_PLANS, save_report, save_report_with};
pub use safetensors::{LoadOptions, SafeTensors, SaveOptions, load, load_with, save, save_with};
pub use trace::save_trace;
