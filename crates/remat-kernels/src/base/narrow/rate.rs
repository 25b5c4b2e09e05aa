//! Measures how fast a unit multiplies.

use std::hint::black_box;
use std::time::Instant;

use super::{GROUP, PANEL, Side, Unit};

/// Groups of the panels, which fit the first-level cache together with their sums: twice 12 KiB, and 4 KiB.
const GROUPS: usize = 6;

/// Calls of a measurement: some tens of microseconds with AVX-512.
const CALLS: usize = 100;

impl Unit {
    /// The rate of multiplications and additions of one thread, in billions per second, for elements with one plane and `of_word` elements
    /// in a word. The panels are zeros, in the first-level cache.
    pub(crate) fn rate(self, of_word: usize) -> f64 {
        let [left, right] = [Side::Left, Side::Right].map(|side| vec![0; GROUPS * self.group(side)]);
        let mut sums = [0f32; PANEL * PANEL];
        let session = self.session();
        session.multiply(&left, &right, (&mut sums, PANEL), false, None);
        let start = Instant::now();
        for _ in 0..CALLS {
            session.multiply(black_box(&left), &right, (&mut sums, PANEL), false, None);
        }
        let seconds = start.elapsed().as_secs_f64();
        // The words of a group in each row and column.
        let words = CALLS * GROUPS * (GROUP / PANEL) * PANEL * PANEL;
        black_box(&sums);
        2.0 * (words * of_word) as f64 / seconds / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::narrow::Kind;

    #[test]
    fn every_unit_has_a_rate() {
        for (kind, of_word) in [(Kind::Bf16, 2), (Kind::I8, 4), (Kind::U8, 4)] {
            for unit in Unit::all(kind) {
                let rate = unit.rate(of_word);
                assert!(rate > 0.0 && rate.is_finite(), "{kind:?}, {unit:?}: {rate}");
            }
        }
    }
}
