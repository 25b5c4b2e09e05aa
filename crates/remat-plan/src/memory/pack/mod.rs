//! Packing: gives items with live ranges offsets, so that items that are live at the same time do not overlap.
//!
//! This is dynamic storage allocation, which is NP-complete (Garey and Johnson 1979, problem SR2). Several heuristics run until one reaches
//! the live bytes at the peak, which are a lower bound. First come sweeps, which pack most programs without loss, then searches for an
//! order of the items. They are for programs with several peaks of nearly one height, such as those that compute values again.

pub(super) mod gaps;
mod search;
mod skyline;
mod sweep;
#[cfg(test)]
mod tests;
pub(super) mod timeline;

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
        best = search::search(items, bound, best);
    }
    best
}

impl Packed {
    /// The smaller packing; `self` if they are equal.
    fn or_smaller(self, other: Packed) -> Packed {
        if other.size < self.size { other } else { self }
    }
}
