//! `remat profile`: where the time of a training step goes.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use remat_io::save_trace;

use crate::config::{Config, Flags};
use crate::train::{architecture, profiled};

/// Arguments of `remat profile`. The configuration has the same flags and file keys as that of `remat train`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML file with settings, like that of `remat train`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Steps to time, after one untimed step; the profile is that of the step with the median time
    #[arg(long, value_name = "STEPS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Write the steps of the engine to this file in the trace event format, which Perfetto (ui.perfetto.dev) opens: a track for the forward pass,
    /// for what is computed again and for the derivative, and the bytes of temporaries
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// Runs the command.
///
/// # Errors
/// If a setting is not valid, the engine of the device has no profiles, a step fails, or an output cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let settings = args.flags.settings(args.config.as_deref())?;
    let config = Config::of(&settings)?;
    let device = config.device()?;
    ensure!(device.engine().plans_memory(), "the engine of {} has no profiles; the native engine has", device.name());
    let described = architecture(&config)?;
    let (context, batch, policy) = (config.context(&described), config.batch, &config.policy);
    writeln!(
        out,
        "{described}, context {context}, batch {batch}, policy {policy}: the median of {} steps",
        args.repeat
    )?;
    let profile = profiled(&config, args.repeat)?;
    writeln!(out, "\n{profile}")?;
    if let Some(path) = &args.trace {
        save_trace(path, &profile)?;
    }
    Ok(())
}
