//! The measurements of a run, read back from their lines of JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// The numbers of a run by name, each with the steps at which it was measured.
#[derive(Default)]
pub(super) struct Series(BTreeMap<String, Vec<(f64, f64)>>);

impl Series {
    /// The numbers in a file with one object per line, whose `step` is the step of the measurement. Values that are not numbers, and
    /// lines that are incomplete or damaged, are skipped.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn read(path: &Path) -> Result<Series> {
        let text = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let mut series = Series::default();
        for line in text.split(|&byte| byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Map<String, Value>>(line) else { continue };
            let Some(step) = line.get("step").and_then(Value::as_f64) else { continue };
            for (name, value) in line.iter().filter(|(name, _)| *name != "step") {
                if let Some(value) = value.as_f64() {
                    series.0.entry(name.clone()).or_default().push((step, value));
                }
            }
        }
        Ok(series)
    }

    /// The numbers of this name, in the order of steps.
    pub(super) fn of(&self, name: &str) -> &[(f64, f64)] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Exponential moving averages of the numbers, since some batches are easier than others.
pub(super) fn smoothed(points: &[(f64, f64)], kept: f64) -> Vec<(f64, f64)> {
    let (mut sum, mut weight) = (0.0, 0.0);
    let finite = points.iter().filter(|(_, value)| value.is_finite());
    finite
        .map(|(step, value)| {
            sum = kept * sum + value;
            weight = kept * weight + 1.0;
            (*step, sum / weight)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_name_and_other_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let lines = b"{\"step\":1,\"loss\":2.5,\"note\":\"x\"}\n{\"step\":2,\"loss\":null,\"rate\":7}\nnot json\n{\"step\":2,\"l\xff\":1}\n[1]\n{\"loss\":1.0}\n{\"step\":3,\"lo";
        fs::write(&path, lines).unwrap();
        let series = Series::read(&path).unwrap();
        assert_eq!(series.of("loss"), [(1.0, 2.5)]);
        assert_eq!(series.of("rate"), [(2.0, 7.0)]);
        assert!(series.of("note").is_empty() && series.of("step").is_empty());
        assert!(Series::read(&folder.path().join("none")).is_err_and(|error| error.to_string().contains("none")));
    }

    #[test]
    fn smoothing_begins_at_the_first_number() {
        assert_eq!(smoothed(&[(1.0, 4.0), (2.0, f64::NAN), (3.0, 1.0)], 0.5), [(1.0, 4.0), (3.0, 2.0)]);
        assert_eq!(smoothed(&[], 0.5), []);
    }
}
