//! `remat-bench calls`: the overhead of calls and of compiling.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use anyhow::Result;
use remat::{DType, Device, Tensor, jit, value_and_grad};
use remat_command::arguments::{policy, up_to};
use remat_command::table::table;
use remat_command::times::median;
use remat_xla::Xla;
use serde::Serialize;

use crate::ALLOCATOR;
use crate::measure::timed;
use crate::models::gpt::{Attention, Choices, Gpt, LayersAs, Sizes};

/// Calls that are timed together, since one is shorter than the clock's resolution.
const CALLS: usize = 1000;

/// How many such groups are timed.
const SAMPLES: usize = 25;

/// The policies with which the step is compiled.
const POLICIES: [&str; 4] = ["none", "Dots", "DotsWithNoBatchDims", "Nothing"];

/// Arguments of `remat-bench calls`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sizes: Compiled,
    /// A device of XLA, such as `xla-cpu`: its calls beside those of its plugin, and nothing else
    #[arg(long)]
    device: Option<String>,
    /// Times each program is traced and compiled
    #[arg(long, default_value_t = 5, value_parser = up_to(1_000_000))]
    repeat: usize,
    /// Print lines of JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// The sizes of the step that is compiled: those of the reference step, but for these.
#[derive(clap::Args)]
struct Compiled {
    /// Transformer blocks of the step that is compiled
    #[arg(long, default_value_t = 24, value_parser = up_to(10_000))]
    layers: usize,
    /// Its width: features per token
    #[arg(long, default_value_t = 512, value_parser = up_to(1 << 20))]
    width: usize,
}

/// The cost of a call.
#[derive(Serialize)]
struct Call {
    call: &'static str,
    seconds: f64,
    allocations: f64,
}

/// The time until a step can run.
#[derive(Serialize)]
struct Compilation {
    layers: usize,
    layers_as: LayersAs,
    policy: &'static str,
    trace_s: f64,
    compile_s: f64,
}

/// Measures calls and compilations.
///
/// # Errors
/// If a program cannot be compiled or run, which is a defect.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let calls = match &args.device {
        None => calls()?,
        Some(device) => calls_beside_plugin(device)?,
    };
    let compilations = if args.device.is_none() { compilations(args)? } else { Vec::new() };
    if args.json {
        let lines = calls.iter().map(serde_json::to_string).chain(compilations.iter().map(serde_json::to_string));
        for line in lines {
            writeln!(out, "{}", line?)?;
        }
        return Ok(());
    }
    let rows: Vec<_> = calls
        .iter()
        .map(|c| vec![c.call.to_string(), format!("{:.2}", 1e6 * c.seconds), format!("{:.1}", c.allocations)])
        .collect();
    writeln!(out, "{}\n", table(&["a call of", "us", "allocations"], &rows))?;
    if compilations.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = compilations
        .iter()
        .map(|c| {
            let layers_as = crate::case::label(&c.layers_as);
            let milliseconds = |seconds: f64| format!("{:.1}", 1e3 * seconds);
            let total = c.trace_s + c.compile_s;
            vec![
                c.policy.to_string(),
                layers_as,
                milliseconds(c.trace_s),
                milliseconds(c.compile_s),
                milliseconds(total),
            ]
        })
        .collect();
    writeln!(out, "the reference step with {} layers\n", args.sizes.layers)?;
    writeln!(out, "{}", table(&["policy", "layers as", "trace ms", "compile ms", "sum ms"], &rows))?;
    Ok(())
}

fn calls() -> remat::Result<Vec<Call>> {
    let scalar = Tensor::from(3.0f32);
    let affine = jit(|x: &Tensor| x * 2.0 + 1.0);
    let small = Tensor::ones([8], DType::F32);
    Ok(vec![
        measure("a jitted scalar function", || affine.call(scalar.clone()))?,
        measure("an eager sum of two f32[]", || (&scalar + &scalar).rank())?,
        measure("an eager sum of two f32[8]", || (&small + &small).rank())?,
    ])
}

