//! The step of the table, run on a device of this machine: what a compiler promised beside what the device measured.

use std::io::Write;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use remat::ir::{CompileOptions, MemoryStats};
use remat::report::readable_bytes;
use remat::tree::leaves;
use remat::{Cpu, DType, Device, Policy, Tensor, jit_with};
use remat_command::arguments;
use remat_command::table::{readable_seconds, table};
use remat_command::times::median;
use remat_command::{child, progress, resident};
use remat_xla::{DeviceMemory, Xla};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::estimate::Work;
use super::step::{Step, native};
use crate::config::{Config, Precision};
use crate::policy::shown;
use crate::train::architecture;

/// The hidden command that runs one policy.
pub(crate) const ONE: &str = "fit-one-policy";

/// A policy to run in a process of its own, so that the peak of the device's allocator, which is never reset, is that of this policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Those of the configuration, without the policy.
    pub(super) settings: Map<String, Value>,
    /// The dtype of the weights.
    pub(super) parameters: String,
    /// Whether the step has an optimizer.
    pub(super) updates: bool,
    pub(super) device: String,
    pub(super) policy: String,
    /// The batches that run one after the other, also after one that fails.
    pub(super) batches: Vec<usize>,
    /// Timed steps, after one that compiles.
    pub(super) steps: usize,
}

/// What a policy did at one batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    device: String,
    policy: String,
    /// Sequences per batch, and batches per step.
    batch: usize,
    accumulate: usize,
    #[serde(flatten)]
    planned: Option<Planned>,
    #[serde(flatten)]
    measured: Option<Measured>,
    /// The reason if there are no measurements.
    error: Option<String>,
}

impl Row {
    /// A row without figures.
    fn failed(device: &str, policy: &str, [batch, accumulate]: [usize; 2], error: Option<String>) -> Row {
        let (device, policy) = (device.to_string(), policy.to_string());
        Row { device, policy, batch, accumulate, planned: None, measured: None, error }
    }
}

/// What is known before a step runs. Times are seconds, sizes bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Planned {
    /// The time to compile the step.
    compile_s: f64,
    /// Operations of a step that computes nothing again.
    flops: u64,
    /// The peak according to the engine that compiled the step, with donated arguments if the step has an optimizer.
    planned_peak: usize,
    /// Its temporaries.
    temporaries: usize,
}

/// The measurements of a step. Times are seconds, sizes bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    /// The time of the first step, which traces it, and reads the compiled program from the user's cache.
    first_s: f64,
    /// The median time of a later step, until its results are there.
    step_s: f64,
    /// The median time until the call of such a step returns.
    call_s: f64,
    /// What the device's allocator counted before the first step, and after the last one; `None` where nobody counts.
    before: Option<Counted>,
    after: Option<Counted>,
    /// The loss of each step, the first one included.
    losses: Vec<f64>,
    /// The memory after some of the steps.
    samples: Vec<Sample>,
    /// The seconds at which each of some calls, made without waiting between them, returned, and at which its loss was there.
    timeline: Vec<[f64; 2]>,
}

/// The counts of an allocator, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Counted {
    in_use: u64,
    peak: Option<u64>,
    limit: Option<u64>,
    allocations: Option<u64>,
}

/// The memory after a step.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sample {
    /// The number of the step, from 1.
    step: usize,
    /// Arrays on the device, of all sizes.
    arrays: Option<usize>,
    /// Bytes that the device's allocator gave out.
    in_use: Option<u64>,
    /// Resident bytes of the process.
    resident: Option<usize>,
}

/// The number of steps whose memory is kept, and that of calls in the timeline.
const SAMPLES: usize = 20;
const TIMELINE: usize = 8;

/// Runs one policy, in this process.
///
/// # Errors
/// If the case is not valid, or there is no such device. The failure of a batch is an error in its row.
pub(crate) fn one(case: &str, out: &mut impl Write) -> Result<()> {
    child::answer(case, out, rows)
}

fn rows(case: Case) -> Result<Vec<Row>> {
    let device = Device::named(&case.device)?;
    let policy = arguments::policy(&case.policy)?;
    let config = Config::from_settings(&case.settings)?;
    let architecture = architecture(&config)?;
    let parameters = Precision::from_str(&case.parameters, false).map_err(anyhow::Error::msg)?.dtype();
    let step = Step { config, architecture, parameters, updates: case.updates, chips: 1 };
    let row = |&batch: &usize| -> Result<Row> {
        let step = step.with(batch, 1);
        let batches = [batch, step.config.accumulate];
        let mut row = Row::failed(device.name(), &shown(policy.as_ref()), batches, None);
        let planned = plan(&step, policy.as_ref(), &device);
        row.planned = planned.as_ref().ok().copied();
        let measured = planned.and_then(|_| measure(&step, policy.as_ref(), &device, case.steps));
        row.error = measured.as_ref().err().map(|error| format!("{error:#}"));
        row.measured = measured.ok();
        Ok(row)
    };
    case.batches.iter().map(row).collect()
}

/// The rows of all policies.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Table(Vec<Row>);

impl Table {
    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Whether nothing was measured.
    pub(super) fn is_failed(&self) -> bool {
        self.0.iter().all(|row| row.measured.is_none())
    }
}

