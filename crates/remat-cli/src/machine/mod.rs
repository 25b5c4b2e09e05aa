//! The memory of this machine.

mod group;

use std::fs;
use std::path::Path;

use remat::tree::leaves;
use remat::{Cpu, Device, JitOptions, Result, Tree};
use remat_cli::resident;

/// What the process grows by from its plan to its last step, beside the values of its programs: code that runs for the first time, stacks of
/// threads, buffers of files. Measured on training: 3.3 MiB.
const GROWTH: usize = 6 << 20;

/// The bytes of memory that this process may use, if Linux reports them: those of the machine, or of its control group (as in a container),
/// if that has fewer.
pub(crate) fn memory() -> Option<usize> {
    least(field("MemTotal:"), |group| group.limit)
}

/// The bytes that a limit of this process counts beside those of programs and their values: what it has in memory now, and what it takes
/// while programs run. 0 if the system does not report it.
pub(crate) fn of_process() -> usize {
    resident::now().map_or(0, |now| now.saturating_add(GROWTH))
}

/// A limit of this process, and the bytes under it that are not those of programs.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) bytes: usize,
    pub(crate) beside: usize,
}

/// The tightest limit of this process, if Linux reports one: the memory of the machine, beside the process itself, or that of a control group,
/// beside all of its processes.
pub(crate) fn bound() -> Option<Bound> {
    let own = of_process();
    // The files that the process has in memory may be counted in another group, or evicted; then it would read its code again and again.
    let files = resident::files().unwrap_or(0).saturating_add(GROWTH);
    let groups = group::of_this_process(Path::new("/")).into_iter();
    let groups = groups.map(|group| Bound { bytes: group.limit, beside: own.max(group.used.saturating_add(files)) });
    let machine = field("MemTotal:").map(|bytes| Bound { bytes, beside: own });
    groups.chain(machine).min_by_key(|bound| bound.bytes.saturating_sub(bound.beside))
}

/// The bytes of memory available to new programs without swapping, if Linux reports them; also limited by the control group.
pub(crate) fn available() -> Option<usize> {
    least(field("MemAvailable:"), |group| group.limit.saturating_sub(group.used))
}

/// The smallest of the machine's value and those of its nested control groups.
fn least(machine: Option<usize>, of_group: impl Fn(&group::Memory) -> usize) -> Option<usize> {
    let groups = group::of_this_process(Path::new("/"));
    machine.map(|bytes| groups.iter().map(of_group).fold(bytes, usize::min))
}

fn field(name: &str) -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Options of functions that run on the device of a model. If that is this machine, they are compiled only if they fit in its memory. A
/// limit in the environment takes precedence.
///
/// # Errors
/// The error of a failed weight.
pub(crate) fn options(model: &impl Tree) -> Result<JitOptions> {
    let device = leaves(model).first().map_or_else(Device::default_device, |(_, leaf)| leaf.device())?;
    let is_here = matches!(device.name(), Cpu::NAME | "xla-cpu:0");
    let is_set = std::env::var_os("REMAT_MEMORY_LIMIT").is_some_and(|limit| !limit.is_empty());
    let memory_limit = if is_set || !is_here { None } else { memory() };
    Ok(JitOptions { memory_limit, ..JitOptions::default() })
}
