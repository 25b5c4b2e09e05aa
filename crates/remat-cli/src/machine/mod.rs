//! The memory of this machine.

mod group;

use std::fs;
use std::path::Path;

use remat::report::readable_bytes;
use remat::tree::leaves;
use remat::{Cpu, Device, ErrorKind, JitOptions, Result, Tree};
use remat_command::resident;

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

impl Bound {
    /// The bytes that are left for programs, which have `held` bytes of this process among their arguments.
    fn left(&self, held: usize) -> usize {
        self.bytes.saturating_sub(self.beside.saturating_sub(held))
    }
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
    groups.chain(machine).min_by_key(|bound| bound.left(0))
}

/// The bytes of memory available to new programs without swapping, if Linux reports them; also limited by the control group.
pub(crate) fn available() -> Option<usize> {
    least(field("MemAvailable:"), |group| group.limit.saturating_sub(group.used))
}

/// The smallest of the machine's value and those of its nested control groups.
fn least(machine: Option<usize>, bytes_of: impl Fn(&group::Memory) -> usize) -> Option<usize> {
    let groups = group::of_this_process(Path::new("/"));
    machine.map(|bytes| groups.iter().map(bytes_of).fold(bytes, usize::min))
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
    within(model, memory)
}

/// As [`options`], for functions of a model that has been read: they have to fit beside the process, whose memory has the model already, and
/// [share their memory](sharing_memory).
///
/// # Errors
/// The error of a failed weight.
pub(crate) fn options_beside_process(model: &impl Tree) -> Result<JitOptions> {
    let held = bytes(model)?;
    let options = within(model, || bound().map(|bound| bound.left(held)))?;
    Ok(sharing_memory(&device_of(model)?, options))
}

/// The same options, with programs that share one block of memory if they run on the native engine, so that what they need does not add up.
pub(crate) fn sharing_memory(device: &Device, options: JitOptions) -> JitOptions {
    match device.name() {
        Cpu::NAME => JitOptions { device: Some(Cpu::default().sharing_memory().into()), ..options },
        _ => options,
    }
}

fn device_of(model: &impl Tree) -> Result<Device> {
    leaves(model).first().map_or_else(Device::default_device, |(_, leaf)| leaf.device())
}

fn within(model: &impl Tree, limit: impl FnOnce() -> Option<usize>) -> Result<JitOptions> {
    let is_here = matches!(device_of(model)?.name(), Cpu::NAME | "xla-cpu:0");
    let memory_limit = if is_limit_set() || !is_here { None } else { limit() };
    Ok(JitOptions { memory_limit, ..JitOptions::default() })
}

fn is_limit_set() -> bool {
    std::env::var_os("REMAT_MEMORY_LIMIT").is_some_and(|limit| !limit.is_empty())
}

/// The error of functions with [`options_beside_process`], with the limit that they were given if they do not fit.
pub(crate) fn explained(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    let is_memory = error.downcast_ref::<remat::Error>().is_some_and(|error| error.kind() == ErrorKind::Memory);
    match bound() {
        Some(Bound { bytes, beside }) if is_memory && !is_limit_set() => error.context(format!(
            "the memory of this machine or its control group is {}, of which the process itself takes {}",
            readable_bytes(bytes),
            readable_bytes(beside)
        )),
        _ => error,
    }
}

/// The bytes of a tree.
///
/// # Errors
/// The error of a failed leaf.
pub(crate) fn bytes(tree: &impl Tree) -> Result<usize> {
    leaves(tree).iter().map(|(_, leaf)| Ok(leaf.aval()?.bytes())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_share_with_the_process_is_counted_once() {
        let bound = Bound { bytes: 100, beside: 30 };
        assert_eq!((bound.left(0), bound.left(20)), (70, 90));
        // Weights that are in a file or swapped out are not in memory.
        assert_eq!(bound.left(40), 100);
        assert_eq!(Bound { bytes: 100, beside: 130 }.left(20), 0);
    }
}
