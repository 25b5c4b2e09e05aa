//! Measures how fast a unit multiplies.

// The instructions are those of the unit.
#![allow(unsafe_code)]

use std::time::Instant;

use super::{Kind, Unit};

/// Repetitions of a measurement, each of some instructions: some ten microseconds with AVX-512, and two hundred with AMX.
const COUNT: usize = 4000;

impl Unit {
    /// The peak rate of multiplications and additions of one thread, in billions per second, for elements of the unit's kind. All operands
    /// are in registers.
    pub(crate) fn rate(self, kind: Kind) -> f64 {
        let _session = self.session();
        let start = Instant::now();
        // SAFETY: the unit was found, and the tiles of this thread are configured.
        let instructions = unsafe { (self.registers)(COUNT) };
        let seconds = start.elapsed().as_secs_f64();
        let [per_word, _] = kind.per_word_and_group();
        let words = instructions * self.words / kind.pairs_of_planes().len();
        2.0 * (words * per_word) as f64 / seconds / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_a_rate() {
        for kind in [Kind::Bf16, Kind::F16, Kind::I8, Kind::U8, Kind::SplitF32, Kind::SplitF16] {
            for unit in Unit::all(kind) {
                let rate = unit.rate(kind);
                assert!(rate > 0.0 && rate.is_finite(), "{kind:?}, {unit:?}: {rate}");
            }
        }
    }
}
