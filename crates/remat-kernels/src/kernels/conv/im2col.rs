//! Implicit im2col: matrix views of images or weights, materialised one block at a time.
//!
//! The rows and columns of such a matrix run along axes of an array. For an image, one side is the positions of windows and the other the
//! elements of a window. For weights it is features and elements. Where a window leaves the image, the matrix has zeros.
//!
//! Blocks are gathered as row segments: runs along one axis of the free side, for runs along one axis of the contracted side. The part
//! inside the image is found once for all segments of such a pair. The axes are chosen when the matrix is made, so that segments are long
//! and of neighbours in memory. Where no window leaves the image, columns that are neighbours are copied to several panels row by row, and
//! neighbours along the contracted side are transposed from where they lie.

use std::ops::Range;

use smallvec::SmallVec;

use super::row_segments::{Array, RowSegments, copy_segments, intersection, part_inside};
use crate::base::product::{self, Accumulator, MicroKernel};
use crate::kernels::matmul::{
    Elements, Left, LeftBlock, Right, block_stride, copy_columns, left_in_place, pack_panels, pack_transposed,
    right_in_place, transpose_rows,
};

/// The sides of a matrix: the rows of a left operand or the columns of a right one, and the contracted axes.
pub(super) const FREE: usize = 0;
pub(super) const CONTRACTED: usize = 1;

/// An array whose elements can be counted has fewer axes of at least two elements.
const MOST_AXES: usize = 64;

/// Indices of each side in a block, about.
const BLOCK: [usize; 2] = [32, 256];

/// Fewest columns for which a left operand is packed into panels.
const MIN_PANEL_COLUMNS: usize = 64;

/// Fewest neighbours along the contracted side that are transposed where they are, not copied before.
const TRANSPOSED: usize = 16;

/// An axis of a matrix.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) stride: isize,
    /// If windows may leave the image: the spatial dimension along which the axis runs, and the distance of neighbours in it.
    pub(super) along: Option<(usize, usize)>,
}

/// A spatial dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) size: usize,
    pub(super) stride: isize,
    /// The coordinate of the first element of the matrix.
    pub(super) origin: i64,
}

/// A matrix of elements of an array and of the zeros around it.
pub(super) struct Im2col {
    /// The offset of the first element, which may be outside.
    start: isize,
    sides: [Side; 2],
    checks: SmallVec<[BoundsCheck; 2]>,
    /// Whether every element is outside.
    is_outside: bool,
    /// The side whose runs are segments; the runs of the other side count them.
    along: usize,
    /// Whether it is packed into panels as a left operand, where it cannot be read in place.
    has_panels: bool,
}

/// The rows or the columns.
struct Side {
    /// Axes of at least two elements, outermost first.
    axes: SmallVec<[Axis; 4]>,
    /// The axis of runs.
    run: usize,
    /// The indices of the side between neighbours along it: the product of the sizes of the axes after it.
    inner: usize,
}

/// A spatial dimension outside of which some element lies, so that coordinates are checked.
struct BoundsCheck {
    size: usize,
    /// The coordinate of the first element. Coordinates wrap around: where they exceed 2^63, by less than the size of a dimension, they
    /// become negative, which is outside too.
    origin: i64,
    /// For each side the axis that runs along the dimension, and the distance of neighbours in it.
    axes: [Option<(usize, u64)>; 2],
}

/// Some neighbours along the axis of runs of a side.
struct Run<'a> {
    /// The index along each axis of the first of them.
    index: &'a [usize; MOST_AXES],
    /// Its offset from the start of the matrix.
    at: isize,
    /// Its index among the requested indices of the side.
    first: usize,
    len: usize,
}

