//! Packing from the peak outwards in time.
//!
//! Items that are live at the peak are stacked without gaps. From there memory is allocated as in a running program, once forwards and once
//! backwards in time, from the smallest gap that is large enough. Items that end before the peak never overlap in time with items that
//! begin after it, and at the peak no byte is lost. A training step keeps the values of the forward pass until the backward pass reads
//! them, last in, first out: stacked in the order in which they begin, they leave no gaps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::{Item, Packed};

/// Packs items from this position on in both directions.
pub(super) fn sweep(items: &[Item], start: usize) -> Packed {
    let mut packed = Packed { offsets: vec![0; items.len()], size: 0 };
    let is_live = |i: &usize| items[*i].first <= start && start <= items[*i].last;
    let mut live: Vec<usize> = (0..items.len()).filter(is_live).collect();
    live.sort_by_key(|&i| (items[i].first, Reverse(items[i].last)));
    for &i in &live {
        packed.offsets[i] = packed.size;
        packed.size += items[i].bytes;
    }
    let mut later: Vec<usize> = (0..items.len()).filter(|&i| items[i].first > start).collect();
    later.sort_by_key(|&i| (items[i].first, Reverse(items[i].bytes)));
    let mut earlier: Vec<usize> = (0..items.len()).filter(|&i| items[i].last < start).collect();
    earlier.sort_by_key(|&i| (Reverse(items[i].last), Reverse(items[i].bytes)));
    allocate(items, &live, &later, |item| (item.first as isize, item.last as isize), &mut packed);
    allocate(items, &live, &earlier, |item| (-(item.last as isize), -(item.first as isize)), &mut packed);
    packed
}

/// Allocates items in this order. `range` gives the live range of an item in the direction of the sweep.
fn allocate(
    items: &[Item],
    live: &[usize],
    order: &[usize],
    range: impl Fn(&Item) -> (isize, isize),
    packed: &mut Packed,
) {
    let mut free = Free { end: packed.offsets_end(items, live), ..Free::default() };
    let mut ends: BinaryHeap<Reverse<(isize, usize)>> =
        live.iter().map(|&i| Reverse((range(&items[i]).1, i))).collect();
    for &i in order {
        let (first, last) = range(&items[i]);
        while let Some(&Reverse((_, dead))) = ends.peek().filter(|Reverse((end, _))| *end < first) {
            ends.pop();
            free.give(packed.offsets[dead], items[dead].bytes);
        }
        packed.offsets[i] = free.take(items[i].bytes);
        packed.size = packed.size.max(free.end);
        ends.push(Reverse((last, i)));
    }
}

impl Packed {
    fn offsets_end(&self, items: &[Item], live: &[usize]) -> usize {
        live.iter().map(|&i| self.offsets[i] + items[i].bytes).max().unwrap_or(0)
    }
}

/// Free memory: gaps, and everything from `end` on.
#[derive(Default)]
struct Free {
    end: usize,
    /// The bytes of each gap by its offset.
    gaps: BTreeMap<usize, usize>,
    /// The same gaps as bytes and offset.
    sizes: BTreeSet<(usize, usize)>,
}

impl Free {
    /// The offset of free memory of this size.
    fn take(&mut self, bytes: usize) -> usize {
        if bytes == 0 {
            return 0;
        }
        let Some(&(size, offset)) = self.sizes.range((bytes, 0)..).next() else {
            self.end += bytes;
            return self.end - bytes;
        };
        self.remove(offset, size);
        self.insert(offset + bytes, size - bytes);
        offset
    }

    /// Frees memory.
    fn give(&mut self, mut offset: usize, mut bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Some((&before, &size)) = self.gaps.range(..offset).next_back().filter(|(o, s)| *o + *s == offset) {
            self.remove(before, size);
            (offset, bytes) = (before, bytes + size);
        }
        if let Some(&size) = self.gaps.get(&(offset + bytes)) {
            self.remove(offset + bytes, size);
            bytes += size;
        }
        if offset + bytes == self.end {
            self.end = offset;
        } else {
            self.insert(offset, bytes);
        }
    }

    fn insert(&mut self, offset: usize, bytes: usize) {
        if bytes > 0 {
            self.gaps.insert(offset, bytes);
            self.sizes.insert((bytes, offset));
        }
    }

    fn remove(&mut self, offset: usize, bytes: usize) {
        self.gaps.remove(&offset);
        self.sizes.remove(&(bytes, offset));
    }
}
