//! Strided iteration: every operation that moves elements is one loop over two arrays at once.

use smallvec::SmallVec;

use crate::Shape;

/// The distance in elements between neighbours along each axis; negative or zero where a view is reversed or
/// repeats.
pub(super) type Strides = SmallVec<[isize; 4]>;

/// The strides of a dense row-major array. Those of an empty array are 0, since the products of its other dimensions may overflow.
pub(super) fn row_major(shape: &[usize]) -> Strides {
    let mut strides = Strides::from_elem(0, shape.len());
    if shape.contains(&0) {
        return strides;
    }
    let mut stride = 1isize;
    for (s, &size) in strides.iter_mut().zip(shape).rev() {
        *s = stride;
        stride *= size as isize;
    }
    strides
}

/// A strided iterator: a loop over an index space that tracks the offset into `N` arrays. The caller handles the innermost dimension, a row
/// of `len` elements `step` apart.
pub(super) struct Walk<const N: usize> {
    shape: Shape,
    strides: [Strides; N],
    is_empty: bool,
    /// The number of elements in a row.
    pub(super) len: usize,
    /// The distance between the elements of a row in each array.
    pub(super) step: [isize; N],
}

impl<const N: usize> Walk<N> {
    /// The loop over all indices of `shape` in row-major order, with each array's strides.
    pub(super) fn new(shape: &[usize], strides: [&[isize]; N]) -> Walk<N> {
        let mut walk = Walk {
            shape: Shape::new(),
            strides: std::array::from_fn(|_| Strides::new()),
            is_empty: shape.contains(&0),
            len: 1,
            step: [0; N],
        };
        if walk.is_empty {
            return walk;
        }
        for (d, &size) in shape.iter().enumerate().filter(|&(_, &size)| size != 1) {
            // A dimension merges with the one before where all arrays can treat both as one longer dimension.
            let joins = |(kept, new): (&Strides, &&[isize])| kept.last() == Some(&(new[d] * size as isize));
            let merge = walk.strides.iter().zip(&strides).all(joins);
            match walk.shape.last_mut() {
                Some(last) if merge => {
                    *last *= size;
                    for (kept, new) in walk.strides.iter_mut().zip(&strides) {
                        kept.pop();
                        kept.push(new[d]);
                    }
                }
                _ => {
                    walk.shape.push(size);
                    for (kept, new) in walk.strides.iter_mut().zip(&strides) {
                        kept.push(new[d]);
                    }
                }
            }
        }
        if let Some(len) = walk.shape.pop() {
            walk.len = len;
            walk.step = std::array::from_fn(|i| walk.strides[i].pop().unwrap_or(0));
        }
        walk
    }

    /// Calls `row` with the offsets of the first element of each row: by a pointer, so that this is compiled once.
    pub(super) fn rows(&self, starts: [isize; N], row: &mut dyn FnMut([isize; N])) {
        if self.is_empty {
            return;
        }
        let mut at = starts;
        let mut index = Shape::from_elem(0, self.shape.len());
        loop {
            row(at);
            let mut d = self.shape.len();
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                index[d] += 1;
                for (at, strides) in at.iter_mut().zip(&self.strides) {
                    *at += strides[d];
                }
                if index[d] < self.shape[d] {
                    break;
                }
                index[d] = 0;
                for (at, strides) in at.iter_mut().zip(&self.strides) {
                    *at -= strides[d] * self.shape[d] as isize;
                }
            }
        }
    }

    /// Calls `element` with the offsets of each element.
    pub(super) fn elements(&self, starts: [isize; N], mut element: impl FnMut([usize; N])) {
        self.rows(starts, &mut |mut at| {
            for _ in 0..self.len {
                element(at.map(|a| a as usize));
                for (at, step) in at.iter_mut().zip(self.step) {
                    *at += step;
                }
            }
        });
    }
}

impl Walk<2> {
    /// Copies from the first array to the second.
    pub(super) fn copy<T: Copy>(&self, from: &[T], from_start: isize, to: &mut [T], to_start: isize) {
        self.rows([from_start, to_start], &mut |[a, b]| match self.step {
            [1, 1] => to[b as usize..][..self.len].copy_from_slice(&from[a as usize..][..self.len]),
            [0, 1] => to[b as usize..][..self.len].fill(from[a as usize]),
            [i, j] => {
                let (mut a, mut b) = (a, b);
                for _ in 0..self.len {
                    to[b as usize] = from[a as usize];
                    a += i;
                    b += j;
                }
            }
        });
    }
}

/// The elements of a strided view as a dense array of this shape.
pub(super) fn pick<T: Copy + Default>(from: &[T], start: isize, strides: &[isize], shape: &[usize]) -> Vec<T> {
    let mut to = vec![T::default(); shape.iter().product()];
    Walk::new(shape, [strides, &row_major(shape)]).copy(from, start, &mut to, 0);
    to
}
