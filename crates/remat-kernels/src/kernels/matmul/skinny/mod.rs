//! Products of a matrix and a skinny operand: a vector, or up to [`SKINNY_ROWS`] rows.
//!
//! The matrix is read once, so that packing it would cost more than the product. It is read in the order in which it lies in memory, row by
//! row or column by column, and both ways give the same bits. A sum has lanes ([`lanes`]) that are added up at the end; along a short axis
//! they stay in registers ([`short`]). A long contracted axis is cut, and the sums of the parts are added in order. So the order of a sum
//! depends on the length of the contracted axis alone, and a row has the same results among one to [`SKINNY_ROWS`] rows. Several rows are
//! multiplied this way from [`DEPTH`] positions on: along shorter axes, clearing and adding the lanes would take as long as the products.
//!
//! [`lanes`] has the loops whose lanes are in memory, [`short`] those for a short contracted axis; [`arithmetic`] says in which types they
//! compute, and [`horizontal_sums`] adds up the lanes of several sums at a time. Up to eight vectors of bytes by a matrix that lies along
//! the contracted axis have their own loops ([`bytes`]) where the CPU has instructions for them; by one that lies along its columns some
//! CPUs multiply them here, as f32 ([`has_byte_columns`]).

// Results are written by several threads, through pointers.
#![allow(unsafe_code)]

mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod byte_dots;
#[cfg(target_arch = "x86_64")]
mod bytes;
mod horizontal_sums;
mod lanes;
mod short;

use std::ops::Range;

pub(super) use arithmetic::{Factor, Sum};

use lanes::{LANES, Loops, Part, Skinny, add_lanes, add_neighbours};
pub(in crate::kernels) use short::dots;
use short::{Run, To};

use super::element::Writer;
use super::matrix::{Matrix, is_contiguous_along_free};
use super::thresholds::{
    SKINNY_BYTES_BY_COLUMNS, SKINNY_BYTES_COLUMNS, SKINNY_BYTES_DEPTH, SKINNY_DEPTH_IN_LANES, SKINNY_FEW, SKINNY_ROWS,
};
use super::{Dot, Operands};
use crate::base::disjoint::DisjointMut;
use crate::base::scratch;
use crate::interface::{Kernel, Source, Target};
use crate::simd::{CACHE_LINE, Level};
use crate::threads::Threads;

/// Shortest contracted axis of products of several rows.
const DEPTH: usize = SKINNY_DEPTH_IN_LANES * LANES;

/// Fewest elements of the matrix for a task.
const TASK: usize = 1 << 16;

/// The longest part of the contracted axis.
const PART: usize = 1 << 14;

/// Fewest and most columns of a task whose elements are neighbours. They are read in runs that are as long as possible, since the CPU
/// prefetches along these. Their lanes stay in the second-level cache.
const COLUMNS: [usize; 2] = [128, 2048];

/// Columns are cut at multiples of this number, which fill registers.
const EVEN: usize = 64;

/// Most sums of a task, whose lanes stay in the second-level cache.
const SUMS: usize = 4096;

/// Positions of the contracted axis whose rows are read at a time, so that they stay in the first-level cache: of [`SKINNY_ROWS`] rows.
const STEP: usize = 512;

/// Columns of the result and positions of the contracted axis of a block that is converted first, because its elements are not converted in
/// registers or have no constant strides.
const BLOCK: usize = 64;

/// Elements of a matrix that are converted at a time, where the contracted axis is short.
const COPIED: usize = 1 << 13;

/// Most bytes of a matrix that is transposed where the contracted axis is short: reading larger ones column by column takes no longer.
/// (Measured in docs/EXPERIMENTS.md, "Batches of few rows".)
const NEAR: usize = 1 << 15;

