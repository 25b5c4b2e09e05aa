//! `remat show`.

use std::io::Write;

use anyhow::Result;
use remat::report::{fwd_bwd, saved_residuals};
use remat::{DType, Tensor, Tree, grad, jit, nn, random};
use remat_cli::arguments;

use crate::model::{Gpt, Sizes, apply};
use crate::policy;

/// The width of programs where the terminal does not tell.
const WIDTH: usize = 80;

/// Arguments of `remat show`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = policy::DEFAULT, help = policy::HELP)]
    policy: String,
    /// Instead, print the gradient program of the block after each compiler pass
    #[arg(long)]
    passes: bool,
    /// Instead, print the compiled steps of the gradient, with the memory offset of each value
    #[arg(long)]
    steps: bool,
    #[command(flatten)]
    sizes: Sizes,
}

/// The values that a block is differentiated with respect to.
#[derive(Clone, Tree)]
struct Inputs {
    block: nn::Block,
    x: Tensor,
}

/// Prints what a block of the model saves, and its programs.
///
/// # Errors
/// What is wrong with the arguments; if the output cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let Args { sizes, .. } = args;
    let policy = arguments::policy(&args.policy)?;
    let model = Gpt::init(random::key(0), 1, sizes);
    let x = Tensor::zeros([sizes.batch, sizes.context, sizes.width], DType::F32);
    let block = |inputs: &Inputs| apply(&inputs.block, &inputs.x, policy.as_ref());
    let inputs = Inputs { block: model.blocks[0].clone(), x };
    if args.passes || args.steps {
        let gradient = jit(grad(|inputs: &Inputs| block(inputs).sum(..)));
        if args.passes {
            write!(out, "{}", gradient.passes(&inputs)?)?;
        }
        if args.steps {
            writeln!(out, "== steps\n{}", gradient.steps(&inputs)?)?;
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
