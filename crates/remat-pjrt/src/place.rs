//! What there is one of: the client, its device, the device's memory, and the topology, all as long as the process lives.

#![allow(unsafe_code, reason = "lists of pointers for the caller; each use says why it is sound")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use remat_cpu::Cpu;
use remat_ir::Array;

use crate::failure::{Failure, Result};
use crate::sys::{ClientCreate, DefaultAssignment, List, Lookup, NamedValue, PluginAttributes, Text};

/// The engine.
pub(crate) static ENGINE: LazyLock<Cpu> = LazyLock::new(Cpu::default);

/// Whether deleted arrays leave their memory to later ones: the last program was compiled without a limit of memory.
static KEEPS: AtomicBool = AtomicBool::new(true);

/// Notes whether memory is limited. Then that of deleted arrays goes back to the system.
pub(crate) fn limited(is_limited: bool) {
    KEEPS.store(!is_limited, Ordering::Relaxed);
    if is_limited {
        ENGINE.free_discarded();
    }
}

/// Deletes an array.
pub(crate) fn discard(array: Array) {
    if KEEPS.load(Ordering::Relaxed) {
        ENGINE.discard(array);
    }
}

/// The name of the platform, by which JAX chooses it.
pub(crate) const PLATFORM: &str = "remat";

/// The kind of the device's memory, as JAX calls memory of a device.
pub(crate) const MEMORY: &str = "device";

/// What the version of the platform says.
pub(crate) const PLATFORM_VERSION: &str = concat!("remat ", env!("CARGO_PKG_VERSION"));

macro_rules! one_of_a_kind {
    ($($(#[$doc:meta])* $type:ident $static:ident $($list:ident)?;)*) => { $(
        $(#[$doc])*
        pub(crate) struct $type {
            /// Objects without a size may have one address.
            _byte: u8,
        }

        static $static: $type = $type { _byte: 0 };

        impl $type {
            pub(crate) fn get() -> *const $type {
                &$static
            }
        }

        $(
            /// The list of it alone.
            pub(crate) static $list: Pointers<1> = Pointers([std::ptr::from_ref(&$static).cast()]);
        )?
    )* };
}

/// Pointers to what lives as long as the process.
pub(crate) struct Pointers<const N: usize>([*const c_void; N]);

// SAFETY: the pointers never change, and nothing here can be changed through them.
unsafe impl<const N: usize> Sync for Pointers<N> {}

one_of_a_kind! {
    /// `PJRT_Client`.
    Client CLIENT;
    /// `PJRT_Device`, and `PJRT_DeviceDescription`.
    Device DEVICE DEVICES;
    /// `PJRT_Memory`.
    Memory RAM MEMORIES;
    /// `PJRT_TopologyDescription`.
    Topology TOPOLOGY;
}

/// Sets a list of the caller.
pub(crate) fn give<const N: usize>(args: &mut List, list: &'static Pointers<N>) -> Result {
    (args.list, args.count) = (list.0.as_ptr(), N);
    Ok(())
}

/// Sets a text of the caller, which lives as long as the process.
pub(crate) fn say(args: &mut Text, text: &'static str) -> Result {
    (args.text, args.size) = (text.as_ptr().cast::<c_char>(), text.len());
    Ok(())
}

/// The version of StableHLO that JAX writes for this plugin. The reader reads newer ones and older ones, too; a fixed one makes the programs of
/// a later JAX those that were tested.
pub(crate) const STABLEHLO: [i64; 3] = [1, 13, 0];

static ATTRIBUTES: [NamedValue; 3] = [
    NamedValue::number("xla_version", 2),
    NamedValue::list("stablehlo_current_version", &STABLEHLO),
    NamedValue::list("stablehlo_minimum_version", &[1, 0, 0]),
];

pub(crate) fn attributes(args: &mut PluginAttributes) -> Result {
    (args.attributes, args.num_attributes) = (ATTRIBUTES.as_ptr(), ATTRIBUTES.len());
    Ok(())
}

pub(crate) fn create(args: &mut ClientCreate) -> Result {
    args.client = Client::get();
    Ok(())
}

pub(crate) fn lookup(args: &mut Lookup) -> Result {
    if args.id != 0 {
        return Err(Failure::argument(format!("there is one device, of number 0, and not {}", args.id)));
    }
    args.device = Device::get();
    Ok(())
}

pub(crate) fn default_assignment(args: &mut DefaultAssignment) -> Result {
    if args.num_replicas != 1 || args.num_partitions != 1 || args.size < 1 {
        return Err(several(args.num_replicas, args.num_partitions));
    }
    // SAFETY: the caller's list has room for at least one number.
    unsafe { *args.assignment = 0 };
    Ok(())
}

/// The error of a program for several devices.
pub(crate) fn several(replicas: c_int, partitions: c_int) -> Failure {
    Failure::argument(format!(
        "there is one device, and the program is for {replicas} replicas of {partitions} partitions"
    ))
}
