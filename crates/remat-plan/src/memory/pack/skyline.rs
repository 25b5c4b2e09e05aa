//! Packing upwards: no item is placed below one that was placed before and is live at the same time.
//!
//! Memory that is free below an item is lost. So in each section the bytes that are yet to be placed have to fit between the top and the
//! limit, and an item after which they would not waits until others have been placed. This inference is that of MiniMalloc (Moffitt 2023,
//! "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning"), which searches exhaustively.

use super::Packed;
use super::search::Attempt;
use super::timeline::Timeline;

/// Places items in this order, and those that wait again in this order, until none waits. If nothing can be placed, all that wait are
/// blocked.
pub(super) fn place(timeline: &Timeline, order: &[usize], limit: usize, work: &mut usize) -> Attempt {
    let items = &timeline.items;
    let mut packed = Packed { offsets: vec![0; items.len()], size: 0 };
    // In each section, the end of the last item, and the bytes that are yet to be placed.
    let mut top = vec![0; timeline.live.len()];
    let mut rest = timeline.live.clone();
    let mut todo = order.to_vec();
    while !todo.is_empty() {
        let mut waiting = Vec::new();
        for &i in &todo {
            let item = &items[i];
            let within = item.first..=item.last;
            // A section takes about a quarter of the time of a comparison of items.
            let Some(left) = work.checked_sub(4 + item.duration() / 4) else { return Attempt::Spent };
            *work = left;
            let offset = max(&top[within.clone()]);
            if offset + max(&rest[within.clone()]) > limit {
                waiting.push(i);
                continue;
            }
            packed.offsets[i] = offset;
            packed.size = packed.size.max(offset + item.bytes);
            top[within.clone()].fill(offset + item.bytes);
            rest[within].iter_mut().for_each(|bytes| *bytes -= item.bytes);
        }
        if waiting.len() == todo.len() {
            return Attempt::Blocked(waiting);
        }
        todo = waiting;
    }
    Attempt::Packed(packed)
}

fn max(numbers: &[usize]) -> usize {
    numbers.iter().fold(0, |max, &number| max.max(number))
}
