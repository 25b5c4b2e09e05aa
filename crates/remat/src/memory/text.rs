//! The report as text.

use std::fmt;

use remat_ir::{Policy, readable_bytes};

use super::{Change, Lever, Part, PlannedStep, TrainingMemory};

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Parameters => "parameters",
            Part::Optimizer => "optimizer state",
            Part::Gradients => "gradients",
            Part::Activations => "activations",
            Part::Scratch => "scratch",
            Part::Batch => "batch",
            Part::Overhead => "overhead",
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Policy(layers, Policy::Nothing) => write!(f, "recompute everything in {layers}"),
            Change::Policy(layers, policy) => write!(f, "policy {policy} around {layers}"),
            Change::Adafactor => f.write_str("optimizer Adafactor"),
            Change::Adam8bit => f.write_str("optimizer Adam8bit"),
            Change::HalfPrecision => f.write_str("parameters in bf16"),
            Change::Sharded(chips) => write!(f, "fully sharded over {chips} chips"),
        }
    }
}

impl<C> Lever<C> {
    /// What the change costs, and whether that is an estimate; empty for a planned change that lowers the peak alone.
    ///
    /// ```
    /// use remat::memory::Lever;
    /// let change = "--optimizer adam8bit";
    /// let lever = Lever { change, peak: 1 << 20, more_operations: 0.02, keeps_results: false, is_planned: true };
    /// assert_eq!(lever.price(), "2 % more operations, other results");
    /// ```
    pub fn price(&self) -> String {
        let more = format!("{:.0} % more operations", 100.0 * self.more_operations);
        let all = [
            (self.more_operations >= 0.005, &*more),
            (!self.keeps_results, "other results"),
            (!self.is_planned, "estimated"),
        ];
        all.into_iter().filter_map(|(is_true, text)| is_true.then_some(text)).collect::<Vec<_>>().join(", ")
    }
}

/// The parts, then the changes that lower the peak:
///
/// ```text
/// peak 29.42 MiB, of which
///   parameters          1.18 MiB    4 %
///   optimizer state     2.35 MiB    8 %
///   activations        25.69 MiB   87 %
///   ..
/// saved for the backward pass: 21.64 MiB
/// lower peaks:
/// > recompute everything in block    15.16 MiB  -48 %, 24 % more operations
///   parameters in bf16               15.64 MiB  -47 %, other results
///   ..
/// without a policy, a memory limit of 15.16 MiB: 15.10 MiB, 8.3 % more time by the cost model
/// ```
impl fmt::Display for TrainingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peak {}, of which", readable_bytes(self.peak))?;
        for part in Part::ALL.into_iter().filter(|&part| self.bytes(part) > 0) {
            let bytes = self.bytes(part);
            write!(f, "\n  {part:<15}  {:>11}  {:>3.0} %", readable_bytes(bytes), share(bytes, self.peak))?;
        }
        write!(f, "\nsaved for the backward pass: {}", readable_bytes(self.saved))?;
        let lower: Vec<&Lever> = self.lower().collect();
        f.write_str(if lower.is_empty() {
            "\nno change that was tried lowers the peak by 1 % or more"
        } else {
            "\nlower peaks:"
        })?;
        let width = lower.iter().map(|lever| lever.change.to_string().chars().count()).max().unwrap_or(0);
        for lever in lower {
            let mark = if self.best().is_some_and(|best| std::ptr::eq(best, lever)) { '>' } else { ' ' };
            let (change, peak) = (lever.change.to_string(), readable_bytes(lever.peak));
            let saved = share(self.peak - lever.peak, self.peak);
            write!(f, "\n{mark} {change:<width$}  {peak:>11}  -{saved:.0} %")?;
            let price = lever.price();
            if !price.is_empty() {
                write!(f, ", {price}")?;
            }
        }
        if let Some(PlannedStep { limit, peak, overhead }) = self.planned {
            let [limit, peak] = [limit, peak].map(readable_bytes);
            let more = 100.0 * overhead;
            write!(
                f,
                "\nwithout a policy, a memory limit of {limit}: {peak}, {more:.1} % more time by the cost model"
            )?;
        }
        if let Some(note) = &self.note {
            write!(f, "\na policy was not tried: {note}")?;
        }
        Ok(())
    }
}

/// A share in per cent.
fn share(bytes: usize, all: usize) -> f64 {
    100.0 * bytes as f64 / all.max(1) as f64
}
