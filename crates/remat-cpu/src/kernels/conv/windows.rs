//! The matrix of the windows of an image, of which no more is made than a block at a time.

use std::ops::Range;

use smallvec::SmallVec;

use crate::kernels::matmul::{Accumulator, Elements, Left, Reader, Right, block_step, pack_turned};
use crate::kernels::product;

/// Coordinates in an image, which may lie outside of it, one for each spatial dimension. They wrap around: those of elements
/// of windows are less than the size of a dimension above 2^63, if so much, and then come out negative, which is outside too.
type Point = SmallVec<[i64; 4]>;

/// A dimension of the matrix: positions of windows along a dimension of the image, or elements of a window.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) size: usize,
    /// The distance in memory between neighbours.
    pub(super) step: isize,
    /// The spatial dimension that the axis runs along, and how many elements a step skips; none for batch and features, of
    /// which there are all.
    pub(super) along: Option<(usize, usize)>,
}

/// Where the elements of all windows lie: at the origin and a step along each axis.
pub(super) struct Geometry<A> {
    pub(super) reader: Reader<A>,
    /// The offset in memory of the point 0.
    pub(super) start: isize,
    /// Size and stride of each spatial dimension.
    pub(super) spatial: SmallVec<[(usize, isize); 4]>,
    /// The first element of the first window.
    pub(super) origin: Point,
    /// The axes of the positions of windows, and those of the elements of one, outermost first. There is at least one each.
    pub(super) axes: [SmallVec<[Axis; 4]>; 2],
}

/// The positions of windows among the axes of a [`Geometry`].
const POSITIONS: usize = 0;

/// The elements of a window among the axes of a [`Geometry`].
const ELEMENTS: usize = 1;

/// The windows of an image: one row or column of the matrix for each.
pub(super) struct Windows<'a, A> {
    pub(super) geometry: &'a Geometry<A>,
    pub(super) elements: Elements<'a, A>,
    /// The offset in memory of the group that is convolved.
    pub(super) offset: isize,
}

impl<A> Geometry<A> {
    /// Whether every element of every window is one of the image.
    pub(super) fn is_inside(&self) -> bool {
        let last = |d: usize| {
            let along = self.axes.iter().flatten().filter_map(|axis| Some((axis.size, axis.along?)));
            let ends =
                along.filter(|(_, (dim, _))| *dim == d).map(|(size, (_, skip))| (size as i128 - 1) * skip as i128);
            self.origin[d] as i128 + ends.sum::<i128>()
        };
        (0..self.origin.len()).all(|d| self.origin[d] >= 0 && last(d) < self.spatial[d].0 as i128)
    }

    /// The offset in memory of the first element of the first window, if it is one of the image.
    pub(super) fn first(&self) -> isize {
        self.start + self.origin.iter().zip(&self.spatial).map(|(&x, &(_, stride))| x as isize * stride).sum::<isize>()
    }

    /// The group of axes along which longer runs can be read at a time.
    fn longer(&self) -> usize {
        let run = |group: usize| match self.axes[group].last() {
            Some(axis) if axis.step.unsigned_abs() <= 1 => axis.size * 4,
            Some(axis) => axis.size,
            None => 0,
        };
        if run(POSITIONS) > run(ELEMENTS) { POSITIONS } else { ELEMENTS }
    }
}

/// A place in an image that moves along some axes.
struct Cursor<'a> {
    axes: &'a [Axis],
    index: SmallVec<[usize; 8]>,
    /// The offset in memory, but for the point.
    at: isize,
    point: Point,
}