impl Im2col {
    /// The matrix of an array, from an offset on.
    pub(super) fn new(offset: usize, spatial: &[Extent], axes: [impl IntoIterator<Item = Axis>; 2]) -> Im2col {
        let axes = axes.map(|axes| axes.into_iter().filter(|axis| axis.size != 1).collect::<SmallVec<[Axis; 4]>>());
        let mut start = offset as isize;
        let mut checked: SmallVec<[(usize, Extent); 2]> = SmallVec::new();
        let mut is_outside = false;
        for (d, extent) in spatial.iter().enumerate() {
            let skips = axes.iter().flatten().filter_map(|axis| Some((axis.size, axis.along?)));
            let last: i128 = skips
                .filter(|(_, (along, _))| *along == d)
                .map(|(size, (_, skip))| (size as i128 - 1) * skip as i128)
                .sum();
            start = start.wrapping_add((extent.origin as isize).wrapping_mul(extent.stride));
            if extent.origin < 0 || extent.origin as i128 + last >= extent.size as i128 {
                is_outside |= last == 0;
                checked.push((d, *extent));
            }
        }
        let is_checked = |axis: &Axis| axis.along.is_some_and(|(along, _)| checked.iter().any(|&(d, _)| d == along));
        let axes = axes.map(|axes| {
            let mut merged: SmallVec<[Axis; 4]> = SmallVec::new();
            for axis in axes {
                let along = axis.along.filter(|_| is_checked(&axis));
                match merged.last_mut() {
                    Some(Axis { size, stride, along: None })
                        if along.is_none() && *stride == axis.stride.wrapping_mul(axis.size as isize) =>
                    {
                        *size *= axis.size;
                        *stride = axis.stride;
                    }
                    _ => merged.push(Axis { along, ..axis }),
                }
            }
            merged
        });
        let check = |(d, extent): (usize, Extent)| BoundsCheck {
            size: extent.size,
            origin: extent.origin,
            axes: [FREE, CONTRACTED].map(|side| {
                let along = |axis: &Axis| axis.along.filter(|&(along, _)| along == d);
                axes[side].iter().enumerate().find_map(|(i, axis)| Some((i, along(axis)?.1 as u64)))
            }),
        };
        let checks = checked.into_iter().map(check).collect();
        let mut best = [FREE, CONTRACTED].map(|side| cheapest_run(&axes[side], BLOCK[side]));
        let along = if best[FREE].1 <= best[CONTRACTED].1 { FREE } else { CONTRACTED };
        // The other side should have many segments, preferably with the same part of each inside the image.
        let dimension = axes[along].get(best[along].0).and_then(|axis| axis.along).map(|(d, _)| d);
        let other = &axes[1 - along];
        let segments = |i: usize| {
            let is_shared = dimension.is_some() && other[i].along.map(|(d, _)| d) == dimension;
            run_len(other, i, BLOCK[1 - along]) / if is_shared { 2 } else { 1 }
        };
        best[1 - along].0 = (0..other.len()).max_by_key(|&i| segments(i)).unwrap_or(0);
        let [free, contracted] = axes;
        let sides = [Side::new(free, best[FREE].0), Side::new(contracted, best[CONTRACTED].0)];
        Im2col { start, sides, checks, is_outside, along, has_panels: false }
    }

    /// The same, packed into panels as a left operand if neighbours in memory are not neighbours along the rows. Weights are: their rows
    /// would be gathered one element at a time anyway. Windows are gathered in long segments, which is faster.
    pub(super) fn with_panels(mut self) -> Im2col {
        self.has_panels = self.sides[FREE].stride() != 1;
        self
    }

    /// The side along which elements are read in segments.
    pub(super) fn along(&self) -> usize {
        self.along
    }

    /// How many neighbours of the contracted side have the same stride.
    pub(super) fn contracted_run(&self) -> usize {
        self.sides[CONTRACTED].axes.last().map_or(1, |axis| axis.size)
    }
}

/// The neighbours along an axis in a run, among `indices` indices of the side.
fn run_len(axes: &[Axis], run: usize, indices: usize) -> usize {
    let inner: usize = axes[run + 1..].iter().map(|axis| axis.size).product();
    axes[run].size.min(indices.div_ceil(inner.max(1)))
}

/// The axis along which it costs the least to read an element, and this cost in cycles, about: a segment costs as much as some
/// elements, and neighbours in memory cost less than elements that are apart.
fn cheapest_run(axes: &[Axis], indices: usize) -> (usize, f64) {
    let cost = |i: usize| {
        let element = match axes[i].stride.unsigned_abs() {
            0 | 1 => 0.25,
            2..=16 => 1.0,
            _ => 2.0,
        };
        12.0 / run_len(axes, i, indices).max(1) as f64 + element
    };
    let costs = (0..axes.len()).map(|i| (i, cost(i)));
    costs.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::INFINITY))
}

