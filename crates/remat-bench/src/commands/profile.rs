//! `remat-bench profile`: what taking the time of each step costs, whether the times add up, and where the time goes.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use remat::report::Profile;
use remat::{Cpu, DType};
use remat_command::arguments::{policy, up_to};
use remat_command::table::table;
use remat_command::times::{median, median_profile};
use remat_ir::{Array, CompileOptions, Device, Executable, Literal, Value};

use crate::case::{Work, label};
use crate::models::gpt::{Attention, LayersAs, Sizes};

/// Arguments of `remat-bench profile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How the layers of the reference step are laid out [default: each]
    #[arg(long, value_enum, value_delimiter = ',')]
    layers_as: Vec<LayersAs>,
    #[arg(long, default_value = "nothing", help = crate::arguments::POLICY_HELP)]
    policy: String,
    /// Steps that are timed with and without a profile, in turn
    #[arg(long, default_value_t = 9, value_parser = up_to(1_000_000))]
    repeat: usize,
    /// Run steps without a profile for this many seconds and measure nothing, for a sampling profiler
    #[arg(long, value_name = "SECONDS")]
    only_run: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// If the step cannot be compiled or run.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let sizes = Sizes::REFERENCE;
    let each = if args.layers_as.is_empty() { LayersAs::value_variants() } else { &args.layers_as[..] };
    let mut rows = Vec::new();
    let mut last = Vec::new();
    for &layers_as in each {
        let work = Work::Step { sizes, layers_as, attention: Attention::Fused };
        let jaxpr = work.step(policy(&args.policy)?, DType::F32)?;
        let program = Cpu::default().compile_with(&jaxpr, &CompileOptions::default())?;
        // Every kernel takes as long for zeros.
        let zero = |aval: &remat_ir::Aval| Array::full(Literal::from_f64(aval.dtype, 0.0), aval.shape.iter().copied());
        let operands: Vec<Value> = jaxpr.in_avals().iter().map(|aval| Value::Host(zero(aval))).collect();
        program.execute(operands.clone())?;
        if let Some(seconds) = args.only_run {
            let started = Instant::now();
            while started.elapsed().as_secs() < seconds {
                program.execute(operands.clone())?;
            }
            continue;
        }
        let measured = measured(&*program, &operands, args.repeat)?;
        rows.push(vec![
            label(&layers_as),
            format!("{:.1}", 1e3 * measured.plain),
            format!("{:.1}", 1e3 * measured.profiled),
            format!("{:.3}", measured.profiled / measured.plain),
            format!("{:.2} %", 100.0 * measured.accounted),
            measured.profile.steps.iter().map(|step| step.runs).sum::<usize>().to_string(),
        ]);
        last.push((layers_as, measured.profile));
    }
    if !rows.is_empty() {
        let header = ["layers", "plain ms", "profiled ms", "profiled / plain", "in steps", "steps"];
        writeln!(out, "{}", table(&header, &rows))?;
    }
    for (layers_as, profile) in last {
        writeln!(out, "\n{}:\n{profile}", label(&layers_as))?;
    }
    Ok(())
}

/// The median seconds of a run, and the profile of the median one.
struct Measured {
    plain: f64,
    profiled: f64,
    /// The share of the time around the call that is in steps.
    accounted: f64,
    profile: Profile,
}

fn measured(program: &dyn Executable, operands: &[Value], repeat: usize) -> Result<Measured> {
    let (mut plain, mut profiled, mut profiles) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeat {
        let started = Instant::now();
        program.execute(operands.to_vec())?;
        plain.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        profiles.push(program.profile(operands.to_vec())?.1);
        profiled.push(started.elapsed().as_secs_f64());
    }
    let profile = median_profile(profiles).ok_or_else(|| anyhow!("no step was timed"))?;
    let inside: f64 = profile.steps.iter().map(|step| step.time.as_secs_f64()).sum();
    let (plain, profiled) = (median(&mut plain), median(&mut profiled));
    Ok(Measured { plain, profiled, accounted: inside / profiled, profile })
}
