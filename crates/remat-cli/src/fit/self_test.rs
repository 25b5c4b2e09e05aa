//! `remat fit --self-test`: checks that each target compiles, and that the results are plausible.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use remat::Policy;
use remat::report::readable_bytes;
use remat_command::arguments;
use remat_command::command::Exit;
use remat_xla::{AheadOptions, Effort, Platform, Plugin, describe_plugin};

use super::place::Place;
use super::row::Row;
use super::step::Step;
use super::usual;
use crate::config::{Config, OptimizerName};
use crate::model::Sizes;

/// The targets of small steps: every chip of the table, several of one kind, and this machine.
const TARGETS: [&str; 11] =
    ["cpu", "xla-cpu", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v5e:2x4", "h100", "h200", "b200", "h100:8"];

/// The largest factor by which the temporaries of a compiler may differ from the native engine's plan of the same program. Compilers fuse,
/// pad and order for their chips, so this only detects gross mistakes: a loop whose residuals are counted once, a step that lost its
/// policy, bytes of another chip.
const APART: f64 = 4.0;

/// Steps with a known peak on each chip, in GiB, at `fast`: those of `docs/FITTING.md`. The first is 0.03 above JAX's.
const KNOWN: [(&str, &str, f64); 3] = [
    ("tpu-v5e:2x4", "Names(qkv, attn)", 9.79),
    ("tpu-v5e:2x4", "OffloadNames(attn, qkv)", 6.30),
    ("tpu-v5e:2x4", "Nothing", 6.39),
];

/// Runs all checks and prints a line for each.
///
/// # Errors
/// An exit code other than zero if a check fails or cannot be made, for example because a plugin is missing; if the output cannot be
/// written.
pub(super) fn run(out: &mut impl Write) -> Result<()> {
    writeln!(out, "remat {} fit --self-test\n", env!("CARGO_PKG_VERSION"))?;
    for platform in Platform::ALL {
        writeln!(out, "plugin for {platform}: {}", plugin(platform))?;
    }
    writeln!(out)?;
    let mut checks = Checks { out, made: 0, failed: 0 };
    for target in TARGETS {
        checks.check(&format!("a small step for {target}"), || small(target))?;
    }
    checks.check("a step that is too large for tpu-v5e", || too_large("tpu-v5e"))?;
    checks.check("a step that is too large for h100", || too_large("h100"))?;
    checks.check("a compilation that takes too long", too_long)?;
    for (target, policy, most) in KNOWN {
        checks.check(&format!("decoder-3b for {target}, {policy}"), || known(target, policy, most))?;
    }
    for target in ["h100", "h200", "b200"] {
        checks.check(&format!("gpt2 for {target}"), || gpt2(target))?;
    }
    let Checks { out, made, failed } = checks;
    writeln!(out, "\n{made} checks, {failed} failed")?;
    if failed == 0 { Ok(()) } else { Err(Exit(1).into()) }
}

/// The version of a plugin, or the reason if there is none.
fn plugin(platform: Platform) -> String {
    if let Err(error) = Plugin::path_of(platform) {
        return format!("MISSING: {}", error.message());
    }
    match describe_plugin(platform, &AheadOptions::default()) {
        Ok(plugin) => {
            let first = plugin.platform.lines().next().unwrap_or_default().to_string();
            let rest = if first.is_empty() { String::new() } else { format!(", {first}") };
            format!("PJRT {}, StableHLO {}{rest}", plugin.api, plugin.stablehlo)
        }
        Err(error) => format!("BROKEN: {}", error.message()),
    }
}

/// The checks that were made.
struct Checks<'a, W> {
    out: &'a mut W,
    made: usize,
    failed: usize,
}

impl<W: Write> Checks<'_, W> {
    /// Makes a check, which returns its findings, or the reason why they cannot be right.
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<String>) -> Result<()> {
        let started = Instant::now();
        let found = check();
        let seconds = started.elapsed().as_secs_f64();
        self.made += 1;
        self.failed += usize::from(found.is_err());
        match found {
            Ok(found) => writeln!(self.out, "ok      {name}: {found} ({seconds:.0} s)")?,
            Err(error) => writeln!(self.out, "FAILED  {name}: {error:#} ({seconds:.0} s)")?,
        }
        // Checks take minutes, and the user should see the progress.
        Ok(self.out.flush()?)
    }
}

fn options() -> AheadOptions {
    AheadOptions { effort: Effort::Fast, time_limit: Duration::from_secs(600), ..AheadOptions::default() }
}

/// The place of a target, if its compiler is installed.
fn place(target: &str) -> Result<Place> {
    let place = Place::read(target)?.into_iter().next().ok_or_else(|| anyhow!("there is no target `{target}`"))?;
    place.expect_compiler()?;
    Ok(place)
}

