//! Micro-kernels of 64-bit ARM: dot products of the pairs or quadruples in a word, added to 4 sums at a time. One of the two operands is
//! the same word of a row for all sums.
//!
//! Sums of 8 rows and 2 vectors of columns are in registers at a time. These 16 chains hide what an instruction takes: `bfdot` takes 4
//! cycles and `sdot` takes 3, fewer where the next one adds to its result, and Neoverse V1 starts 4 of them in each cycle, Neoverse N2
//! starts 2. The sums, 4 words of each row and 2 vectors of columns need 26 of the 32 registers. 64 instructions use 16 loads of vectors,
//! and these CPUs start 3 loads in each cycle. An instruction selects the word from a vector of 4, since a load that repeats a word also
//! needs a place among the vector instructions. Source: Arm, "Neoverse V1 Core software optimization guide" and "Neoverse N2 Core software
//! optimization guide", as in LLVM's scheduling models of these CPUs.

// Vector instructions, which read and write through pointers, and have no functions in the standard library.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};
use std::hint::black_box;

use super::offsets::{self, OffsetsKernel};
use super::unit::Unit;
use super::{GROUP, GROUP_BYTES, InPlaceKernel, Kind, MicroKernel, PANEL, Prefetch, Registers, TILE};

/// Rows of packed panels whose sums are in registers at a time, and vectors of columns.
const ROWS: usize = 8;
const VECTORS: usize = 2;

/// Rows read in place whose sums are in registers at a time: as many as there are ways in a first-level cache of Neoverse, where lines
/// whose distance is a power of two conflict. All 16 columns are, so that each row is read once.
const ROWS_IN_PLACE: usize = 4;
const VECTORS_IN_PLACE: usize = 4;

/// Lanes of a vector.
pub(super) const LANES: usize = 4;

/// Sums to which instructions add in turn where only registers are measured: more than start while one is computed.
const CHAINS: usize = 24;

/// The unit for these elements, where the CPU has one.
pub(super) fn unit(kind: Kind) -> Option<Unit> {
    let [has_pairs, has_quadruples] = [is_aarch64_feature_detected!("bf16"), is_aarch64_feature_detected!("dotprod")];
    let (has, kernel, in_place, registers): (bool, MicroKernel, InPlaceKernel, Registers) = match kind {
        Kind::Bf16 => (has_pairs, pairs::packed, pairs::in_place, pairs::registers),
        Kind::I8 => (has_quadruples, signed::packed, signed::in_place, signed::registers),
        Kind::U8 => (has_quadruples, unsigned::packed, unsigned::in_place, unsigned::registers),
        // It would take six products of bf16, or four, and the CPU computes two of those in the time of one of f32. Its products of f16
        // are summed in f16.
        Kind::SplitF32 | Kind::SplitF16 | Kind::F16 => return None,
    };
    let at_offsets: Option<OffsetsKernel> = if kind == Kind::Bf16 { Some(offsets::neon) } else { None };
    // Miri does not execute assembly.
    (has && !cfg!(miri)).then_some(Unit {
        kernel,
        in_place: Some(in_place),
        at_offsets,
        planes: kind.planes(),
        registers,
        words: LANES,
        is_matrix_unit: false,
        tiles: None,
    })
}

