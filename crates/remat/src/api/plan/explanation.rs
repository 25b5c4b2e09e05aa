//! Plans as text.

use std::cmp::Reverse;
use std::fmt;

use remat_ir::{MemoryReport, RecomputedValue, readable_bytes};

use super::Plan;

/// What a plan does. Its text has the figures, the values that are computed several times, and the values in memory at the peak; `{:#}`
/// prints all of them.
#[derive(Clone)]
pub struct Explanation {
    pub(super) plan: Plan,
    pub(super) memory: MemoryReport,
}

impl Explanation {
    /// The bytes of the program, and the values that are live at its peak.
    pub fn memory(&self) -> &MemoryReport {
        &self.memory
    }
}

/// How many kinds of values a text shows.
const SHOWN: usize = 8;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { plan, memory } = self;
        let peak = readable_bytes(plan.peak());
        let shown = if f.alternate() { usize::MAX } else { SHOWN };
        match &plan.chosen {
            None => writeln!(f, "a call needs {peak}; nothing is computed several times")?,
            Some(chosen) => {
                writeln!(f, "a call needs {peak} of {}", readable_bytes(plan.program.peak))?;
                let shares = [plan.overhead(), plan.repeated(), plan.bound()];
                let [overhead, repeated, bound] = shares.map(|share| 100.0 * share);
                writeln!(f, "{overhead:.1} % more time by the cost model")?;
                writeln!(
                    f,
                    "computed again, for {repeated:.1} %, where no plan in this order takes less than {bound:.1} %:"
                )?;
                let share = |time: u64| 100.0 * chosen.share(time);
                let alike = Alike::of(&chosen.recomputed);
                for Alike { value, count, time } in alike.iter().take(shown) {
                    writeln!(f, "  {:5.2} %  {count:3} x {value}", share(*time))?;
                }
                let rest: &[Alike] = alike.get(shown..).unwrap_or_default();
                if !rest.is_empty() {
                    let (count, time) = rest.iter().fold((0, 0), |(n, t), alike| (n + alike.count, t + alike.time));
                    writeln!(f, "  {:5.2} %  {count:3} others", share(time))?;
                }
            }
        }
        // The values at the peak of the callers for whom it is planned.
        let is_donated = plan.peak() < memory.stats.peak && !memory.donated.is_empty();
        let memory = match is_donated {
            true => &MemoryReport { live: memory.donated.clone(), ..memory.clone() },
            false => memory,
        };
        if f.alternate() { write!(f, "{memory:#}") } else { write!(f, "{memory}") }
    }
}

/// Values of one line of the user's program, such as those of all layers: how often they are computed again, and for what time.
struct Alike {
    value: String,
    count: usize,
    time: u64,
}

impl Alike {
    /// Those that take the most time first.
    fn of(recomputed: &[RecomputedValue]) -> Vec<Alike> {
        let mut alike: Vec<Alike> = Vec::new();
        for RecomputedValue { value, times, time } in recomputed {
            let value = value.to_string();
            match alike.iter_mut().find(|alike| alike.value == value) {
                Some(found) => {
                    found.count += times;
                    found.time += time;
                }
                None => alike.push(Alike { value, count: *times, time: *time }),
            }
        }
        alike.sort_by_key(|alike| Reverse(alike.time));
        alike
    }
}