/// The kernel of such products, one for each index of the batch. Columns here are those of the result: the rows of a matrix whose elements
/// are neighbours along the contracted axis.
pub(super) struct SkinnyKernel<F: 'static, A: 'static> {
    operands: Operands<F>,
    writer: Writer<A>,
    /// The loops over elements of the matrix, if they are converted in registers.
    loops: Option<Loops<F>>,
    /// How the matrix is read, if the contracted axis is so short that sums stay in registers.
    short: Option<Read>,
    /// The blocking of such a product, which does not depend on the number of threads. Finding it takes as long as a small product.
    short_blocking: Option<SkinnyBlocking>,
}

/// How a matrix is read whose sums stay in registers from the first position to the last.
#[derive(Clone, Copy)]
enum Read {
    /// In place, row by row.
    InPlace,
    /// Some rows at a time, converted.
    Copied,
}

impl Read {
    /// How a matrix is read, if the contracted axis is short and transposed elements stay in the cache.
    fn of<F: Factor>(operands: &Operands<F>, has_loops: bool) -> Option<Read> {
        let Operands { columns, depth, ref matrix, .. } = *operands;
        match matrix.strides() {
            _ if depth > STEP => None,
            Some([(0..), 1]) if has_loops => Some(Read::InPlace),
            _ if depth.saturating_mul(columns).saturating_mul(matrix.reader.dtype().size()) <= NEAR => {
                Some(Read::Copied)
            }
            _ => None,
        }
    }
}

/// The kernel of products of bytes with a skinny operand by the CPU's instructions for them, if it has some for such a product.
pub(super) fn skinny_bytes(dot: Dot<f32>) -> Option<Box<dyn Kernel>> {
    #[cfg(target_arch = "x86_64")]
    return Some(Box::new(bytes::BytesKernel::new(bytes::BytesKernel::dots_for(&dot)?, dot)));
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = dot;
        None
    }
}

/// Whether [`skinny_bytes`] multiplies the rows of a skinny operand of bytes one by one, which is faster than a unit for so few.
pub(super) fn has_byte_dots(dot: &Dot<f32>) -> bool {
    #[cfg(target_arch = "x86_64")]
    return bytes::BytesKernel::dots_for(dot).is_some();
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = dot;
        false
    }
}

/// Whether few vectors of bytes are multiplied by a large matrix whose neighbours lie along the free axis, which [`SkinnyKernel`] reads in
/// place, and a unit would pack first.
pub(super) fn has_byte_columns(dot: &Dot<f32>) -> bool {
    let is_large = dot.depth >= SKINNY_BYTES_DEPTH && dot.rows.max(dot.columns) >= SKINNY_BYTES_COLUMNS;
    let lies_along_columns = matches!(dot.large().strides(), Some([1, (0..)]));
    is_large && lies_along_columns && dot.rows.min(dot.columns) <= SKINNY_BYTES_BY_COLUMNS
}

/// Positions that are read at a time of this number of rows of the skinny operand, in whole groups of lanes. The fewer rows, the longer are the runs
/// of the matrix, which the CPU prefetches.
fn step(rows: usize) -> usize {
    let positions = SKINNY_ROWS * STEP / rows.clamp(1, SKINNY_ROWS);
    positions / LANES * LANES
}

/// Rows of a matrix of this depth that are converted at a time.
fn copied(depth: usize) -> usize {
    (COPIED / depth.max(1)).clamp(16, 64)
}

/// How the work is cut into tasks.
#[derive(Clone, Copy)]
struct SkinnyBlocking {
    /// Columns of a task.
    columns: usize,
    /// Tasks for the columns of a result.
    blocks: usize,
    /// The length of a part of the contracted axis.
    part: usize,
    /// Tasks for the contracted axis.
    parts: usize,
    /// Tasks that one thread computes together.
    together: usize,
    /// Tasks for all products.
    tasks: usize,
    /// Numbers in a thread's workspace: a step of the rows, two blocks of the matrix, lanes, and sums.
    lens: [usize; 4],
    /// Bytes of a thread's workspace: of the sums, which come first, and of all others.
    bytes: [usize; 2],
}

