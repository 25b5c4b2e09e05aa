//! Measures how fast a unit multiplies.

// The instructions are those of the unit.
#![allow(unsafe_code)]

use std::time::Instant;

use super::Unit;

/// Repetitions of a measurement, each of some instructions: some ten microseconds with AVX-512, and two hundred with AMX.
const COUNT: usize = 4000;

impl Unit {
    /// The peak rate of multiplications and additions of one thread, in billions per second, for elements with one plane and `of_word`
    /// elements in a word. All operands are in registers.
    pub(crate) fn rate(self, of_word: usize) -> f64 {
        let _session = self.session();
        let start = Instant::now();
        // SAFETY: the unit was found, and the tiles of this thread are configured.
        let instructions = unsafe { (self.registers)(COUNT) };
        let seconds = start.elapsed().as_secs_f64();
        2.0 * (instructions * self.words * of_word) as f64 / seconds / 1e9
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
