//! Packing into gaps: each item goes into the smallest gap that fits, between and above those that are placed.
//!
//! Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference". TensorFlow Lite and XLA pack in this way.

use super::Packed;
use super::search::Attempt;
use super::timeline::Timeline;

/// The number of sections in a span. Items are listed by span, so that neighbours are found without a search of all items.
const SPAN: usize = 64;

/// Places items in this order. The first one that does not fit is blocked. Each comparison with a neighbour counts as work.
pub(super) fn place(timeline: &Timeline, order: &[usize], limit: usize, work: &mut usize) -> Attempt {
    let items = &timeline.items;
    // The items of each span that have an offset, by offset.
    let mut placed: Vec<Vec<Block>> = vec![Vec::new(); timeline.live.len() / SPAN + 1];
    let mut packed = Packed { offsets: vec![0; items.len()], size: 0 };
    let mut near: Vec<Block> = Vec::new();
    for &i in order {
        let item = &items[i];
        let within = item.first / SPAN..=item.last / SPAN;
        near.clear();
        for span in within.clone() {
            // An item that covers several spans is counted in the first one that both items share.
            let is_new = |b: &&Block| b.first / SPAN == span || span == item.first / SPAN;
            near.extend(placed[span].iter().filter(|b| b.first <= item.last && item.first <= b.last).filter(is_new));
            let Some(left) = work.checked_sub(4 + placed[span].len()) else { return Attempt::Spent };
            *work = left;
        }
        if within.start() != within.end() {
            near.sort_unstable_by_key(|b| b.offset);
        }
        let offset = gap(&near, item.bytes);
        let end = offset + item.bytes;
        if end > limit {
            return Attempt::Blocked(vec![i]);
        }
        packed.offsets[i] = offset;
        packed.size = packed.size.max(end);
        let block = Block { first: item.first, last: item.last, offset, end };
        for list in &mut placed[within] {
            let at = list.partition_point(|b| b.offset <= offset);
            list.insert(at, block);
        }
    }
    Attempt::Packed(packed)
}

/// An item that has an offset.
#[derive(Clone, Copy)]
pub(in crate::memory) struct Block {
    pub(in crate::memory) first: usize,
    pub(in crate::memory) last: usize,
    pub(in crate::memory) offset: usize,
    pub(in crate::memory) end: usize,
}

/// The offset of the smallest gap of at least `bytes` bytes between these blocks, which are sorted by offset, or their end if there is no
/// such gap.
pub(in crate::memory) fn gap(blocks: &[Block], bytes: usize) -> usize {
    let mut best = None;
    let mut end = 0;
    for block in blocks {
        let gap = block.offset.saturating_sub(end);
        if gap >= bytes && best.is_none_or(|(least, _)| gap < least) {
            best = Some((gap, end));
        }
        end = end.max(block.end);
    }
    best.map_or(end, |(_, offset)| offset)
}
