//! Products of bf16, of f16, of bytes, and of f32 as sums of bf16, on the CPU's units for them.
//!
//! For the source and the bounds of the sums, see [`narrow`](crate::base::narrow).

// The output is written by several threads, in blocks that interleave.
#![allow(unsafe_code)]

mod blocking;
mod packed;
mod skinny;
mod special;
mod store;
#[cfg(test)]
mod tests;

use std::ops::Range;

use remat_ir::DType;

use super::matrix::run;
use super::thresholds::{UNIT_PADDED, UNIT_PADDED_OF_FEW_WORDS, UNIT_WORK, UNIT_WORK_SPLIT, UNIT_WORK_WIDENED};
use super::{Dot, has_byte_columns, has_byte_dots};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{GROUP, GROUP_BYTES, Kind, PANEL, Part, Side, SplitF16, SplitF32, Strided, Sums, Unit, pack};
use crate::base::pieces::pieces;
use crate::base::precision::{Precision, matmul_precision};
use crate::base::product::Accumulator;
use crate::base::scratch;
use crate::base::strided::Rows;
use crate::interface::{Kernel, Source, Target};
use crate::simd::Level;
use crate::threads::Threads;
#[cfg(test)]
pub(in crate::kernels) use blocking::SMALL;
pub(in crate::kernels) use blocking::{Operand, Output, Sizes, ToPrefetch, UnitBlocking};
pub(in crate::kernels) use packed::Panels;
pub(super) use skinny::SkinnyKernel;
use special::compute_special;
pub(in crate::kernels) use store::write_sums;

/// The unit for a product of such elements, and their kind, where this CPU has one that pays. It takes bf16 and f16 with results of their
/// dtype or f32, and bytes with results of at most 32 bits, whose sums modulo 2^32 are those modulo 2^64.
pub(super) fn unit(from: [DType; 2], to: DType, dot: impl FnOnce() -> Dot<f32>) -> Option<(Kind, Unit)> {
    let (kind, unit) = Unit::of(kinds(from, to))?;
    let dot = dot();
    let work = dot.rows.saturating_mul(dot.columns).saturating_mul(dot.depth);
    let is_worth = match kind {
        // Fewer rows than a tile has are multiplied faster as f32.
        Kind::SplitF32 if !matches!(matmul_precision(), Ok(Precision::High)) => false,
        Kind::SplitF32 | Kind::SplitF16 => {
            dot.rows.min(dot.columns) > PANEL / 2 && !dot.is_skinny() && work >= UNIT_WORK_SPLIT
        }
        Kind::Bf16 | Kind::F16 if !dot.is_skinny() => work >= UNIT_WORK_WIDENED,
        Kind::I8 | Kind::U8 if !unit.is_matrix_unit() && has_byte_dots(&dot) => false,
        Kind::I8 | Kind::U8 if has_few_words(unit) && has_byte_columns(&dot) => false,
        Kind::I8 | Kind::U8 if dot.has_small_bytes() => {
            let most = if has_few_words(unit) { UNIT_PADDED_OF_FEW_WORDS } else { UNIT_PADDED };
            work >= UNIT_WORK && padded(&dot) < work.saturating_mul(most)
        }
        _ => dot.rows > 1 && dot.columns > 1 && work >= UNIT_WORK,
    };
    is_worth.then_some((kind, unit))
}

/// Whether an instruction of the unit multiplies fewer words than a vector of f32 has numbers, as with AVX2 alone.
fn has_few_words(unit: Unit) -> bool {
    unit.words() < f32::micro_kernel(Level::best()).lanes
}

/// The multiplications of whole panels of bytes that hold the operands of a product.
fn padded(dot: &Dot<f32>) -> usize {
    let [rows, columns, depth] =
        [(dot.rows, PANEL), (dot.columns, PANEL), (dot.depth, u8::PER_GROUP)].map(|(len, of)| len.next_multiple_of(of));
    rows.saturating_mul(columns).saturating_mul(depth)
}