/// Calls of one program through its plugin directly, and through `jit` on its device. Both return before the result is computed, and read
/// nothing.
fn calls_beside_plugin(device: &str) -> Result<Vec<Call>> {
    let device = Device::named(device)?;
    let Some(xla) = Xla::named(device.name())? else {
        anyhow::bail!("there is no plugin beside which calls on {} could be measured", device.name());
    };
    let mut calls = Vec::new();
    let scalar = Tensor::from(3.0f32);
    let affine = jit(|x: &Tensor| x * 2.0 + 1.0);
    let many = vec![Tensor::ones([8], DType::F32); 100];
    let sums = jit(|all: &Vec<Tensor>| all.iter().map(|x| x + 1.0).collect::<Vec<Tensor>>());
    let [scalar_arrays, arrays] = [std::slice::from_ref(&scalar), &many[..]]
        .map(|args| args.iter().map(|x| x.array().cloned()).collect::<remat::Result<Vec<_>>>());
    let (scalar_arrays, arrays) = (scalar_arrays?, arrays?);
    for round in 0..3 {
        let seconds = xla.plugin_seconds(affine.lower(&scalar)?.jaxpr(), &scalar_arrays, CALLS)?;
        let there = scalar.to_device(&device);
        let ours = measure("a jitted scalar function", || affine.call(there.clone()))?;
        let seconds_of_many = xla.plugin_seconds(sums.lower(&many)?.jaxpr(), &arrays, CALLS)?;
        let there: Vec<Tensor> = many.iter().map(|x| x.to_device(&device)).collect();
        let ours_of_many = measure("a jitted function of 100 f32[8]", || sums.call(there.clone()))?;
        if round > 0 {
            calls.push(Call { call: "the plugin alone, a scalar function", seconds, allocations: 0.0 });
            calls.push(ours);
            calls.push(Call {
                call: "the plugin alone, a function of 100 f32[8]",
                seconds: seconds_of_many,
                allocations: 0.0,
            });
            calls.push(ours_of_many);
        }
    }
    Ok(calls)
}

/// The median time of a call, and its allocations.
fn measure<T>(call: &'static str, f: impl Fn() -> remat::Result<T>) -> remat::Result<Call> {
    black_box(f()?);
    let mut times = Vec::with_capacity(SAMPLES);
    let before = ALLOCATOR.allocations();
    for _ in 0..SAMPLES {
        let started = Instant::now();
        for _ in 0..CALLS {
            black_box(f()?);
        }
        times.push(started.elapsed().as_secs_f64() / CALLS as f64);
    }
    let allocations = (ALLOCATOR.allocations() - before) as f64 / (SAMPLES * CALLS) as f64;
    Ok(Call { call, seconds: median(&mut times), allocations })
}

fn compilations(args: &Args) -> Result<Vec<Compilation>> {
    let Compiled { layers, width } = args.sizes;
    let sizes = Sizes { layers, width, heads: 8, hidden: 4 * width, sequence: 512, batch: 4, vocabulary: 8192 };
    sizes.check()?;
    let mut compilations = Vec::new();
    for layers_as in [LayersAs::Unroll, LayersAs::Scan] {
        // The values do not matter.
        let arguments = Gpt::zeros(&sizes, layers_as, DType::F32);
        for name in POLICIES {
            let choices = Choices { sizes, attention: Attention::Fused, policy: policy(name)? };
            let (mut traces, mut compiles) = (Vec::new(), Vec::new());
            for _ in 0..args.repeat {
                let step = jit(|(model, tokens): &(Gpt, Tensor)| {
                    value_and_grad(|model: &Gpt| model.loss(tokens, &choices))(model)
                });
                let (traced, seconds) = timed(|| step.trace(&arguments))?;
                traces.push(seconds);
                compiles.push(timed(|| traced.lower()?.compile())?.1);
            }
            let (trace_s, compile_s) = (median(&mut traces), median(&mut compiles));
            compilations.push(Compilation { layers, layers_as, policy: name, trace_s, compile_s });
        }
    }
    Ok(compilations)
}
