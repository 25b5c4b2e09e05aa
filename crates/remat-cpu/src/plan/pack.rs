//! Packing: items that live for some time get offsets, so that no two that live at one time overlap.

/// What needs memory for some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// The positions at which it is live: from `first` to `last`, both included.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) bytes: usize,
}

/// The offset of each item, and the end of the last.
pub(super) struct Packed {
    pub(super) offsets: Vec<usize>,
    pub(super) size: usize,
}

/// Packs items; `bound` is what they need at least.
pub(super) fn pack(items: &[Item], bound: usize) -> Packed {
    let _ = bound;
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(items[i].bytes));
    let mut packed = Packed { offsets: vec![0; items.len()], size: 0 };
    // Items that have their place, by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(items.len());
    for i in order {
        let item = items[i];
        let mut best: Option<(usize, usize)> = None;
        let mut end = 0;
        for &other in &placed {
            if items[other].first > item.last || items[other].last < item.first {
                continue;
            }
            let gap = packed.offsets[other].saturating_sub(end);
            if gap >= item.bytes && best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, end));
            }
            end = end.max(packed.offsets[other] + items[other].bytes);
        }
        let offset = best.map_or(end, |(_, offset)| offset);
        packed.offsets[i] = offset;
        packed.size = packed.size.max(offset + item.bytes);
        let at = placed.partition_point(|&other| packed.offsets[other] <= offset);
        placed.insert(at, i);
    }
    packed
}
