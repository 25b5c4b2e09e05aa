//! Sliding windows: which elements of an array belong to which window.

use std::ops::Range;

use remat_ir::Window;

use super::BLOCK;
use crate::base::strided::TASK_BYTES;
use crate::interface::layout::{greatest_common_divisor, row_major};

/// Sliding windows over an array. Trailing dimensions whose windows have one element may be left out; an element is then a vector over
/// these dimensions.
pub(super) struct Windows {
    /// The dimensions but the last one.
    outer: Vec<Slide>,
    /// Windows along the last axis.
    pub(super) len: usize,
    /// Numbers in an element.
    pub(super) inner: usize,
    /// The elements at each position in the window along the last axis.
    pub(super) runs: Vec<Run>,
    /// Whether elements are numbers, and windows or elements of a run so far apart that its pieces would have one number, as with a dilated
    /// operand.
    pub(super) is_strided: bool,
}

/// How windows slide along an axis.
#[derive(Clone)]
struct Slide {
    /// The size of the dimension.
    size: usize,
    /// The distance between its elements in memory.
    element_stride: usize,
    /// The size of the window.
    window: usize,
    stride: usize,
    /// Padding before the first element.
    low: i64,
    base_dilation: usize,
    window_dilation: usize,
    /// The number of windows.
    count: usize,
    /// The number of result rows for each of them.
    rows: usize,
}

/// Elements `from, from + from_step, ..` that belong to windows `to, to + to_step, ..`.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) from: usize,
    pub(super) from_step: usize,
    pub(super) to: usize,
    pub(super) to_step: usize,
    pub(super) count: usize,
}

/// The most elements of dimensions with a single window, since there is a run for each of them.
const WHOLE: usize = 1 << 12;

/// The most numbers in an element.
const INNER: usize = 256;

impl Windows {
    pub(super) fn new(window: &Window, shape: &[usize], counts: &[usize]) -> Windows {
        let strides = row_major(shape);
        let mut slides: Vec<Slide> = Vec::new();
        for d in 0..shape.len() {
            let slide = Slide {
                size: shape[d],
                element_stride: strides[d] as usize,
                window: window.dimensions[d],
                stride: window.strides[d],
                low: window.padding[d].0,
                base_dilation: window.base_dilation[d],
                window_dilation: window.window_dilation[d],
                count: counts[d],
                rows: 1,
            };
            match slides.last_mut() {
                Some(last) if last.is_still() && slide.is_still() => {
                    let size = last.size * slide.size;
                    *last = Slide { size, count: size, ..slide };
                }
                Some(last) if last.is_whole() && slide.is_whole() && last.size * slide.size <= WHOLE => {
                    let size = last.size * slide.size;
                    *last = Slide { size, window: size, ..slide };
                }
                _ => slides.push(slide),
            }
        }
        let inner = match &slides[..] {
            [.., slide, last] if last.is_still() && (2..=INNER).contains(&last.size) && !slide.is_still() => last.size,
            _ => 1,
        };
        if inner > 1 {
            slides.pop();
        }
        let one = Run { from: 0, from_step: 1, to: 0, to_step: 1, count: 1 };
        let Some(last) = slides.pop() else {
            return Windows { outer: slides, len: 1, inner, runs: vec![one], is_strided: false };
        };
        let mut rows = 1;
        for slide in slides.iter_mut().rev() {
            slide.rows = rows;
            rows *= slide.count.max(1);
        }
        let runs: Vec<Run> = (0..last.window).filter_map(|k| last.run(k)).collect();
        let are_near = runs.iter().all(|run| matches!((run.to_step, run.from_step), (1, 1 | 2)));
        Windows { outer: slides, len: last.count, inner, runs, is_strided: inner == 1 && last.count > 1 && !are_near }
    }

    /// The elements of a row that its only window covers, if they are contiguous.
    pub(super) fn side_by_side(&self) -> Option<Range<usize>> {
        let (first, last) = (self.runs.first()?.from, self.runs.last()?.from);
        (last - first + 1 == self.runs.len()).then_some(first..last + 1)
    }

    /// Results that one task computes, which are whole elements.
    pub(super) fn task(&self) -> usize {
        TASK_BYTES / 16 / self.inner * self.inner
    }

    /// Calls `f` for pieces of at most [`BLOCK`] results of one row, with the row and the first window. The results begin with a whole
    /// element.
    pub(super) fn each_block<T>(&self, first: usize, mut part: &mut [T], mut f: impl FnMut(usize, usize, &mut [T])) {
        let most = BLOCK / self.inner;
        let mut at = first / self.inner;
        while !part.is_empty() {
            let (row, column) = (at / self.len, at % self.len);
            let count = (self.len - column).min(most).min(part.len() / self.inner);
            let (block, rest) = part.split_at_mut(count * self.inner);
            f(row, column, block);
            at += count;
            part = rest;
        }
    }

