//! Micro-kernels for bytes on CPUs without AVX-512: eight sums at a time.
//!
//! - With AVX-VNNI, an instruction adds the dot products of the quadruples of bytes in words. It takes unsigned bytes of one operand and
//!   signed bytes of the other, so that bytes of the left operand are shifted by 128, as with AVX-512.
//! - With AVX2 alone, the bytes are widened to 16 bits, and an instruction adds the products of pairs. A word has two pairs: its even bytes
//!   and its odd ones. (The instruction that multiplies pairs of bytes, `vpmaddubsw`, saturates their sums at 16 bits.)
//!
//! Modulo 2^32 both are exact. Both operands are prepared a group at a time, for all rows, and the sums stay in memory from a group to the
//! next.

// Vector instructions, which read and write through pointers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::hint::black_box;

use super::unit::Unit;
use super::{GROUP, GROUP_BYTES, InPlaceKernel, Kind, MicroKernel, PANEL, Prefetch, Registers, TILE};

/// Sums of a vector.
const LANES: usize = 8;

/// Rows whose sums are in registers at a time, two vectors for each: 16 registers hold no more. The last rows of a panel are fewer.
const ROWS: usize = 6;
const LAST_ROWS: usize = 4;

/// Rows of a panel that are multiplied [`ROWS`] at a time.
const FIRST: usize = PANEL - 2 * LAST_ROWS;

/// How many groups ahead rows read in place are prefetched.
const GROUPS_AHEAD: usize = 8;

/// Sums to which instructions add in turn where only registers are measured: all but two registers, for an operand and a product.
const CHAINS: usize = 14;

/// The bits whose flipping shifts bytes by 128.
const MOVED: i32 = i32::from_ne_bytes([0x80; 4]);

/// The unit of dot products of quadruples, where the CPU has them.
pub(super) fn vnni_unit(kind: Kind) -> Option<Unit> {
    if !is_x86_feature_detected!("avxvnni") {
        return None;
    }
    match kind {
        Kind::I8 => unit(kind, signed_quadruples::packed, signed_quadruples::in_place, registers_of_quadruples, LANES),
        Kind::U8 => {
            unit(kind, unsigned_quadruples::packed, unsigned_quadruples::in_place, registers_of_quadruples, LANES)
        }
        Kind::Bf16 | Kind::F16 | Kind::SplitF32 | Kind::SplitF16 => None,
    }
}

/// The unit of products of pairs, where the CPU has AVX2. An instruction multiplies half of each word.
pub(super) fn madd_unit(kind: Kind) -> Option<Unit> {
    match kind {
        Kind::I8 => unit(kind, signed_pairs::packed, signed_pairs::in_place, registers_of_pairs, LANES / 2),
        Kind::U8 => unit(kind, unsigned_pairs::packed, unsigned_pairs::in_place, registers_of_pairs, LANES / 2),
        Kind::Bf16 | Kind::F16 | Kind::SplitF32 | Kind::SplitF16 => None,
    }
}

/// A unit of these functions, where the CPU has AVX2.
fn unit(kind: Kind, kernel: MicroKernel, in_place: InPlaceKernel, registers: Registers, words: usize) -> Option<Unit> {
    is_x86_feature_detected!("avx2").then_some(Unit {
        kernel,
        in_place: Some(in_place),
        at_offsets: None,
        planes: kind.planes(),
        registers,
        words,
        is_matrix_unit: false,
        tiles: None,
    })
}

/// Rows of a left operand, packed or in place.
#[derive(Clone, Copy)]
struct Rows {
    first: *const u8,
    /// Bytes from the beginning of a row to that of the next.
    row: usize,
    /// Bytes from a group of a row to its next.
    group: usize,
    is_in_place: bool,
}

impl Rows {
    /// The rows of a packed panel.
    fn packed(panel: *const u32) -> Rows {
        Rows { first: panel.cast(), row: GROUP_BYTES, group: GROUP * size_of::<u32>(), is_in_place: false }
    }

    /// Rows in place, with this stride in bytes.
    fn in_place((first, row): (*const u8, usize)) -> Rows {
        Rows { first, row, group: GROUP_BYTES, is_in_place: true }
    }
}

