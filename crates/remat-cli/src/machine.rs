//! The memory of this machine.

use std::fs;

use remat::JitOptions;

/// The bytes of memory that this machine has, where Linux tells.
fn memory() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Options of functions that are compiled only if they fit into the memory of this machine. A limit that the environment
/// sets holds instead.
pub(crate) fn options() -> JitOptions {
    let is_set = std::env::var_os("REMAT_MEMORY_LIMIT").is_some_and(|limit| !limit.is_empty());
    JitOptions { memory_limit: if is_set { None } else { memory() }, ..JitOptions::default() }
}
