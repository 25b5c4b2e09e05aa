//! Arrays unfolded to matrices, of which no more is made than a block at a time.
//!
//! The rows and columns of such a matrix run along axes of an array: an image, of which one side has the positions of windows
//! and the other the elements of a window, or weights. Where a window leaves the image the matrix has zeros.
//!
//! Blocks are read box by box. A box is a run along one axis of the free side by a run along one of the contracted side, and
//! what it has inside of the image is found once for all of it. Which axes these are is chosen when the matrix is made: the
//! lines of a box should be long, and of neighbours in memory.

use std::ops::Range;

use smallvec::SmallVec;

use super::row_segments::{Lines, copy_lines};
use crate::base::product::{self, Accumulator};
use crate::interface::Source;
use crate::kernels::matmul::{Elements, Left, Reader, Right, block_step, left_in_place, pack_turned, right_in_place};

/// Sides of a matrix: the rows of a left operand or the columns of a right one, and what products are summed along.
pub(super) const FREE: usize = 0;
pub(super) const CONTRACTED: usize = 1;

/// More axes of at least two elements than an array that can be counted has.
const MOST_AXES: usize = 64;

/// Indices that are read of each side at a time, about.
const BLOCK: [usize; 2] = [32, 256];

/// An axis of a matrix.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) size: usize,
    /// The distance in memory between neighbours.
    pub(super) step: isize,
    /// The spatial dimension that the axis runs along, and how many elements a step skips, if it may leave it.
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

/// A matrix of elements of an array, zeros around it included.
pub(super) struct Unfolded<A> {
    reader: Reader<A>,
    /// The offset in memory of the first element, which may be outside.
    start: isize,
    sides: [Side; 2],
    guards: SmallVec<[Guard; 2]>,
    /// Whether every element is outside.
    is_outside: bool,
    /// The side whose runs are the lines of a box.
    along: usize,
}

/// The rows or the columns.
struct Side {
    /// Axes of at least two elements, outermost first.
    axes: SmallVec<[Axis; 4]>,
    /// The axis of runs.
    run: usize,
    /// How far neighbours along it are from each other among the indices of the side.
    spread: usize,
}

/// A spatial dimension that some element lies outside of.
struct Guard {
    size: usize,
    /// The coordinate of the first element. Coordinates wrap around: those of elements of windows are less than the size of a
    /// dimension above 2^63, if so much, and then come out negative, which is outside too.
    origin: i64,
    /// For each side the axis that runs along the dimension, and what a step skips.
    axes: [Option<(usize, u64)>; 2],
}

/// Some neighbours along the axis of runs of a side.
struct Run<'a> {
    /// The index along each axis of the first of them.
    index: &'a [usize; MOST_AXES],
    /// Where it is in memory, from the start of the matrix.
    at: isize,
    /// Its index among those of the side that are asked for.
    first: usize,
    len: usize,
}

impl<A> Unfolded<A> {
    /// The matrix of an array from an offset on.
    pub(super) fn new(
        reader: Reader<A>,
        offset: usize,
        spatial: &[Extent],
        axes: [impl IntoIterator<Item = Axis>; 2],
    ) -> Unfolded<A> {
        let axes = axes.map(|axes| axes.into_iter().filter(|axis| axis.size != 1).collect::<SmallVec<[Axis; 4]>>());
        let mut start = offset as isize;
        let mut guarded: SmallVec<[(usize, Extent); 2]> = SmallVec::new();
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
                guarded.push((d, *extent));
            }
        }
        let is_guarded = |axis: &Axis| axis.along.is_some_and(|(along, _)| guarded.iter().any(|&(d, _)| d == along));
        let axes = axes.map(|axes| {
            let mut merged: SmallVec<[Axis; 4]> = SmallVec::new();
            for axis in axes {
                let along = axis.along.filter(|_| is_guarded(&axis));
                match merged.last_mut() {
                    Some(Axis { size, step, along: None })
                        if along.is_none() && *step == axis.step.wrapping_mul(axis.size as isize) =>
                    {
                        *size *= axis.size;
                        *step = axis.step;
                    }
                    _ => merged.push(Axis { along, ..axis }),
                }
            }
            merged
        });
        let guard = |(d, extent): (usize, Extent)| Guard {
            size: extent.size,
            origin: extent.origin,
            axes: [FREE, CONTRACTED].map(|side| {
                let along = |axis: &Axis| axis.along.filter(|&(along, _)| along == d);
                axes[side].iter().enumerate().find_map(|(i, axis)| Some((i, along(axis)?.1 as u64)))
            }),
        };
        let guards = guarded.into_iter().map(guard).collect();
        let mut best = [FREE, CONTRACTED].map(|side| cheapest_run(&axes[side], BLOCK[side]));
        let along = if best[FREE].1 <= best[CONTRACTED].1 { FREE } else { CONTRACTED };
        // The other side should have many lines in a box, better with the same part of each inside of the image.
        let dimension = axes[along].get(best[along].0).and_then(|axis| axis.along).map(|(d, _)| d);
        let other = &axes[1 - along];
        let lines = |i: usize| {
            let is_shared = dimension.is_some() && other[i].along.map(|(d, _)| d) == dimension;
            run_len(other, i, BLOCK[1 - along]) / if is_shared { 2 } else { 1 }
        };
        best[1 - along].0 = (0..other.len()).max_by_key(|&i| lines(i)).unwrap_or(0);
        let [free, contracted] = axes;
        let sides = [Side::new(free, best[FREE].0), Side::new(contracted, best[CONTRACTED].0)];
        Unfolded { reader, start, sides, guards, is_outside, along }
    }

    /// The side along which elements are read in lines.
    pub(super) fn along(&self) -> usize {
        self.along
    }

    /// How many neighbours of the contracted side have the same distance in memory.
    pub(super) fn contracted_run(&self) -> usize {
        self.sides[CONTRACTED].axes.last().map_or(1, |axis| axis.size)
    }
}

