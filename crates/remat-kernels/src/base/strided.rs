//! Strided iterators: indices of a shape with their offsets in several strided arrays. All kernels that move elements use them.

use std::ops::Range;

use remat_ir::Shape;
use smallvec::SmallVec;

/// Bytes that one task moves: far more than handing out a task costs, and few enough to stay in the cache of a core.
pub(crate) const TASK_BYTES: usize = 1 << 18;

/// No countable array has more dimensions of two elements or more.
const MOST_DIMENSIONS: usize = 64;

/// The indices of a shape in row-major order, with their offsets in each of `N` arrays.
#[derive(Clone, Debug)]
pub(crate) struct StridedIter<const N: usize> {
    /// The number of indices.
    len: usize,
    sizes: Shape,
    strides: SmallVec<[[isize; N]; 4]>,
}

impl<const N: usize> StridedIter<N> {
    /// All indices of `shape`, with the strides of each array. Dimensions of one element are dropped. A dimension is merged with the one
    /// before it where the two are one longer dimension in every array.
    pub(crate) fn new(shape: &[usize], strides: [&[isize]; N]) -> StridedIter<N> {
        let mut iter = StridedIter { len: 1, sizes: Shape::new(), strides: SmallVec::new() };
        if shape.contains(&0) {
            iter.len = 0;
            return iter;
        }
        for (d, &size) in shape.iter().enumerate().filter(|&(_, &size)| size != 1) {
            let stride = strides.map(|strides| strides[d]);
            iter.len *= size;
            match (iter.sizes.last_mut(), iter.strides.last_mut()) {
                (Some(last), Some(outer)) if *outer == stride.map(|s| s * size as isize) => {
                    *last *= size;
                    *outer = stride;
                }
                _ => {
                    iter.sizes.push(size);
                    iter.strides.push(stride);
                }
            }
        }
        iter
    }

    /// The number of indices.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The sizes of the remaining dimensions.
    pub(crate) fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The strides of the remaining dimensions.
    pub(crate) fn strides(&self) -> &[[isize; N]] {
        &self.strides
    }

    /// The iterators over the dimensions before `d` and from `d` on.
    pub(crate) fn split(&self, d: usize) -> (StridedIter<N>, StridedIter<N>) {
        let part = |dims: Range<usize>| StridedIter {
            // If there is no index at all, each part has none.
            len: if self.len == 0 { 0 } else { self.sizes[dims.clone()].iter().product() },
            sizes: self.sizes[dims.clone()].into(),
            strides: self.strides[dims].iter().copied().collect(),
        };
        (part(0..d), part(d..self.sizes.len()))
    }

    /// The distance from the first to the last element in array `n`, for strides that are not negative.
    pub(crate) fn extent(&self, n: usize) -> isize {
        self.sizes.iter().zip(&self.strides).map(|(&size, stride)| (size as isize - 1) * stride[n]).sum()
    }

    /// The offsets of index number `i` in row-major order.
    pub(crate) fn offsets(&self, i: usize) -> [isize; N] {
        if self.sizes.is_empty() { [0; N] } else { self.locate(i).0 }
    }

    /// Calls `f` with the offsets of each index in a range, in row-major order.
    #[inline(always)]
    pub(crate) fn each(&self, indices: Range<usize>, mut f: impl FnMut([isize; N])) {
        if indices.is_empty() {
            return;
        }
        if self.sizes.is_empty() {
            return f([0; N]);
        }
        let (mut at, mut index) = self.locate(indices.start);
        for _ in indices {
            f(at);
            for d in (0..self.sizes.len()).rev() {
                index[d] += 1;
                advance(&mut at, self.strides[d], 1);
                if index[d] < self.sizes[d] {
                    break;
                }
                index[d] = 0;
                advance(&mut at, self.strides[d], -(self.sizes[d] as isize));
            }
        }
    }

    /// The offsets of index number `i` in row-major order, and the index itself.
    fn locate(&self, i: usize) -> ([isize; N], [usize; MOST_DIMENSIONS]) {
        let (mut at, mut index) = ([0; N], [0; MOST_DIMENSIONS]);
        let mut rest = i;
        for d in (0..self.sizes.len()).rev() {
            index[d] = rest % self.sizes[d];
            rest /= self.sizes[d];
            advance(&mut at, self.strides[d], index[d] as isize);
        }
        (at, index)
    }
}

