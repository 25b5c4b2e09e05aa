//! Products of bf16 and of bytes on the units that CPUs have for them.
//!
//! Source and bounds of the sums: [`narrow`](crate::base::narrow).

// The output is written by several threads, in blocks that interleave.
#![allow(unsafe_code)]

mod cut;
#[cfg(test)]
mod tests;

use std::ops::Range;

use remat_ir::{Aval, DType, DotGeneral, Element, bf16};

use super::matrix::run;
use super::{Dot, Side as Matrices};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{GROUP, GROUP_BYTES, Kind, PANEL, Part, Side, Strided, Sums, Unit, pack};
use crate::base::scratch;
use crate::base::strided::Rows;
use crate::interface::{Kernel, Layout, Source, Target};
use crate::number::Number;
use crate::simd::{Level, multiversion};
use crate::threads::Threads;
use cut::{Cut, Operand, Output, SIZES, Sizes};

/// Multiplications for which it is worth to pack panels of 32 rows and columns.
const WORTH: usize = 1 << 12;

/// The kernel of a product of narrow elements, where this CPU has a unit for them that is worth its while: bf16 with results
/// in bf16 or f32, and bytes with results of at most 32 bits, in which sums modulo 2^32 are those modulo 2^64.
pub(super) fn kernel(op: &DotGeneral, ins: [(DType, &Layout); 2], out: &Aval) -> Option<Box<dyn Kernel>> {
    let kind = kind(ins.map(|(dtype, _)| dtype), out.dtype)?;
    let unit = Unit::best(kind)?;
    let dot = Dot::new(op, ins, out);
    let work = dot.rows.saturating_mul(dot.columns).saturating_mul(dot.depth);
    (dot.rows > 1 && dot.columns > 1 && work >= WORTH)
        .then(|| -> Box<dyn Kernel> { Box::new(NarrowKernel::new(SIZES, unit, kind, dot)) })
}

/// The kind of the elements of products with such results.
fn kind(from: [DType; 2], to: DType) -> Option<Kind> {
    let kind = Kind::of(from[0]).filter(|_| from[0] == from[1])?;
    let fits = match kind {
        Kind::Bf16 => matches!(to, DType::Bf16 | DType::F32),
        Kind::I8 | Kind::U8 => is_modular(to),
    };
    fits.then_some(kind)
}

/// Whether a dtype is of integers of at most 32 bits.
fn is_modular(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32)
}

/// The kernel of products of matrices of narrow elements that have several rows and columns.
struct NarrowKernel {
    kind: Kind,
    dot: Dot<f32>,
    cut: Cut,
}

impl NarrowKernel {
    fn new(sizes: Sizes, unit: Unit, kind: Kind, dot: Dot<f32>) -> NarrowKernel {
        let per_group = match kind {
            Kind::Bf16 => u16::PER_GROUP,
            Kind::I8 | Kind::U8 => u8::PER_GROUP,
        };
        let cut = Cut::new(sizes, unit, dot.batch.len(), [dot.rows, dot.columns, dot.depth], per_group);
        NarrowKernel { kind, dot, cut }
    }

    fn run_as<N: Part + Element>(
        &self,
        ins: &[Source<'_>],
        out: &mut Target<'_>,
        scratch: &mut [u32],
        threads: &Threads,
    ) {
        let Dot { batch, rows, columns, left, right, out: dtype, .. } = &self.dot;
        let all = DisjointMut::bytes(out);
        self.cut.run(scratch, threads, |i| {
            let [l, r] = batch.offsets(i);
            let out = all.skip(i * rows * columns * dtype.size());
            let [lhs, rhs] = [(0, left, l), (1, right, r)].map(|(i, side, offset)| Matrix {
                elements: ins[i].words::<N>(),
                side,
                offset,
            });
            (lhs, rhs, Dense { out, dtype: *dtype, columns: *columns })
        });
    }
}

impl Kernel for NarrowKernel {
    fn scratch(&self, threads: usize) -> usize {
        self.cut.scratch(threads) * size_of::<u32>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        match self.kind {
            Kind::Bf16 => self.run_as::<u16>(ins, &mut outs[0], scratch::of(scratch), threads),
            Kind::I8 | Kind::U8 => self.run_as::<u8>(ins, &mut outs[0], scratch::of(scratch), threads),
        }
    }
}

/// One of the matrices of an operand.
struct Matrix<'a, N> {
    elements: &'a [N],
    side: &'a Matrices<f32>,
    offset: isize,
}

