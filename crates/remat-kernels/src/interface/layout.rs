//! Layouts: the positions of an operand's elements in its buffer, and the changes of layout that cost nothing.

use remat_ir::{Aval, Shape};
use smallvec::SmallVec;

/// Distances between neighbours along each axis, in elements.
pub type Strides = SmallVec<[isize; 4]>;

/// The greatest common divisor.
pub(crate) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The positions of an operand's elements in its buffer: element `i, j, ..` is at `offset + i * strides[0] + j * strides[1] + ..`, counted
/// in elements. A stride of zero repeats, a negative one reverses.
///
/// # Examples
///
/// ```
/// use remat_kernels::Layout;
///
/// let matrix = Layout::contiguous(&[2, 3]);
/// assert_eq!(matrix.strides.as_slice(), [3, 1]);
/// assert_eq!(matrix.permuted(&[1, 0]).strides.as_slice(), [1, 3]);
/// assert_eq!(matrix.reversed(&[1]).offset, 2);
/// assert_eq!(matrix.sliced(&[0, 1], &[2, 3], &[1, 1]).reshaped(&[4]), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The shape of the operand.
    pub shape: Shape,
    /// The stride of each dimension.
    pub strides: Strides,
    /// The position of the first element.
    pub offset: usize,
}

impl Layout {
    /// Row-major from the start of the buffer.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: shape.iter().copied().collect(), strides: row_major(shape), offset: 0 }
    }

    /// One element at the start of the buffer, repeated.
    pub fn splat(shape: &[usize]) -> Layout {
        Layout { shape: shape.iter().copied().collect(), strides: SmallVec::from_elem(0, shape.len()), offset: 0 }
    }

    /// Whether this is row-major without gaps, at any offset. Dimensions of one element may have any stride.
    pub fn is_contiguous(&self) -> bool {
        if self.size() == 0 {
            return true;
        }
        let mut step = 1isize;
        for (&stride, &size) in self.strides.iter().zip(&self.shape).rev() {
            if size > 1 && stride != step {
                return false;
            }
            step *= size as isize;
        }
        true
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }

    /// Dimension `i` of the result is dimension `permutation[i]`.
    pub fn permuted(&self, permutation: &[usize]) -> Layout {
        Layout {
            shape: permutation.iter().map(|&d| self.shape[d]).collect(),
            strides: permutation.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// Dimension `i` becomes dimension `dims[i]` of `shape`. New dimensions, and those that had one element, repeat.
    pub fn broadcast(&self, shape: &[usize], dims: &[usize]) -> Layout {
        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        for (i, &d) in dims.iter().enumerate() {
            strides[d] = if self.shape[i] == shape[d] { self.strides[i] } else { 0 };
        }
        Layout { shape: shape.iter().copied().collect(), strides, offset: self.offset }
    }

    /// Reverses these axes.
    pub fn reversed(&self, axes: &[usize]) -> Layout {
        let mut out = self.clone();
        if self.size() == 0 {
            return out;
        }
        for &d in axes {
            out.offset = out.offset.wrapping_add_signed(self.strides[d] * (self.shape[d] as isize - 1));
            out.strides[d] = -self.strides[d];
        }
        out
    }

    /// The slice from `start` to `limit` by `steps`.
    pub fn sliced(&self, start: &[usize], limit: &[usize], steps: &[usize]) -> Layout {
        let mut out = self.clone();
        for d in 0..self.shape.len() {
            out.shape[d] = (limit[d] - start[d]).div_ceil(steps[d]);
            out.strides[d] = self.strides[d] * steps[d] as isize;
        }
        if out.size() > 0 {
            let skipped: isize = start.iter().zip(&self.strides).map(|(&s, &stride)| s as isize * stride).sum();
            out.offset = out.offset.wrapping_add_signed(skipped);
        }
        out
    }

    /// The same elements in row-major order with another shape of the same size, if strides can express it.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Layout> {
        let whole = |strides| Layout { shape: shape.iter().copied().collect(), strides, offset: self.offset };
        if self.size() == 0 {
            return Some(whole(row_major(shape)));
        }
        // Merged dimensions, outermost first. Each must split into whole dimensions of the new shape.
        let merged = self.merged();
        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        let mut rest = merged.iter().rev();
        let (mut size, mut stride) = (1, 0);
        for d in (0..shape.len()).rev() {
            if shape[d] == 1 {
                continue;
            }
            if size == 1 {
                (size, stride) = *rest.next()?;
            }
            if size % shape[d] != 0 {
                return None;
            }
            strides[d] = stride;
            size /= shape[d];
            stride *= shape[d] as isize;
        }
        Some(whole(strides))
    }

    /// The sizes and strides of the fewest dimensions that give the same elements in the same order, outermost first; empty for one
    /// element.
    pub fn merged(&self) -> SmallVec<[(usize, isize); 4]> {
        let mut dims: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            match dims.last_mut() {
                _ if size == 1 => {}
                Some((outer, step)) if *step == stride * size as isize => {
                    *outer *= size;
                    *step = stride;
                }
                _ => dims.push((size, stride)),
            }
        }
        dims
    }
}

/// The layout of a value of this aval that fills its own buffer.
impl From<&Aval> for Layout {
    fn from(aval: &Aval) -> Layout {
        Layout::contiguous(&aval.shape)
    }
}

/// The strides of a row-major array.
pub(crate) fn row_major(shape: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, shape.len());
    let mut step = 1isize;
    for (stride, &size) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul(size.max(1) as isize);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions of all elements, in row-major order.
    fn positions(layout: &Layout) -> Vec<isize> {
        let mut all = vec![layout.offset as isize];
        for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
            all = all.iter().flat_map(|&p| (0..size as isize).map(move |i| p + i * stride)).collect();
        }
        all
    }

    #[test]
    fn a_reshape_keeps_the_order_or_is_refused() {
        let x = Layout::contiguous(&[2, 3, 4]);
        let t = x.permuted(&[1, 0, 2]);
        assert_eq!(t.reshaped(&[6, 4]), None);
        for (layout, shape) in
            [(&x, &[6, 4][..]), (&x, &[24]), (&x, &[2, 1, 12]), (&t, &[3, 2, 2, 2]), (&t, &[3, 1, 2, 4, 1])]
        {
            let y = layout.reshaped(shape).expect("this one is a view");
            assert_eq!(positions(&y), positions(layout));
            assert_eq!(y.shape[..], *shape);
        }
        assert!(Layout::contiguous(&[0, 3]).reshaped(&[7, 0]).is_some());
        assert_eq!(positions(&Layout::contiguous(&[]).reshaped(&[1, 1]).expect("a scalar")), [0]);
    }

    #[test]
    fn views_compose() {
        let x = Layout::contiguous(&[4, 6]);
        let y = x.sliced(&[1, 0], &[4, 6], &[2, 3]).reversed(&[0]).permuted(&[1, 0]);
        assert_eq!(positions(&y), [18, 6, 21, 9]);
        let b = Layout::contiguous(&[3]).broadcast(&[2, 3], &[1]);
        assert_eq!(positions(&b), [0, 1, 2, 0, 1, 2]);
        assert_eq!(b.merged().as_slice(), [(2, 0), (3, 1)]);
        assert_eq!(Layout::splat(&[4, 5]).merged().as_slice(), [(20, 0)]);
        assert!(x.reshaped(&[3, 8]).expect("a view").is_contiguous());
    }
}
