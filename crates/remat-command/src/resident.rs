//! The resident memory of this process, according to Linux.

use std::fs;

/// The resident bytes now; `None` if the system does not report them.
///
/// ```
/// let now = remat_command::resident::now();
/// assert!(now <= remat_command::resident::peak());
/// ```
pub fn now() -> Option<usize> {
    read("VmRSS:")
}

/// The bytes of files, such as its code, that the process has in memory now; `None` if the system does not report them.
///
/// ```
/// assert!(remat_command::resident::files() <= remat_command::resident::now());
/// ```
pub fn files() -> Option<usize> {
    read("RssFile:")
}

/// The most resident bytes since the start or since [`reset_peak`]; `None` if the system does not report them.
pub fn peak() -> Option<usize> {
    read("VmHWM:")
}

/// Resets the peak to the bytes that are resident now. If the system refuses, growth is measured from the old peak.
pub fn reset_peak() {
    // 5 is the number of this request in `proc(5)`.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn read(field: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
