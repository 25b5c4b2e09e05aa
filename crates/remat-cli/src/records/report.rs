//! The page at the end of a run: its loss, its speed, and its memory.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use minijinja::context;
use remat::report::readable_bytes;
use remat_command::table::thousands;
use remat_io::{Metrics, save_text};

use super::series::{Series, smoothed};
use crate::data::plain;
use crate::page::chart::{Axis, Curve, curves};
use crate::page::{render, row};

/// The decay rate of the smoothed loss.
const SMOOTHING: f64 = 0.95;

/// The memory of a step of training over the steps of its program.
#[derive(Default)]
pub(crate) struct Timeline {
    /// The bytes that are live while each of them runs; empty if the engine does not report them.
    pub(crate) bytes: Vec<usize>,
    /// Those of the backward pass.
    pub(crate) backward: Option<Range<usize>>,
}

/// The content of a page besides the measurements.
pub(crate) struct Report<'a> {
    /// The name of the run.
    pub(crate) title: String,
    /// The model, in a line.
    pub(crate) model: String,
    /// The configuration as text.
    pub(crate) config: String,
    /// The parts of the planned peak.
    pub(crate) parts: Vec<(String, usize)>,
    pub(crate) timeline: Timeline,
    /// The page in the same folder with the memory of a step, if there is one.
    pub(crate) memory: Option<&'static str>,
    /// Text that the model wrote.
    pub(crate) sample: Option<&'a str>,
}

impl Report<'_> {
    /// Writes the page into the folder of the run, with the measurements so far.
    ///
    /// # Errors
    /// If the measurements cannot be read, a chart cannot be drawn, or the page cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let page = self.page(&Series::read(&folder.join(Metrics::FILE))?)?;
        let path = folder.join("report.html");
        save_text(&path, &page).map_err(plain)?;
        Ok(path)
    }

    fn page(&self, series: &Series) -> Result<String> {
        let steps = |step: f64| thousands(step.max(0.0) as usize);
        let x = Axis::new("step", &steps);
        let loss = series.of("loss");
        let shown = [
            Curve { name: "loss of each batch", points: loss.to_vec() },
            Curve { name: "smoothed", points: smoothed(loss, SMOOTHING) },
            Curve { name: "held out", points: series.of("held_out_loss").to_vec() },
        ];
        let nats = |loss: f64| format!("{loss:.2}");
        let loss = curves(&shown, false, &x, &Axis::new("loss", &nats))?;
        let rate = [Curve { name: "tokens per second", points: series.of("tokens_per_second").to_vec() }];
        let count = |count: f64| thousands(count.max(0.0) as usize);
        let rate = curves(&rate, true, &x, &Axis::new("tokens per second", &count))?;
        let precise = |number: f64| format!("{number:.2e}");
        let norm = [Curve { name: "norm of the gradient", points: series.of("gradient_norm").to_vec() }];
        let norm = curves(&norm, true, &x, &Axis::new("norm", &precise))?;
        let schedule = [Curve { name: "learning rate", points: series.of("learning_rate").to_vec() }];
        let schedule = curves(&schedule, true, &x, &Axis::new("learning rate", &precise))?;
        let peak: usize = self.parts.iter().map(|(_, bytes)| bytes).sum();
        let resident = series.of("resident_bytes");
        let planned = resident.iter().map(|(step, _)| (*step, peak as f64)).collect();
        let held = [
            Curve { name: "the process", points: resident.to_vec() },
            Curve { name: "planned peak of a step", points: planned },
        ];
        let y = Axis::bytes("bytes");
        let held = curves(&held, true, &x, &y)?;
        let x = Axis::new("operation of one training step", &steps);
        let timeline = curves(&phases(&self.timeline), true, &x, &y)?;
        let share = |bytes: usize| format!("{:.0}%", 100.0 * bytes as f64 / peak.max(1) as f64);
        let total = row(vec!["peak".into(), readable_bytes(peak), share(peak)], true);
        let part =
            |(name, bytes): &(String, usize)| row(vec![name.clone(), readable_bytes(*bytes), share(*bytes)], false);
        let parts: Vec<_> = self.parts.iter().map(part).chain([total]).collect();
        let Report { title, model, config, memory, sample, .. } = self;
        render(
            "run.html",
            context! { title, model, config, sample, loss, norm, schedule, rate, held, memory, timeline, parts },
        )
    }
}

/// The curve of a step in parts that meet: its forward pass, its backward pass, and what follows, which is the optimizer.
fn phases(Timeline { bytes, backward }: &Timeline) -> Vec<Curve<'static>> {
    let curve = |name, range: Range<usize>| {
        let points = bytes.iter().enumerate().skip(range.start).take(range.len() + 1);
        Curve { name, points: points.map(|(step, &bytes)| (step as f64, bytes as f64)).collect() }
    };
    match backward {
        Some(backward) if !backward.is_empty() => {
            let (start, end) = (backward.start, backward.end);
            let parts =
                [("forward pass", 0..start), ("backward pass", start..end), ("optimizer", end..bytes.len().max(end))];
            parts.into_iter().filter(|(_, range)| !range.is_empty()).map(|(name, range)| curve(name, range)).collect()
        }
        _ => vec![curve("live", 0..bytes.len())],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn page(lines: &str, sample: Option<&str>, memory: Option<&'static str>) -> String {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(Metrics::FILE), lines).unwrap();
        let parts = vec![("parameters".to_string(), 1024), ("activations".to_string(), 3072)];
        let report = Report {
            title: "runs/1".into(),
            model: "GPT".into(),
            config: "seed = 0 # <x>".into(),
            parts,
            timeline: Timeline { bytes: vec![1, 9, 2], backward: Some(1..2) },
            memory,
            sample,
        };
        let path = report.write(folder.path()).unwrap();
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_page_has_the_charts_that_there_are_numbers_for() {
        let all = "{\"step\":1,\"loss\":2.0,\"tokens_per_second\":10,\"resident_bytes\":4096,\"held_out_loss\":2.5,\"learning_rate\":0.001,\"gradient_norm\":1.5}\n{\"step\":2,\"loss\":1.0}\n";
        let html = page(all, Some("<b>"), None);
        assert_eq!(html.matches("<svg").count(), 6);
        assert!(html.contains("&lt;b&gt;") && html.contains("seed = 0 # &lt;x&gt;"), "{html}");
        assert!(html.contains("<tr class=\"chosen\"><td>peak<td>4.00 KiB<td>100%"), "{html}");
        for pass in ["forward pass", "backward pass", "optimizer"] {
            assert!(html.contains(pass), "{html}");
        }
        // A page is self-contained.
        assert!(!html.contains("src=") && !html.contains("href="), "{html}");
        // A run without measurements has a page too.
        let html = page("", None, None);
        assert!(html.matches("<svg").count() == 1 && !html.contains("What the model writes"), "{html}");
        // That of its memory is beside it.
        assert!(page("", None, Some("memory.html")).contains("<a href=\"memory.html\">"), "{html}");
    }
}
