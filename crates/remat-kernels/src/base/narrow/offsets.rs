//! Products whose left operand is read in place, word by word: its rows are neighbours, and the words to sum are at offsets from each row.
//!
//! A row of a tile broadcasts one word of the left operand to all columns of a panel. So the word may be anywhere, and no lane is lost to
//! rows that are too short for a vector. A tile has up to [`MOST_ROWS`] rows, in runs of neighbours, with two vectors of sums for each
//! row: as many as the registers of AVX-512 hold. Those of NEON hold the sums of four rows and 16 columns.

// Micro-kernels are functions on pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
use super::PANEL;
#[cfg(target_arch = "aarch64")]
use super::neon::{LANES, bfdot};

/// Most rows of a tile.
pub(crate) const MOST_ROWS: usize = 14;

/// Most runs of neighbouring rows of a tile.
pub(crate) const MOST_RUNS: usize = 4;

/// The rows of a tile: runs of neighbouring rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRuns {
    /// The number of runs, at most [`MOST_RUNS`], and the rows of each; at most [`MOST_ROWS`] in all.
    pub(crate) runs: usize,
    pub(crate) rows_per_run: usize,
    /// Words from the first row of a run to the first row of the next.
    #[cfg_attr(
        not(any(test, target_arch = "x86_64", target_arch = "aarch64")),
        allow(dead_code, reason = "only these architectures have such micro-kernels")
    )]
    pub(crate) stride: usize,
}

/// For each row, adds the products of the words at `offsets` from it with the rows of a right panel, which has a row for each offset, of 32
/// columns, or 16 if not `wide`. Writes the sums, in rows [`PANEL`] apart, or adds to them. Pairs are added one after the other.
///
/// # Safety
/// The left operand is valid for reading the words at all offsets from all rows, the right one for reading its rows, and the sums for
/// reading and writing the rows of all runs, which no other thread accesses. The numbers of rows and runs are within the bounds of
/// [`RowRuns`]. The CPU has the instructions.
pub(super) type OffsetsKernel = unsafe fn(
    rows: RowRuns,
    left: *const u32,
    offsets: &[u32],
    right: *const u32,
    wide: bool,
    sums: *mut u32,
    adds: bool,
);

/// How many rows ahead the panel is prefetched into the first-level cache.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 8;

/// Of `vdpbf16ps`.
///
/// # Safety
/// As of every such micro-kernel; the CPU has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn avx512(
    rows: RowRuns,
    left: *const u32,
    offsets: &[u32],
    right: *const u32,
    wide: bool,
    sums: *mut u32,
    adds: bool,
) {
    macro_rules! tiles {
        ($($runs:literal: $($rows:literal)*;)*) => {
            match (rows.runs, rows.rows_per_run) {
                $($(
                    ($runs, $rows) if wide => tile::<$runs, $rows, 2>(left, rows.stride, offsets, right, sums, adds),
                    ($runs, $rows) => tile::<$runs, $rows, 1>(left, rows.stride, offsets, right, sums, adds),
                )*)*
                _ => unreachable!("a tile of too many rows"),
            }
        };
    }
    // SAFETY: as the caller promises.
    unsafe { tiles!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 2: 1 2 3 4 5 6 7; 3: 1 2 3 4; 4: 1 2 3;) }
}

/// A tile of `G` runs of `R` rows, and `N` vectors of columns.
///
/// # Safety
/// As [`avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn tile<const G: usize, const R: usize, const N: usize>(
    left: *const u32,
    stride: usize,
    offsets: &[u32],
    mut right: *const u32,
    sums: *mut u32,
    adds: bool,
) {
    // SAFETY: these are words of the operands and of the sums, as the caller promises; prefetched addresses may be past the panel.
    unsafe {
        let mut all = [[[_mm512_setzero_ps(); N]; R]; G];
        if adds {
            for (i, of_row) in all.iter_mut().flatten().enumerate() {
                for (j, x) in of_row.iter_mut().enumerate() {
                    *x = _mm512_loadu_ps(sums.add(i * PANEL + 16 * j).cast());
                }
            }
        }
        for &at in offsets {
            let mut columns = [_mm512_setzero_si512(); N];
            for (j, x) in columns.iter_mut().enumerate() {
                *x = _mm512_loadu_si512(right.add(16 * j).cast());
                _mm_prefetch::<_MM_HINT_T0>(right.wrapping_add((AHEAD * N + j) * 16).cast());
            }
            let mut from = left.add(at as usize);
            for of_run in &mut all {
                for (i, of_row) in of_run.iter_mut().enumerate() {
                    let row = _mm512_set1_epi32(from.add(i).read() as i32);
                    for (x, &column) in of_row.iter_mut().zip(&columns) {
                        let [row, column] = [row, column].map(|x| std::mem::transmute::<__m512i, __m512bh>(x));
                        *x = _mm512_dpbf16_ps(*x, row, column);
                    }
                }
                from = from.wrapping_add(stride);
            }
            right = right.add(16 * N);
        }
        for (i, of_row) in all.iter().flatten().enumerate() {
            for (j, &x) in of_row.iter().enumerate() {
                _mm512_storeu_ps(sums.add(i * PANEL + 16 * j).cast(), x);
            }
        }
    }
}