/// The workspace of one thread.
struct Workspace<'a, F> {
    /// A step of the rows.
    rows: &'a mut [F],
    /// Two blocks of the matrix.
    block: &'a mut [F],
    lanes: &'a mut [F],
}

/// Whether a product with these rows, columns and positions has a skinny operand.
pub(super) fn is_skinny(rows: usize, columns: usize, depth: usize) -> bool {
    let few = rows.min(columns);
    few <= 1 || few <= SKINNY_ROWS && depth >= DEPTH
}

impl<F: Factor, A: Sum<F>> SkinnyKernel<F, A> {
    pub(super) fn new(operands: Operands<F>, writer: Writer<A>) -> SkinnyKernel<F, A> {
        let loops = Loops::new(operands.matrix.reader.dtype());
        let short = Read::of(&operands, loops.is_some());
        let mut kernel = SkinnyKernel { operands, writer, loops, short, short_blocking: None };
        kernel.short_blocking = short.map(|_| kernel.cut(1));
        kernel
    }

    /// The blocking for a run on `threads` threads.
    fn blocking(&self, threads: usize) -> SkinnyBlocking {
        self.short_blocking.unwrap_or_else(|| self.cut(threads))
    }

    /// Cuts the work for a run on `threads` threads.
    fn cut(&self, threads: usize) -> SkinnyBlocking {
        let Operands { batch, rows, columns, depth, matrix, .. } = &self.operands;
        // Sums depend on where the contracted axis is cut, so that the parts depend on its length alone.
        let parts = depth.div_ceil(PART).max(1);
        let part = depth.div_ceil(parts).max(1);
        let most = if self.short.is_some() {
            (TASK / part).next_multiple_of(EVEN)
        } else if is_contiguous_along_free(&matrix.free, &matrix.contracted) {
            let all = batch.len() * parts * columns;
            // All threads have the same number of tasks, of the same size.
            let tasks = threads * all.div_ceil(threads * COLUMNS[1]).max(1);
            let even = all.div_ceil(tasks).next_multiple_of(EVEN).clamp(COLUMNS[0], COLUMNS[1]);
            even.min(SUMS / rows.max(&1) / EVEN * EVEN)
        } else {
            (TASK / part).clamp(if *rows > 1 { COLUMNS[0] / 2 } else { 1 }, COLUMNS[0])
        };
        let most = most.clamp(1, (*columns).max(1));
        let blocks = columns.div_ceil(most);
        let lens = self.workspace_lens(most, part);
        let [of_rows, of_blocks, of_lanes, of_sums] = lens;
        let bytes = [of_sums * size_of::<A>(), (of_rows + of_blocks + of_lanes) * size_of::<F>()];
        SkinnyBlocking {
            columns: most,
            blocks,
            part,
            parts,
            together: (TASK / (most * part)).max(1),
            tasks: batch.len() * blocks * parts,
            lens,
            bytes: bytes.map(|n| n.next_multiple_of(CACHE_LINE)),
        }
    }

    /// Numbers in a thread's workspace for tasks of this many columns and positions, as [`SkinnyBlocking::lens`].
    fn workspace_lens(&self, columns: usize, part: usize) -> [usize; 4] {
        // At most the positions that are summed at a time; a copied block has the most.
        let (rows, step) = (self.operands.rows, step(self.operands.rows).min(part).min(A::CHUNK));
        let sums = rows * columns;
        let of_short = if self.is_direct() { 0 } else { sums };
        match self.short {
            Some(Read::Copied) => [rows * step, step * (2 * copied(step)).max(rows), of_short, of_short],
            Some(_) => [rows * step, rows * step, of_short, of_short],
            None => [rows * step, 2 * BLOCK * BLOCK, LANES * sums, sums],
        }
    }

    /// Bytes of the sums of all parts, where there are several.
    fn shared_bytes(&self, blocking: &SkinnyBlocking) -> usize {
        match blocking.parts {
            1 => 0,
            n => (self.operands.batch.len() * n * self.results() * size_of::<A>()).next_multiple_of(CACHE_LINE),
        }
    }

