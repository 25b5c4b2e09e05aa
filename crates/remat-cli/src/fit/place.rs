//! A step compiled for a target, as a row of the table.

use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Result, bail};
use remat::ir::{ErrorKind, did_you_mean};
use remat::{DType, Policy, Tensor, jit_with};
use remat_opt::cost::Machine;
use remat_xla::{
    AheadOptions, Attention, Chip, ChipMemory, Effort, Options, Platform, Plugin, Target, compile_module_ahead,
    compile_module_here, stablehlo,
};

use super::estimate::{Work, seconds};
use super::row::Row;
use super::step::{Step, Traced, native};
use crate::machine;
use crate::policy::shown;

/// The target of a compilation.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Place {
    /// Chips that need not be in the machine.
    Chips(Target),
    /// This machine, with the native engine.
    Cpu,
    /// This machine, with XLA's plugin for CPUs.
    XlaCpu,
}

/// The memory of a step, as far as it is known.
enum Found {
    Memory(ChipMemory),
    /// The compiler refused it for lack of memory; the bytes that it needs, if the compiler reports them.
    TooMuch(Option<u64>, String),
    Failed(String),
}

impl Place {
    /// The targets in this text; `all` means all of them.
    pub(super) fn read(text: &str) -> Result<Vec<Place>> {
        Ok(match text {
            "cpu" => vec![Place::Cpu],
            "xla-cpu" => vec![Place::XlaCpu],
            "all" => {
                let chips = Chip::all().iter().map(|chip| Ok(Place::Chips(Target::new(chip, 1)?)));
                chips.chain([Ok(Place::Cpu)]).collect::<Result<_>>()?
            }
            target => match target.parse() {
                Ok(target) => vec![Place::Chips(target)],
                Err(error) => bail!("{}", unknown(target).unwrap_or_else(|| error.message().to_string())),
            },
        })
    }

    pub(super) fn chips(&self) -> usize {
        match self {
            Place::Chips(target) => target.chips(),
            Place::Cpu | Place::XlaCpu => 1,
        }
    }

    /// Fails, with the command that installs it, if the compiler for the target is missing.
    pub(super) fn expect_compiler(&self) -> Result<()> {
        if let Some(platform) = self.platform() {
            Plugin::path_of(platform)?;
        }
        Ok(())
    }

    /// Does the work that rows need once and that nothing else may disturb: measuring the rates of this machine.
    ///
    /// # Errors
    /// If the native engine fails, which is a defect.
    pub(super) fn prepare(&self, dtype: DType) -> Result<()> {
        match self {
            Place::Chips(_) => Ok(()),
            Place::Cpu | Place::XlaCpu => this_machine(dtype).map(drop),
        }
    }

    /// The platform whose plugin compiles for the target; the native engine has none.
    pub(super) fn platform(&self) -> Option<Platform> {
        match self {
            Place::Chips(target) => Some(target.chip().platform),
            Place::Cpu => None,
            Place::XlaCpu => Some(Platform::Cpu),
        }
    }

