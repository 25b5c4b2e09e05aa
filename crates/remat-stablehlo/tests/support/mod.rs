//! The programs that `tests/fixtures/write.py` wrote.

use std::path::{Path, PathBuf};

/// The folder of the programs.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The names of the programs in a folder, and their bytes.
pub(crate) fn programs(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "mlirbc"));
    paths.sort();
    assert!(!paths.is_empty(), "{} has no programs", folder.display());
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    paths.into_iter().map(|path| (name(&path), std::fs::read(path).unwrap())).collect()
}