/// The kinds of the elements of products with such results, the fastest first; none if units do not compute them.
pub(in crate::kernels) fn kinds(from: [DType; 2], to: DType) -> &'static [Kind] {
    let fits = match from[0] {
        DType::I8 | DType::U8 => is_modular(to),
        dtype => to == dtype || to == DType::F32,
    };
    if fits && from[0] == from[1] { Kind::of(from[0]) } else { &[] }
}

/// Whether a dtype is of integers of at most 32 bits.
fn is_modular(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32)
}

/// The kernel of products of matrices of narrow elements with several rows and columns.
pub(super) struct NarrowKernel {
    kind: Kind,
    dot: Dot<f32>,
    blocking: UnitBlocking,
}

impl NarrowKernel {
    pub(super) fn new(sizes: Sizes, unit: Unit, kind: Kind, dot: Dot<f32>) -> NarrowKernel {
        let [_, per_group] = kind.per_word_and_group();
        let blocking = UnitBlocking::new(sizes, unit, dot.batch.len(), [dot.rows, dot.columns, dot.depth], per_group);
        NarrowKernel { kind, dot, blocking }
    }

    fn run_as<'a, N: Part>(
        &'a self,
        elements: [&'a [N]; 2],
        out: &mut Target<'_>,
        scratch: &mut [u32],
        threads: &Threads,
        repair: impl Fn([Matrix<'a, N>; 2], [Range<usize>; 2], &mut Sums) + Sync,
    ) {
        let Dot { batch, rows, columns, left, right, out: dtype, .. } = &self.dot;
        let all = DisjointMut::bytes(out);
        self.blocking.run(scratch, threads, |i| {
            let [l, r] = batch.offsets(i);
            let out = all.skip(i * rows * columns * dtype.size());
            let [lhs, rhs] = [(0, left, l), (1, right, r)].map(|(i, side, offset)| Matrix {
                elements: elements[i],
                free: &side.free,
                contracted: &side.contracted,
                start: side.start + offset,
            });
            let repair = &repair;
            let repair = move |at: [Range<usize>; 2], sums: &mut Sums| repair([lhs, rhs], at, sums);
            (Panels::Of(lhs), Panels::Of(rhs), Dense { out, dtype: *dtype, columns: *columns, repair })
        });
    }
}

impl Kernel for NarrowKernel {
    fn scratch(&self, threads: usize) -> usize {
        self.blocking.scratch(threads) * size_of::<u32>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (out, scratch) = (&mut outs[0], scratch::of(scratch));
        match self.kind {
            Kind::Bf16 | Kind::F16 => {
                self.run_as::<u16>([0, 1].map(|i| ins[i].words()), out, scratch, threads, |_, _, _| {})
            }
            Kind::I8 | Kind::U8 => {
                self.run_as::<u8>([0, 1].map(|i| ins[i].words()), out, scratch, threads, |_, _, _| {})
            }
            Kind::SplitF16 => {
                let elements = [0, 1].map(|i| SplitF16::all(ins[i].words()));
                self.run_as(elements, out, scratch, threads, |_, _, _| {})
            }
            Kind::SplitF32 => {
                let elements = [0, 1].map(|i| SplitF32::all(ins[i].slice::<f32>()));
                self.run_as(elements, out, scratch, threads, |sides, at, sums| {
                    compute_special(sides, self.dot.depth, at, sums);
                });
            }
        }
    }
}

/// One of the matrices of an operand.
#[derive(Clone, Copy)]
struct Matrix<'a, N> {
    elements: &'a [N],
    free: &'a Rows<1>,
    contracted: &'a Rows<1>,
    start: isize,
}

impl<N: Part> Operand for Matrix<'_, N> {
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32], _: &mut [u32]) {
        let (group, groups) = (N::planes(side) * GROUP, depth.len().div_ceil(N::PER_GROUP));
        let panel = groups * group;
        let whole = run(self.free, &free);
        let piece = if whole.is_some() { free.len().max(1) } else { PANEL };
        for first_row in free.clone().step_by(piece) {
            let rows = first_row..free.end.min(first_row + piece);
            let to = &mut to[(first_row - free.start) / PANEL * panel..];
            let row = run(self.free, &rows);
            let mut done = 0;
            while done < groups {
                let first = depth.start + done * N::PER_GROUP;
                // The groups of one run, or one group in which runs meet.
                let run_end = depth.end.min((first / self.contracted.len + 1) * self.contracted.len);
                let count = if run_end == depth.end { groups - done } else { (run_end - first) / N::PER_GROUP };
                let part = first..depth.end.min(first + count.max(1) * N::PER_GROUP);
                let to = &mut to[done * group..];
                match (row, run(self.contracted, &part)) {
                    (Some((i, row)), Some((j, column))) => {
                        // With a stride of zero elements any stride will do.
                        let [row, column] =
                            [(row, &rows), (column, &part)].map(|(s, range)| if range.len() > 1 { s } else { 1 });
                        let start = self.start + i + j;
                        let from = Strided { elements: self.elements, start, free: row, contracted: column };
                        pack(from, rows.len(), part.len(), side, to, panel);
                    }
                    _ => self.gather(rows.clone(), part.clone(), side, to, panel),
                }
                done += part.len().div_ceil(N::PER_GROUP);
            }
        }
    }

    fn to_prefetch(&self, free: &Range<usize>, depth: &Range<usize>) -> ToPrefetch {
        let (Some((free_start, row)), Some((start, column))) = (run(self.free, free), run(self.contracted, depth))
        else {
            return ToPrefetch::NONE;
        };
        let start = self.start + free_start + start;
        let from = Strided { elements: self.elements, start, free: row, contracted: column };
        ToPrefetch::of(&from, free.len(), depth.len())
    }
}

