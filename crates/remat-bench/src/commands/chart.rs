//! The chart of the README: memory and time of the reference step under each policy, beside JAX.
//!
//! The figures are those of a table of docs/PERFORMANCE.md, so that chart and table cannot differ (a test compares the file with both).

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The first cell of the table.
const TABLE: &str = "the reference step, f32, one round of the disturbed hour";

/// The rows that are drawn, as the table names them: times, and temporaries in MiB. Those of JAX are of the form in which a checkpoint saves.
const ROWS: [[&str; 2]; 2] =
    [["JAX, scanned, s", "its temporaries, MiB"], ["remat, unrolled, s", "its temporaries, MiB"]];

const SIZE: (u32, u32) = (860, 300);

/// Readable on white and on black.
const GREY: RGBColor = RGBColor(128, 128, 128);
const COLORS: [RGBColor; 2] = [RGBColor(150, 150, 150), RGBColor(214, 96, 30)];

/// Arguments of `remat-bench chart`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "docs/step.svg")]
    svg: PathBuf,
    /// The page with the table
    #[arg(long, value_name = "FILE", default_value = "docs/PERFORMANCE.md")]
    figures: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If the page has no such table, or a file cannot be read or written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let page =
        fs::read_to_string(&args.figures).with_context(|| format!("cannot read `{}`", args.figures.display()))?;
    let svg = chart(&page)?;
    fs::write(&args.svg, &svg).with_context(|| format!("cannot write `{}`", args.svg.display()))?;
    Ok(writeln!(out, "wrote {}, {} bytes", args.svg.display(), svg.len())?)
}

/// What the table says of one program under each policy.
struct Series {
    name: &'static str,
    seconds: Vec<f64>,
    mebibytes: Vec<f64>,
}

/// The policies of the table, and its series.
///
/// # Errors
/// If the page has no such table, row or number.
fn figures(page: &str) -> Result<(Vec<String>, Vec<Series>)> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches(['|', ' ']).split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {TABLE} |")));
    let header = lines.next().ok_or_else(|| anyhow!("the page has no table `{TABLE}`"))?;
    let rows: Vec<Vec<String>> = lines.take_while(|line| line.starts_with('|')).map(cells).collect();
    let numbers = |row: &[String]| -> Result<Vec<f64>> {
        row[1..].iter().map(|cell| cell.parse().with_context(|| format!("`{cell}` is not a number"))).collect()
    };
    let mut all = Vec::new();
    for [time, memory] in ROWS {
        let at = rows.iter().position(|row| row[0] == time).ok_or_else(|| anyhow!("the table has no row `{time}`"))?;
        let below = rows.get(at + 1).filter(|row| row[0] == memory);
        let below = below.ok_or_else(|| anyhow!("the row `{time}` is not followed by `{memory}`"))?;
        let name = time.split(',').next().unwrap_or(time);
        all.push(Series { name, seconds: numbers(&rows[at])?, mebibytes: numbers(below)? });
    }
    let policies = cells(header).split_off(1);
    for series in &all {
        ensure!(
            series.seconds.len() == policies.len() && series.mebibytes.len() == policies.len(),
            "a row of `{}` has not one number for each policy",
            series.name
        );
    }
    Ok((policies, all))
}

/// Two panels of bars, the memory on the left and the time on the right, as SVG without a background.
///
/// # Errors
/// If the page has no such table.
fn chart(page: &str) -> Result<String> {
    let (policies, all) = figures(page)?;
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let panels = area.split_evenly((1, 2));
    let drawn = panel(&panels[0], "temporary memory of a training step, MiB", &policies, &all, |s| &s.mebibytes, 0)
        .and_then(|()| panel(&panels[1], "seconds of a training step", &policies, &all, |s| &s.seconds, 2))
        .and_then(|()| Ok(area.present()?));
    drop(panels);
    drop(area);
    drawn.map_err(|error| anyhow!("cannot draw the chart: {error}"))?;
    Ok(svg)
}

fn text<'a>(color: &'a RGBColor, anchor: Pos) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", 16)).color(color).pos(anchor)
}

/// Horizontal bars: for each policy one of each program, with its number.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    policies: &[String],
    all: &[Series],
    numbers: impl Fn(&Series) -> &Vec<f64>,
    decimals: usize,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    const LEFT: i32 = 140;
    const TOP: i32 = 52;
    const BAR: i32 = 18;
    let (width, _) = area.dim_in_pixel();
    let most = all.iter().flat_map(&numbers).copied().fold(1e-9, f64::max);
    let scale = (width as i32 - LEFT - 60) as f64 / most;
    area.draw(&Text::new(title.to_string(), (LEFT - 100, 8), text(&GREY, Pos::new(HPos::Left, VPos::Top))))?;
    for (i, series) in all.iter().enumerate() {
        let at = (LEFT + 90 * i as i32, 32);
        area.draw(&Rectangle::new([at, (at.0 + 12, at.1 + 12)], COLORS[i].filled()))?;
        area.draw(&Text::new(series.name, (at.0 + 18, at.1 + 6), text(&GREY, Pos::new(HPos::Left, VPos::Center))))?;
    }
    for (p, policy) in policies.iter().enumerate() {
        let top = TOP + p as i32 * (BAR * all.len() as i32 + 22);
        let middle = top + BAR * all.len() as i32 / 2;
        let label = text(&GREY, Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(policy.clone(), (LEFT - 8, middle), label))?;
        for (i, series) in all.iter().enumerate() {
            let (value, top) = (numbers(series)[p], top + BAR * i as i32);
            let end = LEFT + (scale * value).round() as i32;
            area.draw(&Rectangle::new([(LEFT, top), (end, top + BAR - 2)], COLORS[i].filled()))?;
            let number = text(&GREY, Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(format!("{value:.decimals$}"), (end + 5, top + BAR / 2), number))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A file of the repository.
    fn read(path: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
    }

    #[test]
    fn the_chart_of_the_readme_is_that_of_the_table() {
        let drawn = chart(&read("docs/PERFORMANCE.md")).unwrap();
        assert_eq!(drawn, read("docs/step.svg"), "`cargo run -p remat-bench -- chart` draws it");
        assert!(drawn.len() < 60_000 && read("README.md").contains("](docs/step.svg)"));
        let (policies, all) = figures(&read("docs/PERFORMANCE.md")).unwrap();
        for (policy, series) in policies.iter().zip(std::iter::repeat(&all)) {
            assert!(drawn.contains(policy) && series.iter().all(|series| drawn.contains(series.name)));
        }
    }

    #[test]
    fn a_page_without_the_table_is_an_error() {
        let said = |page: &str| chart(page).unwrap_err().to_string();
        assert!(said("").contains("has no table"));
        let header = format!("| {TABLE} | none |\n|---|---|\n");
        assert_eq!(said(&header), "the table has no row `JAX, scanned, s`");
        assert!(said(&format!("{header}| JAX, scanned, s | 1 |\n")).contains("is not followed by"));
        assert!(
            said(&format!("{header}| JAX, scanned, s | fast |\n| its temporaries, MiB | 2 |\n")).contains("`fast`")
        );
    }
}
