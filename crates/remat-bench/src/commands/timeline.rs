//! The picture of the README: the temporary memory of one training step over its time, under no policy, with named values and within a budget.
//!
//! Bytes are those of the engine's plan, and times those of its cost model, so that nothing runs.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use remat::report::readable_bytes;
use remat::{Cpu, DType, Policy};
use remat_ir::{CompileOptions, Device, Executable, Jaxpr, LiveKind};

use crate::case::Work;
use crate::models::gpt::{Attention, LayersAs, Sizes};

/// The budget, in percent of the temporaries without a policy.
const BUDGET: usize = 50;

const SIZE: (u32, u32) = (860, 300);

/// The space for the axes, and for the names of the curves.
const MARGIN: (i32, i32, i32, i32) = (100, 16, 20, 44);

/// Readable on white and on black.
const GREY: RGBColor = RGBColor(128, 128, 128);
const COLORS: [RGBColor; 3] = [RGBColor(150, 150, 150), RGBColor(31, 119, 180), RGBColor(214, 96, 30)];

/// Arguments of `remat-bench timeline`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "docs/timeline.svg")]
    svg: PathBuf,
}

/// A program of the step, over its time.
#[derive(Debug)]
struct Curve {
    name: String,
    /// The time at which each step of the engine begins, as a share of that of the program without a policy, and the bytes from then on.
    points: Vec<(f64, usize)>,
    /// The time at its end.
    end: f64,
}

/// Runs the command.
///
/// # Errors
/// If the step cannot be compiled, or the file cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let curves = curves(Sizes::REFERENCE)?;
    let svg = drawn(&curves)?;
    fs::write(&args.svg, &svg).with_context(|| format!("cannot write `{}`", args.svg.display()))?;
    for Curve { name, points, end } in &curves {
        let most = points.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        writeln!(out, "{name}: {} at most, {:.1} % of the time", readable_bytes(most), 100.0 * end)?;
    }
    Ok(writeln!(out, "wrote {}, {} bytes", args.svg.display(), svg.len())?)
}

/// The curves of a step without a policy, with named values, and within a budget.
///
/// # Errors
/// If the step cannot be compiled.
fn curves(sizes: Sizes) -> Result<Vec<Curve>> {
    let step = |policy: Option<Policy>| {
        Work::Step { sizes, layers_as: LayersAs::Unroll, attention: Attention::Fused }.step(policy, DType::F32)
    };
    let free = step(None)?;
    let compiled = |jaxpr: &Arc<Jaxpr>, memory_limit: Option<usize>| {
        Cpu::default().compile_with(jaxpr, &CompileOptions { memory_limit, ..CompileOptions::default() })
    };
    let all = compiled(&free, None)?;
    let memory = all.memory();
    let limit = memory.donated_peak - memory.temporaries / 100 * (100 - BUDGET);
    let names = compiled(&step(Some(Policy::names(["attn", "up"])))?, None)?;
    let planned = compiled(&free, Some(limit))?;
    let programs = [
        ("no policy".to_string(), all),
        ("names(attn, up)".to_string(), names),
        (format!("a budget of {BUDGET} %"), planned),
    ];
    let time = total(&*programs[0].1);
    programs.into_iter().map(|(name, program)| curve(name, &*program, time)).collect()
}

/// The modelled seconds of a program.
fn total(program: &dyn Executable) -> f64 {
    program.live_ranges(&[]).iter().flat_map(|live| &live.steps).map(|step| step.time.as_secs_f64()).sum()
}

fn curve(name: String, program: &dyn Executable, time: f64) -> Result<Curve> {
    let live = program.live_ranges(&[]).ok_or_else(|| anyhow!("the engine reports no live ranges"))?;
    let is_temporary = |kind| matches!(kind, LiveKind::Temporary | LiveKind::Scratch);
    let bytes = live.live_bytes(|range| is_temporary(range.value.kind));
    let mut at = 0.0;
    let begins = live.steps.iter().map(|step| {
        let begin = at;
        at += step.time.as_secs_f64() / time.max(f64::MIN_POSITIVE);
        begin
    });
    let points: Vec<(f64, usize)> = begins.zip(bytes).collect();
    Ok(Curve { name, points, end: at })
}