/// A module with the micro-kernels, for packed rows and for rows in place, that add products by `add`. A group of the left operand is
/// prepared by `left`, one of the right operand by `right`, each as `planes` vectors for each vector of words, and the products of the
/// planes are added. With one plane the right operand is read as it is. The bits of `moved` were flipped in words of the left operand;
/// their contribution, which is the same in all rows, is subtracted.
macro_rules! micro_kernels {
    (
        $(#[$doc:meta])*
        $name:ident, $features:literal,
        planes: $planes:literal, left: $left:path, right: $right:path, moved: $moved:expr, add: $add:path
    ) => {
        $(#[$doc])*
        mod $name {
            use super::*;

            /// Adds the products of a prepared group to the sums of some rows and 16 columns, and subtracts `surplus`.
            ///
            /// # Safety
            /// Both operands are valid for reading the group: `planes` times [`GROUP`] words. The sums are valid for reading and writing
            /// these rows, and no other thread accesses them. The CPU has the instructions.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn rows<const COUNT: usize>(
                left: *const u32,
                right: *const u32,
                (sums, stride): (*mut u32, usize),
                surplus: [__m256i; 2],
            ) {
                // SAFETY: these are words of the group, and vectors of the rows of sums, as the caller promises.
                unsafe {
                    let mut all = [[_mm256_setzero_si256(); 2]; COUNT];
                    for (i, of_row) in all.iter_mut().enumerate() {
                        *of_row = [0, LANES].map(|j| _mm256_loadu_si256(sums.add(i * stride + j).cast()));
                    }
                    for word in 0..16 {
                        for plane in 0..$planes {
                            let columns = right.add(plane * GROUP + word * 16);
                            let columns = [0, LANES].map(|j| _mm256_loadu_si256(columns.add(j).cast()));
                            for (i, of_row) in all.iter_mut().enumerate() {
                                let row = _mm256_set1_epi32(left.add(plane * GROUP + i * 16 + word).read() as i32);
                                *of_row = [$add(of_row[0], row, columns[0]), $add(of_row[1], row, columns[1])];
                            }
                        }
                    }
                    for (i, of_row) in all.iter().enumerate() {
                        for (j, (&x, surplus)) in of_row.iter().zip(surplus).enumerate() {
                            let x = if $moved != 0 { _mm256_sub_epi32(x, surplus) } else { x };
                            _mm256_storeu_si256(sums.add(i * stride + j * LANES).cast(), x);
                        }
                    }
                }
            }

            /// Multiplies the rows of a panel by the columns of this number of tiles. Writes the sums, or adds to them.
            ///
            /// # Safety
            /// The rows are valid for reading the groups. The right operand is valid for reading the groups of a panel, and the sums for
            /// reading and writing [`PANEL`] rows of 16 sums for each tile; no other thread accesses the sums. The CPU has the instructions.
            #[target_feature(enable = $features)]
            unsafe fn multiply<const TILES: usize>(
                groups: usize,
                left: Rows,
                right: *const u32,
                (sums, stride): (*mut u32, usize),
                adds: bool,
            ) {
                let [mut prepared_left, mut prepared_right] = [[0u32; $planes * GROUP]; 2];
                // SAFETY: these are rows of the sums, groups of the rows, and tiles of the panel, as the caller promises. A prepared
                // operand has a group of words for each plane. Prefetched addresses may be past the rows, and are not read.
                unsafe {
                    if !adds {
                        for row in 0..PANEL {
                            sums.add(row * stride).write_bytes(0, TILES * 16);
                        }
                    }
                    for group in 0..groups {
                        let to = prepared_left.as_mut_ptr();
                        for row in 0..PANEL {
                            let from = left.first.wrapping_add(row * left.row + group * left.group);
                            if left.is_in_place {
                                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(GROUPS_AHEAD * left.group).cast());
                            }
                            for word in [0, LANES] {
                                let words = $left(_mm256_loadu_si256(from.add(4 * word).cast()));
                                for (plane, words) in words.into_iter().enumerate() {
                                    _mm256_storeu_si256(to.add(plane * GROUP + row * 16 + word).cast(), words);
                                }
                            }
                        }
                        let mut right = right.add(group * GROUP);
                        if $planes > 1 {
                            let to = prepared_right.as_mut_ptr();
                            for word in (0..TILES * TILE).step_by(LANES) {
                                let words = $right(_mm256_loadu_si256(right.add(word).cast()));
                                for (plane, words) in words.into_iter().enumerate() {
                                    _mm256_storeu_si256(to.add(plane * GROUP + word).cast(), words);
                                }
                            }
                            right = to;
                        }
                        let left = prepared_left.as_ptr();
                        for tile in 0..TILES {
                            let (right, sums) = (right.add(tile * TILE), sums.add(tile * 16));
                            let mut surplus = [_mm256_setzero_si256(); 2];
                            if $moved != 0 {
                                // Words take turns to add to two sums, since each addition waits for the one before.
                                let mut parts = [[_mm256_setzero_si256(); 2]; 2];
                                for word in 0..16 {
                                    for (j, parts) in parts.iter_mut().enumerate() {
                                        let columns = _mm256_loadu_si256(right.add(word * 16 + j * LANES).cast());
                                        parts[word % 2] = $add(parts[word % 2], _mm256_set1_epi32($moved), columns);
                                    }
                                }
                                surplus = parts.map(|[even, odd]| _mm256_add_epi32(even, odd));
                            }
                            for row in (0..FIRST).step_by(ROWS) {
                                rows::<ROWS>(left.add(row * 16), right, (sums.add(row * stride), stride), surplus);
                            }
                            for row in (FIRST..PANEL).step_by(LAST_ROWS) {
                                rows::<LAST_ROWS>(left.add(row * 16), right, (sums.add(row * stride), stride), surplus);
                            }
                        }
                    }
                }
            }

            /// The micro-kernel for packed rows.
            ///
            /// # Safety
            /// As of every micro-kernel; the CPU has the instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn packed(
                groups: usize,
                left: *const u32,
                right: *const u32,
                sums: (*mut u32, usize),
                adds: bool,
                _: Prefetch,
            ) {
                // SAFETY: the groups of a panel lie one after the other, and in each the rows of both tiles. The rest is as the caller
                // promises.
                unsafe { multiply::<2>(groups, Rows::packed(left), right, sums, adds) }
            }

            /// The micro-kernel for rows in place.
            ///
            /// # Safety
            /// As of every such micro-kernel; the CPU has the instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn in_place(
                groups: usize,
                left: (*const u8, usize),
                right: *const u32,
                sums: (*mut u32, usize),
                adds: bool,
            ) {
                // SAFETY: as the caller promises.
                unsafe { multiply::<1>(groups, Rows::in_place(left), right, sums, adds) }
            }
        }
    };
}

