//! A row of the table: one policy on one target.

use serde::Serialize;

/// The result of a policy on a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) target: String,
    pub(crate) chips: usize,
    pub(crate) policy: String,
    /// Sequences per batch, on all chips together. A step may have several batches.
    pub(crate) batch: usize,
    /// Bytes on each chip that are live at the peak; a lower bound if the compiler refused the program for its memory.
    pub(crate) peak: Option<u64>,
    /// Bytes of parameters at the peak.
    pub(crate) parameters: u64,
    /// Bytes of optimizer state at the peak.
    pub(crate) optimizer: u64,
    /// All other bytes of the peak: activations, gradients and the batch.
    pub(crate) activations: Option<u64>,
    /// Bytes of temporaries alone, if the compiler reports them.
    pub(crate) temporaries: Option<u64>,
    /// Bytes that are moved to the host's memory and back.
    pub(crate) host: u64,
    /// Bytes of the chip's memory that a program may take.
    pub(crate) capacity: u64,
    /// Unknown if the compiler failed, for example by a time limit.
    pub(crate) fits: Option<bool>,
    /// Operations of a step on all chips together.
    pub(crate) flops: u64,
    /// By how much the flops of products exceed those of a step without recomputation.
    pub(crate) recompute: f64,
    /// The least seconds of a step, by the published rates.
    pub(crate) seconds: f64,
    /// The largest batch that fits, if it was searched for.
    pub(crate) largest_batch: Option<usize>,
    /// The effort of the compiler for that batch; at `fast` the batch may not quite fit in full.
    pub(crate) largest_batch_level: Option<&'static str>,
    /// The effort of the compiler.
    pub(crate) level: &'static str,
    /// Seconds that the compiler took.
    pub(crate) compile_seconds: f64,
    /// Why there are no figures, or why the step does not fit.
    pub(crate) error: Option<String>,
}

impl Row {
    /// Whether the step is known to fit.
    pub(crate) fn fits(&self) -> bool {
        self.fits == Some(true)
    }

    /// Whether the compiler failed, so that the memory is unknown.
    pub(crate) fn is_failed(&self) -> bool {
        self.fits.is_none()
    }
}

/// The best row of each target: of those that fit, the one with the least time, then the fewest bytes that move to the host, since the time
/// does not count what they cost beside other work, and then the least memory.
pub(crate) fn chosen(rows: &[Row]) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::new();
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.fits()) {
        let key = |row: &Row| (row.seconds, row.host, row.peak.unwrap_or(u64::MAX));
        match best.iter_mut().find(|best| rows[**best].target == row.target) {
            Some(best) if key(row) < key(&rows[*best]) => *best = i,
            Some(_) => {}
            None => best.push(i),
        }
    }
    best
}

#[cfg(test)]
impl Row {
    /// A row for tests.
    pub(crate) fn example(policy: &str, batch: usize, chips: usize, parameters: u64, capacity: u64) -> Row {
        Row {
            target: "tpu-v5e".into(),
            chips,
            policy: policy.into(),
            batch,
            peak: None,
            parameters,
            optimizer: 0,
            activations: None,
            temporaries: None,
            host: 0,
            capacity,
            fits: Some(false),
            flops: 1,
            recompute: 0.0,
            seconds: 1.0,
            largest_batch: None,
            largest_batch_level: None,
            level: "fast",
            compile_seconds: 0.0,
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_fits_is_chosen_of_each_target() {
        let row = |policy: &str, seconds: f64, peak: u64, fits: bool| Row {
            seconds,
            peak: Some(peak),
            fits: Some(fits),
            ..Row::example(policy, 1, 1, 0, 10)
        };
        let rows = [
            row("none", 1.0, 20, false),
            row("dots", 1.5, 9, true),
            row("names", 1.5, 8, true),
            row("nothing", 2.0, 1, true),
        ];
        assert_eq!(chosen(&rows), [2]);
        assert!(chosen(&rows[..1]).is_empty());
        // Of two with the same bound, the one that moves nothing to the host, even if it takes more memory.
        let offloaded = Row { host: 792, ..row("offloaded", 1.5, 2, true) };
        assert_eq!(chosen(&[rows[1].clone(), offloaded]), [0]);
    }
}