/// Columns whose sums [`neon`] has in registers at a time: with four rows, 16 vectors.
#[cfg(target_arch = "aarch64")]
const COLUMNS: usize = 16;

/// Of `bfdot`. The words of neighbouring rows are neighbours, so that a load reads those of four rows.
///
/// # Safety
/// As of every such micro-kernel; the CPU has the instructions.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn neon(
    rows: RowRuns,
    left: *const u32,
    offsets: &[u32],
    right: *const u32,
    wide: bool,
    sums: *mut u32,
    adds: bool,
) {
    let width = if wide { PANEL } else { PANEL / 2 };
    for run in 0..rows.runs {
        for first in (0..rows.rows_per_run).step_by(LANES) {
            for column in (0..width).step_by(COLUMNS) {
                // SAFETY: these are rows of a run, columns of the panel, and their sums, as the caller promises. Without offsets the
                // address of a row may be outside of the operand, and is not read.
                unsafe {
                    let left = left.wrapping_add(run * rows.stride + first);
                    let right = (right.wrapping_add(column), width);
                    let sums = sums.add((run * rows.rows_per_run + first) * PANEL + column);
                    match rows.rows_per_run - first {
                        1 => neighbours::<1>(left, offsets, right, sums, adds),
                        2 => neighbours::<2>(left, offsets, right, sums, adds),
                        3 => neighbours::<3>(left, offsets, right, sums, adds),
                        _ => neighbours::<4>(left, offsets, right, sums, adds),
                    }
                }
            }
        }
    }
}

/// The sums of `R` neighbouring rows, at most four, and [`COLUMNS`] columns of a panel whose rows have the given width.
///
/// # Safety
/// The left operand is valid for reading the words at all offsets from these rows, the right one for reading [`COLUMNS`] words of a row
/// for each offset, and the sums for reading and writing `R` rows of as many, which no other thread accesses. The CPU has the instructions.
#[cfg(target_arch = "aarch64")]
#[inline]
#[target_feature(enable = "neon,bf16")]
unsafe fn neighbours<const R: usize>(
    left: *const u32,
    offsets: &[u32],
    (right, width): (*const u32, usize),
    sums: *mut u32,
    adds: bool,
) {
    // SAFETY: these are words of the operands and of the sums, as the caller promises.
    unsafe {
        let zero = vdupq_n_u32(0);
        let mut all = [[zero; COLUMNS / LANES]; R];
        if adds {
            for (i, of_row) in all.iter_mut().enumerate() {
                for (j, x) in of_row.iter_mut().enumerate() {
                    *x = vld1q_u32(sums.add(i * PANEL + j * LANES));
                }
            }
        }
        for (k, &at) in offsets.iter().enumerate() {
            let from = left.wrapping_add(at as usize);
            // No word past the rows is read.
            let words = match R {
                1 => vld1q_lane_u32::<0>(from, zero),
                2 => vcombine_u32(vld1_u32(from), vget_low_u32(zero)),
                3 => vld1q_lane_u32::<2>(from.add(2), vcombine_u32(vld1_u32(from), vget_low_u32(zero))),
                _ => vld1q_u32(from),
            };
            for j in 0..COLUMNS / LANES {
                let column = vld1q_u32(right.add(k * width + j * LANES));
                for (i, of_row) in all.iter_mut().enumerate() {
                    of_row[j] = match i {
                        0 => bfdot::<0>(of_row[j], column, words),
                        1 => bfdot::<1>(of_row[j], column, words),
                        2 => bfdot::<2>(of_row[j], column, words),
                        _ => bfdot::<3>(of_row[j], column, words),
                    };
                }
            }
        }
        for (i, of_row) in all.iter().enumerate() {
            for (j, &x) in of_row.iter().enumerate() {
                vst1q_u32(sums.add(i * PANEL + j * LANES), x);
            }
        }
    }
}

/// In plain Rust, for tests.
///
/// # Safety
/// As of every such micro-kernel.
#[cfg(test)]
pub(super) unsafe fn plain(
    rows: RowRuns,
    left: *const u32,
    offsets: &[u32],
    right: *const u32,
    wide: bool,
    sums: *mut u32,
    adds: bool,
) {
    let width = if wide { PANEL } else { PANEL / 2 };
    for (run, row, column) in
        (0..rows.runs).flat_map(|g| (0..rows.rows_per_run).flat_map(move |i| (0..width).map(move |j| (g, i, j))))
    {
        // SAFETY: these are words of the operands and of the sums, as the caller promises.
        unsafe {
            let to = sums.add((run * rows.rows_per_run + row) * PANEL + column);
            let mut sum = if adds { f32::from_bits(to.read()) } else { 0.0 };
            let left = left.add(run * rows.stride + row);
            // Counted by hand: without optimisation an iterator takes many times as long.
            let mut k = 0;
            while k < offsets.len() {
                let (x, y) = (*left.add(offsets[k] as usize), *right.add(k * width + column));
                sum += f32::from_bits(x & 0xffff_0000) * f32::from_bits(y & 0xffff_0000);
                sum += f32::from_bits(x << 16) * f32::from_bits(y << 16);
                k += 1;
            }
            to.write(sum.to_bits());
        }
    }
}
