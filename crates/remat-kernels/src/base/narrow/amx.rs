//! The matrix unit of x86-64 CPUs, AMX: permission, configuration, and micro-kernels.
//!
//! A tile register has 16 rows of 64 bytes. One instruction multiplies a tile of the left operand by a tile of the right one, and adds to a
//! tile of 16 by 16 sums. The rows of the left tile are 16 words of a row of the operand; those of the right tile are one word of each of
//! 16 columns. The system saves this state only for processes that have requested it. Source: Intel, "Architecture instruction set
//! extensions programming reference", chapter "Intel AMX instruction set reference"; Linux, "Using XSTATE features in user space
//! applications".

// The instructions and the system call have no functions in the standard library.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
use std::sync::LazyLock;

use super::unit::Unit;
use super::{InPlaceKernel, Kind, MicroKernel, Prefetch, Registers, TILE};

/// The unit for these elements, where the CPU has one.
pub(super) fn unit(kind: Kind) -> Option<Unit> {
    let found = found();
    let (has, kernel, in_place, registers): (bool, MicroKernel, Option<InPlaceKernel>, Registers) = match kind {
        Kind::Bf16 => (found.bf16, bf16, Some(bf16_in_place), registers_of_bf16),
        Kind::F16 => (found.f16, f16, Some(f16_in_place), registers_of_f16),
        Kind::I8 => (found.int8, signed, Some(signed_in_place), registers_of_bytes),
        Kind::U8 => (found.int8, unsigned, Some(unsigned_in_place), registers_of_bytes),
        Kind::SplitF32 => (found.bf16, split_f32, None, registers_of_bf16),
        Kind::SplitF16 => (found.bf16, split_f16, None, registers_of_bf16),
    };
    has.then_some(Unit {
        kernel,
        in_place,
        at_offsets: None,
        planes: kind.planes(),
        registers,
        words: 16 * TILE,
        is_matrix_unit: true,
        tiles: Some([configure, release]),
    })
}

/// The kinds of products that this CPU's unit computes.
#[derive(Clone, Copy, Default, Debug)]
struct Found {
    bf16: bool,
    f16: bool,
    int8: bool,
}

/// The kinds of products that this CPU's unit computes; none if there is no unit, or the system does not permit its use. Asks the system
/// once per process.
fn found() -> Found {
    static FOUND: LazyLock<Found> = LazyLock::new(|| {
        if cfg!(miri) || __get_cpuid_max(0).0 < 7 {
            return Found::default();
        }
        let features = __cpuid_count(7, 0);
        let has = |bit: u32| features.edx >> bit & 1 == 1;
        // The second page of features exists if the first one says so.
        let f16 = features.eax >= 1 && __cpuid_count(7, 1).eax >> 21 & 1 == 1;
        if has(24) && is_permitted() { Found { bf16: has(22), f16, int8: has(25) } } else { Found::default() }
    });
    *FOUND
}

/// Requests that the system saves the state of tiles for this process, and returns whether it does. Linux refuses if a thread of the
/// process has an alternate signal stack (`sigaltstack`) too small for this state of 8 KiB besides the rest. Once it permits, it refuses
/// such small stacks.
fn is_permitted() -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        /// The number of the system call `arch_prctl`.
        const ARCH_PRCTL: isize = 158;
        /// Its request for a feature of the processor's state, and that feature: the contents of tiles.
        const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
        const XFEATURE_XTILEDATA: usize = 18;
        let result: isize;
        // SAFETY: the call changes only what the process may do, and accesses none of its memory. Afterwards the process may use the
        // instructions, and may not use alternate signal stacks too small for the state: Linux checks existing stacks before it permits,
        // and new ones in `sigaltstack`, so that no signal frame outgrows one. Systems that do not know the call return an error.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        result == 0
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    false
}

/// The shapes of the tile registers: palette 1, and 16 rows of 64 bytes for each of the eight.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIGURATION: Configuration = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut i = 0;
    while i < 8 {
        (row_bytes[i], rows[i]) = (64, 16);
        i += 1;
    }
    Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Configures the tiles of this thread.
///
/// # Safety
/// [`found`] has found a unit.
unsafe fn configure() {
    // SAFETY: the CPU has the instruction, which reads 64 bytes, and the system permits it.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, preserves_flags, readonly)) };
}

/// Releases the state of this thread's tiles, so that the system need not save it.
///
/// # Safety
/// As for [`configure`].
unsafe fn release() {
    // SAFETY: the CPU has the instruction, and no tile is in use between micro-kernels.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
}

