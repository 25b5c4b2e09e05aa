//! A page with a chart of memory against time for each target.

use std::fmt::Write;

use remat::report::readable_bytes;

use super::report::{Table, readable_seconds};
use super::row::Row;

/// The size of a chart, and the room for its labels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.3em}h2{font-size:1.1em;margin-top:2em}svg{width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:#444}\
table{border-collapse:collapse;font-size:13px}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}.chosen{font-weight:bold}.grid{stroke:#e5e5e5}.limit{stroke:#c0392b;stroke-dasharray:6 4}\
.fits{fill:#1f77b4}.not{fill:#fff;stroke:#c0392b;stroke-width:2}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}text{fill:#bbb}.grid{stroke:#333}td,th{border-color:#333}.not{fill:#161616}}";

/// The page, which needs no other file.
pub(super) fn page(table: &Table) -> String {
    let mut html =
        String::from("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>remat fit</title>\n");
    let _ = writeln!(html, "<style>{STYLE}</style>\n<h1>Does it fit?</h1>\n<p>{}</p>", escaped(&table.title()));
    for rows in table.targets() {
        let first = rows[0].1;
        let capacity = readable_bytes(first.capacity as usize);
        let _ = writeln!(html, "<h2>{}: {capacity}</h2>", escaped(&first.target));
        let plain: Vec<&Row> = rows.iter().map(|(_, row)| *row).collect();
        html += &chart(&plain);
        html += "<table><tr><th>policy<th>peak<th>activations<th>again<th>at least<th>largest batch</tr>\n";
        for (i, row) in &rows {
            let class = if table.chosen.contains(i) { " class=\"chosen\"" } else { "" };
            let bytes = |bytes: Option<u64>| bytes.map_or("?".to_string(), |bytes| readable_bytes(bytes as usize));
            let batch = row.largest_batch.map(|batch| batch.to_string()).unwrap_or_default();
            let _ = writeln!(
                html,
                "<tr{class}><td>{}<td>{}<td>{}<td>{:.0}%<td>{}<td>{batch}</tr>",
                escaped(&row.policy),
                bytes(row.peak),
                bytes(row.activations),
                100.0 * row.recompute,
                readable_seconds(row.seconds),
            );
        }
        html += "</table>\n";
    }
    html += "<p>The time is the least that the published rates of the chip allow. Bold is the fastest policy that fits.</p>\n";
    html
}

/// The rows of a target as points: bytes to the right, seconds upwards.
fn chart(rows: &[&Row]) -> String {
    let points: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((*row, row.peak? as f64))).collect();
    let capacity = rows[0].capacity as f64;
    let known = if capacity < 1e18 { capacity } else { 0.0 };
    let most_bytes = 1.1 * points.iter().map(|(_, peak)| *peak).fold(known, f64::max).max(1.0);
    let most_seconds = 1.2 * rows.iter().map(|row| row.seconds).fold(0.0, f64::max).max(1e-9);
    let x = |bytes: f64| LEFT + (WIDTH - LEFT - RIGHT) * bytes / most_bytes;
    let y = |seconds: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * seconds / most_seconds;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
    for tick in 0..=4 {
        let part = f64::from(tick) / 4.0;
        let (at_x, at_y) = (x(part * most_bytes), y(part * most_seconds));
        let bytes = readable_bytes((part * most_bytes) as usize);
        let seconds = readable_seconds(part * most_seconds);
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let _ = writeln!(svg, "<line class=\"grid\" x1=\"{at_x:.1}\" y1=\"{TOP}\" x2=\"{at_x:.1}\" y2=\"{bottom}\"/>");
        let _ = writeln!(svg, "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at_y:.1}\" x2=\"{right}\" y2=\"{at_y:.1}\"/>");
        let _ = writeln!(svg, "<text x=\"{at_x:.1}\" y=\"{}\" text-anchor=\"middle\">{bytes}</text>", bottom + 18.0);
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{seconds}</text>", LEFT - 8.0, at_y + 4.0);
    }
    if known > 0.0 {
        let at = x(known);
        let bottom = HEIGHT - BOTTOM;
        let _ = writeln!(svg, "<line class=\"limit\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>");
    }
    // Labels of points that are near each other would hide one another.
    let mut labels: Vec<(f64, f64)> = Vec::new();
    for (row, peak) in points {
        let (at_x, at_y) = (x(peak), y(row.seconds));
        let mut label = at_y + 4.0;
        while labels.iter().any(|(x, y)| (x - at_x).abs() < 160.0 && (y - label).abs() < 14.0) {
            label -= 14.0;
        }
        labels.push((at_x, label));
        let class = if row.fits { "fits" } else { "not" };
        let _ = writeln!(svg, "<circle class=\"{class}\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"6\"/>");
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{label:.1}\">{}</text>", at_x + 10.0, escaped(&row.policy));
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">bytes at the peak, on each chip</text>\n</svg>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0
    );
    svg
}

/// Text in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_with_a_peak_is_a_point() {
        let row = |policy: &str, peak| Row { peak, ..Row::example(policy, 8, 1, 100, 1000) };
        let rows = [row("none", Some(2000)), row("a<b", Some(900)), row("failed", None)];
        let svg = chart(&rows.iter().collect::<Vec<_>>());
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a&lt;b") && svg.contains("class=\"limit\""), "{svg}");
    }
}
