//! Parts of the keys: tasks for all threads where there are few blocks of queries.
//!
//! Each part is a task. Its results are combined with those of the others in the order of the keys. How many parts there are depends on
//! the shapes, not on the number of threads, and so do the results. Source: Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context
//! inference", 2023.

use std::ops::Range;

use super::forward::{State, shift};
use super::tile::KEYS;
use crate::number::Real;
use crate::simd::multiversion;

/// The keys of an attention, cut into parts of whole blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    keys: usize,
    /// Keys of each part but the last.
    len: usize,
    pub(super) count: usize,
}

/// Fewest tasks of a kernel, if there are enough keys. Each stores its results until they are combined.
pub(super) const TASKS: usize = 8;

/// Keys of a part of several blocks of queries. To load queries, and to store results and combine them, takes some hundredths of the time
/// of this many.
pub(super) const PART: usize = 16 * KEYS;

impl Parts {
    /// Parts of about `len` keys, or of more, so that there are not more than `most`.
    pub(super) fn new(keys: usize, most: usize, len: usize) -> Parts {
        let most = keys.div_ceil(len).clamp(1, most);
        let len = keys.div_ceil(most).next_multiple_of(KEYS).max(KEYS);
        Parts { keys, len, count: keys.div_ceil(len).max(1) }
    }

    /// Parts for as many tasks as there are, so that they become [`TASKS`].
    pub(super) fn of_tasks(keys: usize, tasks: usize) -> Parts {
        Parts::new(keys, TASKS.div_ceil(tasks.max(1)), PART)
    }

    /// Most keys of a part.
    pub(super) fn longest(&self) -> usize {
        self.len.min(self.keys)
    }

    /// The part that has a key.
    pub(super) fn of_key(&self, key: usize) -> usize {
        key / self.len
    }

    /// The keys of a part.
    pub(super) fn keys(&self, part: usize) -> Range<usize> {
        let end = |part: usize| self.keys.min(part * self.len);
        end(part)..end(part + 1)
    }
}

/// The softmax over one part of the keys, or over several: for each query the maximum, the sum of exponentials, and the sums of values.
pub(super) struct PartialSoftmax<'a, T> {
    partials: &'a mut [T],
    queries: usize,
}

impl<'a, T: Real> PartialSoftmax<'a, T> {
    /// Numbers of a part for some queries, with rows of values of this width.
    pub(super) fn len(queries: usize, width: usize) -> usize {
        queries * (2 + width)
    }

    /// The memory of one part, of [`len`](PartialSoftmax::len) numbers, or of several.
    pub(super) fn new(partials: &'a mut [T], queries: usize) -> PartialSoftmax<'a, T> {
        PartialSoftmax { partials, queries }
    }

    /// Stores the results of a part.
    pub(super) fn store(&mut self, state: &State<T>, sums: &[T]) {
        let (of_maximum, rest) = self.partials.split_at_mut(self.queries);
        let (of_sum, of_values) = rest.split_at_mut(self.queries);
        of_maximum.copy_from_slice(&state.maximum[..self.queries]);
        of_sum.copy_from_slice(&state.sum[..self.queries]);
        of_values.copy_from_slice(&sums[..of_values.len()]);
    }

    /// Combines the parts. The sums are left in the memory of the first part.
    pub(super) fn combine(self, parts: usize) -> (State<T>, &'a [T]) {
        let mut state = State::new();
        combine(self.partials, self.queries, parts, &mut state);
        (state, &self.partials[2 * self.queries..])
    }
}

multiversion! {
    /// Adds to the sums of the first part those of the others, and computes the state over all of them.
    fn combine<T: Real>(partials: &mut [T], queries: usize, parts: usize, state: &mut State<T>) {
        let len = partials.len() / parts;
        let width = (len - 2 * queries) / queries.max(1);
        if queries == 0 {
            return;
        }
        for part in partials.chunks_exact(len) {
            for (maximum, &of_part) in state.maximum.iter_mut().zip(&part[..queries]) {
                *maximum = if of_part > *maximum { of_part } else { *maximum };
            }
        }
        let (first, others) = partials.split_at_mut(len);
        for i in 0..queries {
            let maximum = shift(state.maximum[i]);
            let values = 2 * queries + i * width;
            let of_first = (first[i] - maximum).exp();
            state.sum[i] = first[queries + i] * of_first;
            first[values..][..width].iter_mut().for_each(|sum| *sum = *sum * of_first);
            for part in others.chunks_exact(len) {
                let of_part = (part[i] - maximum).exp();
                state.sum[i] = part[queries + i].fused(of_part, state.sum[i]);
                for (sum, &value) in first[values..][..width].iter_mut().zip(&part[values..][..width]) {
                    *sum = value.fused(of_part, *sum);
                }
            }
        }
    }
}