micro_kernels!(
    /// Of `vpdpbusd`, for signed bytes.
    signed_quadruples, "avx2,avxvnni", planes: 1, left: flip, right: same, moved: MOVED, add: add_signed_quadruples
);
micro_kernels!(
    /// Of `vpdpbusd`, for unsigned bytes.
    unsigned_quadruples, "avx2,avxvnni", planes: 1, left: flip, right: same, moved: MOVED, add: add_unsigned_quadruples
);
micro_kernels!(
    /// Of `vpmaddwd`, for signed bytes.
    signed_pairs, "avx2", planes: 2, left: widen_signed, right: widen_signed, moved: 0, add: add_pairs
);
micro_kernels!(
    /// Of `vpmaddwd`, for unsigned bytes.
    unsigned_pairs, "avx2", planes: 2, left: widen_unsigned, right: widen_unsigned, moved: 0, add: add_pairs
);

/// A function that measures instructions which add products by this function, `count` times to each of several vectors of sums, with
/// operands in registers. It gives their number. One of the operands is the sums, so that no product can be computed before the loop.
macro_rules! registers {
    ($(#[$doc:meta])* $name:ident, $features:literal, $add:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The CPU has the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name(count: usize) -> usize {
            let operand = black_box(_mm256_setzero_si256());
            let mut sums = black_box([_mm256_setzero_si256(); CHAINS]);
            for _ in 0..count {
                for sum in &mut sums {
                    *sum = $add(*sum, *sum, operand);
                }
            }
            black_box(sums);
            count * CHAINS
        }
    };
}

registers!(
    /// Of `vpdpbusd`.
    registers_of_quadruples, "avx2,avxvnni", add_signed_quadruples
);
registers!(
    /// Of `vpmaddwd` and the addition of its products.
    registers_of_pairs, "avx2", add_pairs
);

/// Words whose bytes are shifted by 128.
#[inline]
#[target_feature(enable = "avx2")]
fn flip(words: __m256i) -> [__m256i; 1] {
    [_mm256_xor_si256(words, _mm256_set1_epi32(MOVED))]
}

/// Words as they are.
#[inline]
#[target_feature(enable = "avx2")]
fn same(words: __m256i) -> [__m256i; 1] {
    [words]
}

/// The even and the odd signed bytes of words, widened to 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn widen_signed(words: __m256i) -> [__m256i; 2] {
    [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(words)), _mm256_srai_epi16::<8>(words)]
}

/// The even and the odd unsigned bytes of words, widened to 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn widen_unsigned(words: __m256i) -> [__m256i; 2] {
    [_mm256_and_si256(words, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(words)]
}

/// Adds the products of signed bytes. Those of the left operand are shifted to unsigned.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn add_signed_quadruples(sums: __m256i, left: __m256i, right: __m256i) -> __m256i {
    _mm256_dpbusd_avx_epi32(sums, left, right)
}

/// Adds the products of unsigned bytes. Those of the left operand are shifted to signed.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn add_unsigned_quadruples(sums: __m256i, left: __m256i, right: __m256i) -> __m256i {
    _mm256_dpbusd_avx_epi32(sums, right, left)
}

/// Adds the products of bytes widened to 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn add_pairs(sums: __m256i, left: __m256i, right: __m256i) -> __m256i {
    _mm256_add_epi32(sums, _mm256_madd_epi16(left, right))
}
