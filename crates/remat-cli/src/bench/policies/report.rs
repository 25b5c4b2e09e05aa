//! The measurements as a table, as JSON, and as a chart of time against memory.

use std::fmt;

use anyhow::Result;
use minijinja::context;
use remat::report::readable_bytes;
use remat_command::table::{readable_seconds, table, thousands};
use serde::Serialize;

use super::Row;
use crate::page::chart::{Axis, Point, scatter};
use crate::page::{address, render, row};
use crate::train::Measured;

const HEADER: [&str; 6] = ["policy", "planned peak", "measured", "step", "of none", "tokens/s"];

/// All policies of a model.
#[derive(Serialize)]
pub(super) struct Table {
    /// The model, in a line.
    pub(super) model: String,
    /// The steps that were timed.
    pub(super) repeat: u32,
    pub(super) rows: Vec<Row>,
    /// The page of the memory of a step, in the folder of the page.
    #[serde(skip)]
    pub(super) memory: Option<String>,
}

impl Table {
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Time against the planned peak.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub(super) fn chart(&self) -> Result<String> {
        let point = |row: &Row| {
            let measured = row.measured.as_ref()?;
            let label = row.policy.clone();
            Some(Point { x: measured.planned? as f64, y: measured.seconds, label, is_filled: true })
        };
        let points: Vec<Point> = self.rows.iter().filter_map(point).collect();
        let x = Axis::bytes("planned peak of a training step");
        scatter(&points, None, &x, &Axis::new("time of a step", &readable_seconds))
    }

    /// A page of HTML.
    ///
    /// # Errors
    /// If the chart cannot be drawn.
    pub(super) fn page(&self) -> Result<String> {
        let rows: Vec<_> = self.rows.iter().map(|of| row(self.cells(of), false)).collect();
        let values = context! {
            title => "Memory against speed, by policy", model => self.model.clone(), chart => self.chart()?, header => HEADER.to_vec(), rows,
            memory => self.memory.as_deref().map(address)
        };
        render("policies.html", values)
    }

    /// The time without a policy.
    fn plain(&self) -> Option<f64> {
        let plain = self.rows.iter().find(|row| row.policy == "none")?;
        plain.measured.as_ref().map(|measured| measured.seconds)
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let Some(Measured { seconds, tokens_per_second, planned, resident }) = row.measured else {
            return vec![row.policy.clone(), "?".into(), "?".into(), "?".into(), String::new(), String::new()];
        };
        let share = self.plain().map(|plain| format!("{:.2}", seconds / plain)).unwrap_or_default();
        let bytes = |bytes: Option<usize>| bytes.map_or_else(|| "?".to_string(), readable_bytes);
        let rate = thousands(tokens_per_second as usize);
        vec![row.policy.clone(), bytes(planned), bytes(resident), readable_seconds(seconds), share, rate]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row)).collect();
        writeln!(f, "{}", table(&HEADER, &cells))?;
        for row in &self.rows {
            if let Some(error) = &row.error {
                writeln!(f, "note: {}: {}", row.policy, error.lines().next().unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let measured = |seconds, planned| {
            Some(Measured {
                seconds,
                tokens_per_second: 1234.5,
                planned: Some(planned),
                resident: Some(planned + 1024),
            })
        };
        let row = |policy: &str, measured, error: Option<&str>| Row {
            policy: policy.into(),
            measured,
            error: error.map(Into::into),
        };
        let rows = vec![
            row("none", measured(0.5, 2048), None),
            row("Nothing", measured(0.6, 1024), None),
            row("Dots", None, Some("too large\nthe rest")),
        ];
        Table { model: "GPT-2".into(), repeat: 3, rows, memory: Some("a&b.memory.html".into()) }
    }

    #[test]
    fn what_failed_is_a_row_with_a_note() {
        let text = table().to_string();
        let expected = "policy   planned peak  measured      step  of none  tokens/s\n\
                        none         2.00 KiB  3.00 KiB  500.0 ms     1.00     1,234\n\
                        Nothing      1.00 KiB  2.00 KiB  600.0 ms     1.20     1,234\n\
                        Dots                ?         ?         ?\n\
                        note: Dots: too large\n";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_chart_has_a_point_for_each_policy_that_ran() {
        assert_eq!(table().chart().unwrap().matches("<circle").count(), 2);
        assert!(
            table().page().unwrap().contains("<td>Nothing<td>1.00 KiB<td>2.00 KiB<td>600.0 ms<td>1.20"),
            "{}",
            table().page().unwrap()
        );
        assert!(
            table().page().unwrap().contains("<a href=\".&#x2f;a%26b.memory.html\">"),
            "{}",
            table().page().unwrap()
        );
        assert!(!Table { memory: None, ..table() }.page().unwrap().contains("href="));
        let json: serde_json::Value = serde_json::from_str(&table().json().unwrap()).unwrap();
        assert_eq!(
            (&json["rows"][1]["planned"], &json["rows"][2]["error"]),
            (&1024.into(), &"too large\nthe rest".into())
        );
    }
}
