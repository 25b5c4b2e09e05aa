//! Searches for wrong results of a device among random programs, and prints what it tried.
//!
//! ```text
//! cargo run --package remat-conformance -- --device xla-cpu
//! ```

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use remat::Device;
use remat_conformance::search::{Limits, search};

/// Runs random programs with checkpointed regions on a device, and compares every element of their values, gradients and updates with the
/// reference evaluator's.
#[derive(Parser)]
#[command(name = "remat-conformance")]
struct Command {
    /// The device: native, or a name that remat knows, such as xla-cpu or cuda:0.
    #[arg(long, default_value = "native")]
    device: String,
    /// Ends after this many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Ends after this many comparisons.
    #[arg(long, default_value_t = 1_000_000)]
    comparisons: u64,
    /// The seed of the first program; without it the time of day.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> Result<ExitCode, remat::Error> {
    let Command { device, seconds, comparisons, seed } = Command::parse();
    let device = if device == "native" { Device::cpu() } else { Device::named(&device)? };
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let limits = Limits { time: Duration::from_secs(seconds), comparisons, seed: seed.unwrap_or_else(now) };
    let report = search(&**device.engine(), &limits);
    print!("{report}");
    Ok(if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
