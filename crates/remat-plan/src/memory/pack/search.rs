//! Searches for an order in which all items fit below a limit.
//!
//! An attempt places the items in an order and gives up once it is clear that they do not all fit. The items that did not fit come earlier
//! in the next attempt, as in squeaky wheel optimization (Joslin and Clements 1999). Those that did not fit most often come first: so the
//! items that are hard to place are found, as by the weights of constraint solvers (Boussemart et al. 2004).

use std::cmp::Reverse;

use super::timeline::Timeline;
use super::{Item, Packed, gaps, skyline};

/// What became of an attempt to pack items below a limit.
pub(super) enum Attempt {
    Packed(Packed),
    /// These items did not fit.
    Blocked(Vec<usize>),
    /// The work that is left is not enough.
    Spent,
}

/// Packs items in an order below a limit. Its work is subtracted from the last argument.
type Place = fn(&Timeline, &[usize], usize, &mut usize) -> Attempt;

/// A way to place items.
struct Way {
    place: Place,
    /// Items with a large number come first in one of its orders.
    key: fn(&Item) -> usize,
    /// The work of all its attempts, which takes a few milliseconds.
    work: usize,
}

/// Packing upwards finds the packings of programs with a few high peaks, packing into gaps those of programs whose live bytes are near the
/// peak most of the time.
const WAYS: [Way; 2] = [
    Way { place: skyline::place, key: Item::duration, work: 200_000 },
    Way { place: gaps::place, key: |item| item.bytes, work: 800_000 },
];

/// After this many attempts without success the limit is raised.
const FAILURES: usize = 12;

/// A packing that is smaller than `best`, or `best` if little work finds none.
pub(super) fn search(items: &[Item], bound: usize, mut best: Packed) -> Packed {
    let timeline = Timeline::new(items);
    for way in WAYS {
        if best.size > bound {
            best = improve(&timeline, bound, best, &way);
        }
    }
    best
}

/// Tries several orders in turn. The limit is halfway between the bound and the best size. It is raised step by step to nearly that size
/// while no attempt succeeds, and then lowered again.
fn improve(timeline: &Timeline, bound: usize, mut best: Packed, way: &Way) -> Packed {
    let mut orders = orders(timeline, bound, way.key);
    let mut work = way.work;
    let middle = |size: usize| bound + (size - bound) / 2;
    let mut limit = middle(best.size);
    let mut failures = 0;
    let count = orders.len();
    for turn in 0.. {
        let order = &mut orders[turn % count];
        match (way.place)(timeline, &order.items, limit, &mut work) {
            Attempt::Packed(packed) if packed.size == bound => return packed,
            Attempt::Packed(packed) => {
                best = packed;
                (limit, failures) = (middle(best.size), 0);
            }
            Attempt::Blocked(blocked) => {
                order.promote(&blocked);
                failures += 1;
                if failures == FAILURES {
                    let raise = (best.size - limit) / 2;
                    limit = if raise > bound / 4000 { limit + raise } else { middle(best.size) };
                    failures = 0;
                }
            }
            Attempt::Spent => break,
        }
    }
    best
}

/// An order of the items, and how often each did not fit.
struct Order {
    items: Vec<usize>,
    failures: Vec<usize>,
}

/// The orders with which a search begins. First come the items that are live at the most of the sections whose live bytes are near the
/// bound, or those with the largest keys.
fn orders(timeline: &Timeline, bound: usize, key: fn(&Item) -> usize) -> [Order; 3] {
    let [highest, high] = [97, 90].map(|percent| {
        let covered = timeline.covered(bound / 100 * percent);
        Order::new(&timeline.items, |item| covered[item.last + 1] - covered[item.first])
    });
    [highest, high, Order::new(&timeline.items, key)]
}

impl Order {
    /// The items with the largest keys first, and among equal ones those that are live for long, then the large ones.
    fn new(items: &[Item], key: impl Fn(&Item) -> usize) -> Order {
        let mut order: Vec<usize> = (0..items.len()).filter(|&i| items[i].bytes > 0).collect();
        order.sort_by_key(|&i| Reverse((key(&items[i]), items[i].duration(), items[i].bytes)));
        Order { items: order, failures: vec![0; items.len()] }
    }

    /// Moves items that did not fit before those that failed less often. A single one also comes before those that failed as often.
    fn promote(&mut self, blocked: &[usize]) {
        for &i in blocked {
            self.failures[i] += 1;
        }
        if let [i] = blocked
            && let Some(at) = self.items.iter().position(|item| item == i)
        {
            self.items[..=at].rotate_right(1);
        }
        self.items.sort_by_key(|&i| Reverse(self.failures[i]));
    }
}
