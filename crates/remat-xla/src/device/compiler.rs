//! A client with a cache: it compiles only what has not been compiled on this machine before.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::{env, fs};

use remat_ir::{Aval, Result};
use twox_hash::XxHash3_128;

use crate::pjrt::{Client, Loaded};
use crate::{ExecutableCache, Platform, Plugin};

/// A client, and the cache of executables that it may load.
pub(super) struct Compiler {
    pub(super) client: Arc<Client>,
    cached: Option<Cached>,
}

struct Cached {
    cache: ExecutableCache,
    /// Everything that executables depend on besides their modules and options.
    machine: String,
}

impl Compiler {
    /// A compiler with a cache, unless it is turned off. A node of a cluster has no cache: on some platforms nodes compile a program
    /// together, and one that finds it on its disk would leave the others waiting.
    pub(super) fn new(client: Arc<Client>, plugin: &Plugin, cache: Option<ExecutableCache>) -> Compiler {
        let cache = cache.filter(|cache| cache.limit() > 0 && !client.is_of_node());
        let cached = cache.and_then(|cache| Some(Cached { cache, machine: machine(&client, plugin)? }));
        Compiler { client, cached }
    }

    /// The executable of a module with these options and the avals of its arguments and results: loaded from disk, or compiled and stored
    /// there.
    pub(super) fn compile(&self, module: &str, options: &[u8], avals: [Vec<Aval>; 2]) -> Result<Loaded> {
        let Some(Cached { cache, machine }) = &self.cached else {
            return self.client.compile(module, options, avals);
        };
        let key = key(&[machine.as_bytes(), options, module.as_bytes()]);
        if let Some(executable) = cache.get(key)
            && let Ok(Some(loaded)) = self.client.deserialize(&executable, avals.clone())
        {
            return Ok(loaded);
        }
        let loaded = self.client.compile(module, options, avals)?;
        // If the plugin cannot serialize it, the next process compiles it too.
        if let Ok(Some(executable)) = loaded.serialize() {
            cache.put(key, &executable);
        }
        Ok(loaded)
    }
}

/// A hash of parts that keeps their boundaries distinct.
fn key(parts: &[&[u8]]) -> u128 {
    let lengths = parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes());
    let all: Vec<u8> = lengths.chain(parts.iter().flat_map(|part| part.iter().copied())).collect();
    XxHash3_128::oneshot(&all)
}

/// The plugin, the chips, and the properties of the process that XLA reads when it compiles; `None` if they are unknown.
fn machine(client: &Client, plugin: &Plugin) -> Option<String> {
    let platform = plugin.platform();
    // Machine code for the CPU uses the instructions that it has.
    let cpu = if platform == Platform::Cpu { cpu(&fs::read_to_string("/proc/cpuinfo").ok()?)? } else { String::new() };
    let (identity, version) = (plugin.identity().ok()?, client.platform_version().ok()?);
    let kinds = client.device_kinds().ok()?;
    // The compiler divides work by the number of threads.
    let threads = (available_parallelism().map_or(1, NonZero::get), threads(&env::var("NPROC").unwrap_or_default()));
    let flags = ["XLA_FLAGS", "LIBTPU_INIT_ARGS"].map(|name| flags(&env::var_os(name)?.to_string_lossy()));
    let remat = env!("CARGO_PKG_VERSION");
    Some(format!("{remat} {platform:?} {identity} {version} {kinds:?} {threads:?} {flags:?} {cpu}"))
}

/// The sizes of XLA's own thread pools: the variable `NPROC`, and the number of CPUs on which this thread may run, whatever share of them a
/// container has.
fn threads(nproc: &str) -> (String, Option<u32>) {
    let status = fs::read_to_string("/proc/thread-self/status").ok();
    (nproc.to_string(), status.and_then(|status| allowed_cpus(&status)))
}

/// The number of CPUs in the mask of a `status` file of `/proc`.
fn allowed_cpus(status: &str) -> Option<u32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
    Some(mask.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum())
}

/// The flags of a variable, which contains them or names a file that does; `None` if that file cannot be read.
fn flags(text: &str) -> Option<String> {
    if text.trim_start().starts_with('-') { Some(text.to_string()) } else { fs::read_to_string(text).ok() }
}

/// The model and the features of the first CPU in `/proc/cpuinfo`, without lines that change with time or differ between cores.
fn cpu(text: &str) -> Option<String> {
    let first = text.split("\n\n").next()?;
    let told = ["vendor_id", "cpu family", "model", "model name", "stepping", "flags", "CPU implementer"];
    let told = told.iter().chain(&["CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"]);
    let told: Vec<&str> = told.copied().collect();
    let is_told = |line: &&str| line.split_once(':').is_some_and(|(name, _)| told.contains(&name.trim()));
    let lines: Vec<&str> = first.lines().filter(is_told).collect();
    // Without features the usable instructions are unknown.
    let has_features = lines.iter().any(|line| line.starts_with("flags") || line.starts_with("Features"));
    has_features.then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests;