    /// The number of results of one product.
    fn results(&self) -> usize {
        self.operands.rows * self.operands.columns
    }

    /// Computes the sums of some columns over a part of the contracted axis, in the order in which results are written.
    fn sums(
        &self,
        (matrix, skinny): (&Matrix<'_, F>, &Matrix<'_, F>),
        columns: Range<usize>,
        part: Range<usize>,
        space: &mut Workspace<'_, F>,
        sums: &mut [A],
    ) {
        let (rows, n, skinny_first) = (self.operands.rows, columns.len(), self.operands.skinny_first);
        sums.fill(A::default());
        if let Some(read) = self.short {
            for chunk in pieces(&part, A::CHUNK) {
                let found = &mut space.lanes[..rows * n];
                let x = numbers(skinny, rows, &chunk, space.rows, space.block);
                let strides = if skinny_first { [n, 1] } else { [1, rows] };
                assert!(rows * n <= found.len());
                let to = To { first: found.as_mut_ptr(), strides };
                // SAFETY: there is memory for all sums (checked).
                unsafe { self.short_sums(read, matrix, x, [&columns, &chunk], space.block, to) };
                sums.iter_mut().zip(found).for_each(|(sum, found)| *sum = sum.add(*found));
            }
            return;
        }
        let lanes = &mut space.lanes[..LANES * rows * n];
        for chunk in pieces(&part, A::CHUNK) {
            lanes.fill(F::default());
            // Both ways to read apply to the whole part, since its strides do.
            let location = self.loops.as_ref().zip(matrix.locate(&columns, &chunk));
            let by_rows = location.is_some_and(|(_, location)| location.strides[1] == 1);
            for step in pieces(&chunk, step(rows)) {
                let x = numbers(skinny, rows, &step, space.rows, space.block);
                match location {
                    Some((loops, location)) if by_rows || location.strides[0] == 1 => {
                        let ([row, column], at) = (location.strides, step.start - chunk.start);
                        let first = location.first.wrapping_add(at * column * loops.size());
                        let part = Part { first, stride: if by_rows { row } else { column }, rows: n };
                        // SAFETY: the location is in the matrix, and holds these rows, or columns.
                        unsafe { if by_rows { loops.rows(x, part, lanes) } else { loops.columns(x, part, lanes, n) } }
                    }
                    _ => blocks(matrix, x, &columns, &step, space.block, lanes),
                }
            }
            let between = if by_rows {
                add_neighbours(lanes);
                LANES
            } else {
                add_lanes(lanes, rows * n);
                1
            };
            for row in 0..rows {
                let lanes = lanes[row * n * between..].iter().step_by(between);
                let (first, stride) = if skinny_first { (row * n, 1) } else { (row, rows) };
                for (sum, &lane) in sums[first..].iter_mut().step_by(stride).take(n).zip(lanes) {
                    *sum = sum.add(lane);
                }
            }
        }
    }

    /// Computes the sums of some columns over a short part of the contracted axis.
    ///
    /// # Safety
    /// There is memory for them.
    unsafe fn short_sums(
        &self,
        read: Read,
        matrix: &Matrix<'_, F>,
        x: Skinny<'_, F>,
        [columns, part]: [&Range<usize>; 2],
        block: &mut [F],
        to: To<F>,
    ) {
        assert!((x.rows - 1) * x.stride + x.depth <= x.numbers.len());
        let x = (Run { first: x.numbers.as_ptr(), stride: x.stride, rows: x.rows }, x.depth);
        // SAFETY, of all: the rows are in their slice (checked), the location and the block hold rows of the matrix, and the caller
        // promises the sums.
        match (read, matrix.locate(columns, part), &self.loops) {
            (_, Some(location), Some(loops)) if x.0.rows * columns.len() * x.1 <= SKINNY_FEW => unsafe {
                (loops.few)(x.0, location, columns.len(), x.1, to)
            },
            (Read::InPlace, Some(location), Some(loops)) => {
                let rows = Run { first: location.first, stride: location.strides[0], rows: columns.len() };
                unsafe { (loops.short)(x.0, rows, x.1, to) }
            }
            _ => {
                let (most, by_rows) = (copied(x.1), short::dot_rows::<F>(Level::best()));
                let (block, space) = block.split_at_mut(most * x.1);
                for piece in pieces(columns, most) {
                    matrix.read_rows(piece.clone(), part.clone(), space, block);
                    let rows = Run { first: block.as_ptr().cast(), stride: x.1, rows: piece.len() };
                    let first = to.first.wrapping_add((piece.start - columns.start) * to.strides[1]);
                    unsafe { by_rows(x.0, rows, x.1, To { first, ..to }) };
                }
            }
        }
    }

