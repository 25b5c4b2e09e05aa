//! Trees in safetensors files.

mod read;
mod write;

pub use read::{LoadOptions, SafeTensors, load, load_with};
pub(crate) use write::write;
pub use write::{SaveOptions, save, save_with};
