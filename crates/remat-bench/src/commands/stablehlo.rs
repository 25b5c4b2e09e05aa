//! `remat-bench stablehlo`: a step as StableHLO for other programs, with the expected numbers.

use std::io::Write;

use anyhow::Result;
use remat::tree::leaves;
use remat::{DType, Tensor, jit, value_and_grad};
use remat_command::arguments::policy;
use serde::Serialize;

use crate::models::gpt::{Attention, Choices, Gpt, LayersAs, Sizes};

/// Arguments of `remat-bench stablehlo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "none", help = crate::arguments::POLICY_HELP)]
    policy: String,
    /// How the blocks are laid out
    #[arg(long, default_value = "scan")]
    layers_as: LayersAs,
    /// How the attention is written
    #[arg(long, default_value = "fused")]
    attention: Attention,
    #[command(flatten)]
    sizes: Sizes,
}

/// What is printed, as a line of JSON.
#[derive(Serialize)]
struct Output {
    /// A module whose function draws the weights and the tokens, and returns the loss and the sum of squares of each gradient. Each of its
    /// arguments is the random key of the seed 0, two zeros.
    module: String,
    /// Its results on the native engine.
    results: Vec<f32>,
    /// The module of the step itself, whose arguments are the weights and the tokens.
    step: String,
}

/// Prints the modules and the numbers.
///
/// # Errors
/// In one line, what is wrong with the arguments.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let Args { sizes, layers_as, attention, .. } = *args;
    sizes.check()?;
    let choices = Choices { sizes, attention, policy: policy(&args.policy)? };
    let step = |(model, tokens): &(Gpt, Tensor)| value_and_grad(|model: &Gpt| model.loss(tokens, &choices))(model);
    let closed = jit(|(): &()| {
        let (loss, gradient) = step(&Gpt::init(&sizes, layers_as, DType::F32))?;
        let mut results = vec![loss];
        results.extend(leaves(&gradient).iter().map(|(_, leaf)| leaf.square().sum(..)));
        Ok::<_, remat::Error>(results)
    });
    let results = closed.call(())?.iter().map(|result| result.item()).collect::<remat::Result<_>>()?;
    let output = Output {
        module: closed.stablehlo(&())?,
        results,
        step: jit(step).stablehlo(&Gpt::zeros(&sizes, layers_as, DType::F32))?,
    };
    Ok(writeln!(out, "{}", serde_json::to_string(&output)?)?)
}
