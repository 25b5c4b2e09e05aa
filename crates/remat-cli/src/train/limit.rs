//! Memory limits, and changes with which a run would fit.

use std::fmt::Write;

use anyhow::{Result, bail};
use remat::ErrorKind;
use remat::memory::Lever;
use remat::report::readable_bytes;
use remat_command::table::table;

use super::plan::{Plan, Program, Subject};
use crate::config::{Config, OptimizerName};
use crate::machine;
use crate::policy::LISTED;

/// A memory limit.
pub(super) struct Limit {
    bytes: usize,
    /// The bytes that the process takes beside programs and their values, and others under the same limit. A limit of programs has none.
    beside: usize,
    /// The name of the limit.
    name: &'static str,
}

impl Limit {
    /// The limit of the configuration, or else of the environment, or else the memory of the machine.
    pub(super) fn of(config: &Config) -> Option<Limit> {
        if let Some(bytes) = config.limit() {
            return Some(Limit { bytes, beside: machine::of_process(), name: "the memory limit" });
        }
        let set = std::env::var("REMAT_MEMORY_LIMIT").ok().and_then(|text| remat::ir::parse_bytes(&text));
        let set = set.map(|bytes| Limit { bytes, beside: 0, name: "REMAT_MEMORY_LIMIT" });
        set.or_else(|| {
            let machine::Bound { bytes, beside } = machine::bound()?;
            Some(Limit { bytes, beside, name: "the memory of this machine or its control group" })
        })
    }

    /// Whether this many bytes fit.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.beside.saturating_add(bytes) <= self.bytes
    }

    /// The plan of a run that does not fit in which values of a step are computed again, if it fits then, with the plan of the step, and the limit
    /// as it is after planning; a line says so.
    ///
    /// # Errors
    /// As [`Plan::of`]; if the output cannot be written.
    pub(super) fn rematerialized(
        &self,
        plan: &Plan,
        program: &Program<'_>,
        config: &Config,
        out: &mut impl std::io::Write,
    ) -> Result<Option<(Plan, remat::Plan, Limit)>> {
        let (free, mut beside) = (program.step()?, self.beside);
        loop {
            let step = match free.for_bytes(self.bytes.saturating_sub(beside)) {
                Ok(step) => step,
                Err(error) if error.kind() == ErrorKind::Memory => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let planned = program.planned(&step)?;
            // The process has grown by what it takes to make a plan, the first one more than the others.
            let Some(now) = Limit::of(config) else { return Ok(None) };
            if now.fits(planned.total()) {
                now.tell(plan, &planned, &step, out)?;
                return Ok(Some((planned, step, now)));
            }
            if now.beside <= beside {
                return Ok(None);
            }
            beside = now.beside;
        }
    }

    /// Prints what a step takes that computes values again.
    fn tell(&self, plan: &Plan, planned: &Plan, step: &remat::Plan, out: &mut impl std::io::Write) -> Result<()> {
        let [bytes, now, before] = [self.bytes, planned.step, plan.step].map(readable_bytes);
        let more = 100.0 * step.overhead();
        Ok(writeln!(
            out,
            "to stay within {}, {bytes}, a step computes values again: it takes {now} instead of {before}, for {more:.1} % more time by the cost model",
            self.name,
        )?)
    }

    /// Prints the changes with which a run would fit that does not.
    ///
    /// # Errors
    /// Always: by how much it does not fit, and the cheapest change with which it does.
    pub(super) fn refuse(&self, plan: &Plan, subject: &Subject<'_>, out: &mut impl std::io::Write) -> Result<()> {
        let changes = changes(plan, subject)?;
        writeln!(out, "changes that make it fit, or come closer:\n\n{}\n", self.table(&changes))?;
        let needs = self.beside.saturating_add(plan.total());
        let over = needs.saturating_sub(self.bytes);
        let mut text = format!(
            "{} needs {}, {} more than {}, {}",
            plan.largest(),
            readable_bytes(needs),
            readable_bytes(over),
            self.name,
            readable_bytes(self.bytes)
        );
        if self.beside > 0 {
            let _ = write!(text, " ({} of it for the process itself)", readable_bytes(self.beside));
        }
        let _ = write!(text, "; model, optimizer and batch alone take {}", readable_bytes(plan.fixed()));
        let fitting = changes.iter().filter(|change| self.fits(change.peak));
        let cost = |lever: &&Lever<String>| (!lever.keeps_results, lever.more_operations, lever.peak);
        match fitting.min_by(|a, b| cost(a).partial_cmp(&cost(b)).unwrap_or(std::cmp::Ordering::Equal)) {
            Some(Lever { change, peak, .. }) => {
                bail!("{text}; with {change} it needs {}", readable_bytes(self.beside + peak))
            }
            None => bail!("{text}; nothing that was tried makes it fit"),
        }
    }

    fn table(&self, changes: &[Lever<String>]) -> String {
        let row = |lever: &Lever<String>| {
            let mark = if self.fits(lever.peak) { "> " } else { "  " };
            vec![format!("{mark}{}", lever.change), readable_bytes(self.beside + lever.peak), lever.price()]
        };
        table(&["  change", "needs", ""], &changes.iter().map(row).collect::<Vec<_>>())
    }
}