    /// Whether sums of a short axis are written directly to the results.
    fn is_direct(&self) -> bool {
        self.short.is_some() && A::DTYPE == F::DTYPE && self.writer.is_direct()
    }

    /// Writes the results of some columns over a short contracted axis.
    ///
    /// # Safety
    /// `out` is the first result of the product, and no other task writes these columns.
    unsafe fn write_short(
        &self,
        read: Read,
        (matrix, skinny): (&Matrix<'_, F>, &Matrix<'_, F>),
        columns: Range<usize>,
        space: &mut Workspace<'_, F>,
        out: *mut F,
    ) {
        let (all, depth) = ([self.operands.rows, self.operands.columns], 0..self.operands.depth);
        let x = numbers(skinny, all[0], &depth, space.rows, space.block);
        let strides = if self.operands.skinny_first { [all[1], 1] } else { [1, all[0]] };
        let to = To { first: out.wrapping_add(columns.start * strides[1]), strides };
        // SAFETY: as the caller promises.
        unsafe { self.short_sums(read, matrix, x, [&columns, &depth], space.block, to) };
    }

    /// Calls `f` with each run of the sums of some columns, and its offset in a product.
    fn runs<'a>(&self, columns: Range<usize>, sums: &'a [A], mut f: impl FnMut(usize, &'a [A])) {
        if self.operands.skinny_first {
            for (i, sums) in sums.chunks_exact(columns.len()).enumerate() {
                f(i * self.operands.columns + columns.start, sums);
            }
        } else {
            f(columns.start * self.operands.rows, sums);
        }
    }

    /// Adds the sums of the parts of the contracted axis in order, and writes them.
    fn add_parts(&self, blocking: &SkinnyBlocking, sums: &mut [A], out: &DisjointMut<'_, u8>, threads: &Threads) {
        let (results, size) = (self.results(), self.writer.dtype.size());
        let of_one = blocking.parts * results;
        threads.for_each_chunk(&mut sums[..of_one * self.operands.batch.len()], of_one, |i, sums| {
            let (sums, others) = sums.split_at_mut(results);
            for part in others.chunks_exact(results) {
                sums.iter_mut().zip(part).for_each(|(sum, &part)| *sum = sum.plus(part));
            }
            // SAFETY: the product is in the result, and one task writes it.
            unsafe { self.writer.write(sums, out.at(i * results * size)) };
        });
    }
}

/// The pieces of a range, of at most `len` each.
fn pieces(range: &Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = range.end;
    range.clone().step_by(len).map(move |first| first..end.min(first.saturating_add(len)))
}

/// A step of the rows of a skinny operand: in place, or converted to `to`. `copied` is memory for this many numbers.
fn numbers<'a, F: Factor>(
    skinny: &'a Matrix<'_, F>,
    rows: usize,
    chunk: &Range<usize>,
    to: &'a mut [F],
    copied: &mut [F],
) -> Skinny<'a, F> {
    let depth = chunk.len();
    match skinny.strided(&(0..rows), chunk) {
        Some((numbers, stride, 1)) if numbers.len() >= (rows - 1) * stride + depth => {
            Skinny { numbers, rows, depth, stride }
        }
        _ => {
            skinny.read_rows(0..rows, chunk.clone(), copied, to);
            Skinny { numbers: to, rows, depth, stride: depth }
        }
    }
}

