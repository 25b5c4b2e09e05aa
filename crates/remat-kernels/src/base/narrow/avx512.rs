//! Micro-kernels of AVX-512: dot products of the pairs or quadruples in a word, added to 16 sums at a time.
//!
//! The dot product of bytes takes unsigned bytes of one operand and signed bytes of the other. So bytes of the left operand are shifted by
//! 128, by flipping their highest bit, and 128 times the sum of a column of the right operand is subtracted at the end. Modulo 2^32 this is
//! exact.

// Vector instructions, which read and write through pointers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::hint::black_box;

use super::offsets::{self, OffsetsKernel};
use super::unit::Unit;
use super::{GROUP, GROUP_BYTES, InPlaceKernel, Kind, MicroKernel, PANEL, Prefetch, Registers, TILE};

/// Rows whose sums are in registers at a time: two vectors for each.
const ROWS: usize = 8;

/// Rows read in place whose sums are in registers at a time: a vector for each.
const ROWS_IN_PLACE: usize = 16;

/// How many groups ahead rows read in place are prefetched.
const GROUPS_AHEAD: usize = 8;

/// Sums to which instructions add in turn where only registers are measured: more than start while one is computed.
const CHAINS: usize = 24;

/// The bits whose flipping shifts bytes by 128.
const MOVED: i32 = i32::from_ne_bytes([0x80; 4]);

/// The unit for these elements, where the CPU has one.
pub(super) fn unit(kind: Kind) -> Option<Unit> {
    let [has_pairs, has_quadruples] = [is_x86_feature_detected!("avx512bf16"), is_x86_feature_detected!("avx512vnni")];
    let (has, kernel, in_place, registers): (bool, MicroKernel, InPlaceKernel, Registers) = match kind {
        Kind::Bf16 => (has_pairs, bf16, bf16_in_place, registers_of_pairs),
        Kind::I8 => (has_quadruples, signed, signed_in_place, registers_of_quadruples),
        Kind::U8 => (has_quadruples, unsigned, unsigned_in_place, registers_of_quadruples),
        // It would take six products of bf16, or four, and the CPU computes two of those in the time of one of f32. Its products of f16
        // are summed in f16.
        Kind::SplitF32 | Kind::SplitF16 | Kind::F16 => return None,
    };
    let at_offsets: Option<OffsetsKernel> = if kind == Kind::Bf16 { Some(offsets::avx512) } else { None };
    (has && is_x86_feature_detected!("avx512f")).then_some(Unit {
        kernel,
        in_place: Some(in_place),
        at_offsets,
        planes: kind.planes(),
        registers,
        words: 16,
        is_matrix_unit: false,
        tiles: None,
    })
}

/// A micro-kernel that adds the products of words by this function. The bits of `moved` are flipped in words of the left operand, and their
/// contribution, which is the same in all rows, is subtracted at the end. A group of rows is flipped at a time and stored, since an
/// instruction reads a word to all lanes of a vector from memory faster than from a register.
macro_rules! micro_kernel {
    ($(#[$doc:meta])* $name:ident, $features:literal, $add:path, moved: $moved:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of every micro-kernel; the CPU has the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name(
            groups: usize,
            left: *const u32,
            right: *const u32,
            (sums, stride): (*mut u32, usize),
            adds: bool,
            _: Prefetch,
        ) {
            /// The sums of some rows. With `IS_FIRST`, also computes the contribution of the flipped bits.
            ///
            /// # Safety
            /// As of the micro-kernel.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn rows<const IS_FIRST: bool>(
                groups: usize,
                left: *const u32,
                right: *const u32,
                (sums, stride): (*mut u32, usize),
                adds: bool,
                surplus: &mut [__m512i; 2],
            ) {
                let moved = _mm512_set1_epi32($moved);
                // SAFETY: these are words of the panels, and rows of the sums, as the caller promises.
                unsafe {
                    let mut all = [[_mm512_setzero_si512(); 2]; ROWS];
                    let mut of_moved = [_mm512_setzero_si512(); 2];
                    if adds {
                        for (i, of_row) in all.iter_mut().enumerate() {
                            *of_row = [0, 16].map(|j| _mm512_loadu_si512(sums.add(i * stride + j).cast()));
                        }
                    }
                    for group in 0..groups {
                        let (mut left, right) = (left.add(group * GROUP), right.add(group * GROUP));
                        let mut flipped = [[0u32; 16]; ROWS];
                        if $moved != 0 {
                            for (i, row) in flipped.iter_mut().enumerate() {
                                let words = _mm512_xor_si512(_mm512_loadu_si512(left.add(i * 16).cast()), moved);
                                _mm512_storeu_si512(row.as_mut_ptr().cast(), words);
                            }
                            left = flipped.as_ptr().cast();
                        }
                        for word in 0..16 {
                            let columns = [0, TILE].map(|tile| _mm512_loadu_si512(right.add(tile + word * 16).cast()));
                            for (i, of_row) in all.iter_mut().enumerate() {
                                let row = _mm512_set1_epi32(left.add(i * 16 + word).read() as i32);
                                *of_row = [$add(of_row[0], row, columns[0]), $add(of_row[1], row, columns[1])];
                            }
                            if IS_FIRST {
                                of_moved = [$add(of_moved[0], moved, columns[0]), $add(of_moved[1], moved, columns[1])];
                            }
                        }
                    }
                    if IS_FIRST {
                        *surplus = of_moved;
                    }
                    for (i, of_row) in all.iter().enumerate() {
                        for (j, (&x, &surplus)) in of_row.iter().zip(&*surplus).enumerate() {
                            let x = if $moved != 0 { _mm512_sub_epi32(x, surplus) } else { x };
                            _mm512_storeu_si512(sums.add(i * stride + 16 * j).cast(), x);
                        }
                    }
                }
            }

            let mut surplus = [_mm512_setzero_si512(); 2];
            for first in (0..PANEL).step_by(ROWS) {
                // SAFETY: the rows of the panel and of the sums are the caller's.
                unsafe {
                    let (left, sums) = (left.add(first * 16), (sums.add(first * stride), stride));
                    if $moved != 0 && first == 0 {
                        rows::<true>(groups, left, right, sums, adds, &mut surplus);
                    } else {
                        rows::<false>(groups, left, right, sums, adds, &mut surplus);
                    }
                }
            }
        }
    };
}