impl<N: Part> Operand for Matrix<'_, N> {
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32]) {
        let (rows, columns) = (&self.side.free, &self.side.contracted);
        let start = self.side.start + self.offset;
        if let (Some((i, row)), Some((j, column))) = (run(rows, &free), run(columns, &depth)) {
            // A stride of nothing is any stride.
            let [row, column] = [(row, &free), (column, &depth)].map(|(s, range)| if range.len() > 1 { s } else { 1 });
            let from = Strided { elements: self.elements, start: start + i + j, free: row, contracted: column };
            return pack(from, free.len(), depth.len(), side, to);
        }
        // Some groups at a time are gathered.
        let mut gathered = [N::default(); PANEL * GROUP_BYTES];
        let mut groups = to.chunks_exact_mut(GROUP);
        for first in depth.clone().step_by(N::PER_GROUP) {
            let part = first..depth.end.min(first + N::PER_GROUP);
            let mut to = gathered.chunks_exact_mut(N::PER_GROUP);
            each(rows, free.clone(), |at| {
                let mut row = to.next().into_iter().flatten();
                each(columns, part.clone(), |j| {
                    if let Some(to) = row.next() {
                        *to = self.elements[(start + at + j) as usize];
                    }
                });
            });
            let from = Strided { elements: &gathered[..], start: 0, free: N::PER_GROUP as isize, contracted: 1 };
            if let Some(group) = groups.next() {
                pack(from, free.len(), part.len(), side, group);
            }
        }
    }
}

/// Calls `f` with the offset of each of some indices.
fn each(rows: &Rows<1>, indices: Range<usize>, mut f: impl FnMut(isize)) {
    rows.each(indices, |[at], range| range.for_each(|i| f(at + i as isize * rows.stride[0])));
}

/// A row-major matrix of the result.
struct Dense<'a> {
    out: DisjointMut<'a, u8>,
    dtype: DType,
    columns: usize,
}

impl Output for Dense<'_> {
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &Sums) {
        let size = [rows.len(), columns.len()];
        let to = self.out.at((rows.start * self.columns + columns.start) * self.dtype.size());
        let level = Level::best();
        // SAFETY: these are elements of the matrix, and this task's own, as the caller promises.
        unsafe {
            match (self.dtype, self.dtype.size()) {
                (DType::Bf16, _) => store::<bf16>(level)(sums, size, to.cast(), self.columns),
                (_, 1) => store::<u8>(level)(sums, size, to.cast(), self.columns),
                (_, 2) => store::<u16>(level)(sums, size, to.cast(), self.columns),
                _ => store::<u32>(level)(sums, size, to.cast(), self.columns),
            }
        }
    }
}

/// What sums become.
trait Stored: Copy {
    /// The element that the bits of a sum become.
    fn of(sum: u32) -> Self;
}

impl Stored for bf16 {
    #[inline(always)]
    fn of(sum: u32) -> bf16 {
        bf16::narrow(f32::from_bits(sum))
    }
}

macro_rules! low_bits {
    ($($type:ty)*) => { $(
        impl Stored for $type {
            #[inline(always)]
            fn of(sum: u32) -> $type {
                sum as $type
            }
        }
    )* };
}

low_bits!(u8 u16 u32);

multiversion! {
    /// The function that writes as many rows and columns of sums to rows that are `stride` apart, which must be valid for writing.
    fn store<T: Stored>(level: Level) -> unsafe fn(sums: &Sums, size: [usize; 2], to: *mut T, stride: usize) {
        let [rows, columns] = size;
        for (i, sums) in sums.as_chunks::<PANEL>().0.iter().enumerate().take(rows) {
            // SAFETY: the row has as many elements, as the caller promises.
            let to = unsafe { std::slice::from_raw_parts_mut(to.add(i * stride), columns) };
            match to.first_chunk_mut::<PANEL>() {
                Some(to) => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = T::of(sum)),
                None => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = T::of(sum)),
            }
        }
    }
}
