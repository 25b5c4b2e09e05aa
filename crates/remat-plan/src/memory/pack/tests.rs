//! Packings of random items have no overlaps, and hard ones are found.

use super::search::Attempt;
use super::timeline::Timeline;
use super::{Item, Packed, gaps, pack, skyline};
use crate::examples::Random;

/// The items of a packing without holes, which is cut at random, without one in `missing` of them.
fn cut(random: &mut Random, count: usize, missing: usize) -> Vec<Item> {
    let mut parts = vec![(0, 2 * count, 0, 1 << 14)];
    while parts.len() < count {
        let at = random.below(parts.len());
        let (first, end, low, high) = parts[at];
        if random.once_in(2) && end - first > 1 {
            let middle = first + 1 + random.below(end - first - 1);
            parts[at] = (first, middle, low, high);
            parts.push((middle, end, low, high));
        } else if high - low > 1 {
            let middle = low + 1 + random.below(high - low - 1);
            parts[at] = (first, end, low, middle);
            parts.push((first, end, middle, high));
        }
    }
    parts.retain(|_| !random.once_in(missing));
    parts.into_iter().map(|(first, end, low, high)| Item { first, last: end - 1, bytes: 64 * (high - low) }).collect()
}

/// The most bytes that are live at one position, and the first such position.
fn peak(items: &[Item]) -> (usize, usize) {
    let end = items.iter().map(|item| item.last + 1).max().unwrap_or(0);
    let live = |at: usize| items.iter().filter(|i| i.first <= at && at <= i.last).map(|i| i.bytes).sum::<usize>();
    (0..end).map(|at| (live(at), at)).fold((0, 0), |peak, next| if next.0 > peak.0 { next } else { peak })
}

fn assert_is_right(items: &[Item], packed: &Packed) {
    for (i, a) in items.iter().enumerate() {
        assert!(packed.offsets[i] + a.bytes <= packed.size);
        for (j, b) in items.iter().enumerate().skip(i + 1) {
            let is_apart =
                packed.offsets[i] + a.bytes <= packed.offsets[j] || packed.offsets[j] + b.bytes <= packed.offsets[i];
            let is_empty = a.bytes == 0 || b.bytes == 0;
            assert!(is_apart || is_empty || a.last < b.first || b.last < a.first, "{a:?} and {b:?} overlap");
        }
    }
}

#[test]
fn items_that_are_live_at_the_same_time_do_not_overlap() {
    let mut random = Random(3);
    let (mut sizes, mut bounds) = (0, 0);
    for round in 0..40 {
        let items = cut(&mut random, 10 + 4 * round, 10);
        let (bound, position) = peak(&items);
        let packed = pack(&items, bound, position);
        assert_is_right(&items, &packed);
        assert!(packed.size >= bound);
        sizes += packed.size;
        bounds += bound;
    }
    assert!(sizes <= bounds + bounds / 20, "{sizes} bytes for {bounds}");
}

#[test]
fn ways_to_place_items_keep_to_the_limit_and_to_the_work() {
    let mut random = Random(9);
    for _ in 0..20 {
        let items = cut(&mut random, 60, 5);
        let (timeline, order): (Timeline, Vec<usize>) = (Timeline::new(&items), (0..items.len()).collect());
        let (bound, _) = peak(&items);
        assert_eq!(timeline.live.iter().max(), Some(&bound));
        for place in [skyline::place, gaps::place] {
            let mut work = 1_000_000;
            match place(&timeline, &order, 3 * bound, &mut work) {
                Attempt::Packed(packed) => {
                    assert_is_right(&items, &packed);
                    assert!(packed.size <= 3 * bound);
                }
                Attempt::Blocked(_) | Attempt::Spent => panic!("three times the bytes are enough"),
            }
            let used = 1_000_000 - work;
            assert!(matches!(place(&timeline, &order, 3 * bound, &mut { used }), Attempt::Packed(_)));
            assert!(matches!(place(&timeline, &order, 3 * bound, &mut { used - 1 }), Attempt::Spent));
            let Attempt::Blocked(blocked) = place(&timeline, &order, bound - 64, &mut work) else {
                panic!("it is too little")
            };
            assert!(!blocked.is_empty());
        }
    }
}

#[test]
fn an_item_between_two_peaks_is_placed_below_both() {
    // `a` and `b` fill the first peak, `b` and `c` the second, and `d` lies in the valley. From the first peak on `c` would not find the
    // memory of `a` in one piece if `d` lay in it.
    let items = [(0, 3, 3), (0, 9, 2), (6, 9, 3), (4, 6, 1), (5, 5, 2), (7, 9, 1)];
    let items: Vec<Item> =
        items.into_iter().map(|(first, last, size)| Item { first, last, bytes: 64 * size }).collect();
    let (bound, position) = peak(&items);
    let packed = pack(&items, bound, position);
    assert_is_right(&items, &packed);
    assert_eq!(packed.size, bound);
}
