//! `remat-bench step`.

use std::io::Write;

use anyhow::Result;

use crate::arguments::{POLICY_HELP, policies};
use crate::case::Work;
use crate::models::gpt::{Attention, LayersAs, Sizes};
use crate::options::Options;

/// Arguments of `remat-bench step`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value = "none,dots,dots_with_no_batch_dims,nothing", help = POLICY_HELP)]
    policy: String,
    /// How the blocks are laid out
    #[arg(long, value_delimiter = ',', default_value = "unroll,scan")]
    layers_as: Vec<LayersAs>,
    /// How the attention is written
    #[arg(long, value_delimiter = ',', default_value = "fused")]
    attention: Vec<Attention>,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    options: Options,
}

/// Measures the reference step in every configuration.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let sizes = args.sizes;
    sizes.check()?;
    let mut works = Vec::new();
    for &attention in &args.attention {
        works.extend(args.layers_as.iter().map(|&layers_as| Work::Step { sizes, layers_as, attention }));
    }
    let title = format!("loss and gradient of {}, {:.1} useful GFLOP", describe(&sizes), sizes.flops() / 1e9);
    args.options.run(&title, &args.options.cases(&works, &policies(&args.policy)?), out)
}

/// The model in a line.
pub(crate) fn describe(sizes: &Sizes) -> String {
    let Sizes { layers, width, heads, hidden, sequence, batch, vocabulary } = sizes;
    format!(
        "a GPT: layers {layers}, width {width}, heads {heads}, hidden {hidden}, sequence {sequence}, batch {batch}, \
         vocabulary {vocabulary}"
    )
}
