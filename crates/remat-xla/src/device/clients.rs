//! The clients of plugins: one for each platform of a library, so that arrays of one run can be arguments of another.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use remat_cluster::KeyValueStore;
use remat_ir::{Error, ErrorKind, Result};

use super::compiler::Compiler;
use crate::pjrt::Client;
use crate::{ExecutableCache, Platform, Plugin};

/// The client of a plugin, or the error of creating it.
type Made = Arc<OnceLock<Result<Arc<Compiler>>>>;

static CLIENTS: LazyLock<Mutex<BTreeMap<(PathBuf, Platform, usize), Made>>> = LazyLock::new(Mutex::default);

/// The client of a plugin, created at the first request; for CPUs there is one for each number of virtual devices. A failed creation is not
/// repeated in the process, since a failing driver takes seconds.
pub(super) fn of(plugin: &Plugin, devices: usize) -> Result<Arc<Compiler>> {
    let open = || {
        let client = match plugin.platform() {
            Platform::Cpu => Client::new(plugin.library, &[(Client::CPU_DEVICES, devices as i64)]),
            Platform::Gpu => Client::of_gpus(plugin.library, memory_fraction()?),
            Platform::Tpu => Client::new(plugin.library, &[]),
        };
        opened(plugin, client?)
    };
    made(plugin, devices).get_or_init(open).clone()
}

/// Creates the client of a plugin for a node of a cluster.
pub(super) fn join(plugin: &Plugin, store: &Arc<KeyValueStore>) -> Result<()> {
    let refused = |message: &str| Err(Error::new(ErrorKind::Argument, "xla", message));
    match plugin.platform() {
        Platform::Gpu => {}
        // The hosts of a TPU slice find each other, since its machines know about them.
        Platform::Tpu => return Ok(()),
        Platform::Cpu => {
            return refused(
                "the plugin for CPUs works in one process only; on several hosts with CPUs sum gradients between steps, by \
                 remat::cluster",
            );
        }
    }
    let mut is_new = false;
    let made = made(plugin, 1);
    let client = made.get_or_init(|| {
        is_new = true;
        opened(plugin, Client::of_node(plugin.library, store.clone(), memory_fraction()?)?)
    });
    match client {
        Err(error) => Err(error.clone()),
        Ok(_) if is_new => Ok(()),
        Ok(_) => refused("the devices were used before the process joined its cluster; join first"),
    }
}

/// The environment variable with the share of a GPU's memory that a process may take.
const MEMORY_FRACTION: &str = "REMAT_CUDA_MEMORY_FRACTION";

/// The share of a GPU's memory that a process may take: that of the environment variable, or nearly all. The plugin's own default is three
/// quarters, with which a program that fits the card according to its compiler would not run.
fn memory_fraction() -> Result<f32> {
    read_fraction(std::env::var(MEMORY_FRACTION).ok().as_deref().unwrap_or_default())
}

fn read_fraction(text: &str) -> Result<f32> {
    if text.is_empty() {
        return Ok(0.95);
    }
    text.parse().ok().filter(|fraction| *fraction > 0.0 && *fraction <= 1.0).ok_or_else(|| {
        let message = format!("{MEMORY_FRACTION} is `{text}` and must be a number above 0 and at most 1");
        Error::new(ErrorKind::Argument, "xla", message)
    })
}

/// A client with the user's cache.
fn opened(plugin: &Plugin, client: Client) -> Result<Arc<Compiler>> {
    Ok(Arc::new(Compiler::new(Arc::new(client), plugin, ExecutableCache::of_user()?)))
}

fn made(plugin: &Plugin, devices: usize) -> Made {
    // The library is opened once, even if it has several paths.
    let path = plugin.path().canonicalize().unwrap_or_else(|_| plugin.path().to_path_buf());
    let devices = if plugin.platform() == Platform::Cpu { devices } else { 1 };
    let key = (path, plugin.platform(), devices);
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_memory_is_that_of_the_variable() {
        assert_eq!(
            (read_fraction("").unwrap(), read_fraction("0.5").unwrap(), read_fraction("1").unwrap()),
            (0.95, 0.5, 1.0)
        );
        for text in ["0", "-1", "1.01", "NaN", "80%"] {
            let error = read_fraction(text).unwrap_err();
            let expected = format!("REMAT_CUDA_MEMORY_FRACTION is `{text}` and must be a number above 0 and at most 1");
            assert_eq!(error.message(), expected);
        }
    }
}
