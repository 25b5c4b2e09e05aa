//! What an engine decides so that a program fits its memory limit: which steps run again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Error, ErrorKind, LiveValue, Result};

/// The steps of a program in the order in which they run, some of them several times, as an engine numbers them.
///
/// The same engine of the same version compiles the same program for the same number of threads from it, without a search
/// ([`CompileOptions::schedule`](crate::CompileOptions::schedule)). The numbers mean nothing to others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StepSchedule {
    /// The form of the steps, of which an engine may have several.
    pub form: u32,
    /// The step of each run.
    pub runs: Vec<u32>,
    /// The bytes of a call for which it was chosen. The engine changes the steps further as far as a call then still fits.
    pub limit: usize,
}

/// The most runs of a schedule that is read from text.
const MOST_RUNS: usize = 1 << 22;

/// The form, the limit, then the runs, with a range for steps one after the other. It can be read again.
///
/// ```
/// use remat_ir::StepSchedule;
/// let schedule = StepSchedule { form: 1, limit: 4096, runs: vec![0, 1, 2, 1, 3] };
/// assert_eq!(schedule.to_string(), "form 1 limit 4096 runs 0-2 1 3");
/// assert_eq!("form 1 limit 4096 runs 0-2 1 3".parse::<StepSchedule>()?, schedule);
/// # Ok::<(), remat_ir::Error>(())
/// ```
impl fmt::Display for StepSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepSchedule { form, runs, limit } = self;
        write!(f, "form {form} limit {limit} runs")?;
        for range in runs.chunk_by(|run, next| run.checked_add(1) == Some(*next)) {
            match range {
                [run] => write!(f, " {run}")?,
                [first, .., last] => write!(f, " {first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl FromStr for StepSchedule {
    type Err = Error;

    /// # Errors
    /// If the text is not that of a schedule, or has more than four million runs.
    fn from_str(text: &str) -> Result<StepSchedule> {
        let wrong = |message: String| Error::new(ErrorKind::Parse, "schedule", message);
        let number =
            |word: &str| word.parse::<u32>().map_err(|_| wrong(format!("`{word}` is not the number of a step")));
        let mut words = text.split(' ');
        let head = [(); 5].map(|()| words.next());
        let [Some("form"), Some(form), Some("limit"), Some(limit), Some("runs")] = head else {
            return Err(wrong("`form`, its number, `limit`, its bytes and `runs` are expected".to_string()));
        };
        let limit = limit.parse().map_err(|_| wrong(format!("`{limit}` is not a number of bytes")))?;
        let (form, mut runs) = (number(form)?, Vec::new());
        for word in words {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (number(first)?, number(last)?);
            if last < first || (last - first) as usize >= MOST_RUNS - runs.len().min(MOST_RUNS) {
                return Err(wrong(format!("`{word}` is not a range of steps, or there are too many of them")));
            }
            runs.extend(first..=last);
        }
        Ok(StepSchedule { form, runs, limit })
    }
}

/// A value that a program computes several times.
#[derive(Clone, Debug)]
pub struct RecomputedValue {
    /// The value: its bytes, its name, and the operation that computes it.
    pub value: LiveValue,
    /// How many times it is computed after the first.
    pub times: usize,
    /// The time of these runs by the cost model, in picoseconds. If a step computes several values, each has an equal part of it.
    pub time: u64,
}

/// How a program was made to fit its memory limit.
#[derive(Clone, Debug)]
pub struct Rematerialization {
    /// The steps.
    pub schedule: Arc<StepSchedule>,
    /// The most bytes that a run needs, with arguments, results and overhead, for the caller for whom the program was planned.
    pub peak: usize,
    /// The time of a run by the cost model, in picoseconds.
    pub time: u64,
    /// The time of a run without a limit.
    pub unlimited_time: u64,
    /// The picoseconds that steps which run again take at least, in any plan of these steps for these bytes in which they first run in the same
    /// order. Compare it with [`Rematerialization::repeated`].
    pub bound: u64,
    /// The values that are computed several times, those that take the most time first.
    pub recomputed: Vec<RecomputedValue>,
}

impl Rematerialization {
    /// The time beyond that without a limit, as a share of it: 0.1 for a tenth more.
    pub fn overhead(&self) -> f64 {
        self.share(self.time) - 1.0
    }

    /// A number of picoseconds as a share of the time without a limit.
    pub fn share(&self, time: u64) -> f64 {
        time as f64 / self.unlimited_time.max(1) as f64
    }

    /// The picoseconds that the steps which run again take. Changes of steps that save time come after it: the whole overhead may be less.
    pub fn repeated(&self) -> u64 {
        self.recomputed.iter().map(|value| value.time).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_they_are_written() {
        let most = u32::MAX;
        for runs in [vec![], vec![0], vec![0, 1], vec![3, 2, 1, 2, 3, 3, 4], vec![most - 1, most, 0, most]] {
            let schedule = StepSchedule { form: 7, limit: 1 << 40, runs };
            assert_eq!(schedule.to_string().parse::<StepSchedule>().ok(), Some(schedule));
        }
    }

    #[test]
    fn other_texts_are_errors() {
        let wrong = ["", "limit 1", "0 run 1", "runs 1", "0 limit x runs 1", "0 limit 1 runs 1 ", "0 limit 1 runs 2-1"];
        for text in wrong.into_iter().chain(["x limit 1 runs 1", "0 limit -1 runs 1"]).chain([
            "-1",
            "1-",
            "1-2-3",
            "4294967296",
        ]) {
            let text = if text.contains(' ') { format!("form {text}") } else { format!("form 0 limit 1 runs {text}") };
            let kind = text.parse::<StepSchedule>().err().map(|error| error.kind());
            assert_eq!(kind, Some(ErrorKind::Parse), "{text}");
        }
        // Too many runs would take all memory.
        assert!("form 0 limit 1 runs 0-4294967295".parse::<StepSchedule>().is_err());
        let many = ["0-4194303"; 2].join(" ");
        assert!(format!("form 0 limit 1 runs {many}").parse::<StepSchedule>().is_err());
        let most: Option<StepSchedule> = "form 0 limit 1 runs 0-4194303".parse().ok();
        assert_eq!(most.map(|schedule| schedule.runs.len()), Some(MOST_RUNS));
    }
}