impl<'a> Cursor<'a> {
    /// At index `i` of the axes from a place on.
    fn new(axes: &'a [Axis], i: usize, at: isize, point: &Point) -> Cursor<'a> {
        let mut cursor =
            Cursor { axes, index: SmallVec::from_elem(0, axes.len()), at, point: Point::from_slice(point) };
        let mut rest = i;
        for (d, axis) in axes.iter().enumerate().rev() {
            cursor.index[d] = rest % axis.size;
            rest /= axis.size;
            cursor.step(axis, cursor.index[d] as i64);
        }
        cursor
    }

    /// Moves to the next index.
    fn next(&mut self) {
        for (d, axis) in self.axes.iter().enumerate().rev() {
            self.index[d] += 1;
            self.step(axis, 1);
            if self.index[d] < axis.size {
                return;
            }
            self.index[d] = 0;
            self.step(axis, -(axis.size as i64));
        }
    }

    fn step(&mut self, axis: &Axis, steps: i64) {
        match axis.along {
            Some((d, skip)) => self.point[d] = self.point[d].wrapping_add((skip as i64).wrapping_mul(steps)),
            None => self.at += axis.step * steps as isize,
        }
    }
}

impl<A: Accumulator> Windows<'_, A> {
    /// Reads elements of the matrix: for some indices of one group of axes a line each, of the elements at some indices of the
    /// other group. Lines are `step` numbers apart.
    fn read(&self, of_lines: usize, lines: Range<usize>, range: Range<usize>, step: usize, to: &mut [A]) {
        let geometry = self.geometry;
        let Some((axis, outer)) = geometry.axes[1 - of_lines].split_last() else { return };
        let mut i = range.start;
        while i < range.end && !lines.is_empty() {
            // A run along the innermost axis, in every line.
            let first = i % axis.size;
            let n = (axis.size - first).min(range.end - i);
            let start = geometry.start + self.offset;
            let run = Cursor::new(outer, i / axis.size, start, &geometry.origin);
            let mut line = Cursor::new(&geometry.axes[of_lines], lines.start, run.at, &run.point);
            for to in to.chunks_mut(step).take(lines.len()) {
                self.run(&line, axis, first, &mut to[i - range.start..][..n]);
                line.next();
            }
            i += n;
        }
    }

    /// Reads a run of elements along an axis, from index `first` of it on.
    #[inline(always)]
    fn run(&self, from: &Cursor<'_>, axis: &Axis, first: usize, to: &mut [A]) {
        let mut inside = 0..to.len();
        let mut at = from.at;
        let mut is_inside = true;
        if axis.along.is_none() {
            at += first as isize * axis.step;
        }
        for (d, (&x, &(size, stride))) in from.point.iter().zip(&self.geometry.spatial).enumerate() {
            let mut x = x;
            if let Some((_, skip)) = axis.along.filter(|&(dim, _)| dim == d) {
                let skip = skip as i64;
                x = x.wrapping_add((first as i64).wrapping_mul(skip));
                let last = x.wrapping_add((to.len() as i64 - 1).wrapping_mul(skip));
                if x < 0 || last < 0 || last >= size as i64 {
                    inside = part_inside(x, skip, size, to.len());
                    x = x.wrapping_add((inside.start as i64).wrapping_mul(skip));
                }
            }
            is_inside &= (0..size as i64).contains(&x);
            at = at.wrapping_add((x as isize).wrapping_mul(stride));
        }
        if !is_inside || inside.is_empty() {
            return to.fill(A::default());
        }
        to[..inside.start].fill(A::default());
        to[inside.end..].fill(A::default());
        self.elements.read(at, axis.step, &mut to[inside]);
    }
}

/// Which of `len` coordinates, the first at `x` and `skip` apart, are neither negative nor as large as the size.
fn part_inside(x: i64, skip: i64, size: usize, len: usize) -> Range<usize> {
    let (x, skip) = (x as i128, skip as i128);
    let reach = |end: i128| (end - x + skip - 1).div_euclid(skip).clamp(0, len as i128) as usize;
    reach(0)..reach(size as i128)
}

impl<A: Accumulator> Left<A> for Windows<'_, A> {
    fn block<'a>(&'a self, rows: Range<usize>, depth: Range<usize>, to: &'a mut [A]) -> product::Left<'a, A> {
        if self.geometry.longer() == POSITIONS {
            let step = rows.len();
            self.read(ELEMENTS, depth, rows, step, to);
            return product::Left { elements: to, row: 1, column: step };
        }
        let step = block_step(depth.len());
        self.read(POSITIONS, rows, depth, step, to);
        product::Left { elements: to, row: step, column: 1 }
    }
}

impl<A: Accumulator> Right<A> for Windows<'_, A> {
    fn in_place(&self, _: Range<usize>, _: Range<usize>) -> Option<product::Right<'_, A>> {
        None
    }

    fn pack(&self, depth: Range<usize>, columns: Range<usize>, to: &mut [A]) {
        if self.geometry.longer() == POSITIONS {
            let step = columns.len();
            return self.read(ELEMENTS, depth, columns, step, to);
        }
        pack_turned(depth, columns.len(), to, |depth, step, to| self.read(POSITIONS, columns.clone(), depth, step, to));
    }
}
