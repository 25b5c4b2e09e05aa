//! The matrix of the windows of an image, of which no more is made than a block at a time.

use std::ops::Range;

use smallvec::SmallVec;

use crate::kernels::matmul::{Accumulator, Elements, Left, Reader, Right, block_step, pack_turned};
use crate::kernels::product;

/// Coordinates in an image, which may lie outside of it, one for each spatial dimension.
type Point = SmallVec<[i128; 4]>;

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
        let mut last = self.origin.clone();
        for axis in self.axes.iter().flatten() {
            if let Some((d, skip)) = axis.along {
                last[d] += (axis.size as i128 - 1) * skip as i128;
            }
        }
        let spatial = self.origin.iter().zip(&last).zip(&self.spatial);
        spatial.into_iter().all(|((&first, &last), &(size, _))| first >= 0 && last < size as i128)
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

impl<A: Accumulator> Windows<'_, A> {
    /// Reads elements of the matrix: those at index `i` of one group of axes and at some indices of the other.
    fn read(&self, fixed: usize, i: usize, range: Range<usize>, to: &mut [A]) {
        let geometry = self.geometry;
        let (mut at, mut point) = (geometry.start + self.offset, geometry.origin.clone());
        advance(&geometry.axes[fixed], i, &mut at, &mut point);
        let Some((last, outer)) = geometry.axes[1 - fixed].split_last() else { return };
        let (mut i, mut rest) = (range.start, to);
        while i < range.end {
            let first = i % last.size;
            let (to, next) = rest.split_at_mut((last.size - first).min(range.end - i));
            let (mut at, mut point) = (at, point.clone());
            advance(outer, i / last.size, &mut at, &mut point);
            self.run(at, &mut point, last, first, to);
            i += to.len();
            rest = next;
        }
    }

    /// Reads a run of elements along an axis from index `first` on.
    fn run(&self, mut at: isize, point: &mut Point, axis: &Axis, first: usize, to: &mut [A]) {
        let mut inside = 0..to.len();
        match axis.along {
            None => at += first as isize * axis.step,
            Some((d, skip)) => {
                let (size, skip) = (self.geometry.spatial[d].0 as i128, skip as i128);
                let start = point[d] + first as i128 * skip;
                if start < 0 || start + (to.len() as i128 - 1) * skip >= size {
                    // Index j is inside if start + j * skip is neither negative nor as large as the size.
                    let reach = |x: i128| (x + skip - 1).div_euclid(skip).clamp(0, to.len() as i128) as usize;
                    inside = reach(-start)..reach(size - start);
                }
                point[d] = start + inside.start as i128 * skip;
            }
        }
        let is_inside = |(&x, &(size, _)): (&i128, &(usize, isize))| (0..size as i128).contains(&x);
        if inside.is_empty() || !point.iter().zip(&self.geometry.spatial).all(is_inside) {
            return to.fill(A::default());
        }
        at += point.iter().zip(&self.geometry.spatial).map(|(&x, &(_, stride))| x as isize * stride).sum::<isize>();
        to[..inside.start].fill(A::default());
        to[inside.end..].fill(A::default());
        self.elements.read(at, axis.step, &mut to[inside]);
    }
}

/// Moves from the first index of a group of axes to index `i`.
fn advance(axes: &[Axis], mut i: usize, at: &mut isize, point: &mut Point) {
    for axis in axes.iter().rev() {
        let index = i % axis.size;
        i /= axis.size;
        match axis.along {
            Some((d, skip)) => point[d] += index as i128 * skip as i128,
            None => *at += index as isize * axis.step,
        }
    }
}

impl<A: Accumulator> Left<A> for Windows<'_, A> {
    fn block<'a>(&'a self, rows: Range<usize>, depth: Range<usize>, to: &'a mut [A]) -> product::Left<'a, A> {
        if self.geometry.longer() == POSITIONS {
            let step = rows.len();
            for (i, to) in depth.zip(to.chunks_mut(step)) {
                self.read(ELEMENTS, i, rows.clone(), &mut to[..step]);
            }
            return product::Left { elements: to, row: 1, column: step };
        }
        let step = block_step(depth.len());
        for (i, to) in rows.zip(to.chunks_mut(step)) {
            self.read(POSITIONS, i, depth.clone(), &mut to[..depth.len()]);
        }
        product::Left { elements: to, row: step, column: 1 }
    }
}

impl<A: Accumulator> Right<A> for Windows<'_, A> {
    fn in_place(&self, _: Range<usize>, _: Range<usize>) -> Option<product::Right<'_, A>> {
        None
    }

    fn pack(&self, depth: Range<usize>, columns: Range<usize>, to: &mut [A]) {
        if self.geometry.longer() == POSITIONS {
            for (i, to) in depth.zip(to.chunks_mut(columns.len())) {
                self.read(ELEMENTS, i, columns.clone(), to);
            }
            return;
        }
        pack_turned(depth, columns.len(), to, |j, depth, to| self.read(POSITIONS, columns.start + j, depth, to));
    }
}
