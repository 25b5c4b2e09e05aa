//! The memory of plans as a page that needs no server: the files of the folder `page`, with the plans as its data.
//!
//! The data are JSON in a script element that does not run, in which `<`, `>`, `&` and marks of direction are escapes. The script sets text
//! and makes no markup of it, and the page's own policy refuses everything that is not in it. Bands are drawn on a canvas in whole pixels:
//! 10,000 of them take about 12 ms on an idle core, without a graphics card.

mod data;
mod inert;

use std::io::Write;
use std::path::Path;

use remat::files::{self, cannot};
use remat::{Error, ErrorKind, Plan, Result};

use data::Report;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// The parts of one script, in the order in which they run.
const SCRIPT: [&str; 8] = [
    include_str!("page/text.js"),
    include_str!("page/plans.js"),
    include_str!("page/state.js"),
    include_str!("page/chart.js"),
    include_str!("page/tables.js"),
    include_str!("page/halves.js"),
    include_str!("page/curve.js"),
    include_str!("page/reader.js"),
];

/// How many plans one report has, at most.
///
/// ```
/// assert_eq!(remat_io::REPORTED_PLANS, 32);
/// ```
pub const REPORTED_PLANS: usize = 32;

/// Writes the memory of some plans of one program over its steps as a page of HTML, one file without references to others: each value as a
/// band from the step that computes it to the last that reads it, what is in memory at a step and at the peak, memory by scope, all values as
/// a table that is sorted and searched, the plans as points of bytes and time, and a slider that goes through them. The file appears complete
/// or not at all, and replaces one of this name.
///
/// Names, lines and the title may have any text: they are data of the page, never markup or scripts. What would change how the text around
/// it is shown, as marks of direction do, is shown by its number.
///
/// ```
/// use remat::{DType, Tensor, grad, plan};
/// let w = Tensor::eye(16, DType::F32);
/// let loss = |x: &Tensor| (0..4).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
/// let free = plan(grad(loss), Tensor::ones([64, 16], DType::F32))?;
/// let folder = tempfile::tempdir()?;
/// remat_io::save_report(folder.path().join("memory.html"), "four layers", &[free])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If there are no plans or more than [`REPORTED_PLANS`]; if a plan is wrong, which is a defect; if the file cannot be written.
pub fn save_report(path: impl AsRef<Path>, title: &str, plans: &[Plan]) -> Result<()> {
    save_report_with(path, title, plans, &[])
}

/// As [`save_report`], with labelled points for the same function under policies beside the curve of the plans: each has a name, and the plan
/// of its program without a limit.
///
/// ```
/// use remat::{DType, Policy, Tensor, checkpoint, grad, plan};
/// let w = Tensor::eye(16, DType::F32);
/// let under = |policy: Option<Policy>| {
///     let layer = |x: &Tensor| x.matmul(&w).tanh().sin();
///     let loss = |x: &Tensor| (0..4).fold(x.clone(), |x, _| checkpoint(policy.clone(), layer)(&x)).sum(..);
///     plan(grad(loss), Tensor::ones([64, 16], DType::F32))
/// };
/// let policies = [("Dots".to_string(), under(Some(Policy::Dots))?), ("Nothing".to_string(), under(Some(Policy::Nothing))?)];
/// let folder = tempfile::tempdir()?;
/// remat_io::save_report_with(folder.path().join("memory.html"), "four layers", &[under(None)?], &policies)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`save_report`].
pub fn save_report_with(
    path: impl AsRef<Path>,
    title: &str,
    plans: &[Plan],
    policies: &[(String, Plan)],
) -> Result<()> {
    let (operation, path) = ("save_report", path.as_ref());
    if plans.is_empty() || plans.len() > REPORTED_PLANS {
        let message = format!("a report has 1 to {REPORTED_PLANS} plans, not {}", plans.len());
        return Err(Error::new(ErrorKind::Argument, operation, message));
    }
    let report = Report::of(title, plans, policies)?;
    let write =
        |file: &mut dyn Write| write_page(file, &report).map_err(|error| cannot(operation, "write", path, &error));
    files::write(operation, path, write)
}

/// The page with these data.
fn write_page(mut to: &mut dyn Write, report: &Report) -> std::io::Result<()> {
    // Each part is looked for in the page alone: names cannot be taken for places.
    for (i, part) in PAGE.split("{{").enumerate() {
        let (place, text) = if i == 0 { ("", part) } else { part.split_once("}}").unwrap_or(("", part)) };
        match place {
            "style" => to.write_all(STYLE.trim_end().as_bytes())?,
            "script" => SCRIPT.iter().try_for_each(|part| to.write_all(part.as_bytes()))?,
            "data" => inert::write(&mut to, report)?,
            _ => {}
        }
        to.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_part_once_and_loads_nothing() {
        let mut page = Vec::new();
        write_page(&mut page, &Report::default()).unwrap();
        let page = String::from_utf8(page).unwrap();
        for part in SCRIPT.into_iter().chain([STYLE.trim_end()]) {
            assert_eq!(page.matches(part).count(), 1);
        }
        assert!(!page.contains("{{") && page.matches("</script>").count() == 2);
        for way in
            ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "innerHTML", "eval(", "document.write"]
        {
            assert!(!page.contains(way), "{way}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}
