//! One spatial axis of a convolution whose products are added to the results that they reach.

use std::ops::Range;

use remat_ir::{Aval, Conv};

use crate::interface::layout::Layout;

/// Numbers that positions may reach, so that they can be added without care.
const FAR: usize = 1 << 40;

/// A spatial axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    pub(super) image: usize,
    pub(super) window: usize,
    pub(super) results: usize,
    /// Results between those that neighbours in the image reach.
    pub(super) apart: usize,
    /// Results between those that neighbours in the window reach.
    dilation: usize,
    /// The result that the first elements reach.
    low: i64,
    /// The strides of the image's elements and of the window's.
    pub(super) strides: [isize; 2],
}

impl Along {
    /// An axis of one element.
    const NONE: Along = Along { image: 1, window: 1, results: 1, apart: 1, dilation: 1, low: 0, strides: [0; 2] };

    /// Rows and columns of a convolution with one or two of them; `None` if elements are too far apart.
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

    /// The result that an element of the image reaches by one of the window, which may be outside.
    pub(super) fn result(&self, element: usize, window: usize) -> i64 {
        (element * self.apart) as i64 + self.low - (window * self.dilation) as i64
    }

    /// How many pairs of an element of the image and one of the window reach a result that is not outside.
    pub(super) fn pairs_inside(&self) -> usize {
        self.reached().iter().map(|reached| reached.inside(&(0..self.image)).1.len()).sum()
    }

    /// Whether an element of the window reaches no result, from any element of the image.
    pub(super) fn is_any_outside(&self) -> bool {
        self.reached().iter().any(|reached| reached.inside(&(0..self.image)).1.is_empty())
    }

    /// Results from the first to the last that an element reaches, less one.
    pub(super) fn reach(&self) -> usize {
        (self.window - 1) * self.dilation
    }

    /// The elements of the image that reach any of these results.
    pub(super) fn reaching(&self, results: &Range<usize>) -> Range<usize> {
        let first = |result: i64| (result.max(0) as usize).div_ceil(self.apart).min(self.image);
        let end = first(results.end as i64 - self.low + self.reach() as i64);
        first(results.start as i64 - self.low).min(end)..end
    }

    /// Results of a phase: those that are `apart` from the first to the next.
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

/// The results that elements of an image reach by one element of the window: neighbours in a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) phase: usize,
    /// That of the first element, which may be outside.
    first: i64,
    /// Results of the phase.
    count: i64,
}

impl Reached {
    /// The first of the results inside that some elements reach, and these elements.
    pub(super) fn inside(&self, elements: &Range<usize>) -> (usize, Range<usize>) {
        let [start, end] = [elements.start, elements.end].map(|x| x as i64);
        let start = start.max(-self.first).min(end);
        let end = end.min(self.count - self.first).max(start);
        ((start + self.first).max(0) as usize, start as usize..end as usize)
    }
}
