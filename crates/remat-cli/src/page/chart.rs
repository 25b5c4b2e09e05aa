//! Charts as SVG: points with labels, and curves.

use std::error::Error;

use anyhow::{Result, anyhow};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (800, 400);

/// A grey that is readable on white and on black.
const GREY: RGBColor = RGBColor(128, 128, 128);
const RED: RGBColor = RGBColor(200, 60, 45);
const COLORS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(230, 120, 20), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// Points closer to each other than this, as a share of the chart, have their labels one above the other.
const NEAR: (f64, f64) = (0.25, 0.045);

/// An axis: its quantity, and the format of its numbers.
pub(crate) struct Axis<'a> {
    pub(crate) label: &'a str,
    pub(crate) text: &'a dyn Fn(f64) -> String,
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
        // The space on the right is for the label of the last point.
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_right(170)
            .x_label_area_size(45)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..most_x, 0.0..most_y)?;
        mesh(&mut chart, x, y)?;
        if let Some(limit) = limit {
            let ends = [(limit, 0.0), (limit, most_y)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, RED.stroke_width(1)))?;
        }
        let mut labels: Vec<(f64, f64)> = Vec::new();
        for point in points.iter().filter(|point| point.x.is_finite() && point.y.is_finite()) {
            let style = if point.is_filled { COLORS[0].filled() } else { RED.stroke_width(2) };
            chart.draw_series([Circle::new((point.x, point.y), 6, style)])?;
            let (x, mut y) = (point.x / most_x, point.y / most_y);
            while labels.iter().any(|(x0, y0)| (x0 - x).abs() < NEAR.0 && (y0 - y).abs() < NEAR.1) {
                y += NEAR.1;
            }
            labels.push((x, y));
            let at = (point.x, y * most_y);
            let label = EmptyElement::at(at)
                + Text::new(point.label.clone(), (10, 0), text(Pos::new(HPos::Left, VPos::Center)));
            chart.draw_series([label])?;
        }
        Ok(())
    })
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
            .build_cartesian_2d(first..last, bottom..high + room)?;
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
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

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
        [Axis { label: "bytes", text: &plain }, Axis { label: "seconds", text: &plain }]
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