/// The neighbours along an axis in a run, among so many indices of the side.
fn run_len(axes: &[Axis], run: usize, indices: usize) -> usize {
    let spread: usize = axes[run + 1..].iter().map(|axis| axis.size).product();
    axes[run].size.min(indices.div_ceil(spread.max(1)))
}

/// The axis along which it costs the least to read an element, and what it costs, in cycles, about: a line costs as much as
/// some elements, and neighbours in memory cost less than what lies apart.
fn cheapest_run(axes: &[Axis], indices: usize) -> (usize, f64) {
    let cost = |i: usize| {
        let element = match axes[i].step.unsigned_abs() {
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
        let spread = axes.iter().skip(run + 1).map(|axis| axis.size).product();
        Side { axes, run, spread }
    }

    /// The distance in memory between neighbours in a run.
    fn step(&self) -> isize {
        self.axes.get(self.run).map_or(0, |axis| axis.step)
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
        let of_outer = axis.size * self.spread;
        let (mut at, mut rest) = (0isize, indices.start / of_outer);
        for (d, axis) in self.axes[..self.run].iter().enumerate().rev() {
            index[d] = rest % axis.size;
            rest /= axis.size;
            at = at.wrapping_add(axis.step.wrapping_mul(index[d] as isize));
        }
        // How many neighbours in a run have an index below this one, of those from `base` on.
        let below = |end: usize, base: usize| end.saturating_sub(base).div_ceil(self.spread).min(axis.size);
        for base in (indices.start / of_outer * of_outer..indices.end).step_by(of_outer) {
            for i in 0..self.spread {
                let part = below(indices.start, base + i)..below(indices.end, base + i);
                if !part.is_empty() {
                    index[self.run] = part.start;
                    let at = at.wrapping_add(axis.step.wrapping_mul(part.start as isize));
                    let first = base + i + part.start * self.spread - indices.start;
                    f(Run { index: &index, at, first, len: part.len() });
                }
                self.advance(self.run + 1..self.axes.len(), &mut index, &mut at);
            }
            self.advance(0..self.run, &mut index, &mut at);
        }
    }

    /// Moves to the next index along some axes, and from the last to the first.
    #[inline(always)]
    fn advance(&self, axes: Range<usize>, index: &mut [usize; MOST_AXES], at: &mut isize) {
        for d in axes.rev() {
            let axis = &self.axes[d];
            index[d] += 1;
            *at = at.wrapping_add(axis.step);
            if index[d] < axis.size {
                return;
            }
            index[d] = 0;
            *at = at.wrapping_sub(axis.step.wrapping_mul(axis.size as isize));
        }
    }

    /// Where the first of some indices is in memory and the step to the next, if it is the same between all.
    fn strided(&self, indices: &Range<usize>) -> Option<(isize, isize)> {
        let Some(last) = self.axes.last() else { return Some((0, 0)) };
        if indices.is_empty() || indices.start / last.size != (indices.end - 1) / last.size {
            return None;
        }
        let (mut at, mut rest) = (0, indices.start);
        for axis in self.axes.iter().rev() {
            at += axis.step * (rest % axis.size) as isize;
            rest /= axis.size;
        }
        Some((at, if indices.len() == 1 { 0 } else { last.step }))
    }
}

/// A matrix and the array that it is of.
pub(super) struct Operand<'a, A> {
    pub(super) matrix: &'a Unfolded<A>,
    pub(super) elements: Elements<'a, A>,
    /// The offset in memory of the group that is convolved.
    pub(super) offset: isize,
}

impl<A: Accumulator> Unfolded<A> {
    /// The matrix of a group of the elements of an array.
    pub(super) fn of<'a>(&'a self, source: Source<'a>, offset: isize) -> Operand<'a, A> {
        Operand { matrix: self, elements: self.reader.of(source), offset }
    }
}

