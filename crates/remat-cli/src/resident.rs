//! The resident memory of this process, as Linux counts it.

use std::fs;

/// The bytes that are resident now; `None` where the system does not say.
///
/// ```
/// let now = remat_cli::resident::now();
/// assert!(now <= remat_cli::resident::peak());
/// ```
pub fn now() -> Option<usize> {
    read("VmRSS:")
}

/// The most bytes that were resident since the start or since [`reset_peak`]; `None` where the system does not say.
pub fn peak() -> Option<usize> {
    read("VmHWM:")
}

/// Makes the bytes that are resident now the peak. Where the system refuses, growth is measured from the peak before.
pub fn reset_peak() {
    // 5 is the number that `proc(5)` gives this request.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn read(field: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
