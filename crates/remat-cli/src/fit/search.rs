//! Searches for the largest batch that fits, with few compilations.

use anyhow::Result;

use super::row::Row;

/// A search for the largest batch that fits. Memory is nearly linear in the batch, and two batches give the line. The batch at which it
/// meets the capacity is compiled, which shows the error of the line. If one more sequence exceeds the capacity by more than this error, it
/// is not compiled.
pub(super) struct Search {
    /// A batch is a multiple of this number of chips.
    unit: usize,
    /// Bytes that do not depend on the batch, as far as they are known before a second batch is tried.
    fixed: u64,
    capacity: u64,
    /// The last two batches with known bytes, the last one first.
    points: Vec<(usize, u64)>,
    /// The bytes that the line predicts for the current batch, and its error for the last one.
    expected: Option<f64>,
    wrong_by: Option<f64>,
    /// The largest batch that fits, and the smallest that does not.
    fits: Option<usize>,
    /// The level of the compiler for the batch that fits.
    level: Option<&'static str>,
    too_large: Option<usize>,
    left: usize,
}

/// What a search found.
#[derive(PartialEq, Debug)]
pub(super) struct Found {
    pub(super) batch: Option<usize>,
    pub(super) level: Option<&'static str>,
    /// Why the search ended early, if it did.
    pub(super) failure: Option<String>,
}

/// The most batches that a search tries.
const MOST_TRIED: usize = 8;

impl Search {
    /// A search that starts from a row of the table.
    pub(super) fn new(row: &Row) -> Search {
        let mut search = Search {
            unit: row.chips,
            fixed: row.parameters + row.optimizer,
            capacity: row.capacity,
            points: Vec::new(),
            expected: None,
            wrong_by: None,
            fits: None,
            level: None,
            too_large: None,
            left: MOST_TRIED,
        };
        search.tried(row);
        search
    }

    /// The bytes without a batch, and per sequence.
    fn line(&self) -> (f64, f64) {
        let fixed = self.fixed as f64;
        let through = |n: usize, bytes: u64| (fixed, (bytes as f64 - fixed).max(1.0) / n as f64);
        match self.points[..] {
            [(n, bytes), (other, of_other), ..] => {
                let slope = (bytes as f64 - of_other as f64) / (n as f64 - other as f64);
                // If a larger batch takes no more than a smaller one, as when only one was compiled at full effort, only the last one
                // counts.
                if slope > 0.0 { (bytes as f64 - slope * n as f64, slope) } else { through(n, bytes) }
            }
            [(n, bytes)] => through(n, bytes),
            [] => (fixed, 1.0),
        }
    }

