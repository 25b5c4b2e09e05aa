//! The memory of a run, and that of a device.

use remat_ir::{Error, ErrorKind, MemoryStats, Result};

use super::library::Library;
use super::sys::{Arguments, Handle};
use super::sys_optional::{DeviceMemoryStats, ExecutableGetCompiledMemoryStats};

/// The bytes of a device's memory, as its allocator counts them.
///
/// ```
/// use remat_xla::Xla;
/// # fn main() -> remat_ir::Result<()> {
/// let Ok(xla) = Xla::cpu() else { return Ok(()) };
/// // The plugin for CPUs does not count.
/// assert!(xla.device_memory()?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceMemory {
    /// Bytes of arrays, programs and temporaries.
    pub in_use: u64,
    /// The most that were in use at a time since the process began. It is never reset.
    pub peak: Option<u64>,
    /// The most that may be in use.
    pub limit: Option<u64>,
    /// The number of allocations since the process began.
    pub allocations: Option<u64>,
}

impl DeviceMemory {
    /// The bytes of a device, if the plugin counts them.
    ///
    /// # Safety
    /// The handle is a device of this plugin.
    pub(super) unsafe fn of(library: Library, device: Handle) -> Result<Option<DeviceMemory>> {
        let mut stats = DeviceMemoryStats { device, ..DeviceMemoryStats::new() };
        // SAFETY: by the contract of this function. A plugin that knows fewer fields leaves the last ones zero.
        if !unsafe { library.call_if_any(&mut stats) }? {
            return Ok(None);
        }
        let set = |count: i64, is_set: u8| u64::try_from(count).ok().filter(|_| is_set != 0);
        Ok(Some(DeviceMemory {
            in_use: u64::try_from(stats.bytes_in_use).unwrap_or(0),
            peak: set(stats.peak_bytes_in_use, stats.peak_bytes_in_use_is_set),
            limit: set(stats.bytes_limit, stats.bytes_limit_is_set),
            allocations: set(stats.num_allocs, stats.num_allocs_is_set),
        }))
    }
}

/// Bytes of a compiled program, as reported by the plugin for one chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) code: u64,
    pub(crate) arguments: u64,
    pub(crate) outputs: u64,
    pub(crate) aliased: u64,
    pub(crate) temporaries: u64,
    pub(crate) host_arguments: u64,
    pub(crate) host_outputs: u64,
    pub(crate) host_temporaries: u64,
    /// Arguments, outputs and temporaries in the chip's memory, if the plugin is newer than 0.104 and reports them.
    pub(crate) allocated: u64,
}

impl Bytes {
    /// The bytes of an executable, if the plugin reports them.
    ///
    /// # Safety
    /// The handle is an executable of this plugin.
    pub(super) unsafe fn of(library: Library, executable: Handle) -> Result<Option<Bytes>> {
        let mut stats = ExecutableGetCompiledMemoryStats { executable, ..ExecutableGetCompiledMemoryStats::new() };
        // SAFETY: by the contract of this function. A plugin that knows fewer fields leaves the last ones zero.
        if !unsafe { library.call_if_any(&mut stats) }? {
            return Ok(None);
        }
        let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
        Ok(Some(Bytes {
            code: bytes(stats.generated_code_size_in_bytes),
            arguments: bytes(stats.argument_size_in_bytes),
            outputs: bytes(stats.output_size_in_bytes),
            aliased: bytes(stats.alias_size_in_bytes),
            temporaries: bytes(stats.temp_size_in_bytes),
            host_arguments: bytes(stats.host_argument_size_in_bytes),
            host_outputs: bytes(stats.host_output_size_in_bytes),
            host_temporaries: bytes(stats.host_temp_size_in_bytes),
            allocated: bytes(stats.total_allocation_bytes),
        }))
    }

    /// The error of a plugin that does not report them, if nothing else was requested.
    pub(super) fn untold() -> Error {
        Error::new(ErrorKind::Io, "pjrt", "the plugin does not report the memory of a program")
    }

    /// The memory of a run. Arguments, outputs and temporaries are exact. The peak reported by plugins does not count temporaries on CPUs,
    /// so it is computed here.
    pub(crate) fn of_run(&self) -> MemoryStats {
        let [arguments, outputs, temporaries, aliased] = [self.arguments, self.outputs, self.temporaries, self.aliased]
            .map(|bytes| usize::try_from(bytes).unwrap_or(0));
        let peak = (arguments + outputs + temporaries).saturating_sub(aliased);
        MemoryStats { arguments, outputs, temporaries, overhead: 0, peak, donated_peak: peak }
    }
}