/// Moves the offset in each array by `count` strides.
#[inline(always)]
fn advance<const N: usize>(at: &mut [isize; N], strides: [isize; N], count: isize) {
    for (at, stride) in at.iter_mut().zip(strides) {
        *at += stride * count;
    }
}

/// A strided iterator that leaves its innermost dimension to the caller, as rows of `len` elements that are `stride` apart in each array.
#[derive(Clone, Debug)]
pub(crate) struct Rows<const N: usize> {
    pub(crate) outer: StridedIter<N>,
    pub(crate) len: usize,
    pub(crate) stride: [isize; N],
}

impl<const N: usize> From<StridedIter<N>> for Rows<N> {
    fn from(iter: StridedIter<N>) -> Rows<N> {
        let rank = iter.sizes.len();
        match (iter.sizes.last(), iter.strides.last()) {
            (Some(&len), Some(&stride)) => Rows { outer: iter.split(rank - 1).0, len, stride },
            _ => Rows { outer: iter, len: 1, stride: [0; N] },
        }
    }
}

impl<const N: usize> Rows<N> {
    /// Calls `f` for each row that has elements in this range of the row-major order, with the offsets of the row's first element and the
    /// range of its elements.
    #[inline(always)]
    pub(crate) fn each(&self, elements: Range<usize>, mut f: impl FnMut([isize; N], Range<usize>)) {
        if elements.is_empty() {
            return;
        }
        let rows = elements.start / self.len..elements.end.div_ceil(self.len);
        let mut start = rows.start * self.len;
        self.outer.each(rows, |at| {
            f(at, elements.start.saturating_sub(start)..self.len.min(elements.end - start));
            start += self.len;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets<const N: usize>(iter: &StridedIter<N>, range: Range<usize>) -> Vec<[isize; N]> {
        let mut all = Vec::new();
        iter.each(range, |at| all.push(at));
        all
    }

    #[test]
    fn adjacent_dimensions_join_where_all_arrays_allow_it() {
        let iter = StridedIter::new(&[2, 1, 3, 4], [&[12, 5, 4, 1], &[12, 7, 4, 1]]);
        assert_eq!((iter.len(), iter.sizes(), iter.strides()), (24, &[24][..], &[[1, 1]][..]));
        let iter = StridedIter::new(&[2, 3, 4], [&[12, 4, 1], &[3, 1, 6]]);
        assert_eq!((iter.sizes(), iter.strides()), (&[6, 4][..], &[[4, 1], [1, 6]][..]));
        let iter = StridedIter::new(&[2, 3], [&[0, 0]]);
        assert_eq!((iter.sizes(), iter.strides()), (&[6][..], &[[0]][..]));
    }

    #[test]
    fn an_iterator_lists_the_offsets_of_any_range() {
        let iter = StridedIter::new(&[2, 3, 2], [&[1, 2, 6], &[-6, -2, -1]]);
        let all: Vec<[isize; 2]> = (0..2)
            .flat_map(|i| (0..3).flat_map(move |j| (0..2).map(move |k| [i + 2 * j + 6 * k, -6 * i - 2 * j - k])))
            .collect();
        for start in 0..=12 {
            for end in start..=12 {
                assert_eq!(offsets(&iter, start..end), all[start..end]);
            }
        }
        assert_eq!(offsets(&StridedIter::new(&[], [&[]]), 0..1), [[0]]);
        let empty = StridedIter::new(&[usize::MAX, 0, usize::MAX], [&[0, 0, 0]]);
        assert_eq!((empty.len(), offsets(&empty, 0..0)), (0, vec![]));
    }

    #[test]
    fn rows_are_cut_at_the_ends_of_a_range() {
        let rows = Rows::from(StridedIter::new(&[3, 4], [&[10, 2]]));
        assert_eq!((rows.len, rows.stride), (4, [2]));
        let mut seen = Vec::new();
        rows.each(2..9, |[at], range| seen.push((at, range)));
        assert_eq!(seen, [(0, 2..4), (10, 0..4), (20, 0..1)]);
        rows.each(5..7, |[at], range| seen.push((at, range)));
        assert_eq!(seen[3..], [(10, 1..3)]);
        rows.each(4..4, |_, _| panic!("no elements"));
        let scalar = Rows::from(StridedIter::new(&[1, 1], [&[5, 5]]));
        scalar.each(0..1, |at, range| seen.push((at[0], range)));
        assert_eq!(seen[4..], [(0, 0..1)]);
        Rows::from(StridedIter::new(&[0, 3], [&[3, 1]])).each(0..0, |_, _| panic!("no elements"));
    }
}
