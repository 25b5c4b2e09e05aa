//! The memory of a run.

use remat_ir::{Error, ErrorKind, MemoryStats, Result};

use super::library::Library;
use super::sys::{Arguments, Handle};
use super::sys_optional::ExecutableGetCompiledMemoryStats;

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
