//! `remat show`.

use remat::{DType, Tensor, Tree, nn, print_fwd_bwd, print_saved_residuals, random};

use crate::model::{Gpt, Sizes, apply};
use crate::{Result, line, policy};

/// Arguments of `remat show`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "names:attn,mlp", help = policy::HELP)]
    policy: String,
    #[command(flatten)]
    sizes: Sizes,
}

/// What a block is differentiated with respect to.
#[derive(Clone, Tree)]
struct Inputs {
    block: nn::Block,
    x: Tensor,
}

/// Prints what a block of the model saves, and its programs.
///
/// # Errors
/// In one line, what is wrong with the arguments.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Args { sizes, .. } = args;
    let policy = policy::parse(&args.policy)?;
    let model = Gpt::init(random::key(0), &Sizes { layers: 1, ..*sizes }).map_err(line)?;
    let x = Tensor::zeros([sizes.batch, sizes.context, sizes.width], DType::F32);
    let block = |inputs: &Inputs| apply(&inputs.block, &inputs.x, policy.as_ref());
    let inputs = Inputs { block: model.blocks[0].clone(), x };
    println!("what a block keeps for its backward pass:\n");
    print_saved_residuals(block, &inputs).map_err(line)?;
    println!("\nits forward and its backward program:\n");
    print_fwd_bwd(block, &inputs).map_err(line)
}
