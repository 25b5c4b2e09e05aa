//! Packing: gives items with live ranges offsets, so that items that are live at the same time do not overlap.
//!
//! This is dynamic storage allocation, which is NP-complete (Garey and Johnson 1979, problem SR2). Several heuristics run
//! until one reaches the live bytes at the peak, which are a lower bound.

mod greedy;
mod sweep;

use std::cmp::Reverse;

/// A value or scratch memory with its live range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// The positions at which it is live: from `first` to `last`, both included.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) bytes: usize,
}

impl Item {
    /// The number of positions at which it is live.
    fn duration(&self) -> usize {
        self.last - self.first + 1
    }
}

/// The offset of each item, and the end of the last.
pub(super) struct Packed {
    pub(super) offsets: Vec<usize>,
    pub(super) size: usize,
}

/// How many neighbours greedy packing compares in all, which takes a few milliseconds.
const WORK: usize = 1_000_000;

/// How often each greedy order is tried at most.
const ROUNDS: usize = 16;

/// Packs items. At position `peak` their sizes add up to `bound` bytes, and nowhere to more.
pub(super) fn pack(items: &[Item], bound: usize, peak: usize) -> Packed {
    let end = items.iter().map(|item| item.last).max().unwrap_or(0);
    let mut best = sweep::sweep(items, peak);
    for start in [0, end] {
        if best.size > bound {
            best = best.or_smaller(sweep::sweep(items, start));
        }
    }
    if best.size > bound {
        best = repair(items, bound, best);
    }
    best
}

/// Packs greedily in several orders. Items that end beyond the bound come first in the next round.
fn repair(items: &[Item], bound: usize, mut best: Packed) -> Packed {
    let keys: [fn(&Item) -> usize; 3] =
        [|item| item.bytes, Item::duration, |item| item.bytes.saturating_mul(item.duration())];
    let mut orders = keys.map(|key| {
        let mut order: Vec<usize> = (0..items.len()).filter(|&i| items[i].bytes > 0).collect();
        order.sort_by_key(|&i| Reverse((key(&items[i]), items[i].duration())));
        order
    });
    let mut work = WORK;
    for _ in 0..ROUNDS {
        for order in &mut orders {
            let Some(packed) = greedy::greedy(items, order, &mut work) else { return best };
            order.sort_by_key(|&i| packed.offsets[i] + items[i].bytes <= bound);
            best = best.or_smaller(packed);
            if best.size == bound {
                return best;
            }
        }
    }
    best
}

impl Packed {
    /// The smaller packing; `self` if they are equal.
    fn or_smaller(self, other: Packed) -> Packed {
        if other.size < self.size { other } else { self }
    }
}