impl<A: Accumulator> Operand<'_, A> {
    /// Reads a block. Element `i, j` of it goes to `i * steps[FREE] + j * steps[CONTRACTED]`.
    fn read(&self, block: &[Range<usize>; 2], steps: [usize; 2], to: &mut [A]) {
        let Unfolded { sides, along, .. } = self.matrix;
        sides[1 - along].runs(&block[1 - along], |lines| {
            sides[*along].runs(&block[*along], |run| self.read_box(&lines, &run, steps, to));
        });
    }

    /// Reads the elements that are in two runs.
    #[inline(always)]
    fn read_box(&self, lines: &Run<'_>, run: &Run<'_>, steps: [usize; 2], to: &mut [A]) {
        let Unfolded { sides, guards, along, is_outside, start, .. } = self.matrix;
        let (p, q) = (*along, 1 - along);
        let mut shape = Lines {
            at: self.offset.wrapping_add(*start).wrapping_add(lines.at).wrapping_add(run.at),
            steps: [sides[q].step(), sides[p].step()],
            count: lines.len,
            len: run.len,
            to: lines.first * steps[q] + run.first * steps[p],
            to_steps: [sides[q].spread * steps[q], sides[p].spread * steps[p]],
            lines: 0..lines.len,
            inside: 0..run.len,
            shared: None,
        };
        if *is_outside {
            shape.lines = 0..0;
        }
        for guard in guards {
            let mut x = guard.origin;
            let mut skips = [0; 2];
            for (side, index) in [(p, run.index), (q, lines.index)] {
                if let Some((axis, skip)) = guard.axes[side] {
                    x = x.wrapping_add((index[axis] as i64).wrapping_mul(skip as i64));
                    skips[side] = if axis == sides[side].run { skip } else { 0 };
                }
            }
            match [skips[q], skips[p]] {
                [0, 0] if (0..guard.size as i64).contains(&x) => {}
                [0, 0] => shape.lines = 0..0,
                [0, skip] => shape.inside = intersection(&shape.inside, part_inside(x, skip, guard.size, run.len)),
                [skip, 0] => shape.lines = intersection(&shape.lines, part_inside(x, skip, guard.size, lines.len)),
                skips => shape.shared = Some((x, skips, guard.size)),
            }
        }
        copy_lines(&self.elements, &shape, to);
    }

    /// The elements from the first of a block on, and the distances between rows and columns, if the elements are numbers and
    /// the distances are the same everywhere.
    fn strided(&self, [free, contracted]: &[Range<usize>; 2]) -> Option<(&[A], usize, usize)> {
        let matrix = self.matrix;
        if matrix.is_outside || !matrix.guards.is_empty() {
            return None;
        }
        let elements = self.elements.numbers()?;
        let ((i, row), (j, column)) =
            (matrix.sides[FREE].strided(free)?, matrix.sides[CONTRACTED].strided(contracted)?);
        let first = matrix.start + self.offset + i + j;
        Some((&elements[first as usize..], row.try_into().ok()?, column.try_into().ok()?))
    }
}

/// What is in both ranges. An empty one begins in the first.
pub(super) fn intersection(a: &Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start).min(a.end);
    start..a.end.min(b.end).max(start)
}

/// Which of `len` coordinates, the first at `x` and `skip` apart, are neither negative nor as large as the size.
pub(super) fn part_inside(x: i64, skip: u64, size: usize, len: usize) -> Range<usize> {
    let below = |end: usize| {
        let gap = if x < 0 { end as u64 + x.unsigned_abs() } else { (end as u64).saturating_sub(x as u64) };
        gap.div_ceil(skip).min(len as u64) as usize
    };
    below(0)..below(size)
}

impl<A: Accumulator> Left<A> for Operand<'_, A> {
    fn block<'a>(&'a self, rows: Range<usize>, depth: Range<usize>, to: &'a mut [A]) -> product::Left<'a, A> {
        let block = [rows, depth];
        if let Some(block) = left_in_place(self.strided(&block)) {
            return block;
        }
        let [row, column] = match self.matrix.along {
            FREE => [1, block[FREE].len()],
            _ => [block_step(block[CONTRACTED].len()), 1],
        };
        self.read(&block, [row, column], to);
        product::Left { elements: to, row, column }
    }
}

impl<A: Accumulator> Right<A> for Operand<'_, A> {
    fn in_place(&self, depth: Range<usize>, columns: Range<usize>) -> Option<product::Right<'_, A>> {
        let count = columns.len();
        right_in_place(self.strided(&[columns, depth])?, count)
    }

    fn pack(&self, depth: Range<usize>, columns: Range<usize>, to: &mut [A]) {
        let count = columns.len();
        if self.matrix.along == FREE {
            return self.read(&[columns, depth], [1, count], to);
        }
        pack_turned(depth, count, to, |depth, step, to| self.read(&[columns.clone(), depth], [step, 1], to));
    }
}