    /// Calls `f` with the offset of each element that windows of this row cover in all dimensions but the last.
    pub(super) fn each_row(&self, row: usize, mut f: impl FnMut(usize)) {
        // If no window covers an element of the last dimension, the operand may have none.
        if !self.runs.is_empty() {
            visit(&self.outer, row, 0, &mut f);
        }
    }

    /// The runs that reach windows `columns` of a row, in the order of the window's positions. They count numbers: elements from the start
    /// of the operand's row, and windows from the first of `columns`.
    #[inline(always)]
    pub(super) fn runs(&self, columns: Range<usize>) -> impl Iterator<Item = Run> {
        let all = columns == (0..self.len);
        self.runs.iter().filter_map(move |run| {
            let (before, end) = if all {
                (0, run.count)
            } else {
                let before = columns.start.saturating_sub(run.to).div_ceil(run.to_step);
                (before, columns.end.saturating_sub(run.to).div_ceil(run.to_step).min(run.count))
            };
            (before < end).then(|| Run {
                from: (run.from + before * run.from_step) * self.inner,
                to: (run.to + before * run.to_step - columns.start) * self.inner,
                count: end - before,
                ..*run
            })
        })
    }
}

/// A part of a run: the windows from `to` on, and as many operand elements from `from` on, in numbers.
pub(super) struct Piece {
    pub(super) to: usize,
    pub(super) from: usize,
    pub(super) len: usize,
    /// Whether every second number of the operand is read.
    pub(super) is_paired: bool,
}

impl Run {
    /// The pieces of a run that counts numbers, `inner` per element.
    #[inline(always)]
    pub(super) fn pieces(self, inner: usize) -> impl Iterator<Item = Piece> {
        let (pieces, len, is_paired) = match (self.to_step, self.from_step, inner) {
            (1, 1, _) => (1, self.count * inner, false),
            (1, 2, 1) => (1, self.count, true),
            _ => (self.count, inner, false),
        };
        let (to_step, from_step) = (self.to_step * inner, self.from_step * inner);
        (0..pieces).map(move |i| Piece { to: self.to + i * to_step, from: self.from + i * from_step, len, is_paired })
    }
}

/// Calls `f` with the offset of each element that the windows of a row of results cover in all dimensions but the last.
fn visit(slides: &[Slide], row: usize, base: usize, f: &mut impl FnMut(usize)) {
    let Some((slide, rest)) = slides.split_first() else { return f(base) };
    let position = row / slide.rows % slide.count;
    for k in 0..slide.window {
        if let Some(i) = slide.element(position, k) {
            visit(rest, row, base + i * slide.element_stride, f);
        }
    }
}

impl Slide {
    /// Whether each element is a window.
    fn is_still(&self) -> bool {
        (self.window, self.stride, self.low, self.base_dilation, self.size) == (1, 1, 0, 1, self.count)
    }

    /// Whether there is one window, of all elements.
    fn is_whole(&self) -> bool {
        let is_dense = self.window_dilation == 1 && self.base_dilation == 1;
        is_dense && (self.window, self.low, self.count) == (self.size, 0, 1)
    }

    /// Element `k` of the window at `position`, counted from the first element of the array before padding, including the elements that
    /// dilation adds. Sizes are below 2^63, so their products are below 2^126.
    fn dilated(&self, position: usize, k: usize) -> i128 {
        position as i128 * self.stride as i128 + k as i128 * self.window_dilation as i128 - self.low as i128
    }

    /// Element `k` of the window at `position`, or `None` if it is padding or between two elements.
    fn element(&self, position: usize, k: usize) -> Option<usize> {
        let dilated = u64::try_from(self.dilated(position, k)).ok()?;
        let dilation = self.base_dilation as u64;
        let (index, between) = if dilation == 1 { (dilated, 0) } else { (dilated / dilation, dilated % dilation) };
        (between == 0 && index < self.size as u64).then_some(index as usize)
    }

    /// The elements at position `k` of some window.
    fn run(&self, k: usize) -> Option<Run> {
        let common = greatest_common_divisor(self.stride, self.base_dilation);
        // The window at `first` is the first that does not begin in the padding. One of the next `to_step` windows covers an element.
        let first = (-self.dilated(0, k)).max(0) as u128;
        let first = usize::try_from(first.div_ceil(self.stride as u128)).ok()?;
        let (to_step, from_step) = (self.base_dilation / common, self.stride / common);
        let to = (first..self.count.min(first.saturating_add(to_step))).find(|&p| self.element(p, k).is_some())?;
        let from = self.element(to, k)?;
        let count = ((self.count - 1 - to) / to_step).min((self.size - 1 - from) / from_step) + 1;
        Some(Run { from, from_step, to, to_step, count })
    }
}