/// A micro-kernel that adds the products of words by this function, with rows read in place. The rows of a group are copied first, since
/// cache lines whose distance is a power of two conflict in the first-level cache.
macro_rules! in_place {
    ($(#[$doc:meta])* $name:ident, $features:literal, $add:path, moved: $moved:expr) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of every such micro-kernel; the CPU has the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name(
            groups: usize,
            (left, left_stride): (*const u8, usize),
            right: *const u32,
            (sums, stride): (*mut u32, usize),
            adds: bool,
        ) {
            let moved = _mm512_set1_epi32($moved);
            for first in (0..PANEL).step_by(ROWS_IN_PLACE) {
                let mut all = [_mm512_setzero_si512(); ROWS_IN_PLACE];
                let mut surplus = _mm512_setzero_si512();
                // SAFETY: these are rows of the sums, groups of the rows, and tiles of the panel, as the caller promises. Prefetched
                // addresses may be past the rows, and are not read.
                unsafe {
                    let sums = sums.add(first * stride);
                    if adds {
                        for (i, of_row) in all.iter_mut().enumerate() {
                            *of_row = _mm512_loadu_si512(sums.add(i * stride).cast());
                        }
                    }
                    for group in 0..groups {
                        let mut rows = [[0i32; 16]; ROWS_IN_PLACE];
                        for (i, row) in rows.iter_mut().enumerate() {
                            let from = left.wrapping_add((first + i) * left_stride + group * GROUP_BYTES);
                            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(GROUPS_AHEAD * GROUP_BYTES).cast());
                            let words = _mm512_xor_si512(_mm512_loadu_si512(from.cast()), moved);
                            _mm512_storeu_si512(row.as_mut_ptr().cast(), words);
                        }
                        for word in 0..16 {
                            let column = _mm512_loadu_si512(right.add(group * GROUP + word * 16).cast());
                            for (of_row, row) in all.iter_mut().zip(&rows) {
                                *of_row = $add(*of_row, _mm512_set1_epi32(row[word]), column);
                            }
                            if $moved != 0 {
                                surplus = $add(surplus, moved, column);
                            }
                        }
                    }
                    for (i, &x) in all.iter().enumerate() {
                        let x = if $moved != 0 { _mm512_sub_epi32(x, surplus) } else { x };
                        _mm512_storeu_si512(sums.add(i * stride).cast(), x);
                    }
                }
            }
        }
    };
}

micro_kernel!(
    /// Of `vdpbf16ps`.
    bf16, "avx512f,avx512bf16", add_pairs, moved: 0
);
micro_kernel!(
    /// Of `vpdpbusd`, for signed bytes.
    signed, "avx512f,avx512vnni", add_signed, moved: MOVED
);
micro_kernel!(
    /// Of `vpdpbusd`, for unsigned bytes.
    unsigned, "avx512f,avx512vnni", add_unsigned, moved: MOVED
);

in_place!(
    /// Of `vdpbf16ps`, for rows in place.
    bf16_in_place, "avx512f,avx512bf16", add_pairs, moved: 0
);
in_place!(
    /// Of `vpdpbusd`, for signed bytes, for rows in place.
    signed_in_place, "avx512f,avx512vnni", add_signed, moved: MOVED
);
in_place!(
    /// Of `vpdpbusd`, for unsigned bytes, for rows in place.
    unsigned_in_place, "avx512f,avx512vnni", add_unsigned, moved: MOVED
);

/// A function that measures instructions which add products by this function, `count` times to each of several vectors of sums, with
/// operands in registers. It gives their number.
macro_rules! registers {
    ($(#[$doc:meta])* $name:ident, $features:literal, $add:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The CPU has the instructions.
        #[target_feature(enable = $features)]
        unsafe fn $name(count: usize) -> usize {
            let operands = [_mm512_setzero_si512(); 2].map(black_box);
            let mut sums = [_mm512_setzero_si512(); CHAINS];
            for _ in 0..count {
                for sum in &mut sums {
                    *sum = $add(*sum, operands[0], operands[1]);
                }
            }
            black_box(sums);
            count * CHAINS
        }
    };
}

registers!(
    /// Of `vdpbf16ps`.
    registers_of_pairs, "avx512f,avx512bf16", add_pairs
);
registers!(
    /// Of `vpdpbusd`.
    registers_of_quadruples, "avx512f,avx512vnni", add_signed
);

/// Adds the products of pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn add_pairs(sums: __m512i, left: __m512i, right: __m512i) -> __m512i {
    // SAFETY: vectors of 64 bytes, for which any bits are valid.
    let [left, right] = [left, right].map(|x| unsafe { std::mem::transmute::<__m512i, __m512bh>(x) });
    _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sums), left, right))
}

/// Adds the products of signed bytes. Those of the left operand are shifted to unsigned.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_signed(sums: __m512i, left: __m512i, right: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sums, left, right)
}

/// Adds the products of unsigned bytes. Those of the left operand are shifted to signed.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn add_unsigned(sums: __m512i, left: __m512i, right: __m512i) -> __m512i {
    _mm512_dpbusd_epi32(sums, right, left)
}
