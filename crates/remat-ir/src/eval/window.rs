//! Reductions over windows.

use super::accumulate::Number;
use super::elements;
use super::number::Ordered;
use super::sum::{Sum, Summed};
use super::walk::row_major;
use crate::{ArgKind, ArgReduceWindow, Array, Aval, DType, Element, ReduceWindow, Result, Shape, Window, WindowKind};
use crate::{Data, with_dtype};

pub(super) fn reduce_window(op: &ReduceWindow, ins: &[Array]) -> Result<Array> {
    let out = super::result_aval(op, ins)?;
    let data = with_dtype!(out.dtype, T => T::wrap(reduced::<T>(op, &ins[0], &out)?));
    Array::new(out, data)
}

fn reduced<T: Number + Summed>(op: &ReduceWindow, x: &Array, out: &Aval) -> Result<Vec<T>> {
    let data = elements::<T>(x)?;
    let mut result = Vec::with_capacity(out.size());
    each_window(&op.window, x.shape(), &out.shape, |offsets| {
        let values = offsets.map(|i| data[i]);
        result.push(match op.kind {
            WindowKind::Sum => values.fold(T::Sum::none(), |sum, x| sum.plus(T::Sum::of(x))).rounded(),
            WindowKind::Max => values.fold(T::BOTTOM, Ordered::largest),
            WindowKind::Min => values.fold(T::TOP, Ordered::smallest),
        });
    });
    Ok(result)
}

pub(super) fn arg_reduce_window(op: &ArgReduceWindow, ins: &[Array]) -> Result<Array> {
    let out = super::result_aval(op, ins)?;
    let positions = with_dtype!(ins[0].dtype(), T => arg_windows::<T>(op, &ins[0], &out)?);
    let data = match op.index_dtype {
        // The shape rule has checked that positions fit.
        DType::I32 => Data::I32(positions.into_iter().map(|p| p as i32).collect()),
        _ => Data::I64(positions),
    };
    Array::new(out, data)
}

fn arg_windows<T: Number>(op: &ArgReduceWindow, x: &Array, out: &Aval) -> Result<Vec<i64>> {
    let data = elements::<T>(x)?;
    let better = if op.kind == ArgKind::Max { T::is_above } else { T::is_below };
    let mut result = Vec::with_capacity(out.size());
    each_window(&op.window, x.shape(), &out.shape, |offsets| {
        let first = offsets.reduce(|best, i| if better(data[i], data[best]) { i } else { best });
        result.push(first.map_or(-1, |i| i as i64));
    });
    Ok(result)
}

/// Calls `window` for every window in row-major order with the offsets of its elements, without padding.
fn each_window(
    window: &Window,
    shape: &[usize],
    out: &[usize],
    mut each: impl FnMut(std::iter::FilterMap<std::slice::Iter<'_, isize>, fn(&isize) -> Option<usize>>),
) {
    let strides = row_major(shape);
    let slides: Vec<Slide> = (0..shape.len())
        .map(|d| Slide {
            size: shape[d],
            element_stride: strides[d],
            window: window.dimensions[d],
            stride: window.strides[d],
            low: window.padding[d].0,
            base_dilation: window.base_dilation[d],
            window_dilation: window.window_dilation[d],
        })
        .collect();
    each_position(&slides, out, &mut |offsets| each(offsets.iter().filter_map(|&i| usize::try_from(i).ok())));
}

/// How a window slides along one axis of an array.
pub(super) struct Slide {
    /// The size of the dimension.
    pub(super) size: usize,
    /// The distance between its elements in memory.
    pub(super) element_stride: isize,
    /// The size of the window.
    pub(super) window: usize,
    pub(super) stride: usize,
    /// Padding before the first element.
    pub(super) low: i64,
    pub(super) base_dilation: usize,
    pub(super) window_dilation: usize,
}

impl Slide {
    /// The offset in memory of element `k` of the window at `position`, or -1 if it is padding or between two elements.
    fn offset(&self, position: usize, k: usize) -> isize {
        // Sizes are below 2^63, so their products are below 2^126.
        let dilated =
            position as i128 * self.stride as i128 + k as i128 * self.window_dilation as i128 - self.low as i128;
        let Ok(dilated) = u64::try_from(dilated) else { return -1 };
        let dilation = self.base_dilation as u64;
        let (index, between) = if dilation == 1 { (dilated, 0) } else { (dilated / dilation, dilated % dilation) };
        if between != 0 || index >= self.size as u64 { -1 } else { index as isize * self.element_stride }
    }
}

/// Calls `each` for every window position in row-major order with the offsets of the window's elements in row-major
/// order, -1 for padding.
pub(super) fn each_position(slides: &[Slide], out: &[usize], each: &mut dyn FnMut(&[isize])) {
    let mut index = Shape::from_elem(0, out.len());
    let (mut offsets, mut next) = (Vec::new(), Vec::new());
    for position in 0..out.iter().product() {
        let mut rest: usize = position;
        for d in (0..out.len()).rev() {
            index[d] = rest % out[d];
            rest /= out[d];
        }
        offsets.clear();
        offsets.push(0isize);
        for (slide, &position) in slides.iter().zip(&index) {
            next.clear();
            let along: crate::eval::walk::Strides = (0..slide.window).map(|k| slide.offset(position, k)).collect();
            for &base in &offsets {
                next.extend(along.iter().map(|&i| if base < 0 || i < 0 { -1 } else { base + i }));
            }
            std::mem::swap(&mut offsets, &mut next);
        }
        each(&offsets);
    }
}