impl Side {
    fn new(axes: SmallVec<[Axis; 4]>, run: usize) -> Side {
        let inner = axes.iter().skip(run + 1).map(|axis| axis.size).product();
        Side { axes, run, inner }
    }

    /// The stride of a run.
    fn stride(&self) -> isize {
        self.axes.get(self.run).map_or(0, |axis| axis.stride)
    }

    /// Calls `f` for each run that has some of these indices.
    #[inline(always)]
    fn runs(&self, indices: &Range<usize>, mut f: impl FnMut(Run<'_>)) {
        let mut index = [0; MOST_AXES];
        let Some(axis) = self.axes.get(self.run) else {
            // One element.
            return f(Run { index: &index, at: 0, first: 0, len: indices.len() });
        };
        if indices.is_empty() {
            return;
        }
        let of_outer = axis.size * self.inner;
        let (mut at, mut rest) = (0isize, indices.start / of_outer);
        for (d, axis) in self.axes[..self.run].iter().enumerate().rev() {
            index[d] = rest % axis.size;
            rest /= axis.size;
            at = at.wrapping_add(axis.stride.wrapping_mul(index[d] as isize));
        }
        // How many neighbours of a run, from `base` on, have an index below `end`.
        let below = |end: usize, base: usize| end.saturating_sub(base).div_ceil(self.inner).min(axis.size);
        for base in (indices.start / of_outer * of_outer..indices.end).step_by(of_outer) {
            for i in 0..self.inner {
                let part = below(indices.start, base + i)..below(indices.end, base + i);
                if !part.is_empty() {
                    index[self.run] = part.start;
                    let at = at.wrapping_add(axis.stride.wrapping_mul(part.start as isize));
                    let first = base + i + part.start * self.inner - indices.start;
                    f(Run { index: &index, at, first, len: part.len() });
                }
                self.advance(self.run + 1..self.axes.len(), &mut index, &mut at);
            }
            self.advance(0..self.run, &mut index, &mut at);
        }
    }

    /// Moves to the next index along some axes, and from the last index back to the first.
    #[inline(always)]
    fn advance(&self, axes: Range<usize>, index: &mut [usize; MOST_AXES], at: &mut isize) {
        for d in axes.rev() {
            let axis = &self.axes[d];
            index[d] += 1;
            *at = at.wrapping_add(axis.stride);
            if index[d] < axis.size {
                return;
            }
            index[d] = 0;
            *at = at.wrapping_sub(axis.stride.wrapping_mul(axis.size as isize));
        }
    }

    /// How many of some indices, from the first on, are along the last axis.
    fn neighbours(&self, indices: &Range<usize>) -> usize {
        self.axes.last().map_or(1, |last| last.size - indices.start % last.size).min(indices.len())
    }

    /// The offset of the first of some indices, and the stride if it is the same between all of them.
    fn strided(&self, indices: &Range<usize>) -> Option<(isize, isize)> {
        let Some(last) = self.axes.last() else { return Some((0, 0)) };
        if indices.is_empty() || indices.start / last.size != (indices.end - 1) / last.size {
            return None;
        }
        let (mut at, mut rest) = (0, indices.start);
        for axis in self.axes.iter().rev() {
            at += axis.stride * (rest % axis.size) as isize;
            rest /= axis.size;
        }
        Some((at, if indices.len() == 1 { 0 } else { last.stride }))
    }
}

/// A matrix of the elements of an array.
pub(super) struct Operand<'a, E> {
    pub(super) matrix: &'a Im2col,
    pub(super) elements: E,
    /// The offset of the convolution's group.
    pub(super) offset: isize,
}

impl Im2col {
    /// Whether every block can be multiplied in place as a left operand: elements are not converted, and nothing is read backwards.
    pub(super) fn is_in_place(&self) -> bool {
        let stride = |side: usize| match &self.sides[side].axes[..] {
            [] => Some(0),
            [axis] => Some(axis.stride),
            _ => None,
        };
        self.checks.is_empty()
            && !self.is_outside
            && stride(FREE).is_some_and(|stride| stride >= 0)
            && stride(CONTRACTED).is_some_and(|stride| (0..=1).contains(&stride))
    }