    /// The batch to try next, if there is one.
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let units = |batch: usize| batch / self.unit;
        let low = self.fits.map_or(0, units);
        let high = self.too_large.map_or(usize::MAX, units);
        if high - low <= 1 {
            return None;
        }
        let (none, slope) = self.line();
        let expected = |units: usize| none + slope * self.unit as f64 * units as f64;
        if let Some(wrong_by) = self.wrong_by
            && expected(low + 1) - 2.0 * wrong_by > self.capacity as f64
        {
            return None;
        }
        let guess = units(((self.capacity as f64 - none).max(0.0) / slope) as usize).clamp(low + 1, high - 1);
        self.expected = (self.points.len() > 1).then(|| expected(guess));
        Some(guess.saturating_mul(self.unit))
    }

    /// Records a result.
    fn tried(&mut self, row: &Row) {
        if let Some(peak) = row.peak {
            self.wrong_by = self.expected.take().map(|expected| (peak as f64 - expected).abs());
            self.points.retain(|&(batch, _)| batch != row.batch);
            self.points.insert(0, (row.batch, peak));
            self.points.truncate(2);
        }
        if row.fits() {
            self.fits = Some(row.batch);
            self.level = Some(row.level);
        } else {
            self.too_large = Some(row.batch);
        }
    }

    /// The largest batch that fits, according to rows computed by `row`, and the level of its row. If the compiler or the trace fails for a
    /// batch, the search ends, and the reason is returned too.
    pub(super) fn run(mut self, mut row: impl FnMut(usize) -> Result<Row>) -> Found {
        let mut failure = None;
        while let Some(batch) = self.next() {
            let why = match row(batch) {
                Ok(row) if !row.is_failed() => {
                    self.tried(&row);
                    continue;
                }
                Ok(row) => row.error.unwrap_or_default(),
                Err(error) => format!("{error:#}"),
            };
            failure = Some(format!("batch {batch}: {why}"));
            break;
        }
        if failure.is_none()
            && let (Some(fits), Some(too_large)) = (self.fits, self.too_large)
            && self.left == 0
            && too_large - fits > self.unit
        {
            failure = Some(format!("a batch of {fits}, which fits; {too_large} does not"));
        }
        Found { batch: self.fits, level: self.level, failure }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_search_finds_the_largest_batch() {
        for (unit, batch) in [(1, 8), (8, 8), (4, 400), (1, 1)] {
            for largest in [1, 7, 8, 23, 24, 25, 100, 1000] {
                // 1,000 bytes fixed, 10 per sequence, and a quadratic term: not quite a line.
                let bytes = |n: usize| 1000 + 10 * n as u64 + (n * n / 300) as u64;
                let row = |batch: usize| Row {
                    fits: Some(bytes(batch) <= bytes(largest)),
                    peak: Some(bytes(batch)),
                    ..Row::example("", batch, unit, 1000, bytes(largest))
                };
                let found = Search::new(&row(batch)).run(|batch| Ok(row(batch)));
                let expected = Some(largest / unit * unit).filter(|&batch| batch > 0);
                assert_eq!((found.batch, found.failure), (expected, None), "{unit} {batch} {largest}");
            }
        }
    }

    /// Temporaries that do not depend on the batch are unknown at first: one batch reveals them, and the next is the answer.
    #[test]
    fn a_line_needs_two_compilations() {
        let row = |batch: usize| {
            let bytes = 2000 + 10 * batch as u64;
            Row { fits: Some(bytes <= 12_345), peak: Some(bytes), ..Row::example("", batch, 1, 1000, 12_345) }
        };
        let mut tried = Vec::new();
        let found = Search::new(&row(8)).run(|batch| {
            tried.push(batch);
            Ok(row(batch))
        });
        assert_eq!((found.batch, found.level, found.failure), (Some(1034), Some("fast"), None));
        assert_eq!(tried, [84, 1034]);
    }

    /// A step that does not fit at the fast level is compiled at full effort, which takes less memory: the two are not on one line.
    #[test]
    fn a_line_that_falls_is_not_followed() {
        const MIB: u64 = 1 << 20;
        let row = |batch: usize| {
            let fast = 3072 * MIB + 150 * MIB * batch as u64;
            let bytes = if fast > 16_128 * MIB { fast * 88 / 100 } else { fast };
            Row {
                fits: Some(bytes <= 16_128 * MIB),
                peak: Some(bytes),
                ..Row::example("", batch, 1, 3072 * MIB, 16_128 * MIB)
            }
        };
        let mut tried = Vec::new();
        let found = Search::new(&row(84)).run(|batch| {
            tried.push(batch);
            Ok(row(batch))
        });
        assert_eq!((found.batch, found.failure), (Some(101), None), "{tried:?}");
        assert!(tried.iter().all(|&batch| batch < 200), "{tried:?}");
    }

    /// A failure says nothing about memory: larger batches are not tried, and smaller ones are not the answer.
    #[test]
    fn a_search_ends_at_a_failure() {
        let row = |batch: usize| Row {
            fits: Some(true),
            peak: Some(10 * batch as u64),
            ..Row::example("", batch, 1, 0, 1000)
        };
        let mut tried = Vec::new();
        let late = |batch: usize| Row { error: Some("too slow".into()), fits: None, ..row(batch) };
        let found = Search::new(&row(8)).run(|batch| {
            tried.push(batch);
            Ok(late(batch))
        });
        assert_eq!((found.batch, found.failure.as_deref(), tried), (Some(8), Some("batch 100: too slow"), vec![100]));
        let found = Search::new(&row(8)).run(|_| bail!("too large to trace"));
        assert_eq!((found.batch, found.failure.as_deref()), (Some(8), Some("batch 100: too large to trace")));
    }
}
