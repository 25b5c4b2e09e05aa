//! Live ranges with as few positions as possible.

use super::Item;

/// Items whose live ranges are numbers of sections rather than positions. Positions whose live items are a part of those of a position in
/// the same section do not matter for a packing. A section ends where an item begins after another has ended.
pub(in crate::memory) struct Timeline {
    pub(in crate::memory) items: Vec<Item>,
    /// The bytes of the items that are live in each section.
    pub(in crate::memory) live: Vec<usize>,
}

impl Timeline {
    pub(in crate::memory) fn new(items: &[Item]) -> Timeline {
        let end = items.iter().map(|item| item.last + 1).max().unwrap_or(0);
        let (mut begins, mut ends) = (vec![false; end + 1], vec![false; end + 1]);
        for item in items.iter().filter(|item| item.bytes > 0) {
            begins[item.first] = true;
            ends[item.last + 1] = true;
        }
        let (mut section, mut has_ended) = (0, false);
        let sections = begins.into_iter().zip(ends).map(|(begins, ends)| {
            has_ended |= ends;
            if begins && has_ended {
                section += 1;
                has_ended = false;
            }
            section
        });
        let sections: Vec<usize> = sections.collect();
        let within = |item: &Item| Item { first: sections[item.first], last: sections[item.last], bytes: item.bytes };
        let items: Vec<Item> = items.iter().map(within).collect();
        let mut change = vec![0isize; section + 2];
        for item in &items {
            change[item.first] += item.bytes as isize;
            change[item.last + 1] -= item.bytes as isize;
        }
        let mut sum = 0;
        let at = |change: isize| {
            sum += change;
            sum as usize
        };
        Timeline { items, live: change.into_iter().take(section + 1).map(at).collect() }
    }

    /// For each section and the end, how many sections before it have at least this many live bytes.
    pub(in crate::memory) fn covered(&self, bytes: usize) -> Vec<usize> {
        let mut covered = vec![0];
        let mut count = 0;
        for &live in &self.live {
            count += usize::from(live >= bytes);
            covered.push(count);
        }
        covered
    }
}
