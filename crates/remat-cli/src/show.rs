//! `remat show`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use remat::ir::{Jaxpr, PrintOptions};
use remat::report::{fwd_bwd, saved_residuals};
use remat::{Cpu, DType, Device, JitOptions, Plan, Tensor, Tree, checkpoint, grad, jit_with, nn, random};
use remat_command::arguments::{self, up_to};
use remat_command::text::printable;
use remat_opt::pipeline;

use crate::{plan, policy};

/// The width of programs if the terminal does not report one.
const WIDTH: usize = 80;

/// Arguments of `remat show`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file with a program, to print instead of a block: what `jax.export` writes (the bytes of
    /// `jax.export.export(f)(*args).mlir_module_serialized`), or the text of a jaxpr
    #[arg(value_name = "FILE", conflicts_with_all = ["policy", "passes", "moves", "width", "heads", "context", "batch"])]
    file: Option<PathBuf>,
    #[arg(long, default_value = policy::DEFAULT, help = policy::HELP)]
    policy: String,
    /// Print the gradient program of the block after each compiler pass instead
    #[arg(long)]
    passes: bool,
    /// Print the compiled steps of the gradient instead, with the memory offset of each value
    #[arg(long)]
    steps: bool,
    /// Print what the engine decided about these steps instead: the moves that it made and refused, with their gains and reasons
    #[arg(long)]
    moves: bool,
    /// Write the memory of these steps as a page of HTML instead, a file that needs no server
    #[arg(long, value_name = "PAGE", conflicts_with_all = ["passes", "steps", "moves"])]
    html: Option<PathBuf>,
    /// The device whose engine compiles the passes or steps: cpu, xla-cpu, cuda:0, tpu; the steps of XLA are its StableHLO [default: the
    /// device in REMAT_DEVICE, or else cpu]
    #[arg(long)]
    device: Option<String>,
    /// Model width: features per token
    #[arg(long, default_value_t = 96, value_parser = up_to(1 << 20))]
    width: usize,
    /// Attention heads; must divide the width
    #[arg(long, default_value_t = 4, value_parser = up_to(1 << 20))]
    heads: usize,
    /// Sequence length in tokens
    #[arg(long, default_value_t = 64, value_parser = up_to(1 << 24))]
    context: usize,
    /// Sequences
    #[arg(long, default_value_t = 8, value_parser = up_to(1 << 24))]
    batch: usize,
}

/// The differentiated values of a block.
#[derive(Clone, Tree)]
struct Inputs {
    block: nn::Block,
    x: Tensor,
}

/// Prints what a block of the model saves, and its programs.
///
/// # Errors
/// If arguments are not valid; if the output cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    if args.html.is_some() {
        let is_native = args.device.as_deref().is_none_or(|device| device == Cpu::NAME);
        ensure!(
            is_native,
            "--html is for the native engine, and --device is {}",
            args.device.as_deref().unwrap_or_default()
        );
    }
    if let (Some(file), Some(path)) = (&args.file, &args.html) {
        return report(path, &file.display().to_string(), plan::of_file(file)?, out);
    }
    if let Some(file) = &args.file {
        return program(file, args, out).with_context(|| file.display().to_string());
    }
    let policy = arguments::policy(&args.policy)?;
    let is_compiled = args.passes || args.steps || args.moves || args.html.is_some();
    ensure!(args.device.is_none() || is_compiled, "--device goes with --passes, --steps or --moves");
    let x = Tensor::zeros([args.batch, args.context, args.width], DType::F32);
    let block = |Inputs { block, x }: &Inputs| checkpoint(policy.clone(), |x: &Tensor| block.apply(x))(x);
    let inputs = Inputs { block: nn::Block::init(random::key(0), args.width, args.heads, DType::F32), x };
    if is_compiled {
        let device = args.device.as_deref().map(Device::named).transpose()?;
        let options = JitOptions { device, ..JitOptions::default() };
        let gradient = jit_with(&options, grad(|inputs: &Inputs| block(inputs).sum(..)));
        if args.passes {
            write!(out, "{}", gradient.passes(&inputs)?)?;
        }
        if args.steps {
            writeln!(out, "== steps\n{}", gradient.steps(&inputs)?)?;
        }
        if args.moves {
            write!(out, "== moves\n{}", gradient.moves(&inputs)?)?;
        }
        if let Some(path) = &args.html {
            let title = format!("the gradient of a block under the policy {}", args.policy);
            report(path, &title, gradient.lower(&inputs)?.compile()?.plan()?, out)?;
        }
        return Ok(());
    }
    let residuals = saved_residuals(block, &inputs)?;
    let programs = fwd_bwd(block, &inputs)?;
    let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0));
    writeln!(out, "what a block keeps for its backward pass:\n\n{residuals}")?;
    write!(out, "\nits forward and its backward program:\n\n{}", programs.styled(width))?;
    Ok(())
}

/// Prints a program of a file with the lines of its source, or its steps.
fn program(file: &Path, args: &Args, out: &mut impl Write) -> Result<()> {
    ensure!(args.device.is_none() || args.steps, "--device goes with --steps");
    let bytes = plan::text(file)?;
    let is_imported = bytes.starts_with(&remat_stablehlo::MAGIC);
    let (mut jaxpr, num_consts) = if is_imported {
        let program = plan::imported(&bytes)?;
        (program.jaxpr, program.constants.len())
    } else {
        Jaxpr::parse_closed(str::from_utf8(&bytes).context("it is not UTF-8")?)?
    };
    if args.steps {
        if is_imported {
            jaxpr = pipeline::run(pipeline::IMPORTED, &jaxpr)?;
        }
        let device = args.device.as_deref().map_or_else(|| Ok(Device::from(Cpu::default())), Device::named)?;
        writeln!(out, "== steps\n{}", device.engine().steps(&Arc::new(jaxpr))?)?;
        return Ok(());
    }
    let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| usize::from(width.0));
    let options = PrintOptions { width, locations: true, num_consts };
    writeln!(out, "{}", jaxpr.display(options))?;
    Ok(())
}

/// Writes the page of a plan, and says so.
fn report(path: &Path, title: &str, plan: Plan, out: &mut impl Write) -> Result<()> {
    remat_io::save_report(path, title, &[plan])?;
    writeln!(out, "wrote the memory of {} to {}", printable(title), printable(&path.display().to_string()))?;
    Ok(())
}