impl<N: Part> Matrix<'_, N> {
    /// Packs a part without constant strides: the elements of some groups at a time are gathered.
    fn gather(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32], panel: usize) {
        let mut gathered = [N::default(); PANEL * GROUP_BYTES];
        for (i, rows) in pieces(free, PANEL).enumerate() {
            for (j, part) in pieces(depth.clone(), N::PER_GROUP).enumerate() {
                let mut to_rows = gathered.chunks_exact_mut(N::PER_GROUP);
                self.each(rows.clone(), part.clone(), |row| {
                    to_rows.next().into_iter().flatten().zip(row).for_each(|(to, x)| *to = x);
                });
                let from = Strided { elements: &gathered[..], start: 0, free: N::PER_GROUP as isize, contracted: 1 };
                let to = &mut to[i * panel + j * N::planes(side) * GROUP..];
                pack(from, rows.len(), part.len(), side, to, panel);
            }
        }
    }

    /// Calls `f` with the elements of each of some rows.
    fn each(&self, free: Range<usize>, depth: Range<usize>, mut f: impl FnMut(&mut dyn Iterator<Item = N>)) {
        each(self.free, free, |at| {
            // The offsets of this many elements at a time are kept on the stack.
            let mut offsets = [0; GROUP_BYTES];
            let mut to = offsets.iter_mut();
            each(self.contracted, depth.clone(), |j| to.next().into_iter().for_each(|to| *to = self.start + at + j));
            f(&mut offsets[..depth.len()].iter().map(|&offset| self.elements[offset as usize]));
        });
    }
}

/// Calls `f` with the offset of each of some indices.
fn each(rows: &Rows<1>, indices: Range<usize>, mut f: impl FnMut(isize)) {
    rows.each(indices, |[at], range| range.for_each(|i| f(at + i as isize * rows.stride[0])));
}

/// A row-major matrix of the result.
struct Dense<'a, F> {
    out: DisjointMut<'a, u8>,
    dtype: DType,
    columns: usize,
    /// Computes sums of these rows and columns again, if they are not right.
    repair: F,
}

impl<F: Fn([Range<usize>; 2], &mut Sums) + Sync> Output for Dense<'_, F> {
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &mut Sums) {
        (self.repair)([rows.clone(), columns.clone()], sums);
        let size = [rows.len(), columns.len()];
        let to = self.out.at((rows.start * self.columns + columns.start) * self.dtype.size());
        // SAFETY: these elements are in the matrix, and belong to this task, as the caller promises.
        unsafe { write_sums(self.dtype, &sums[..], size, to, [self.columns as isize, 1]) };
    }
}
