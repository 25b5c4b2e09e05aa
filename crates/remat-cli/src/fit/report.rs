//! The rows as a table and as JSON.

use std::fmt;

use anyhow::Result;
use remat::report::readable_bytes;
use remat_command::table::{readable_seconds, table, thousands};
use remat_command::text::message;
use serde::Serialize;
use serde_json::Value;

use super::row::{Row, chosen};
use super::step::Step;
use crate::config::Form;

/// The results, and their subject.
#[derive(Clone, Serialize)]
pub(super) struct Table {
    /// As it was named.
    pub(super) name: String,
    /// The `config.json` of the model.
    pub(super) model: Value,
    #[serde(skip)]
    described: String,
    /// The number of parameters.
    pub(super) parameters: u64,
    /// Of activations.
    pub(super) dtype: String,
    /// Of the weights.
    pub(super) parameter_dtype: String,
    pub(super) optimizer: String,
    /// 0 if gradients are not clipped.
    pub(super) clip_norm: f64,
    /// Whether a run of these settings would have a memory limit, which the figures do not know.
    without_limit: bool,
    pub(super) layers_as: Form,
    /// Sequences per batch, and batches per step.
    pub(super) batch: usize,
    pub(super) accumulate: usize,
    pub(super) context: usize,
    pub(super) rows: Vec<Row>,
    /// Indices of the chosen rows, one for each target on which some policy fits.
    pub(super) chosen: Vec<usize>,
}

impl Table {
    /// # Errors
    /// If the sizes of the model are not valid.
    pub(super) fn new(step: &Step, rows: Vec<Row>) -> Result<Table> {
        let Step { config, architecture, .. } = step;
        Ok(Table {
            name: message(&config.from.as_ref().map_or(config.model.clone(), |path| path.display().to_string())),
            model: serde_json::from_str(&architecture.to_json())?,
            described: architecture.to_string(),
            parameters: step.count()?,
            dtype: step.dtype().to_string(),
            parameter_dtype: step.parameters.to_string(),
            optimizer: step.optimizer(),
            clip_norm: if step.updates { config.clip_norm } else { 0.0 },
            without_limit: config.memory_limit.is_some(),
            layers_as: config.layers_as,
            batch: config.batch,
            accumulate: config.accumulate,
            context: step.context(),
            chosen: chosen(&rows),
            rows,
        })
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The compiled model and step, in a line.
    pub(super) fn title(&self) -> String {
        let Table { name, parameter_dtype, described, dtype, batch, context, optimizer, clip_norm, .. } = self;
        let parameters = thousands(self.parameters as usize);
        let clip = if *clip_norm > 0.0 { format!(", gradients clipped to {clip_norm}") } else { String::new() };
        let several =
            if self.accumulate > 1 { format!(", {} batches per step", self.accumulate) } else { String::new() };
        let limit = if self.without_limit { ", without its memory limit" } else { "" };
        format!(
            "{name}: {parameters} parameters of {parameter_dtype} ({described}), computed in {dtype}, batch {batch}{several}, context {context}, \
             optimizer {optimizer}{clip}{limit}"
        )
    }

    /// The rows of each target, with their indices.
    pub(super) fn targets(&self) -> Vec<Vec<(usize, &Row)>> {
        let mut targets: Vec<Vec<(usize, &Row)>> = Vec::new();
        for (i, row) in self.rows.iter().enumerate() {
            match targets.last_mut().filter(|rows| rows[0].1.target == row.target) {
                Some(rows) => rows.push((i, row)),
                None => targets.push(vec![(i, row)]),
            }
        }
        targets
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        let header = [
            "  policy",
            "peak",
            "parameters",
            "optimizer",
            "activations",
            "on the host",
            "TFLOP",
            "again",
            "at least",
            "fits",
            "largest batch",
            "level",
        ];
        for rows in self.targets() {
            let (_, first) = rows[0];
            let per = if first.chips > 1 { " on each chip" } else { "" };
            writeln!(f, "\n{} has {}{per}", first.target, readable_bytes(first.capacity as usize))?;
            let cells = rows.iter().map(|(i, row)| cells(row, self.chosen.contains(i))).collect::<Vec<_>>();
            writeln!(f, "\n{}", table(&header, &cells))?;
            for (_, row) in rows.iter().filter(|(_, row)| row.peak.is_none()) {
                writeln!(f, "note: {}: {}", row.policy, row.error.as_deref().unwrap_or("no figures"))?;
            }
            if let Some(note) = note(rows.iter().map(|(_, row)| *row)) {
                writeln!(f, "{note}")?;
            }
        }
        Ok(())
    }
}

/// What to do if no policy is known to fit.
fn note<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Option<&'static str> {
    if rows.clone().any(Row::fits) {
        return None;
    }
    Some(if rows.clone().all(Row::is_failed) {
        "it is not known whether a policy fits: no program was compiled"
    } else if rows.clone().any(Row::is_failed) {
        "no policy is known to fit, and some programs were not compiled"
    } else if rows.clone().any(|row| row.largest_batch.is_some()) {
        "no policy fits at this batch; the largest batches are in the table"
    } else {
        "no policy fits; a smaller batch or more chips may"
    })
}