    /// The matrix of a group of the elements of an array.
    pub(super) fn of<E>(&self, elements: E, offset: isize) -> Operand<'_, E> {
        Operand { matrix: self, elements, offset }
    }
}

impl<E: Array> Operand<'_, E> {
    /// Reads a block. Element `i, j` of it goes to `i * strides[FREE] + j * strides[CONTRACTED]`.
    pub(super) fn read(&self, block: &[Range<usize>; 2], strides: [usize; 2], to: &mut [E::Number]) {
        let Im2col { sides, along, .. } = self.matrix;
        sides[1 - along].runs(&block[1 - along], |across| {
            sides[*along].runs(&block[*along], |run| self.read_segments(&across, &run, strides, to));
        });
    }

    /// Reads the elements of two runs: the segments `run`, one for each index of `across`.
    #[inline(always)]
    fn read_segments(&self, across: &Run<'_>, run: &Run<'_>, strides: [usize; 2], to: &mut [E::Number]) {
        let Im2col { sides, checks, along, is_outside, start, .. } = self.matrix;
        let (p, q) = (*along, 1 - along);
        let mut segments = RowSegments {
            at: self.offset.wrapping_add(*start).wrapping_add(across.at).wrapping_add(run.at),
            strides: [sides[q].stride(), sides[p].stride()],
            count: across.len,
            len: run.len,
            to: across.first * strides[q] + run.first * strides[p],
            to_strides: [sides[q].inner * strides[q], sides[p].inner * strides[p]],
            segments: 0..across.len,
            inside: 0..run.len,
            shared: None,
        };
        if *is_outside {
            segments.segments = 0..0;
        }
        for check in checks {
            let mut x = check.origin;
            let mut skips = [0; 2];
            for (side, index) in [(p, run.index), (q, across.index)] {
                if let Some((axis, skip)) = check.axes[side] {
                    x = x.wrapping_add((index[axis] as i64).wrapping_mul(skip as i64));
                    skips[side] = if axis == sides[side].run { skip } else { 0 };
                }
            }
            match [skips[q], skips[p]] {
                [0, 0] if (0..check.size as i64).contains(&x) => {}
                [0, 0] => segments.segments = 0..0,
                [0, skip] => {
                    segments.inside = intersection(&segments.inside, part_inside(x, skip, check.size, run.len))
                }
                [skip, 0] => {
                    segments.segments = intersection(&segments.segments, part_inside(x, skip, check.size, across.len))
                }
                skips => segments.shared = Some((x, skips, check.size)),
            }
        }
        copy_segments(&self.elements, &segments, to);
    }

    /// The offset of the first element of a block and the strides of rows and columns, if these are the same everywhere.
    pub(super) fn locate(&self, [free, contracted]: &[Range<usize>; 2]) -> Option<(isize, [isize; 2])> {
        let matrix = self.matrix;
        if matrix.is_outside || !matrix.checks.is_empty() {
            return None;
        }
        let ((i, row), (j, column)) =
            (matrix.sides[FREE].strided(free)?, matrix.sides[CONTRACTED].strided(contracted)?);
        Some((matrix.start + self.offset + i + j, [row, column]))
    }
}

impl<A: Accumulator> Operand<'_, Elements<'_, A>> {
    /// The elements from the first of a block on, and the strides of rows and columns, if the elements are numbers and the
    /// strides are the same everywhere.
    fn strided(&self, block: &[Range<usize>; 2]) -> Option<(&[A], usize, usize)> {
        let (elements, (first, [row, column])) = (self.elements.numbers()?, self.locate(block)?);
        Some((&elements[first as usize..], row.try_into().ok()?, column.try_into().ok()?))
    }

    /// Copies panels of columns from row to row, if the columns are neighbours in memory and the strides are the same everywhere.
    fn copy_columns(&self, columns: &Range<usize>, depth: &Range<usize>, width: usize, to: &mut [A]) -> bool {
        let Some((first, [1, stride])) = self.locate(&[columns.clone(), depth.clone()]) else { return false };
        let (Ok(first), Ok(stride)) = (first.try_into(), stride.try_into()) else { return false };
        copy_columns(&self.elements, (first, stride), [columns.len(), depth.len()], width, to)
    }