/// A micro-kernel of two by two tiles of sums, which are in `tmm0` to `tmm3`. It multiplies a group by these instructions, whose operands
/// are `left` and `right` bytes long.
///
/// Left panels stream through, while a right panel stays in the first-level cache. Tiles of the left panel are loaded with a hint not to
/// keep them there (`tileloaddt1`), or the two would evict each other.
macro_rules! micro_kernel {
    ($(#[$doc:meta])* $name:ident, left: $left:literal, right: $right:literal, $($line:expr),+ $(,)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for every micro-kernel; the unit has the instruction, and the tiles of this thread are configured.
        unsafe fn $name(
            groups: usize,
            left: *const u32,
            right: *const u32,
            (sums, stride): (*mut u32, usize),
            adds: bool,
            ahead: Prefetch,
        ) {
            // SAFETY: the operands have this many groups of these bytes, in tiles of 1,024, as the caller promises, and the sums four tiles
            // with rows of this stride. No tile is in use before or after.
            unsafe {
                asm!(
                    "test {adds:e}, {adds:e}",
                    "jz 2f",
                    "tileloadd tmm0, [{sums} + {stride}]",
                    "tileloadd tmm1, [{sums} + {stride} + 64]",
                    "tileloadd tmm2, [{below} + {stride}]",
                    "tileloadd tmm3, [{below} + {stride} + 64]",
                    "jmp 3f",
                    "2:",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "3:",
                    "test {groups}, {groups}",
                    "jz 5f",
                    "4:",
                    $($line,)+
                    concat!("add {left}, ", $left),
                    concat!("add {right}, ", $right),
                    "dec {groups}",
                    "jnz 4b",
                    "5:",
                    "tilestored [{sums} + {stride}], tmm0",
                    "tilestored [{sums} + {stride} + 64], tmm1",
                    "tilestored [{below} + {stride}], tmm2",
                    "tilestored [{below} + {stride} + 64], tmm3",
                    adds = in(reg) u32::from(adds),
                    left = inout(reg) left => _,
                    right = inout(reg) right => _,
                    groups = inout(reg) groups => _,
                    ahead = inout(reg) ahead.first => _,
                    step = in(reg) ahead.stride,
                    sums = in(reg) sums,
                    below = in(reg) sums.wrapping_add(16 * stride),
                    row = in(reg) 64usize,
                    stride = in(reg) stride * size_of::<u32>(),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

/// A micro-kernel of one plane, with the given instruction.
macro_rules! one_plane {
    ($name:ident, $instruction:literal) => {
        micro_kernel!(
            #[doc = concat!("The micro-kernel of `", $instruction, "`.")]
            $name, left: 2048, right: 2048,
            "tileloaddt1 tmm4, [{left} + {row}]",
            "prefetcht1 [{ahead}]",
            "tileloadd tmm6, [{right} + {row}]",
            concat!($instruction, " tmm0, tmm4, tmm6"),
            "prefetcht1 [{ahead} + 64]",
            "tileloadd tmm7, [{right} + {row} + 1024]",
            concat!($instruction, " tmm1, tmm4, tmm7"),
            "prefetcht1 [{ahead} + 128]",
            "tileloaddt1 tmm5, [{left} + {row} + 1024]",
            concat!($instruction, " tmm2, tmm5, tmm6"),
            "prefetcht1 [{ahead} + 192]",
            concat!($instruction, " tmm3, tmm5, tmm7"),
            "add {ahead}, {step}",
        );
    };
}

one_plane!(bf16, "tdpbf16ps");
one_plane!(f16, "tdpfp16ps");
one_plane!(signed, "tdpbssd");
one_plane!(unsigned, "tdpbuud");

micro_kernel!(
    /// The micro-kernel of `tdpbf16ps` for f32 as sums of three bf16.
    split_f32, left: 4096, right: 6144,
    // (third, first) by (first, third).
    "prefetcht1 [{ahead}]",
    "prefetcht1 [{ahead} + 64]",
    "tileloaddt1 tmm4, [{left} + {row}]",
    "tileloadd tmm6, [{right} + {row}]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tileloadd tmm7, [{right} + {row} + 1024]",
    "tdpbf16ps tmm1, tmm4, tmm7",
    "tileloaddt1 tmm5, [{left} + {row} + 1024]",
    "tdpbf16ps tmm2, tmm5, tmm6",
    "tdpbf16ps tmm3, tmm5, tmm7",
    // (second, first) by (first, second).
    "prefetcht1 [{ahead} + 128]",
    "prefetcht1 [{ahead} + 192]",
    "add {ahead}, {step}",
    "tileloaddt1 tmm4, [{left} + {row} + 2048]",
    "tileloadd tmm6, [{right} + {row} + 2048]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tileloadd tmm7, [{right} + {row} + 3072]",
    "tdpbf16ps tmm1, tmm4, tmm7",
    "tileloaddt1 tmm5, [{left} + {row} + 3072]",
    "tdpbf16ps tmm2, tmm5, tmm6",
    "tdpbf16ps tmm3, tmm5, tmm7",
    // (second, first) by (second, first).
    "tileloadd tmm6, [{right} + {row} + 4096]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tdpbf16ps tmm2, tmm5, tmm6",
    "tileloadd tmm7, [{right} + {row} + 5120]",
    "tdpbf16ps tmm1, tmm4, tmm7",
    "tdpbf16ps tmm3, tmm5, tmm7",
);

micro_kernel!(
    /// The micro-kernel of `tdpbf16ps` for f16 as sums of two bf16.
    split_f16, left: 2048, right: 4096,
    // (first, second) by (first, second).
    "tileloaddt1 tmm4, [{left} + {row}]",
    "prefetcht1 [{ahead}]",
    "tileloadd tmm6, [{right} + {row}]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "prefetcht1 [{ahead} + 64]",
    "tileloadd tmm7, [{right} + {row} + 1024]",
    "tdpbf16ps tmm1, tmm4, tmm7",
    "prefetcht1 [{ahead} + 128]",
    "tileloaddt1 tmm5, [{left} + {row} + 1024]",
    "tdpbf16ps tmm2, tmm5, tmm6",
    "prefetcht1 [{ahead} + 192]",
    "tdpbf16ps tmm3, tmm5, tmm7",
    "add {ahead}, {step}",
    // (first, second) by (second, first).
    "tileloadd tmm6, [{right} + {row} + 2048]",
    "tdpbf16ps tmm0, tmm4, tmm6",
    "tdpbf16ps tmm2, tmm5, tmm6",
    "tileloadd tmm7, [{right} + {row} + 3072]",
    "tdpbf16ps tmm1, tmm4, tmm7",
    "tdpbf16ps tmm3, tmm5, tmm7",
);

/// A function that measures an instruction, `count` times on each of the tiles of sums, with all operands in registers. It gives the number
/// of instructions.
macro_rules! registers {
    ($name:ident, $instruction:literal) => {
        #[doc = concat!("Of `", $instruction, "`.")]
        ///
        /// # Safety
        /// The unit has the instruction, and the tiles of this thread are configured.
        unsafe fn $name(count: usize) -> usize {
            // SAFETY: the tiles are those of this thread, and in no other use.
            unsafe {
                asm!(
                    "tilezero tmm6",
                    "tilezero tmm7",
                    "test {left}, {left}",
                    "jz 3f",
                    "2:",
                    concat!($instruction, " tmm0, tmm6, tmm7"),
                    concat!($instruction, " tmm1, tmm6, tmm7"),
                    concat!($instruction, " tmm2, tmm6, tmm7"),
                    concat!($instruction, " tmm3, tmm6, tmm7"),
                    concat!($instruction, " tmm4, tmm6, tmm7"),
                    concat!($instruction, " tmm5, tmm6, tmm7"),
                    "dec {left}",
                    "jnz 2b",
                    "3:",
                    left = inout(reg) count => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack, nomem),
                );
            }
            6 * count
        }
    };
}

registers!(registers_of_bf16, "tdpbf16ps");
registers!(registers_of_f16, "tdpfp16ps");
registers!(registers_of_bytes, "tdpbssd");

/// A micro-kernel of two tiles of rows read in place by one tile of columns. A row of a tile is a cache line, and rows are read to their
/// ends in the order of hardware prefetching, so no other prefetch is needed.
macro_rules! in_place {
    ($name:ident, $instruction:literal) => {
        #[doc = concat!("The micro-kernel of `", $instruction, "` for rows in place.")]
        ///
        /// # Safety
        /// As of every such micro-kernel; the unit has the instruction, and the tiles of this thread are configured.
        unsafe fn $name(
            groups: usize,
            (left, left_stride): (*const u8, usize),
            right: *const u32,
            (sums, stride): (*mut u32, usize),
            adds: bool,
        ) {
            // SAFETY: the rows have this many groups of 64 bytes, and the right operand tiles of 1,024 bytes, twice as far apart, as the
            // caller promises; the sums are two tiles with rows of this stride. No tile is in use before or after.
            unsafe {
                asm!(
                    "test {adds:e}, {adds:e}",
                    "jz 2f",
                    "tileloadd tmm0, [{sums} + {stride}]",
                    "tileloadd tmm1, [{below} + {stride}]",
                    "jmp 3f",
                    "2:",
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "3:",
                    "test {groups}, {groups}",
                    "jz 5f",
                    "4:",
                    "tileloadd tmm4, [{right} + {row}]",
                    "tileloadd tmm2, [{left} + {left_stride}]",
                    concat!($instruction, " tmm0, tmm2, tmm4"),
                    "tileloadd tmm3, [{lower} + {left_stride}]",
                    concat!($instruction, " tmm1, tmm3, tmm4"),
                    "add {left}, 64",
                    "add {lower}, 64",
                    "add {right}, 2048",
                    "dec {groups}",
                    "jnz 4b",
                    "5:",
                    "tilestored [{sums} + {stride}], tmm0",
                    "tilestored [{below} + {stride}], tmm1",
                    adds = in(reg) u32::from(adds),
                    left = inout(reg) left => _,
                    lower = inout(reg) left.wrapping_add(16 * left_stride) => _,
                    left_stride = in(reg) left_stride,
                    right = inout(reg) right => _,
                    groups = inout(reg) groups => _,
                    sums = in(reg) sums,
                    below = in(reg) sums.wrapping_add(16 * stride),
                    row = in(reg) 64usize,
                    stride = in(reg) stride * size_of::<u32>(),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _, out("tmm4") _,
                    options(nostack),
                );
            }
        }
    };
}

in_place!(bf16_in_place, "tdpbf16ps");
in_place!(f16_in_place, "tdpfp16ps");
in_place!(signed_in_place, "tdpbssd");
in_place!(unsigned_in_place, "tdpbuud");