/// The largest batch, marked if it was found at a level at which a program takes a little more or less memory than in full.
pub(super) fn largest(row: &Row) -> String {
    let mark = if row.largest_batch_level == Some("fast") { "~" } else { "" };
    row.largest_batch.map(|batch| format!("{mark}{}", thousands(batch))).unwrap_or_default()
}

/// A row as a line, to show progress.
pub(super) fn line(row: &Row) -> String {
    let Row { target, policy, level, compile_seconds, .. } = row;
    let found = match (&row.error, row.peak) {
        (error, None) => error.clone().unwrap_or_else(|| "no figures".to_string()),
        (_, Some(peak)) => {
            let [peak, capacity] = [peak, row.capacity].map(|bytes| readable_bytes(bytes as usize));
            format!("{peak} of {capacity}, which {}", if row.fits() { "fits" } else { "does not fit" })
        }
    };
    let largest = row.largest_batch.map(|_| format!(", the largest batch is {}", largest(row))).unwrap_or_default();
    format!("{target}  {policy}: {found}{largest} ({level}, {})", readable_seconds(*compile_seconds))
}

fn cells(row: &Row, is_chosen: bool) -> Vec<String> {
    let bytes = |bytes: u64| readable_bytes(bytes as usize);
    let some = |count: Option<u64>| count.map_or("?".to_string(), bytes);
    let unless_zero = |count: u64| if count == 0 { String::new() } else { bytes(count) };
    // If a compiler refuses a program, it reports the bytes it needs, to two digits.
    let about = if row.error.is_some() && row.peak.is_some() { "~" } else { "" };
    vec![
        format!("{}{}", if is_chosen { "> " } else { "  " }, row.policy),
        format!("{about}{}", some(row.peak)),
        bytes(row.parameters),
        unless_zero(row.optimizer),
        format!("{about}{}", some(row.activations)),
        unless_zero(row.host),
        format!("{:.1}", row.flops as f64 / 1e12),
        format!("{:.0}%", 100.0 * row.recompute),
        readable_seconds(row.seconds),
        row.fits.map_or("?", |fits| if fits { "yes" } else { "no" }).to_string(),
        largest(row),
        row.level.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lines_while_the_table_is_made() {
        let row = Row { compile_seconds: 2.0, ..Row::example("dots", 8, 1, 1 << 30, 2 << 30) };
        let fits = Row { peak: Some(1 << 30), fits: Some(true), largest_batch: Some(1234), ..row.clone() };
        let expected = "tpu-v5e  dots: 1.00 GiB of 2.00 GiB, which fits, the largest batch is 1,234 (fast, 2.00 s)";
        assert_eq!(line(&fits), expected);
        let about = Row { largest_batch_level: Some("fast"), ..fits };
        assert!(line(&about).contains("the largest batch is ~1,234 (fast"), "{}", line(&about));
        let large = Row { peak: Some(3 << 30), error: Some("no".into()), ..row.clone() };
        assert_eq!(line(&large), "tpu-v5e  dots: 3.00 GiB of 2.00 GiB, which does not fit (fast, 2.00 s)");
        assert_eq!(line(&Row { error: Some("no".into()), ..row }), "tpu-v5e  dots: no (fast, 2.00 s)");
    }

    #[test]
    fn rows_that_do_not_fit_say_about_how_much_they_need() {
        let row = Row { peak: Some(3 << 30), error: Some("no".into()), ..Row::example("dots", 8, 1, 1 << 30, 2 << 30) };
        let cells = cells(&row, false);
        assert_eq!(cells[..2], ["  dots", "~3.00 GiB"]);
        assert_eq!(cells[9], "no");
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let row = Row::example("dots", 8, 1, 1, 2);
        let unknown = Row { fits: None, error: Some("too slow".into()), ..row.clone() };
        assert_eq!(cells(&unknown, false)[9], "?");
        let note = |rows: &[&Row]| note(rows.iter().copied());
        assert_eq!(note(&[&unknown]), Some("it is not known whether a policy fits: no program was compiled"));
        assert_eq!(note(&[&unknown, &row]), Some("no policy is known to fit, and some programs were not compiled"));
        assert_eq!(note(&[&row]), Some("no policy fits; a smaller batch or more chips may"));
        let searched = Row { largest_batch: Some(3), ..row.clone() };
        assert_eq!(
            note(&[&row, &searched]),
            Some("no policy fits at this batch; the largest batches are in the table")
        );
        assert_eq!(note(&[&unknown, &Row { fits: Some(true), ..row.clone() }]), None);
    }
}
