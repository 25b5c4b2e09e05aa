//! One spatial axis of a convolution by col2im.

use std::ops::Range;

use remat_ir::{Aval, Conv};

use crate::interface::layout::Layout;

/// The largest extent of an axis, so that coordinates can be added without overflow.
const FAR: usize = 1 << 40;

/// A spatial axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    pub(super) image: usize,
    pub(super) window: usize,
    pub(super) results: usize,
    /// Results between those that neighbouring elements of the image reach: the distance from one result of a phase to the next.
    pub(super) apart: usize,
    /// Results between those that neighbouring elements of the window reach.
    dilation: usize,
    /// The result that the first element of the image reaches by the first of the window.
    low: i64,
    /// The strides of the image's elements and of the window's.
    pub(super) strides: [isize; 2],
}

impl Along {
    /// An axis of one element.
    const NONE: Along = Along { image: 1, window: 1, results: 1, apart: 1, dilation: 1, low: 0, strides: [0; 2] };

    /// The axes of rows and columns of a convolution with one or two spatial dimensions; `None` if elements are too far apart.
    pub(super) fn both(op: &Conv, image: &Layout, weights: &Layout, out: &Aval) -> Option<[Along; 2]> {
        let along = |d: usize| Along {
            image: image.shape[op.lhs_dims.spatial[d]],
            window: weights.shape[op.rhs_dims.spatial[d]],
            results: out.shape[op.out_dims.spatial[d]],
            apart: op.lhs_dilation[d],
            dilation: op.rhs_dilation[d],
            low: op.padding[d].0,
            strides: [image.strides[op.lhs_dims.spatial[d]], weights.strides[op.rhs_dims.spatial[d]]],
        };
        let both = match op.strides.len() {
            1 => [Along::NONE, along(0)],
            2 => [along(0), along(1)],
            _ => return None,
        };
        (!both.iter().any(Along::is_far)).then_some(both)
    }

    fn is_far(&self) -> bool {
        self.image.saturating_mul(self.apart) > FAR
            || self.window.saturating_mul(self.dilation) > FAR
            || self.low.unsigned_abs() > FAR as u64
    }

    /// The result that an element of the image reaches by an element of the window. It may be outside of the output.
    pub(super) fn result(&self, element: usize, window: usize) -> i64 {
        (element * self.apart) as i64 + self.low - (window * self.dilation) as i64
    }

    /// The number of pairs of an element of the image and one of the window whose result is inside of the output.
    pub(super) fn pairs_inside(&self) -> usize {
        self.reached().iter().map(|reached| reached.inside(&(0..self.image)).1.len()).sum()
    }

    /// Whether some element of the window reaches no result inside of the output, from any element of the image.
    pub(super) fn is_any_outside(&self) -> bool {
        self.reached().iter().any(|reached| reached.inside(&(0..self.image)).1.is_empty())
    }

    /// The distance from the first to the last result that an element of the image reaches.
    pub(super) fn reach(&self) -> usize {
        (self.window - 1) * self.dilation
    }

    /// The elements of the image that reach any of these results.
    pub(super) fn reaching(&self, results: &Range<usize>) -> Range<usize> {
        let first = |result: i64| (result.max(0) as usize).div_ceil(self.apart).min(self.image);
        let end = first(results.end as i64 - self.low + self.reach() as i64);
        first(results.start as i64 - self.low).min(end)..end
    }

    /// The number of results in a phase: results of one phase are `apart` from each other.
    pub(super) fn phase(&self) -> usize {
        self.results.div_ceil(self.apart)
    }

    /// The results that each element of the window reaches.
    pub(super) fn reached(&self) -> Vec<Reached> {
        let each = |window: usize| {
            let first = self.result(0, window);
            let phase = first.rem_euclid(self.apart as i64) as usize;
            let count = self.results.saturating_sub(phase).div_ceil(self.apart);
            Reached { phase, first: first.div_euclid(self.apart as i64), count: count as i64 }
        };
        (0..self.window).map(each).collect()
    }
}

/// The results that the elements of an image reach by one element of the window. They are neighbours in a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) phase: usize,
    /// The result of the first element, which may be outside.
    first: i64,
    /// The number of results in the phase.
    count: i64,
}

impl Reached {
    /// The first result inside of the output that these elements reach, and the elements that reach results inside.
    pub(super) fn inside(&self, elements: &Range<usize>) -> (usize, Range<usize>) {
        let [start, end] = [elements.start, elements.end].map(|x| x as i64);
        let start = start.max(-self.first).min(end);
        let end = end.min(self.count - self.first).max(start);
        ((start + self.first).max(0) as usize, start as usize..end as usize)
    }
}
