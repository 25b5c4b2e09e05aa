//! Charts as SVG: points with labels, and curves.

use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use remat::report::readable_bytes;

const SIZE: (u32, u32) = (800, 400);

/// A grey that is readable on white and on black.
const GREY: RGBColor = RGBColor(128, 128, 128);
const RED: RGBColor = RGBColor(200, 60, 45);
const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(230, 120, 20), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// The height of a line of text, and the width of a letter, in pixels: rather more than they have.
const FONT: (i32, i32) = (13, 7);

/// The most numbers at an axis.
const TICKS: f64 = 6.0;

/// The largest steps between numbers that are tried have this many digits more than the smallest.
const LARGER: i32 = 64;

/// An axis: its quantity, and the format of its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Axis<'a> {
    label: &'a str,
    text: &'a dyn Fn(f64) -> String,
    /// Whether round numbers are powers of two.
    is_binary: bool,
}

impl<'a> Axis<'a> {
    pub(crate) fn new(label: &'a str, text: &'a dyn Fn(f64) -> String) -> Axis<'a> {
        Axis { label, text, is_binary: false }
    }

    /// An axis of bytes.
    pub(crate) fn bytes(label: &'a str) -> Axis<'a> {
        Axis { label, text: &|bytes| readable_bytes(bytes.max(0.0) as usize).replace(".00 ", " "), is_binary: true }
    }

    /// Round numbers from one number to another, with the smallest step between them whose numbers have texts of their own.
    fn ticks(&self, from: f64, to: f64) -> Vec<f64> {
        let least = (to - from) / TICKS;
        let (smallest, base, times): (f64, f64, &[f64]) = match self.is_binary {
            true => (least.log2().ceil().exp2().max(1.0), 2.0, &[1.0]),
            false => (10f64.powf(least.log10().floor()), 10.0, &[1.0, 2.0, 5.0]),
        };
        let steps = (0..LARGER).flat_map(|digits| times.iter().map(move |times| times * base.powi(digits) * smallest));
        // A range that is too wide or too narrow for numbers has no ticks.
        let mut steps = steps.filter(|step| step.is_finite() && *step > 0.0 && *step >= least);
        let ticks = steps.find_map(|step| self.ticks_of(step, from, to)).unwrap_or_default();
        // Between two numbers whose texts have fewer digits than their difference there may be none.
        let ends_differ = || (self.text)(from) != (self.text)(to);
        if ticks.is_empty() && (to - from).is_finite() && ends_differ() { vec![from, to] } else { ticks }
    }

    /// The multiples of a step from one number to another. `None` if two next to each other have one text: so would others, rounded to a number
    /// that is not theirs, of which only one may be here; so the next few count too.
    fn ticks_of(&self, step: f64, from: f64, to: f64) -> Option<Vec<f64>> {
        let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
        let numbers: Vec<f64> = (first..=last.saturating_add(3)).map(|number| number as f64 * step).collect();
        let texts: Vec<String> = numbers.iter().map(|number| (self.text)(*number)).collect();
        let are_different = texts.windows(2).all(|texts| texts[0] != texts[1]);
        are_different.then(|| numbers.into_iter().take((last - first + 1).max(0) as usize).collect())
    }
}

/// A point with a label.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) label: String,
    /// Whether the point is filled; other points are red rings.
    pub(crate) is_filled: bool,
}

/// Points over axes that start at zero, with a dashed line at the `limit` of the horizontal axis.
///
/// # Errors
/// If the chart cannot be drawn.
pub(crate) fn scatter(points: &[Point], limit: Option<f64>, x: &Axis, y: &Axis) -> Result<String> {
    let most = |values: &mut dyn Iterator<Item = f64>| values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let most_x = 1.1 * most(&mut points.iter().map(|point| point.x).chain(limit)).max(1e-9);
    let most_y = 1.2 * most(&mut points.iter().map(|point| point.y)).max(1e-9);
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(80)
            .build_cartesian_2d(ticked(x, 0.0, most_x), ticked(y, 0.0, most_y))?;
        mesh(&mut chart, x, y)?;
        if let Some(limit) = limit {
            let ends = [(limit, 0.0), (limit, most_y)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, RED.stroke_width(1)))?;
        }
        let points: Vec<&Point> = points.iter().filter(|point| point.x.is_finite() && point.y.is_finite()).collect();
        let at: Vec<(i32, i32)> = points.iter().map(|point| chart.backend_coord(&(point.x, point.y))).collect();
        let (width, height) = chart.plotting_area().get_pixel_range();
        let mut taken: Vec<Rect> =
            at.iter().map(|&(x, y)| Rect { left: x - 7, top: y - 7, right: x + 7, bottom: y + 7 }).collect();
        for (point, &at) in points.iter().zip(&at) {
            let style = if point.is_filled { COLORS[0].filled() } else { RED.stroke_width(2) };
            chart.draw_series([Circle::new((point.x, point.y), 6, style)])?;
            let inside = Rect { left: width.start, top: height.start, right: width.end, bottom: height.end };
            let label = Rect::label(&point.label, at, &taken, inside);
            let offset = (label.left - at.0, (label.top + label.bottom) / 2 - at.1);
            taken.push(label);
            let label = EmptyElement::at((point.x, point.y))
                + Text::new(point.label.clone(), offset, text(Pos::new(HPos::Left, VPos::Center)));
            chart.draw_series([label])?;
        }
        Ok(())
    })
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug)]
struct Rect {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Rect {
    fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn is_inside(&self, other: &Rect) -> bool {
        other.left <= self.left && self.right <= other.right && other.top <= self.top && self.bottom <= other.bottom
    }