/// The picture, without a background.
///
/// # Errors
/// If it cannot be drawn.
fn drawn(curves: &[Curve]) -> Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = draw(&area, curves).and_then(|()| Ok(area.present()?));
    drop(area);
    drawn.map_err(|error| anyhow!("cannot draw the picture: {error}"))?;
    Ok(svg)
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    curves: &[Curve],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (left, top, right, bottom) = MARGIN;
    let (width, height) = (SIZE.0 as i32 - left - right, SIZE.1 as i32 - top - bottom);
    let last = curves.iter().map(|curve| curve.end).fold(1e-9, f64::max);
    let most = curves.iter().flat_map(|curve| &curve.points).map(|&(_, bytes)| bytes).max().unwrap_or(1).max(1);
    // The grid has a line at each quarter of a power of two.
    let unit = (most / 2).next_power_of_two() / 2;
    let x = |time: f64| left + (time / last * f64::from(width)).round() as i32;
    let y = |bytes: usize| top + height - (bytes as f64 / most as f64 * f64::from(height)).round() as i32;
    let text = |anchor: Pos| TextStyle::from(("sans-serif", 16)).color(&GREY).pos(anchor);
    let mut bytes = 0;
    while bytes <= most {
        area.draw(&PathElement::new([(left, y(bytes)), (left + width, y(bytes))], GREY.mix(0.3)))?;
        let label = readable_bytes(bytes).replace(".00 ", " ");
        area.draw(&Text::new(label, (left - 8, y(bytes)), text(Pos::new(HPos::Right, VPos::Center))))?;
        bytes += unit.max(1);
    }
    let below = top + height + 22;
    let place = |at: HPos| text(Pos::new(at, VPos::Center));
    area.draw(&Text::new("time of one training step, forward and backward", (left, below), place(HPos::Left)))?;
    for (i, (curve, color)) in curves.iter().zip(COLORS).enumerate() {
        let mut path = Vec::with_capacity(2 * curve.points.len() + 1);
        for (at, &(begin, bytes)) in curve.points.iter().enumerate() {
            let end = curve.points.get(at + 1).map_or(curve.end, |next| next.0);
            path.extend([(x(begin), y(bytes)), (x(end), y(bytes))]);
        }
        path.dedup();
        area.draw(&PathElement::new(path, color.stroke_width(2)))?;
        let (at, line) = (left + width - 150, top + 28 + 20 * i as i32);
        area.draw(&PathElement::new([(at - 26, line), (at - 6, line)], color.stroke_width(3)))?;
        area.draw(&Text::new(curve.name.clone(), (at, line), place(HPos::Left)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_budget_lowers_the_curve_and_takes_longer() {
        let sizes = Sizes { layers: 3, width: 32, heads: 2, hidden: 64, sequence: 16, batch: 2, vocabulary: 50 };
        let curves = curves(sizes).unwrap();
        let most = |curve: &Curve| curve.points.iter().map(|&(_, bytes)| bytes).max().unwrap();
        assert_eq!(curves.len(), 3);
        assert!((curves[0].end - 1.0).abs() < 1e-9, "{}", curves[0].end);
        assert!(most(&curves[2]) < most(&curves[0]) && curves[2].end >= 1.0, "{curves:?}");
        let svg = drawn(&curves).unwrap();
        assert!(curves.iter().all(|curve| svg.contains(&curve.name)));
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 3, "{svg}");
    }

    #[test]
    fn the_picture_is_in_the_readme() {
        let read =
            |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap();
        assert!(read("README.md").contains("](docs/timeline.svg)"));
        let svg = read("docs/timeline.svg");
        let names = ["no policy".to_string(), "names(attn, up)".to_string(), format!("a budget of {BUDGET} %")];
        assert!(svg.len() < 30_000 && names.iter().all(|name| svg.contains(name)));
    }

    #[test]
    fn nothing_to_draw_is_a_picture_too() {
        assert!(drawn(&[]).unwrap().contains("0 B"));
        let still = Curve { name: "still".into(), points: vec![(0.0, 0)], end: 0.0 };
        assert!(drawn(&[still]).unwrap().contains("still"));
    }
}
