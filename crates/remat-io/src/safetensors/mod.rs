//! Trees in safetensors files.

mod index;
mod read;
mod write;

pub(crate) use index::{Index, Sizes};
pub(crate) use read::of_operation;
pub use read::{LoadOptions, SafeTensors, load, load_with};
pub(crate) use write::write;
pub use write::{SaveOptions, save, save_with};