/// Changes of flags that need less memory, those with the same results first.
///
/// # Errors
/// As [`Plan::of`].
fn changes(before: &Plan, subject: &Subject<'_>) -> Result<Vec<Lever<String>>> {
    let config = subject.config;
    let policy = |policy: &str, config: &Config| Config { policy: policy.into(), ..config.clone() };
    let parts = |count: usize, config: &Config| Config {
        batch: config.batch / count,
        accumulate: config.accumulate * count,
        ..config.clone()
    };
    let mut tried = Vec::new();
    for listed in LISTED {
        tried.push(policy(listed, config));
    }
    let halves = (1..).map(|power| 1 << power).take_while(|&count| config.batch.is_multiple_of(count));
    for count in halves {
        tried.extend([parts(count, config), parts(count, &policy("Nothing", config))]);
    }
    if config.clip_norm > 0.0 {
        let unclipped = Config { clip_norm: 0.0, ..config.clone() };
        tried.extend([policy("Nothing", &unclipped), unclipped]);
    }
    for optimizer in [OptimizerName::Adafactor, OptimizerName::Adam8bit] {
        let smaller = Config { optimizer, ..config.clone() };
        if smaller.weight_decay().is_err() {
            continue;
        }
        tried.extend([policy("Nothing", &smaller), smaller.clone()]);
        tried.push(policy("Nothing", &Config { clip_norm: 0.0, ..smaller }));
    }
    let mut changes = Vec::new();
    for changed in tried {
        let plan = Plan::of(&subject.with(&changed))?;
        let keeps_results = changed.optimizer == config.optimizer && changed.clip_norm == config.clip_norm;
        if plan.total() < before.total() {
            let more_operations = plan.flops as f64 / before.flops.max(1) as f64 - 1.0;
            let (change, peak) = (flags(config, &changed)?, plan.total());
            changes.push(Lever { change, peak, more_operations, keeps_results, is_planned: true });
        }
    }
    changes.sort_by_key(|lever| (!lever.keeps_results, lever.peak));
    Ok(changes)
}

/// The flags that differ.
///
/// # Errors
/// If a path is not Unicode.
fn flags(config: &Config, changed: &Config) -> Result<String> {
    let before = config.to_settings()?;
    let text =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), |text| text.replace(' ', ""));
    let flag = |(key, value): (&String, &serde_json::Value)| {
        (before.get(key) != Some(value)).then(|| {
            let text = text(value);
            if text.contains('(') { format!("--{key} '{text}'") } else { format!("--{key} {text}") }
        })
    };
    Ok(changed.to_settings()?.iter().filter_map(flag).collect::<Vec<_>>().join(" "))
}
