//! Scatters. The result is cut into parts, and one task applies all updates that fall into a part. So updates of an element are applied in
//! the order of the index vectors, for any number of threads and any division into parts.

use std::ops::Range;

use remat_ir::{Aval, DType, Element, Scatter, ScatterKind, Shape, bf16, f16, with_dtype};

use crate::base::copy::copy;
use crate::base::index::{BLOCK, Numbers, Slices, Starts};
use crate::base::scratch;
use crate::base::strided::TASK_BYTES;
use crate::base::strided_store::StridedStore;
use crate::interface::layout::{Strides, row_major};
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::number::Number;
use crate::simd::multiversion;
use crate::threads::Threads;

/// The kernel of a scatter into a row-major operand, in place if there is no other reference to it.
pub(crate) fn kernel(op: &Scatter, ins: &[Aval], _outs: &[Aval]) -> Box<dyn Kernel> {
    let (x, indices, updates) = (&ins[0], &ins[1], &ins[2]);
    let kept = |d: &usize| !op.inserted_window_dims.contains(d) && !op.operand_batching_dims.contains(d);
    let window: Shape = (0..x.rank()).filter(kept).collect();
    let mut sizes = Shape::from_elem(1, x.rank());
    for (&d, &u) in window.iter().zip(&op.update_window_dims) {
        sizes[d] = updates.shape[u];
    }
    let (x_strides, update_strides) = (row_major(&x.shape), row_major(&updates.shape));
    let along_vectors = (0..updates.rank()).filter(|d| !op.update_window_dims.contains(d));
    let along_vectors: Strides = along_vectors.map(|d| update_strides[d]).collect();
    let from: Strides = op.update_window_dims.iter().map(|&d| update_strides[d]).collect();
    let to: Strides = window.iter().map(|&d| x_strides[d]).collect();
    let window_sizes: Shape = window.iter().map(|&d| sizes[d]).collect();
    let slice = StridedStore::new(&window_sizes, &from, &to);
    let numbers = Numbers {
        sizes: &sizes,
        index_map: &op.scatter_dims_to_operand_dims,
        operand_batching: &op.operand_batching_dims,
        index_batching: &op.scatter_indices_batching_dims,
        mode: op.mode,
    };
    let slices = Slices::new(x, indices, &numbers, &along_vectors);
    // Two positions of a slice never coincide if the dimensions in which it has several positions are not indexed.
    let meet = window.iter().any(|d| sizes[*d] > 1 && op.scatter_dims_to_operand_dims.contains(d));
    let by_position = slice.len() == 1 || !meet && slices.counterpart_stride().is_some_and(|s| s < slice.strides()[0]);
    Box::new(Scattered { dtype: x.dtype, kind: op.kind, size: x.size(), slices, slice, by_position })
}

struct Scattered {
    dtype: DType,
    kind: ScatterKind,
    /// Elements of the result.
    size: usize,
    slices: Slices,
    /// The destinations of one slice's elements in the operand.
    slice: StridedStore,
    /// Whether each position of the slices is updated for many index vectors in turn, rather than all positions of each slice.
    by_position: bool,
}

/// The most parts of the result into which updates are sorted, since each part has to look at all indices.
const PARTS: usize = 64;

/// The fewest elements of a part that is updated in a wider type.
const WIDE_PART: usize = 1 << 18;

/// The lowest and the highest start are computed once for each span of this many index vectors, so that a part skips spans that do not
/// reach it. There are many parts when they are updated in a wider type, and indices mostly rise.
const SPAN: usize = 16 * BLOCK;