/// Adds the products of a chunk of the matrix and one of the rows to the lanes of columns. Blocks of the matrix are converted first.
fn blocks<F: Factor>(
    matrix: &Matrix<'_, F>,
    x: Skinny<'_, F>,
    columns: &Range<usize>,
    chunk: &Range<usize>,
    block: &mut [F],
    lanes: &mut [F],
) {
    let loops = Loops::of::<F>();
    let (block, copied) = block.split_at_mut(BLOCK * BLOCK);
    for j in (0..x.depth).step_by(BLOCK) {
        let x = Skinny { numbers: &x.numbers[j..], depth: BLOCK.min(x.depth - j), ..x };
        for first in columns.clone().step_by(BLOCK) {
            let rows = first..columns.end.min(first + BLOCK);
            let len = rows.len();
            matrix.read_columns(rows, chunk.start + j..chunk.start + j + x.depth, copied, block);
            // The pointer is taken after the block is written: a mutable borrow would invalidate it.
            let part = Part { first: block.as_ptr().cast(), stride: len, rows: len };
            // SAFETY: these are the columns that were read.
            unsafe { loops.columns(x, part, &mut lanes[first - columns.start..], columns.len()) };
        }
    }
}

impl<F: Factor, A: Sum<F>> Kernel for SkinnyKernel<F, A> {
    fn scratch(&self, threads: usize) -> usize {
        let blocking = self.blocking(threads);
        self.shared_bytes(&blocking) + threads * blocking.bytes.iter().sum::<usize>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (blocking, operands) = (self.blocking(threads.count()), &self.operands);
        let (shared, own) = scratch.split_at_mut(self.shared_bytes(&blocking));
        let of_parts = DisjointMut::new(scratch::of::<A>(shared));
        let out = DisjointMut::bytes(&mut outs[0]);
        let size = self.writer.dtype.size();
        let tasks = blocking.tasks;
        threads.for_each_with_scratch(tasks.div_ceil(blocking.together), own, |task, own| {
            let [rows_len, block_len, lanes_len, _] = blocking.lens;
            let (sums, own) = own.split_at_mut(blocking.bytes[0]);
            let (rows, own) = scratch::of::<F>(own).split_at_mut(rows_len);
            let (block, own) = own.split_at_mut(block_len);
            let mut space = Workspace { rows, block, lanes: &mut own[..lanes_len] };
            let sums = scratch::of::<A>(sums);
            for task in task * blocking.together..tasks.min((task + 1) * blocking.together) {
                let (i, part) = (task / blocking.parts, task % blocking.parts);
                let (index, first) = (i / blocking.blocks, i % blocking.blocks * blocking.columns);
                let (matrix, skinny) = operands.at(ins, index);
                let columns = first..operands.columns.min(first + blocking.columns);
                if let Some(read) = self.short.filter(|_| self.is_direct()) {
                    let out = out.at(index * self.results() * size).cast();
                    // SAFETY: one task writes these columns.
                    unsafe { self.write_short(read, (&matrix, &skinny), columns, &mut space, out) };
                    continue;
                }
                let from = (part * blocking.part).min(operands.depth);
                let depth = from..operands.depth.min(from + blocking.part);
                let sums = &mut sums[..operands.rows * columns.len()];
                self.sums((&matrix, &skinny), columns.clone(), depth, &mut space, sums);
                self.runs(columns, sums, |at, sums| {
                    // SAFETY, of both: one task writes the sums of this part of these columns.
                    if blocking.parts > 1 {
                        let at = (index * blocking.parts + part) * self.results() + at;
                        unsafe { of_parts.slice(at, sums.len()) }.copy_from_slice(sums);
                    } else {
                        unsafe { self.writer.write(sums, out.at((index * self.results() + at) * size)) };
                    }
                });
            }
        });
        if blocking.parts > 1 {
            self.add_parts(&blocking, scratch::of::<A>(shared), &out, threads);
        }
    }
}