    /// Transposes a panel of some free indices from where they lie, if many neighbours in memory are along the contracted side and need no
    /// conversion.
    fn transpose(&self, free: &Range<usize>, depth: &Range<usize>, width: usize, to: &mut [A]) -> bool {
        let side = &self.matrix.sides[CONTRACTED];
        let is_long = side.axes.last().is_some_and(|axis| axis.stride == 1 && axis.size >= TRANSPOSED);
        let Some(from) = self.elements.numbers().filter(|_| is_long) else { return false };
        let (mut rest, mut to) = (depth.clone(), to);
        while !rest.is_empty() {
            let part = rest.start..rest.start + side.neighbours(&rest);
            let Some((first, [stride, _])) = self.locate(&[free.clone(), part.clone()]) else { return false };
            let (rows, others) = to.split_at_mut(part.len() * width);
            transpose_rows(from, first, stride, free.len(), width, rows);
            (rest.start, to) = (part.end, others);
        }
        true
    }

    /// Packs a panel of some free indices, and fills the rest of the panel with zeros.
    pub(super) fn pack_panel(&self, free: Range<usize>, depth: Range<usize>, width: usize, to: &mut [A]) {
        let count = free.len();
        if count < width {
            // All of it at once: separate calls for the rest of each row take longer.
            to.fill(A::default());
        }
        if self.matrix.along == FREE {
            return self.read(&[free, depth], [1, width], to);
        }
        if !self.transpose(&free, &depth, width, to) {
            pack_transposed(depth, count, width, to, |depth, stride, to| {
                self.read(&[free.clone(), depth], [stride, 1], to)
            });
        }
    }
}

impl<A: Accumulator> Left<A> for Operand<'_, Elements<'_, A>> {
    fn block<'a>(
        &'a self,
        kernel: &MicroKernel<A>,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        to: &'a mut [A],
    ) -> LeftBlock<'a, A> {
        let block = [rows, depth];
        if let Some(block) = left_in_place(self.strided(&block)) {
            return LeftBlock::Strided(block);
        }
        if self.matrix.has_panels && columns >= MIN_PANEL_COLUMNS {
            let [rows, depth] = block;
            return LeftBlock::Packed(pack_panels(kernel, rows, depth.len(), to, |rows, to| {
                self.pack_panel(rows, depth.clone(), kernel.rows, to);
            }));
        }
        // Gathering long segments is faster than multiplying short ones.
        let [row, column] = match self.matrix.along {
            FREE => [1, block[FREE].len()],
            _ => [block_stride(block[CONTRACTED].len()), 1],
        };
        self.read(&block, [row, column], to);
        LeftBlock::Strided(product::Left { elements: to, row_stride: row, column_stride: column })
    }
}

impl<A: Accumulator> Right<A> for Operand<'_, Elements<'_, A>> {
    fn in_place(&self, depth: Range<usize>, columns: Range<usize>) -> Option<product::Right<'_, A>> {
        let count = columns.len();
        right_in_place(self.strided(&[columns, depth])?, count)
    }

    fn pack(&self, depth: Range<usize>, columns: Range<usize>, width: usize, to: &mut [A]) {
        let len = depth.len() * width;
        let mut rest = columns;
        let mut to = &mut to[..rest.len().div_ceil(width) * len];
        while len > 0 && !rest.is_empty() {
            // Whole panels of neighbours are copied together: longer runs are read at a time, and fewer pages.
            let whole = match self.matrix.sides[FREE].neighbours(&rest) {
                all if all == rest.len() => all,
                some => some / width * width,
            };
            let together = rest.start..rest.start + whole;
            let (columns, copied) = match self.copy_columns(&together, &depth, width, to) {
                true => (together, true),
                false => (rest.start..rest.end.min(rest.start + width), false),
            };
            let (panels, others) = std::mem::take(&mut to).split_at_mut(columns.len().div_ceil(width) * len);
            if !copied {
                self.pack_panel(columns.clone(), depth.clone(), width, panels);
            }
            (rest.start, to) = (columns.end, others);
        }
    }
}