impl Kernel for Scattered {
    fn scratch(&self, threads: usize) -> usize {
        if !self.is_wide() {
            return 0;
        }
        scratch::bytes::<i64>(2 * self.spans()) + threads * self.wide_part(threads) * size_of::<f32>()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        if !ins[0].is_in_place() {
            with_word!(self.dtype, W => copy::<W>(ins[0].words(), outs[0].words_mut(), threads));
        }
        if self.size == 0 || self.slices.len() * self.slice.len() == 0 {
            return;
        }
        match (self.kind, self.dtype) {
            (ScatterKind::Set, _) => with_word!(self.dtype, W => {
                self.update::<W>(&ins[1], ins[2].words(), outs[0].words_mut(), threads, |_, update| update);
            }),
            (_, DType::F16) if self.is_wide() => self.run_wide::<f16>(ins, &mut outs[0], scratch, threads),
            (_, DType::Bf16) if self.is_wide() => self.run_wide::<bf16>(ins, &mut outs[0], scratch, threads),
            _ => with_dtype!(self.dtype, T => self.run_same::<T>(ins, &mut outs[0], threads)),
        }
    }
}

impl Scattered {
    /// Whether many updates may add to one element, which is rounded once, after the last.
    fn is_wide(&self) -> bool {
        matches!(self.kind, ScatterKind::Add | ScatterKind::Mul) && matches!(self.dtype, DType::F16 | DType::Bf16)
    }

    /// The length of the parts of the result. Since each part looks at all indices, there are more parts if slices are long.
    fn part(&self, threads: usize) -> usize {
        let slice = self.slice.len() * self.dtype.size();
        if self.slices.len() * slice <= TASK_BYTES {
            return self.size;
        }
        let parts = (slice / 64).min(PARTS).max(threads);
        let (part, extent) = (self.size.div_ceil(parts), self.slice.extent() as usize + 1);
        // Avoids cutting slices.
        if extent <= part { part.next_multiple_of(extent) } else { part }
    }

    /// The length of the parts that are updated in a wider type, for which there is scratch memory.
    fn wide_part(&self, threads: usize) -> usize {
        self.part(threads).min(WIDE_PART.max(self.size / PARTS)).min(self.size)
    }

