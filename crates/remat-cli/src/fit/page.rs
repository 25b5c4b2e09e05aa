//! A page with a chart of memory against time for each target.

use anyhow::Result;
use minijinja::context;
use remat::report::readable_bytes;
use remat_command::table::readable_seconds;

use crate::page::chart::{Axis, Point, scatter};
use crate::page::{render, row};

use super::report::{Table, largest};
use super::row::Row;

/// The page, which is self-contained.
///
/// # Errors
/// If a chart cannot be drawn.
pub(super) fn page(table: &Table) -> Result<String> {
    let mut targets = Vec::new();
    for rows in table.targets() {
        let (_, first) = rows[0];
        let title = format!("{}: {}", first.target, readable_bytes(first.capacity as usize));
        let plain: Vec<&Row> = rows.iter().map(|(_, row)| *row).collect();
        let shown: Vec<_> = rows.iter().map(|(i, of)| row(cells(of), table.chosen.contains(i))).collect();
        targets.push(context! { title, chart => chart(&plain)?, rows => shown });
    }
    render("fit.html", context! { title => "Does it fit?", model => table.title(), targets })
}

fn cells(row: &Row) -> Vec<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or("?".to_string(), |bytes| readable_bytes(bytes as usize));
    vec![
        row.policy.clone(),
        bytes(row.peak),
        bytes(row.activations),
        format!("{:.0}%", 100.0 * row.recompute),
        readable_seconds(row.seconds),
        largest(row),
    ]
}

/// A chart of a target's rows: bytes to the right, seconds upwards.
fn chart(rows: &[&Row]) -> Result<String> {
    let point = |row: &&Row| {
        let label = row.policy.clone();
        row.peak.map(|peak| Point { x: peak as f64, y: row.seconds, label, is_filled: row.fits() })
    };
    let points: Vec<Point> = rows.iter().filter_map(point).collect();
    // Some targets report no limit of memory.
    let capacity = Some(rows[0].capacity as f64).filter(|capacity| *capacity < 1e18);
    let x = Axis::bytes("bytes at the peak, on each chip");
    let y = Axis::new("time of a step, at least", &readable_seconds);
    scatter(&points, capacity, &x, &y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_with_a_peak_is_a_point() {
        let row = |policy: &str, peak| Row { peak, ..Row::example(policy, 8, 1, 100, 1000) };
        let rows = [row("none", Some(2000)), row("a<b", Some(900)), row("failed", None)];
        let svg = chart(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a&lt;b"), "{svg}");
    }
}