    /// The place of a label as near to its point as there is room beside others: on its right or its left, and above or below that.
    fn label(label: &str, (x, y): (i32, i32), taken: &[Rect], bounds: Rect) -> Rect {
        let width = FONT.1 * label.chars().count() as i32;
        let lines = (0..=bounds.bottom / FONT.0).flat_map(|lines| [-lines, lines]);
        let places = lines.flat_map(|lines| [x + 10, x - 10 - width].map(|left| (left, y + lines * FONT.0)));
        let boxes = places.map(|(left, middle)| {
            let top = middle - FONT.0 / 2;
            Rect { left, top, right: left + width, bottom: top + FONT.0 }
        });
        let has_room = |place: &Rect| place.is_inside(&bounds) && !taken.iter().any(|other| other.overlaps(place));
        let first = Rect { left: x + 10, top: y - FONT.0 / 2, right: x + 10 + width, bottom: y + FONT.0 / 2 };
        boxes.into_iter().find(has_room).unwrap_or(first)
    }
}

/// A named curve. Points whose height is not finite are omitted.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Curves over a common horizontal axis; the vertical axis starts at zero if `from_zero`. `None` if there is nothing to draw.
///
/// # Errors
/// If the chart cannot be drawn.
pub(crate) fn curves(curves: &[Curve], from_zero: bool, x: &Axis, y: &Axis) -> Result<Option<String>> {
    let finite = |curve: &Curve| -> Vec<(f64, f64)> {
        curve.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
    };
    let drawn: Vec<(&str, Vec<(f64, f64)>)> =
        curves.iter().map(|curve| (curve.name, finite(curve))).filter(|(_, points)| !points.is_empty()).collect();
    let all = || drawn.iter().flat_map(|(_, points)| points);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let ((first, last), (low, high)) = (range(&mut all().map(|(x, _)| *x)), range(&mut all().map(|(_, y)| *y)));
    if first > last {
        return Ok(None);
    }
    // A range without length has no scale.
    let last = if last > first { last } else { first + 1.0 };
    let low = if from_zero { low.min(0.0) } else { low };
    let room = 0.05 * (high - low).max(1e-9 * high.abs()).max(1e-12);
    let bottom = if from_zero && low == 0.0 { 0.0 } else { low - room };
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(80)
            .build_cartesian_2d(ticked(x, first, last), ticked(y, bottom, high + room))?;
        mesh(&mut chart, x, y)?;
        for (i, (name, points)) in drawn.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            // A single point is drawn as a dot.
            let dot = if points.len() == 1 { 3 } else { 0 };
            let series = LineSeries::new(thinned(points), color.stroke_width(2)).point_size(dot);
            chart
                .draw_series(series)?
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
        }
        if drawn.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .label_font(text(Pos::new(HPos::Left, VPos::Top)))
                .border_style(GREY)
                .draw()?;
        }
        Ok(())
    })
    .map(Some)
}

/// At most a few thousand points: the lowest and the highest of each run of neighbours, so that no peak is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let run = points.len().div_ceil(1000).max(1);
    let kept = points.chunks(run).flat_map(|points| {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let mut ends: Vec<(f64, f64)> =
            points.iter().min_by(by_height).into_iter().chain(points.iter().max_by(by_height)).copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        ends
    });
    kept.collect()
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ticked, Ticked>>;

/// A range of an axis, with its ticks.
struct Ticked {
    range: RangedCoordf64,
    ticks: Vec<f64>,
}