/// A function that adds the products of each word of `right` by word `I` of `left`, whose instruction needs these features.
macro_rules! dot {
    ($(#[$doc:meta])* $name:ident, $features:literal, $instruction:literal) => {
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn $name<const I: i32>(mut sums: uint32x4_t, right: uint32x4_t, left: uint32x4_t) -> uint32x4_t {
            // SAFETY: the instruction reads and writes these registers alone, and the function has its features.
            unsafe {
                asm!(
                    $instruction,
                    sums = inout(vreg) sums,
                    right = in(vreg) right,
                    left = in(vreg) left,
                    i = const I,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sums
        }
    };
}

dot!(
    /// Of pairs of bf16.
    bfdot, "neon,bf16", "bfdot {sums:v}.4s, {right:v}.8h, {left:v}.2h[{i}]"
);
dot!(
    /// Of quadruples of signed bytes.
    sdot, "neon,dotprod", "sdot {sums:v}.4s, {right:v}.16b, {left:v}.4b[{i}]"
);
dot!(
    /// Of quadruples of unsigned bytes.
    udot, "neon,dotprod", "udot {sums:v}.4s, {right:v}.16b, {left:v}.4b[{i}]"
);

/// A module with the functions of a unit, which adds products by this function.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident, $features:literal, $dot:ident) => {
        $(#[$doc])*
        mod $name {
            use super::*;

            /// Adds the products of word `I` of each row by the columns.
            ///
            /// # Safety
            /// The right operand is valid for reading `I + 1` rows of 16 words, the last of them `V` vectors long.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn add<const I: i32, const R: usize, const V: usize>(
                all: &mut [[uint32x4_t; V]; R],
                rows: &[uint32x4_t; R],
                right: *const u32,
            ) {
                let mut columns = [vdupq_n_u32(0); V];
                for (j, x) in columns.iter_mut().enumerate() {
                    // SAFETY: these are words of row `I`, as the caller promises.
                    *x = unsafe { vld1q_u32(right.add(I as usize * 16 + j * LANES)) };
                }
                for (of_row, &row) in all.iter_mut().zip(rows) {
                    for (x, &column) in of_row.iter_mut().zip(&columns) {
                        *x = $dot::<I>(*x, column, row);
                    }
                }
            }

            /// The sums of `R` rows and `V` vectors of columns. Rows and groups of the left operand are these numbers of bytes apart.
            ///
            /// # Safety
            /// The left operand is valid for reading [`GROUP_BYTES`] of each row in each group, the right one for reading 16 rows of `V`
            /// vectors in each group, and the sums for reading and writing `R` rows of `V` vectors, which no other thread accesses.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize, const V: usize>(
                groups: usize,
                (left, [row_bytes, group_bytes]): (*const u8, [usize; 2]),
                right: *const u32,
                (sums, stride): (*mut u32, usize),
                adds: bool,
            ) {
                // SAFETY: these are words of the operands and of the sums, as the caller promises.
                unsafe {
                    let mut all = [[vdupq_n_u32(0); V]; R];
                    if adds {
                        for (i, of_row) in all.iter_mut().enumerate() {
                            for (j, x) in of_row.iter_mut().enumerate() {
                                *x = vld1q_u32(sums.add(i * stride + j * LANES));
                            }
                        }
                    }
                    for group in 0..groups {
                        for first in (0..16).step_by(LANES) {
                            let mut rows = [vdupq_n_u32(0); R];
                            for (i, x) in rows.iter_mut().enumerate() {
                                let from = left.add(i * row_bytes + group * group_bytes + first * size_of::<u32>());
                                *x = vreinterpretq_u32_u8(vld1q_u8(from));
                            }
                            let right = right.add(group * GROUP + first * 16);
                            add::<0, R, V>(&mut all, &rows, right);
                            add::<1, R, V>(&mut all, &rows, right);
                            add::<2, R, V>(&mut all, &rows, right);
                            add::<3, R, V>(&mut all, &rows, right);
                        }
                    }
                    for (i, of_row) in all.iter().enumerate() {
                        for (j, &x) in of_row.iter().enumerate() {
                            vst1q_u32(sums.add(i * stride + j * LANES), x);
                        }
                    }
                }
            }

            /// The micro-kernel.
            ///
            /// # Safety
            /// As of every micro-kernel; the CPU has the instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn packed(
                groups: usize,
                left: *const u32,
                right: *const u32,
                (sums, stride): (*mut u32, usize),
                adds: bool,
                _: Prefetch,
            ) {
                for row in (0..PANEL).step_by(ROWS) {
                    for column in (0..PANEL).step_by(VECTORS * LANES) {
                        // SAFETY: these are rows of both tiles of the left panel, columns of a tile of the right one, and their sums. The
                        // panels and the sums are the caller's.
                        unsafe {
                            let left = (left.add(row * 16).cast(), [GROUP_BYTES, GROUP * size_of::<u32>()]);
                            let right = right.add(column / 16 * TILE + column % 16);
                            tile::<ROWS, VECTORS>(groups, left, right, (sums.add(row * stride + column), stride), adds);
                        }
                    }
                }
            }

            /// The micro-kernel for rows in place.
            ///
            /// # Safety
            /// As of every such micro-kernel; the CPU has the instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn in_place(
                groups: usize,
                (left, left_stride): (*const u8, usize),
                right: *const u32,
                (sums, stride): (*mut u32, usize),
                adds: bool,
            ) {
                for row in (0..PANEL).step_by(ROWS_IN_PLACE) {
                    // SAFETY: these are rows of the left operand and of the sums, and the first tile of the panel, which are the caller's.
                    // Without groups the address of a row may be outside of the operand, and is not read.
                    unsafe {
                        let left = (left.wrapping_add(row * left_stride), [left_stride, GROUP_BYTES]);
                        let sums = (sums.add(row * stride), stride);
                        tile::<ROWS_IN_PLACE, VECTORS_IN_PLACE>(groups, left, right, sums, adds);
                    }
                }
            }

            /// Measures the instructions, with operands in registers: adds `count` times to each of several vectors of sums. Gives their
            /// number.
            ///
            /// # Safety
            /// The CPU has the instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn registers(count: usize) -> usize {
                let operands = [vdupq_n_u32(0); 2].map(black_box);
                // Otherwise all chains are known to be the same, and one is computed.
                let mut sums = black_box([vdupq_n_u32(0); CHAINS]);
                for _ in 0..count {
                    for sum in &mut sums {
                        *sum = $dot::<0>(*sum, operands[0], operands[1]);
                    }
                }
                black_box(sums);
                count * CHAINS
            }
        }
    };
}

functions!(
    /// The unit of `bfdot`.
    pairs, "neon,bf16", bfdot
);
functions!(
    /// The unit of `sdot`.
    signed, "neon,dotprod", sdot
);
functions!(
    /// The unit of `udot`.
    unsigned, "neon,dotprod", udot
);
