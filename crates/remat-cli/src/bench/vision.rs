//! `remat bench resnet` and `remat bench unet`.

use super::case::Work;
use super::options::{Options, POLICY_HELP};
use super::{resnet, unet};
use crate::Result;

/// Arguments of a model of images.
#[derive(clap::Args)]
pub(crate) struct Args<S: clap::Args> {
    #[arg(long, value_delimiter = ',', default_value = "none,names:conv,nothing", help = POLICY_HELP)]
    policy: Vec<String>,
    #[command(flatten)]
    sizes: S,
    #[command(flatten)]
    options: Options,
}

/// Measures a step of ResNet-50 under each policy.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn resnet(args: &Args<resnet::Sizes>) -> Result<()> {
    let resnet::Sizes { image, batch, classes } = args.sizes;
    let title = format!("loss and gradient of ResNet-50: image {image}, batch {batch}, classes {classes}");
    args.options.run(&title, &args.options.cases(&[Work::Resnet { sizes: args.sizes }], &args.policy)?)
}

/// Measures a step of a U-Net under each policy.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn unet(args: &Args<unet::Sizes>) -> Result<()> {
    let unet::Sizes { image, batch, width, levels } = args.sizes;
    let title = format!("loss and gradient of a U-Net: image {image}, batch {batch}, width {width}, levels {levels}");
    args.options.run(&title, &args.options.cases(&[Work::Unet { sizes: args.sizes }], &args.policy)?)
}
