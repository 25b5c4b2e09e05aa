//! `remat-bench resnet` and `remat-bench unet`.

use std::io::Write;

use anyhow::Result;

use crate::arguments::{POLICY_HELP, policies};
use crate::case::Work;
use crate::models::{resnet, unet};
use crate::options::Options;

/// Arguments of a model for images.
#[derive(clap::Args)]
pub(crate) struct Args<S: clap::Args> {
    #[arg(long, default_value = "none,names(conv),nothing", help = POLICY_HELP)]
    policy: String,
    #[command(flatten)]
    sizes: S,
    #[command(flatten)]
    options: Options,
}

/// Measures a step of ResNet-50 under each policy.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn resnet(args: &Args<resnet::Sizes>, out: &mut impl Write) -> Result<()> {
    let resnet::Sizes { image, batch, classes, .. } = args.sizes;
    let title = format!("loss and gradient of ResNet-50: image {image}, batch {batch}, classes {classes}");
    let works = [Work::Resnet { sizes: args.sizes }];
    args.options.run(&title, &args.options.cases(&works, &policies(&args.policy)?), out)
}

/// Measures a step of a U-Net under each policy.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn unet(args: &Args<unet::Sizes>, out: &mut impl Write) -> Result<()> {
    args.sizes.check()?;
    let unet::Sizes { image, batch, width, levels, .. } = args.sizes;
    let title = format!("loss and gradient of a U-Net: image {image}, batch {batch}, width {width}, levels {levels}");
    let works = [Work::Unet { sizes: args.sizes }];
    args.options.run(&title, &args.options.cases(&works, &policies(&args.policy)?), out)
}