    /// A step under a policy on this target.
    ///
    /// # Errors
    /// If the step cannot be traced. Errors of the compiler are part of the row.
    pub(super) fn row(&self, step: &Step, policy: Option<&Policy>, options: &AheadOptions) -> Result<Row> {
        let traced = step.trace(policy)?;
        let update = step.update_bytes(&traced.parts);
        let work_of = |jaxpr| Work::of(jaxpr, update, *self == Place::Cpu);
        let work = work_of(&traced.jaxpr);
        let least = if policy.is_none() { work } else { work_of(&step.trace(None)?.jaxpr) };
        let started = Instant::now();
        let mut level = if matches!(self, Place::Chips(_)) { options.effort } else { Effort::Full };
        let mut found = self.find(&traced, options)?;
        let capacity = self.capacity();
        // Fast compilation takes a few tenths more memory.
        let is_close = match &found {
            Found::Memory(memory) => !memory.fits() && memory.peak() < capacity / 10 * 13,
            Found::TooMuch(needs, _) => needs.is_some_and(|needs| needs < capacity / 10 * 13),
            Found::Failed(_) => false,
        };
        if level == Effort::Fast && is_close {
            level = Effort::Full;
            found = self.find(&traced, &AheadOptions { effort: level, ..options.clone() })?;
        }
        let compile_seconds = started.elapsed().as_secs_f64();
        let parts = traced.parts;
        let (memory, peak, fits, error) = match found {
            Found::Memory(memory) => (memory, Some(memory.peak()), Some(memory.fits()), None),
            Found::TooMuch(needs, why) => (ChipMemory::default(), needs, Some(false), Some(why)),
            Found::Failed(why) => (ChipMemory::default(), None, None, Some(why)),
        };
        let seconds = match self {
            Place::Chips(target) => seconds(&work, target.chip(), target.chips(), step.dtype(), &parts, &memory),
            Place::Cpu | Place::XlaCpu => work.seconds(&this_machine(step.dtype())?, 1),
        };
        Ok(Row {
            target: self.to_string(),
            chips: self.chips(),
            policy: shown(policy),
            batch: step.config.batch,
            peak,
            parameters: parts.parameters,
            optimizer: parts.optimizer,
            activations: peak.map(|peak| peak.saturating_sub(parts.parameters + parts.optimizer)),
            temporaries: (memory.capacity > 0).then_some(memory.temporaries),
            host: memory.host_temporaries,
            capacity,
            fits,
            flops: work.flops,
            recompute: work.overhead(&least),
            seconds,
            largest_batch: None,
            largest_batch_level: None,
            level: match (self, level) {
                (Place::Cpu, _) => "exact",
                (_, Effort::Fast) => "fast",
                (_, Effort::Full) => "full",
            },
            compile_seconds,
            error,
        })
    }

    fn capacity(&self) -> u64 {
        match self {
            Place::Chips(target) => target.chip().memory,
            Place::Cpu | Place::XlaCpu => machine::memory().map_or(u64::MAX, |bytes| bytes as u64),
        }
    }

