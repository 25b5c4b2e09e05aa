//! The index of several files, which maps tensors to files.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use remat::Result;
use remat::files::{cannot, wrong};
use serde::{Deserialize, Serialize};

use crate::open;

/// The JSON of an index, as Hugging Face writes it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Index {
    #[serde(skip_deserializing)]
    pub(crate) metadata: Sizes,
    /// The file of each tensor.
    pub(crate) weight_map: BTreeMap<String, String>,
}

/// The totals of all files.
#[derive(Default, Serialize)]
pub(crate) struct Sizes {
    /// Bytes of all tensors.
    pub(crate) total_size: u64,
}

/// The files of an index, each with its tensors.
///
/// # Errors
/// If the index cannot be read, or names a file outside of its folder.
pub(super) fn read(operation: &str, path: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let text = open::read(path).map_err(|error| cannot(operation, "read", path, &error))?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| wrong(operation, path, format!("is not an index of safetensors: {error}")))?;
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in index.weight_map {
        // A downloaded index must not cause other files of this machine to be read.
        let mut parts = Path::new(&file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let message =
                format!("says that tensor `{tensor}` is in `{file}`, which is not the name of a file beside it");
            return Err(wrong(operation, path, message));
        }
        files.entry(file).or_default().push(tensor);
    }
    Ok(files)
}
