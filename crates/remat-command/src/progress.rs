//! The progress of a command with several jobs in a row.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar with the number of finished jobs, if standard error is a terminal.
///
/// ```
/// let bar = remat_command::progress::bar(2);
/// bar.set_message("the first");
/// bar.inc(1);
/// bar.finish_and_clear();
/// ```
pub fn bar(count: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {elapsed}  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Writes a line to standard error: above the bar on a terminal. If it cannot be written, the work goes on without it.
///
/// ```
/// let bar = remat_command::progress::bar(2);
/// remat_command::progress::say(&bar, "the first is done");
/// ```
pub fn say(bar: &ProgressBar, line: &str) {
    bar.suspend(|| {
        let _ = writeln!(std::io::stderr(), "{line}");
    });
}