    fn find(&self, traced: &Traced, options: &AheadOptions) -> Result<Found> {
        let Some(platform) = self.platform() else {
            let stats = traced.native()?;
            let [arguments, outputs, temporaries] =
                [stats.arguments, stats.outputs, stats.temporaries + stats.overhead].map(|bytes| bytes as u64);
            // If the step owns model and state, the new ones take the memory of the old ones.
            let aliased = if traced.donates { (stats.peak - stats.donated_peak) as u64 } else { 0 };
            let capacity = self.capacity();
            return Ok(Found::Memory(ChipMemory {
                arguments,
                outputs,
                temporaries,
                aliased,
                capacity,
                ..ChipMemory::default()
            }));
        };
        let attention = Attention::of_environment()?;
        let text = Options { platform, donates: traced.donates, attention, ..Options::default() };
        let module = stablehlo(&traced.jaxpr, &text)?;
        let memory = match self {
            Place::Chips(target) => compile_module_ahead(&module, target, options),
            Place::Cpu | Place::XlaCpu => compile_module_here(&module, self.capacity(), options),
        };
        Ok(match memory {
            Ok(memory) => Found::Memory(memory),
            Err(error) if error.kind() == ErrorKind::Memory => {
                let message = error.message();
                Found::TooMuch(needed(message), message.lines().next().unwrap_or_default().to_string())
            }
            Err(error) => Found::Failed(error.message().split_whitespace().collect::<Vec<_>>().join(" ")),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Chips(target) => target.fmt(f),
            Place::Cpu => f.write_str("cpu"),
            Place::XlaCpu => f.write_str("xla-cpu"),
        }
    }
}

/// The error of a target that is neither a chip nor this machine, with the nearest one; `None` if its chip is known.
fn unknown(target: &str) -> Option<String> {
    let name = target.split_once(':').map_or(target, |(name, _)| name);
    let chips = || Chip::all().iter().map(|chip| chip.name);
    if chips().any(|chip| chip == name) {
        return None;
    }
    let hint = match chips().find(|chip| chip.strip_prefix("tpu-").is_some_and(|generation| generation == name)) {
        Some(chip) => format!("; did you mean `{chip}`?"),
        None => did_you_mean(name, chips().chain(["cpu", "xla-cpu", "all"]), || {
            format!("; the targets are {}, cpu, xla-cpu and all", chips().collect::<Vec<_>>().join(", "))
        }),
    };
    Some(format!("unknown target `{name}`{hint}"))
}

/// The bytes that a program needs according to the compiler: the first number with a unit in brackets, as in `required (16.33G)`.
fn needed(message: &str) -> Option<u64> {
    message.split('(').skip(1).find_map(|rest| {
        let number = rest.split(')').next()?;
        let unit =
            [('K', 10), ('M', 20), ('G', 30), ('T', 40)].into_iter().find(|(unit, _)| number.ends_with(*unit))?;
        let number: f64 = number.strip_suffix(unit.0)?.parse().ok()?;
        Some((number * (1u64 << unit.1) as f64) as u64)
    })
}

/// The rates of this machine for matrix products of this dtype and for copies, measured once with the native engine. The default device is
/// not used, since it may be missing.
fn this_machine(dtype: DType) -> Result<Machine> {
    static MEASURED: OnceLock<remat::Result<Machine>> = OnceLock::new();
    Ok(MEASURED.get_or_init(|| measure(dtype)).clone()?)
}

fn measure(dtype: DType) -> remat::Result<Machine> {
    // An unoptimised build, whose rates do not matter, should not take minutes.
    let [size, length] = if cfg!(debug_assertions) { [128, 1 << 16] } else { [1024, 1 << 24] };
    let native = native();
    let ones = |len: &[usize]| {
        let len = len.to_vec();
        jit_with(&native, move |_: &()| Tensor::ones(&len[..], dtype)).call(())
    };
    let x = ones(&[size, size])?;
    let product = jit_with(&native, |x: &Tensor| x.matmul(x));
    let copy = jit_with(&native, |x: &Tensor| x + 1.0);
    // The first call compiles, and wakes the threads.
    let seconds = |run: &dyn Fn() -> remat::Result<()>| -> remat::Result<f64> {
        let mut least = f64::INFINITY;
        for _ in 0..4 {
            let started = Instant::now();
            run()?;
            least = least.min(started.elapsed().as_secs_f64());
        }
        Ok(least)
    };
    let flops = 2.0 * (size * size * size) as f64 / seconds(&|| product.call(x.clone()).map(drop))?;
    let large = ones(&[length])?;
    let bytes = (2 * dtype.size() * length) as f64 / seconds(&|| copy.call(large.clone()).map(drop))?;
    Ok(Machine { flops, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_that_are_needed_are_read_from_the_error() {
        let message = "Ran out of memory on HBM, the total memory required for HLO temporaries (16.33G) exceeds available HBM (15.75G).";
        assert_eq!(needed(message), Some((16.33 * f64::from(1 << 30)) as u64));
        assert_eq!(needed("no (figure) here"), None);
    }

    #[test]
    fn unknown_targets_have_a_hint() {
        let error = |target: &str| Place::read(target).unwrap_err().to_string();
        assert_eq!(error("v5e"), "unknown target `v5e`; did you mean `tpu-v5e`?");
        assert_eq!(error("v5e:2x4"), "unknown target `v5e`; did you mean `tpu-v5e`?");
        assert_eq!(error("xla-cpus"), "unknown target `xla-cpus`; did you mean `xla-cpu`?");
        assert!(error("quantum").ends_with("b200, cpu, xla-cpu and all"), "{}", error("quantum"));
        // A slice that does not exist is not an unknown target.
        assert!(error("tpu-v5e:3x3").starts_with("tpu-v5e has no slice of 3x3"), "{}", error("tpu-v5e:3x3"));
    }
}
