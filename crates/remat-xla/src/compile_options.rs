//! `CompileOptionsProto`, encoded.
//!
//! The options are always complete, since a plugin ends the process if the number of replicas or partitions is 0. Flags are single
//! overrides, since a message of debug options would replace XLA's defaults for everything that it does not set.

use crate::Platform;

/// Flags that change how XLA treats values or memory, with their values.
fn overrides(platform: Platform, module: &str) -> Vec<(&'static str, Override)> {
    // bf16 and f16 are rounded after each operation, so that a recomputed value has the same bits.
    let mut flags = vec![("xla_allow_excess_precision", Override::Bool(false))];
    if platform == Platform::Cpu {
        // A NaN wins in `maximum` and `minimum`, as StableHLO requires and other platforms do.
        flags.push(("xla_cpu_enable_fast_min_max", Override::Bool(false)));
    }
    if platform == Platform::Cpu && module.contains("optimization_barrier") {
        // The first pass drops barriers, so that values to be recomputed would be merged with the forward pass. The second makes one kernel
        // of a small loop, and ends the process if the loop has a barrier. The list replaces that of `XLA_FLAGS`, as every override does.
        flags.push(("xla_disable_hlo_passes", Override::Text("cse_barrier_expander,small-while-loop-hoisting")));
    }
    flags
}

/// The value of a flag.
enum Override {
    Bool(bool),
    Text(&'static str),
}

/// The options of a module for the device with this id, which is unique among the devices of all processes.
pub(crate) fn encoded(platform: Platform, module: &str, id: u64) -> Vec<u8> {
    // ExecutableBuildOptionsProto: num_replicas and num_partitions.
    let mut build = Vec::new();
    integer(&mut build, 4, 1);
    integer(&mut build, 5, 1);
    if id > 0 {
        // Without an assignment the program is for the first device of all.
        assign(&mut build, &[id]);
    }
    with_overrides(&build, platform, module)
}

/// The options of a module for the devices of these ids, over which it is partitioned.
pub(crate) fn of_devices(platform: Platform, module: &str, ids: &[u64]) -> Vec<u8> {
    partitioned(platform, module, ids, false)
}

/// The build of a program for several chips.
pub(crate) struct Build {
    /// The number of chips, over which the program is partitioned.
    pub(crate) chips: usize,
    /// Whether to compile at level O0.
    pub(crate) fast: bool,
}

/// The options of a module for chips that are not in the machine.
pub(crate) fn ahead(platform: Platform, module: &str, &Build { chips, fast }: &Build) -> Vec<u8> {
    partitioned(platform, module, &(0..chips as u64).collect::<Vec<u64>>(), fast)
}

fn partitioned(platform: Platform, module: &str, ids: &[u64], fast: bool) -> Vec<u8> {
    let chips = ids.len() as u64;
    // ExecutableBuildOptionsProto: no device_ordinal, num_replicas, num_partitions, and for several chips use_spmd_partitioning and
    // use_shardy_partitioner.
    let mut build = Vec::new();
    integer(&mut build, 1, u64::MAX);
    integer(&mut build, 4, 1);
    integer(&mut build, 5, chips);
    if chips > 1 {
        integer(&mut build, 6, 1);
        integer(&mut build, 19, 1);
    }
    assign(&mut build, ids);
    if fast {
        // optimization_level: O0.
        integer(&mut build, 24, 9);
    }
    with_overrides(&build, platform, module)
}

/// DeviceAssignmentProto: replica_count, computation_count, and the device of each partition.
fn assign(build: &mut Vec<u8>, devices: &[u64]) {
    let mut assignment = Vec::new();
    integer(&mut assignment, 1, 1);
    integer(&mut assignment, 2, devices.len() as u64);
    for &device in devices {
        let mut id = Vec::new();
        varint(&mut id, device);
        let mut replicas = Vec::new();
        message(&mut replicas, 1, &id);
        message(&mut assignment, 3, &replicas);
    }
    message(build, 9, &assignment);
}

/// `CompileOptionsProto` of these build options, with the flags of the platform.
fn with_overrides(build: &[u8], platform: Platform, module: &str) -> Vec<u8> {
    let mut options = Vec::new();
    message(&mut options, 3, build);
    for (name, value) in overrides(platform, module) {
        // OptionOverrideProto: a string or a bool.
        let mut given = Vec::new();
        match value {
            Override::Text(text) => message(&mut given, 1, text.as_bytes()),
            Override::Bool(value) => integer(&mut given, 2, value.into()),
        }
        let mut entry = Vec::new();
        message(&mut entry, 1, name.as_bytes());
        message(&mut entry, 2, &given);
        message(&mut options, 7, &entry);
    }
    options
}

/// A field that is an integer.
fn integer(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

/// A field that is a message or a string.
fn message(to: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Seven bits a byte, the low ones first.
fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_encoded_as_protocol_buffers() {
        let barrier = "%1 = stablehlo.optimization_barrier %0";
        let options = encoded(Platform::Cpu, barrier, 0);
        assert_eq!(options[..6], [0x1a, 0x04, 0x20, 0x01, 0x28, 0x01]);
        let flag =
            b"\x3a\x4a\x0a\x16xla_disable_hlo_passes\x12\x30\x0a\x2ecse_barrier_expander,small-while-loop-hoisting";
        assert!(options.ends_with(flag));
        assert!(!encoded(Platform::Cpu, "", 0).ends_with(flag));
        assert!(!encoded(Platform::Gpu, barrier, 0).ends_with(flag));
        let second = encoded(Platform::Gpu, "", 1);
        assert_eq!(second[..17], [0x1a, 0x0f, 0x20, 1, 0x28, 1, 0x4a, 9, 8, 1, 0x10, 1, 0x1a, 3, 0x0a, 1, 1]);
        // The devices of the second process of two with two devices each.
        let ids = of_devices(Platform::Gpu, "", &[2, 3]);
        let assignment = [0x4a, 14, 8, 1, 0x10, 2, 0x1a, 3, 0x0a, 1, 2, 0x1a, 3, 0x0a, 1, 3];
        assert!(ids.windows(assignment.len()).any(|bytes| bytes == assignment), "{ids:?}");
        let four = ahead(Platform::Tpu, "", &Build { chips: 4, fast: true });
        let expected = b"\x1a\x31\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x04\x30\x01\x98\x01\x01\x4a\x18\x08\x01\x10\x04\x1a\x03\x0a\x01\x00\x1a\x03\x0a\x01\x01\x1a\x03\x0a\x01\x02\x1a\x03\x0a\x01\x03\xc0\x01\x09";
        assert_eq!(four[..expected.len()], *expected);
        let mut long = Vec::new();
        varint(&mut long, 300);
        assert_eq!(long, [0xac, 0x02]);
    }
}