/// The row of a successful compilation.
fn row(place: &Place, step: &Step, policy: Option<&Policy>, options: &AheadOptions) -> Result<Row> {
    let row = place.row(step, policy, options)?;
    ensure!(!row.is_failed(), "{}", row.error.unwrap_or_default());
    Ok(row)
}

/// A decoder that compiles in seconds, large enough that activations are most of its memory.
fn small_step(chips: usize) -> Result<Step> {
    let sizes = Sizes {
        layers: Some(6),
        width: Some(512),
        heads: Some(4),
        kv_heads: Some(4),
        hidden: Some(2048),
        vocab: Some(1024),
        context: Some(512),
    };
    let step = usual("llama-tiny", 512)?;
    let config = Config { sizes, ..step.config.clone() };
    Ok(Step { architecture: config.architecture()?, config, ..step }.with(8, chips))
}

/// A small step compiles, fits, saves memory with a policy, and takes about what the native engine plans.
fn small(target: &str) -> Result<String> {
    let place = place(target)?;
    let step = small_step(place.chips())?;
    let [none, nothing] = [None, Some(Policy::Nothing)].map(|policy| row(&place, &step, policy.as_ref(), &options()));
    let (none, nothing) = (none?, nothing?);
    let [all, few] = [&none, &nothing].map(|row| row.temporaries.unwrap_or_default());
    let found = format!("temporaries {}, of policy nothing {}", readable(all), readable(few));
    ensure!(none.fits() && nothing.fits(), "it does not fit: {found}");
    ensure!(few < all, "the policy saves no memory: {found}");
    ensure!(nothing.recompute > 0.1, "the policy computes nothing again");
    if place.chips() == 1 {
        let planned = step.trace(None)?.native()?.temporaries as f64;
        let ratio = all as f64 / planned;
        ensure!((1.0 / APART..APART).contains(&ratio), "{found}; the native engine plans {}", readable(planned as u64));
    }
    let arguments = none.parameters + none.optimizer;
    let peak = none.peak.unwrap_or_default();
    ensure!(peak >= arguments + all, "the peak, {}, has no room for arguments and temporaries", readable(peak));
    Ok(found)
}

/// A step that does not fit is reported as such, with the bytes that it needs.
fn too_large(target: &str) -> Result<String> {
    let place = place(target)?;
    let step = usual("llama-8b", 2048)?.with(64, 1);
    let config = Config { optimizer: OptimizerName::Sgd, ..step.config.clone() };
    let step = Step { config, ..step };
    let row = row(&place, &step, None, &options())?;
    let peak = row.peak.ok_or_else(|| anyhow!("it is not said how much it needs"))?;
    ensure!(!row.fits(), "it is said to fit, in {}", readable(peak));
    ensure!(peak > row.capacity, "it needs {}, of {}", readable(peak), readable(row.capacity));
    Ok(format!("{} do not fit in {}", readable(peak), readable(row.capacity)))
}

/// A compiler that takes too long is ended, which is a row with an error.
fn too_long() -> Result<String> {
    let place = place("tpu-v5e")?;
    let options = AheadOptions { time_limit: Duration::from_millis(50), ..options() };
    let row = place.row(&small_step(1)?, None, &options)?;
    ensure!(row.is_failed(), "it is said to be known");
    let error = row.error.unwrap_or_default();
    ensure!(error.contains("took longer than"), "it was not ended: {error}");
    Ok(error)
}

/// The step of `docs/FITTING.md` takes no more than before.
fn known(target: &str, policy: &str, most: f64) -> Result<String> {
    let place = place(target)?;
    let step = Step { updates: false, ..usual("decoder-3b", 2048)?.with(32, place.chips()) };
    let row = row(&place, &step, arguments::policy(policy)?.as_ref(), &options())?;
    let peak = row.peak.unwrap_or(u64::MAX);
    let found = format!("{} on each chip", readable(peak));
    ensure!(row.fits() && peak as f64 <= most * f64::from(1 << 30), "{found}, of {most} GiB at most");
    Ok(found)
}

/// GPT-2 trains on one of these GPUs.
fn gpt2(target: &str) -> Result<String> {
    let place = place(target)?;
    let step = usual("gpt2", 1024)?.with(16, 1);
    let row = row(&place, &step, None, &options())?;
    ensure!(row.fits(), "it does not fit in {}", readable(row.capacity));
    Ok(format!("batch 16 takes {}", readable(row.peak.unwrap_or_default())))
}

fn readable(bytes: u64) -> String {
    readable_bytes(bytes as usize)
}
