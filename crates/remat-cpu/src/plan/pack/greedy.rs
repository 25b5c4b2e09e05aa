//! Greedy packing: one item after the other into the smallest gap that fits.
//!
//! By decreasing size this was found best for most networks by Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural
//! Net Inference". TensorFlow Lite and XLA pack in this way.

use super::{Item, Packed};

/// The positions of a span: the items of one span are found without a search of the others.
const SPAN: usize = 64;

/// Packs items in this order. Each comparison with a neighbour is taken from `work`; when nothing is left, it gives up.
pub(super) fn greedy(items: &[Item], order: &[usize], work: &mut usize) -> Option<Packed> {
    let spans = items.iter().map(|item| item.last / SPAN + 1).max().unwrap_or(0);
    // The items of each span that have an offset, by offset.
    let mut placed: Vec<Vec<Block>> = vec![Vec::new(); spans];
    let mut packed = Packed { offsets: vec![0; items.len()], size: 0 };
    let mut near: Vec<Block> = Vec::new();
    for &i in order {
        let item = &items[i];
        let within = item.first / SPAN..=item.last / SPAN;
        near.clear();
        for span in within.clone() {
            // An item of several spans counts in the first of them that this item is in.
            let is_new = |b: &&Block| b.first / SPAN == span || span == item.first / SPAN;
            near.extend(placed[span].iter().filter(|b| b.first <= item.last && item.first <= b.last).filter(is_new));
            *work = work.checked_sub(placed[span].len() + 1)?;
        }
        if within.start() != within.end() {
            near.sort_unstable_by_key(|b| b.offset);
        }
        let offset = gap(&near, item.bytes);
        packed.offsets[i] = offset;
        packed.size = packed.size.max(offset + item.bytes);
        let block = Block { first: item.first, last: item.last, offset, end: offset + item.bytes };
        for list in &mut placed[within] {
            let at = list.partition_point(|b| b.offset <= offset);
            list.insert(at, block);
        }
    }
    Some(packed)
}

/// An item that has an offset.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    last: usize,
    offset: usize,
    end: usize,
}

/// The offset of the smallest gap of at least this many bytes between these blocks, which are sorted by offset; their end if
/// there is none.
fn gap(blocks: &[Block], bytes: usize) -> usize {
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