    /// Combines elements in their own type.
    fn run_same<T: Number>(&self, ins: &[Source<'_>], out: &mut Target<'_>, threads: &Threads) {
        let (updates, to) = (ins[2].slice::<T>(), out.slice_mut::<T>());
        // Sums and products of common dtypes have loops of their own. The condition is constant, so others have none.
        if const { matches!(T::DTYPE, DType::F32 | DType::F64 | DType::I32) } {
            match self.kind {
                ScatterKind::Add => return self.update(&ins[1], updates, to, threads, T::plus),
                ScatterKind::Mul => return self.update(&ins[1], updates, to, threads, T::times),
                _ => {}
            }
        }
        let combine: fn(T, T) -> T = match self.kind {
            ScatterKind::Add => T::plus,
            ScatterKind::Mul => T::times,
            ScatterKind::Min => T::minimum,
            ScatterKind::Max => T::maximum,
            ScatterKind::Set => |_, update| update,
        };
        self.update(&ins[1], updates, to, threads, combine);
    }

    fn update<T: Element>(
        &self,
        indices: &Source<'_>,
        updates: &[T],
        to: &mut [T],
        threads: &Threads,
        combine: impl Fn(T, T) -> T + Send + Sync + Copy,
    ) {
        let len = self.part(threads.count());
        threads.for_each_chunk(to, len, |i, part| {
            self.update_part(indices, 0..self.slices.len(), updates, i * len, part, combine);
        });
    }

    fn spans(&self) -> usize {
        self.slices.len().div_ceil(SPAN)
    }

    /// The index vectors of a span.
    fn span(&self, span: usize) -> Range<usize> {
        span * SPAN..self.slices.len().min((span + 1) * SPAN)
    }

    /// The lowest and the highest start of a span's index vectors. If there are none, the lowest is above the highest.
    fn reach(&self, indices: &Source<'_>, span: usize) -> [i64; 2] {
        let mut reach = [i64::MAX, i64::MIN];
        self.each_block(indices, self.span(span), |starts, _| {
            for &start in starts.iter().filter(|&&start| start >= 0) {
                reach = [reach[0].min(start as i64), reach[1].max(start as i64)];
            }
        });
        reach
    }

    /// Combines elements in f32.
    fn run_wide<T: Number<Wide = f32>>(
        &self,
        ins: &[Source<'_>],
        out: &mut Target<'_>,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let (indices, updates) = (&ins[1], ins[2].slice::<T>());
        let len = self.wide_part(threads.count());
        let to = out.slice_mut::<T>();
        let tasks = to.len().div_ceil(len);
        let parts = to.chunks_mut(len).enumerate();
        let (reaches, scratch) = scratch::take::<i64>(scratch, 2 * self.spans());
        threads.for_each_chunk(reaches, 2, |span, reach| reach.copy_from_slice(&self.reach(indices, span)));
        let reaches = &*reaches;
        threads.for_each_item_with_scratch(tasks, parts, scratch::of::<f32>(scratch), |(i, part), wide| {
            let end = (i * len + part.len()) as i64;
            let reaching = |&(_, reach): &(usize, &[i64])| {
                reach[0] <= reach[1] && reach[1] + self.slice.extent() as i64 >= (i * len) as i64 && reach[0] < end
            };
            let spans = || reaches.chunks_exact(2).enumerate().filter(reaching).map(|(span, _)| self.span(span));
            // Rounding leaves elements without updates unchanged. If there are few updates, finding the updated range pays.
            let few = self.slices.len() * self.slice.len() < self.size / 8;
            let touched = if few { self.touched(indices, spans(), i * len, part.len()) } else { 0..part.len() };
            let part = &mut part[touched.clone()];
            let wide = &mut wide[..part.len()];
            widen(part, wide);
            let first = i * len + touched.start;
            for vectors in spans() {
                match self.kind {
                    ScatterKind::Mul => {
                        self.update_part(indices, vectors, updates, first, wide, |x, update: T| x * update.widen());
                    }
                    _ => self.update_part(indices, vectors, updates, first, wide, |x, update: T| x + update.widen()),
                }
            }
            narrow(wide, part);
        });
    }

    /// The range of a part that slices of these index vectors may reach, from its first to its last element. The part has `len` elements
    /// from `first` on.
    fn touched(
        &self,
        indices: &Source<'_>,
        spans: impl Iterator<Item = Range<usize>>,
        first: usize,
        len: usize,
    ) -> Range<usize> {
        let (mut low, mut high) = (isize::MAX, isize::MIN);
        let part = first as isize..(first + len) as isize;
        for vectors in spans {
            self.each_block(indices, vectors, |starts, _| {
                for &start in starts.iter().filter(|&&start| start >= 0) {
                    let last = start + self.slice.extent();
                    if last >= part.start && start < part.end {
                        low = low.min(start);
                        high = high.max(last);
                    }
                }
            });
        }
        if low > high {
            return 0..0;
        }
        ((low - part.start).max(0) as usize)..((high + 1 - part.start) as usize).min(len)
    }

    /// Applies the updates of some index vectors, in their order, to a part of the result. The part begins with element `first`.
    fn update_part<T: Copy, A: Copy>(
        &self,
        indices: &Source<'_>,
        vectors: Range<usize>,
        updates: &[T],
        first: usize,
        part: &mut [A],
        combine: impl Fn(A, T) -> A,
    ) {
        let (first, end) = (first as isize, (first + part.len()) as isize);
        let (mut reached, mut sources) = ([0; BLOCK], [0; BLOCK]);
        self.each_block(indices, vectors, |starts, counterparts| {
            if self.by_position {
                self.slice.each_position(|[from, to]| {
                    let (reached, sources) = (&mut reached, &mut sources);
                    let count = inside(starts, counterparts, first - to, part.len(), reached, sources);
                    for (&x, &source) in reached[..count].iter().zip(&sources[..count]) {
                        part[x] = combine(part[x], updates[(source + from) as usize]);
                    }
                });
                return;
            }
            for (&start, &counterpart) in starts.iter().zip(counterparts) {
                if start < 0 || start + self.slice.extent() < first || start >= end {
                    continue;
                }
                let [from_stride, to_stride] = self.slice.strides();
                self.slice.each_row([counterpart, start - first], part.len(), |[from, to], count| {
                    if let [1, 1] = [from_stride, to_stride] {
                        for (x, &update) in part[to..to + count].iter_mut().zip(&updates[from..from + count]) {
                            *x = combine(*x, update);
                        }
                        return;
                    }
                    for k in 0..count {
                        let x = &mut part[to + k * to_stride as usize];
                        *x = combine(*x, updates[from + k * from_stride as usize]);
                    }
                });
            }
        });
    }

    /// Calls `f` for blocks of these index vectors, in order, with their starts in the operand and in the updates.
    #[inline(always)]
    fn each_block(&self, indices: &Source<'_>, vectors: Range<usize>, mut f: impl FnMut(&[isize], &[isize])) {
        let mut starts = Starts::new();
        for first in vectors.clone().step_by(BLOCK) {
            let (array, counterpart) = starts.find(&self.slices, indices, first, BLOCK.min(vectors.end - first));
            f(array, counterpart);
        }
    }
}

multiversion! {
    /// Widens elements.
    fn widen<T: Number<Wide = f32>>(from: &[T], to: &mut [f32]) {
        from.iter().zip(to).for_each(|(x, to)| *to = x.widen());
    }
}

multiversion! {
    /// Rounds numbers to elements.
    fn narrow<T: Number<Wide = f32>>(from: &[f32], to: &mut [T]) {
        from.iter().zip(to).for_each(|(&x, to)| *to = T::narrow(x));
    }
}

/// Lists the starts that are among `len` elements from `first` on, relative to `first`, each with its counterpart. Their positions are
/// practically random, so this does not branch.
fn inside(
    starts: &[isize],
    counterparts: &[isize],
    first: isize,
    len: usize,
    reached: &mut [usize; BLOCK],
    sources: &mut [isize; BLOCK],
) -> usize {
    let mut count = 0;
    for (&start, &counterpart) in starts.iter().zip(counterparts) {
        let at = (start - first) as usize;
        (reached[count], sources[count]) = (at, counterpart);
        count += usize::from((start >= 0) & (at < len));
    }
    count
}

#[cfg(test)]
mod tests {
    use remat_ir::{Array, Gather, IndexMode, Literal, Op};

    use super::*;
    use crate::base::index::samples::{any_gather, indices};
    use crate::test_support::{Stream, check, filled, plain, wild};

    const KINDS: [ScatterKind; 5] =
        [ScatterKind::Set, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Min, ScatterKind::Max];

    #[test]
    fn dimension_numbers_of_every_kind_are_understood() {
        let mut stream = Stream::new(6);
        for round in 0..800 {
            let (gather, x, indices) = any_gather(&mut stream, DType::ALL[round % 13], 5);
            scattered(&mirror(&gather, KINDS[round % 5]), &gather, x, indices);
        }
    }

    #[test]
    fn rows_that_meet_are_combined_in_every_dtype() {
        for dtype in DType::ALL {
            for kind in KINDS {
                for mode in [IndexMode::Clip, IndexMode::FillOrDrop] {
                    let gather = rows(dtype, 9, mode);
                    scattered(
                        &mirror(&gather, kind),
                        &gather,
                        plain(dtype, &[20, 9], 1),
                        indices(DType::I32, &[300, 1], 20, 2),
                    );
                }
            }
        }
    }

    #[test]
    fn large_scatters_are_cut_into_parts() {
        for dtype in [DType::F32, DType::Bf16, DType::I64] {
            for kind in [ScatterKind::Set, ScatterKind::Add] {
                // Rows, columns, and single elements.
                let by_rows = rows(dtype, 200, IndexMode::FillOrDrop);
                let x = plain(dtype, &[500, 200], 1);
                scattered(&mirror(&by_rows, kind), &by_rows, x, indices(DType::I32, &[900, 1], 500, 2));
                let by_columns = Gather {
                    offset_dims: (&[0][..]).into(),
                    collapsed_slice_dims: (&[1][..]).into(),
                    start_index_map: (&[1][..]).into(),
                    slice_sizes: (&[200, 1][..]).into(),
                    ..by_rows.clone()
                };
                let x = plain(dtype, &[200, 500], 1);
                scattered(&mirror(&by_columns, kind), &by_columns, x, indices(DType::I32, &[900, 1], 500, 2));
                let elements = Gather {
                    offset_dims: Shape::new(),
                    collapsed_slice_dims: (&[0][..]).into(),
                    start_index_map: (&[0][..]).into(),
                    slice_sizes: (&[1][..]).into(),
                    ..by_rows
                };
                let x = plain(dtype, &[400_000], 1);
                scattered(
                    &mirror(&elements, kind),
                    &elements,
                    x.clone(),
                    indices(DType::I64, &[150_000, 1], 400_000, 2),
                );
                // Indices that mostly rise, like those of windows: a part skips most of them.
                let next = std::cell::Cell::new(0);
                let rising = filled(DType::I64, &[150_000, 1], 3, |stream| {
                    next.set(next.get() + stream.below(5) as i128);
                    Literal::from_i128(DType::I64, next.get() - stream.below(900) as i128)
                });
                scattered(&mirror(&elements, kind), &elements, x, rising);
            }
        }
    }

    #[test]
    fn overlapping_windows_are_combined_in_the_order_of_the_indices() {
        let mut stream = Stream::new(7);
        for kind in KINDS {
            let gather = Gather {
                offset_dims: (&[0, 1][..]).into(),
                collapsed_slice_dims: Shape::new(),
                start_index_map: (&[1, 0][..]).into(),
                slice_sizes: (&[40, 50][..]).into(),
                ..rows(DType::F32, 1, IndexMode::Clip)
            };
            let starts =
                filled(DType::I32, &[150, 2], stream.bits(), |s| Literal::from_i128(DType::I32, s.below(300) as i128));
            scattered(&mirror(&gather, kind), &gather, wild(DType::F32, &[300, 300], 3), starts);
        }
    }

    /// The gather of rows of a matrix.
    fn rows(dtype: DType, columns: usize, mode: IndexMode) -> Gather {
        Gather {
            offset_dims: (&[1][..]).into(),
            collapsed_slice_dims: (&[0][..]).into(),
            start_index_map: (&[0][..]).into(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: (&[1, columns][..]).into(),
            mode,
            fill_value: Literal::from_f64(dtype, 0.0),
        }
    }

    /// The scatter that mirrors a gather.
    fn mirror(op: &Gather, kind: ScatterKind) -> Scatter {
        Scatter {
            kind,
            update_window_dims: op.offset_dims.clone(),
            inserted_window_dims: op.collapsed_slice_dims.clone(),
            scatter_dims_to_operand_dims: op.start_index_map.clone(),
            operand_batching_dims: op.operand_batching_dims.clone(),
            scatter_indices_batching_dims: op.start_indices_batching_dims.clone(),
            mode: op.mode,
            unique_indices: false,
        }
    }

    fn scattered(op: &Scatter, mirror: &Gather, x: Array, indices: Array) {
        if x.dtype() == DType::Bool && matches!(op.kind, ScatterKind::Add | ScatterKind::Mul) {
            return;
        }
        let read = Op::from(mirror.clone()).infer(&[x.aval().clone(), indices.aval().clone()]).expect("a gather");
        let updates = wild(x.dtype(), &read[0].shape, 8);
        check(&Op::from(op.clone()), |ins, outs| kernel(op, ins, outs), &[x, indices, updates]);
    }
}