/// Runs the policies, and prints a table.
///
/// # Errors
/// If the output cannot be written. The failure of a policy is an error in its row.
pub(super) fn run(case: &Case, policies: &[Option<Policy>], out: &mut impl Write) -> Result<Table> {
    let accumulate = Config::from_settings(&case.settings)?.accumulate;
    let bar = progress::bar(policies.len());
    let mut all = Vec::new();
    for policy in policies {
        let policy = shown(policy.as_ref());
        bar.set_message(policy.clone());
        let case = Case { policy: policy.clone(), ..case.clone() };
        let failed = |error: &anyhow::Error| -> Vec<Row> {
            let error = format!("{error:#}");
            let row = |&batch: &usize| Row::failed(&case.device, &policy, [batch, accumulate], Some(error.clone()));
            case.batches.iter().map(row).collect()
        };
        let rows: Result<Vec<Row>> = child::ask(&[ONE], &case, &[]);
        all.extend(rows.unwrap_or_else(|error| failed(&error)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let header = ["policy", "batch", "planned peak", "measured peak", "a step", "the call", "TFLOP/s", "loss"];
    writeln!(out, "{}", table(&header, &all.iter().map(cells).collect::<Vec<_>>()))?;
    for row in &all {
        if let Some(error) = &row.error {
            writeln!(out, "note: {}, batch {}: {error}", row.policy, row.batch)?;
        }
    }
    Ok(Table(all))
}

fn cells(row: &Row) -> Vec<String> {
    let bytes = |bytes: Option<usize>, otherwise: &str| bytes.map_or(otherwise.to_string(), readable_bytes);
    let several = if row.accumulate > 1 { format!(" x {}", row.accumulate) } else { String::new() };
    let mut cells = vec![row.policy.clone(), format!("{}{several}", row.batch)];
    cells.push(bytes(row.planned.map(|planned| planned.planned_peak), "-"));
    let Some(measured) = &row.measured else {
        cells.extend(["-"; 5].map(String::from));
        return cells;
    };
    let peak = measured.after.and_then(|counted| counted.peak).map(|bytes| bytes as usize);
    let rate = row.planned.map(|planned| planned.flops as f64 / measured.step_s / 1e12);
    cells.extend([
        bytes(peak, "not counted"),
        readable_seconds(measured.step_s),
        readable_seconds(measured.call_s),
        rate.map_or_else(String::new, |rate| format!("{rate:.1}")),
        measured.losses.last().map_or_else(String::new, |loss| format!("{loss:.4}")),
    ]);
    cells
}

/// Compiles the step for a caller who gives up the weights and the state, or keeps them if there is no optimizer.
///
/// # Errors
/// If the step cannot be traced or compiled.
fn plan(step: &Step, policy: Option<&Policy>, device: &Device) -> Result<Planned> {
    let traced = step.trace(policy)?;
    let flops = Work::of(&step.trace(None)?.jaxpr, 0, device.name() == Cpu::NAME).flops;
    let inputs = traced.jaxpr.in_avals().len();
    // Constants come first, and the batch last.
    let given = inputs - traced.arguments..inputs - 2;
    let donated = (0..inputs).map(|i| traced.donates && given.contains(&i)).collect();
    let started = Instant::now();
    let compiled =
        device.engine().compile_with(&traced.jaxpr, &CompileOptions { donated, ..CompileOptions::default() })?;
    let compile_s = started.elapsed().as_secs_f64();
    let MemoryStats { temporaries, peak, donated_peak, .. } = compiled.memory();
    let planned_peak = if traced.donates { donated_peak } else { peak };
    Ok(Planned { compile_s, flops, planned_peak, temporaries })
}

/// Trains on one batch of random tokens.
///
/// # Errors
/// If the step cannot be traced, compiled or run, for example for lack of memory.
fn measure(step: &Step, policy: Option<&Policy>, device: &Device, steps: usize) -> Result<Measured> {
    let xla = Xla::named(device.name())?;
    let counted = || -> Result<Option<Counted>> {
        let memory = xla.as_ref().map_or(Ok(None), Xla::device_memory)?;
        Ok(memory.map(|DeviceMemory { in_use, peak, limit, allocations }| Counted { in_use, peak, limit, allocations }))
    };
    let mut state = step.random(device)?;
    let run = step.on(policy, &state, device)?;
    let to_number = jit_with(&native(), |loss: &Tensor| loss.to_dtype(DType::F64));
    let before = counted()?;
    let (mut losses, mut samples) = (Vec::new(), Vec::new());
    let (mut calls, mut times) = (Vec::new(), Vec::new());
    let every = (steps + 1).div_ceil(SAMPLES);
    for number in 1..=steps + 1 {
        let started = Instant::now();
        let loss;
        (loss, state) = run.call(state)?;
        calls.push(started.elapsed().as_secs_f64());
        loss.wait()?;
        leaves(&state).iter().try_for_each(|(_, leaf)| leaf.wait())?;
        times.push(started.elapsed().as_secs_f64());
        losses.push(to_number.call(loss.to_device(&Device::cpu()))?.item::<f64>()?);
        drop(loss);
        if number == 1 || number % every == 0 || number > steps {
            let (arrays, resident) = (xla.as_ref().map(Xla::num_arrays), resident::now());
            let in_use = counted()?.map(|counted| counted.in_use);
            samples.push(Sample { step: number, arrays, in_use, resident });
        }
    }
    let started = Instant::now();
    let mut returned = Vec::new();
    for _ in 0..TIMELINE {
        let loss;
        (loss, state) = run.call(state)?;
        returned.push((started.elapsed().as_secs_f64(), loss));
    }
    let ready = |(returned, loss): &(f64, Tensor)| -> Result<[f64; 2]> {
        loss.wait()?;
        Ok([*returned, started.elapsed().as_secs_f64()])
    };
    let timeline = returned.iter().map(ready).collect::<Result<_>>()?;
    let after = counted()?;
    calls.remove(0);
    Ok(Measured {
        first_s: times.remove(0),
        step_s: median(&mut times),
        call_s: median(&mut calls),
        before,
        after,
        losses,
        samples,
        timeline,
    })
}