fn ticked(axis: &Axis, from: f64, to: f64) -> Ticked {
    Ticked { range: (from..to).into(), ticks: axis.ticks(from, to) }
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.range()
    }
}

/// The SVG that `on` draws.
fn draw(on: impl FnOnce(&Area) -> std::result::Result<(), Box<dyn Error>>) -> Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = on(&area).and_then(|()| Ok(area.present()?));
    drop(area);
    drawn.map_err(|error| anyhow!("cannot draw a chart: {error}"))?;
    // The size is left to the page.
    let fixed = format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1);
    Ok(svg.replacen(&fixed, "", 1))
}

fn text<'a>(anchor: Pos) -> TextStyle<'a> {
    TextStyle::from(("sans-serif", 13)).color(&GREY).pos(anchor)
}

/// The grid and the numbers of both axes.
fn mesh(chart: &mut Plane, x: &Axis, y: &Axis) -> std::result::Result<(), Box<dyn Error>> {
    let faint = GREY.mix(0.25);
    chart
        .configure_mesh()
        .bold_line_style(faint)
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|value| (x.text)(*value))
        .y_label_formatter(&|value| (y.text)(*value))
        .label_style(text(Pos::new(HPos::Left, VPos::Top)))
        .axis_desc_style(text(Pos::new(HPos::Center, VPos::Top)))
        .x_desc(x.label)
        .y_desc(y.label)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        format!("{value:.1}")
    }

    fn axes() -> [Axis<'static>; 2] {
        [Axis::new("bytes", &plain), Axis::new("seconds", &plain)]
    }

    #[test]
    fn every_finite_point_is_drawn_with_its_label() {
        let point = |x, label: &str| Point { x, y: 1.0, label: label.into(), is_filled: x < 2.0 };
        let points = [point(1.0, "none"), point(3.0, "a<b"), point(f64::NAN, "failed")];
        let [x, y] = axes();
        let svg = scatter(&points, Some(2.0), &x, &y).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a&lt;b") && !svg.contains("failed"), "{svg}");
        // The axes do not stretch to nothing without points.
        assert!(scatter(&[], None, &x, &y).unwrap().contains("seconds"));
    }

    /// The texts of a drawing with their places, by the attributes with which SVG places text.
    fn texts(svg: &str) -> Vec<(String, Rect)> {
        let texts = svg.split("<text ").skip(1).map(|rest| {
            let (attributes, rest) = rest.split_once('>').unwrap();
            let attribute = |name: &str| {
                let value =
                    attributes.split_once(&format!("{name}=\"")).map(|(_, rest)| rest.split('"').next().unwrap());
                value.unwrap_or_default()
            };
            let text = rest.split_once("</text>").unwrap().0.trim().to_string();
            let [x, y] = ["x", "y"].map(|name| attribute(name).parse::<i32>().unwrap());
            // Letters of a sans-serif font are 0.6 of its size wide on average, and lines 1.2 of it high.
            let size: f64 = attribute("font-size").parse().unwrap();
            let (width, height) = ((text.chars().count() as f64 * size * 0.6) as i32, (1.2 * size) as i32);
            let left = match attribute("text-anchor") {
                "middle" => x - width / 2,
                "end" => x - width,
                _ => x,
            };
            let top = match attribute("dy") {
                "0.76em" => y,
                "0.5ex" => y - height / 2,
                "" | "-0.5ex" => y - height,
                other => panic!("an unknown place of text: {other}"),
            };
            let rect = Rect { left, top, right: left + width, bottom: top + height };
            // A turned text is the description of the vertical axis.
            let turned = Rect { left: x, top: y - width / 2, right: x + height, bottom: y + width / 2 };
            (text, if attributes.contains("rotate") { turned } else { rect })
        });
        texts.collect()
    }

    /// Fails where a text is outside of the drawing, or over another.
    fn assert_readable(svg: &str) {
        let (texts, drawing) = (texts(svg), Rect { left: 0, top: 0, right: SIZE.0 as i32, bottom: SIZE.1 as i32 });
        assert!(texts.len() > 6, "{svg}");
        for (i, (text, rect)) in texts.iter().enumerate() {
            assert!(rect.is_inside(&drawing), "{text} is outside at {rect:?}\n{svg}");
            for (other, beside) in &texts[..i] {
                assert!(!rect.overlaps(beside), "{text} at {rect:?} is over {other} at {beside:?}\n{svg}");
            }
        }
    }

    #[test]
    fn no_text_is_over_another_or_outside() {
        let names = [
            "none",
            "Everything",
            "Dots",
            "DotsWithNoBatchDims",
            "Names(attn, up)",
            "Names(attn)",
            "Nothing",
            "planned",
        ];
        let names = names.into_iter().chain(["OffloadDotsWithNoBatchDims(host)"]);
        let [_, seconds] = axes();
        let x = Axis::bytes("planned peak of a training step");
        // All alike, all in a row, and two groups.
        let all: [fn(usize) -> (f64, f64); 3] = [
            |_| (34.3e6, 1.0),
            |i| (1e6 * (i + 1) as f64, 1.0 + 0.001 * i as f64),
            |i| (if i < 5 { 34.3e6 } else { 17.2e6 + i as f64 }, 1.0),
        ];
        for place in all {
            let point = |(i, label): (usize, &str)| {
                let (x, y) = place(i);
                Point { x, y, label: label.into(), is_filled: i != 0 }
            };
            assert_readable(
                &scatter(&names.clone().enumerate().map(point).collect::<Vec<_>>(), Some(30e6), &x, &seconds).unwrap(),
            );
        }
        let steps = |most: f64| (0..500).map(|i| (f64::from(i), most * f64::from(i % 7) / 6.0)).collect::<Vec<_>>();
        let y = Axis::bytes("bytes");
        for most in [1.0, 900.0, 3e6, 34e9, 0.0] {
            let shown = [
                Curve { name: "the process", points: steps(most) },
                Curve { name: "planned", points: steps(most / 2.0) },
            ];
            assert_readable(&curves(&shown, true, &x, &y).unwrap().unwrap());
        }
    }

    #[test]
    fn ticks_are_round() {
        let [_, plain] = axes();
        assert_eq!(plain.ticks(0.0, 0.37), [0.0, 0.1, 0.2, 0.30000000000000004]);
        assert_eq!(plain.ticks(2.2, 5.9), [3.0, 4.0, 5.0]);
        // Three steps of a run, whose numbers are whole.
        let whole = |step: f64| (step as usize).to_string();
        assert_eq!(Axis::new("step", &whole).ticks(1.0, 3.0), [1.0, 2.0, 3.0]);
        // Numbers whose texts are rounded are not theirs.
        let short = |number: f64| format!("{number:.2}");
        let texts = |from, to| Axis::new("loss", &short).ticks(from, to).into_iter().map(short).collect::<Vec<_>>();
        assert_eq!(texts(0.0, 0.03), ["0.00", "0.01", "0.02", "0.03"]);
        assert_eq!(texts(2.0001, 2.0301), ["2.01", "2.02", "2.03"]);
        assert_eq!(texts(0.0035, 0.0145), ["0.01"]);
        // Where no number has its own text, the ends are better than nothing.
        assert_eq!(texts(2.001, 2.009), ["2.00", "2.01"]);
        assert!([(f64::MIN, f64::MAX), (1.0, 1.0)].iter().all(|&(from, to)| plain.ticks(from, to).is_empty()));
        assert_eq!(Axis::bytes("bytes").ticks(0.0, 1e-12), [0.0]);
        assert_eq!(plain.ticks(-30.0, 270.0), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        let bytes = Axis::bytes("bytes");
        let texts = |most: f64| bytes.ticks(0.0, most).into_iter().map(bytes.text).collect::<Vec<_>>();
        assert_eq!(texts(36e6), ["0 B", "8 MiB", "16 MiB", "24 MiB", "32 MiB"]);
        assert_eq!(texts(3e9), ["0 B", "512 MiB", "1 GiB", "1.50 GiB", "2 GiB", "2.50 GiB"]);
    }

    #[test]
    fn curves_leave_out_what_is_not_finite() {
        let [x, y] = axes();
        let of =
            |points: &[(f64, f64)]| curves(&[Curve { name: "loss", points: points.to_vec() }], false, &x, &y).unwrap();
        assert!(of(&[]).is_none() && of(&[(1.0, f64::NAN)]).is_none());
        assert!(of(&[(1.0, 2.0)]).is_some());
        assert_eq!(of(&[(0.0, 1.0), (1.0, f64::INFINITY), (2.0, 3.0)]), of(&[(0.0, 1.0), (2.0, 3.0)]));
    }

    #[test]
    fn long_curves_keep_their_peaks() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 0.0)).collect();
        points[12_345].1 = 7.0;
        let kept = thinned(&points);
        assert!(kept.len() <= 2000 && kept.contains(&(12_345.0, 7.0)));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }
}
