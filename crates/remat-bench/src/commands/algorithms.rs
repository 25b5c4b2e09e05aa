//! `remat-bench algorithms`: the share of each algorithm of convolutions, products and attention in the time of a step.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use remat::Device;
use remat_command::arguments::{policy, up_to};
use remat_command::table::table;
use remat_ir::Profile;

use crate::arguments::POLICY_HELP;
use crate::case::{Float, Work, label};
use crate::measure::Runs;
use crate::models::gpt::{self, Attention, LayersAs};
use crate::models::mobilenet::MobileNet;
use crate::models::{ChannelsAre, resnet, unet};

/// Arguments of `remat-bench algorithms`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The models, with the sizes that their commands have by default [default: each]
    #[arg(long, value_enum, value_delimiter = ',')]
    model: Vec<Model>,
    /// Dtypes of weights and activations
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["f32", "bf16"])]
    dtype: Vec<Float>,
    /// The axis of the channels of images and sounds
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["first"])]
    channels: Vec<ChannelsAre>,
    #[arg(long, default_value = "none", help = POLICY_HELP)]
    policy: String,
    /// Steps to time, after one that is not; the profile is that of the step with the median time
    #[arg(long, default_value_t = 5, value_parser = up_to(1_000_000))]
    repeat: usize,
    /// A row for each operation, with or without an algorithm, by the type of its largest result and the part of the step
    #[arg(long)]
    by_type: bool,
    /// List the algorithms in the order in which they are tried, and run nothing
    #[arg(long)]
    list: bool,
}

/// A model.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// ResNet-50
    Resnet,
    /// The U-Net
    Unet,
    /// MobileNetV2, 16 images
    Mobilenet,
    /// M11, a network of 1-D convolutions for sound
    Wave,
    /// The GPT of the reference step
    Step,
}

impl Model {
    fn work(self, channels: ChannelsAre) -> Work {
        match self {
            Model::Resnet => Work::Resnet { sizes: resnet::Sizes { channels, ..resnet::Sizes::DEFAULT } },
            Model::Unet => Work::Unet { sizes: unet::Sizes { channels, ..unet::Sizes::DEFAULT } },
            Model::Mobilenet => Work::Mobilenet { sizes: resnet::Sizes { channels, ..MobileNet::SIZES } },
            Model::Wave => Work::Wave { channels },
            Model::Step => {
                Work::Step { sizes: gpt::Sizes::REFERENCE, layers_as: LayersAs::Unroll, attention: Attention::Fused }
            }
        }
    }
}

/// Measures, and prints a table for each model and dtype.
///
/// # Errors
/// If the policy is unknown, or a step cannot be compiled or run.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    if args.list {
        return list(out);
    }
    let policy = policy(&args.policy)?;
    let runs = Runs { device: Device::cpu(), repeat: args.repeat };
    let models = if args.model.is_empty() { Model::value_variants() } else { &args.model };
    let mut gap = "";
    for model in models {
        for &channels in &args.channels {
            for &dtype in &args.dtype {
                let profile = model.work(channels).profile(policy.clone(), dtype.dtype(), &runs)?;
                let named = [label(model), format!("channels {}", label(&channels)), label(&dtype)].join(", ");
                writeln!(out, "{gap}{named}, policy {}\n{}", args.policy, shares(&profile, args.by_type))?;
                out.flush()?;
                gap = "\n";
            }
        }
    }
    Ok(())
}

/// The algorithms by their families.
fn list(out: &mut impl Write) -> Result<()> {
    let all = remat_kernels::algorithms();
    let width = all.iter().map(|info| info.family.len() + info.name.len() + 1).max().unwrap_or(0);
    for info in all {
        writeln!(out, "{:width$}  {}", format!("{}={}", info.family, info.name), info.why)?;
    }
    Ok(())
}

/// The name of what is no convolution, product or attention.
const OTHERS: &str = "other operations";

/// The share of each algorithm in the time of a step, the largest first; what has no algorithm is one row. If `by_type`, that of each
/// operation, by the type of its largest result and the part of the step.
fn shares(profile: &Profile, by_type: bool) -> String {
    let groups = profile.grouped(|step| {
        if by_type {
            format!("{} {}, {}", step.name(), step.aval, step.loc.role.name())
        } else if step.algorithm.is_some() {
            step.name()
        } else {
            OTHERS.to_string()
        }
    });
    let row = |name: &str, steps: usize, time: Duration| {
        let share = 100.0 * time.as_secs_f64() / profile.total.as_secs_f64().max(f64::MIN_POSITIVE);
        vec![name.to_string(), steps.to_string(), format!("{:.2}", 1e3 * time.as_secs_f64()), format!("{share:.1} %")]
    };
    let mut rows: Vec<Vec<String>> = groups.iter().map(|group| row(&group.name, group.steps, group.time)).collect();
    rows.push(row("all", groups.iter().map(|group| group.steps).sum(), profile.total));
    table(&["algorithm", "steps", "ms", "share"], &rows)
}

#[cfg(test)]
mod tests {
    use remat::DType;

    use super::*;

    #[test]
    fn each_product_of_a_small_step_has_its_algorithm() {
        let sizes = unet::Sizes { image: 8, batch: 1, width: 8, levels: 2, ..unet::Sizes::DEFAULT };
        let runs = Runs { device: Device::cpu(), repeat: 2 };
        let profile = Work::Unet { sizes }.profile(None, DType::F32, &runs).unwrap();
        let convolutions = || profile.steps.iter().filter(|step| step.operation == "conv_general_dilated");
        assert!(convolutions().count() > 10 && convolutions().all(|step| step.algorithm.is_some()));
        let text = shares(&profile, false);
        assert!(text.contains("\nconv_general_dilated[") && text.contains(&format!("\n{OTHERS} ")), "{text}");
        assert!(
            text.lines().last().is_some_and(|line| line.starts_with("all ") && line.ends_with("100.0 %")),
            "{text}"
        );
        let text = shares(&profile, true);
        let has = |name: &str, end: &str| {
            text.lines()
                .any(|line| line.split("  ").next().is_some_and(|row| row.starts_with(name) && row.ends_with(end)))
        };
        assert!(has("conv_general_dilated[", " f32[1,8,8,8], forward"), "{text}");
        assert!(has("conv_general_dilated[", " f32[8,3,3,3], derivative"), "{text}");
        let other = profile.steps.iter().find(|step| step.algorithm.is_none()).unwrap();
        assert!(has(&other.name(), &format!(" {}, {}", other.aval, other.loc.role.name())), "{text}");
        assert!(!text.contains(OTHERS), "{text}");
    }

    #[test]
    fn the_list_has_a_line_for_each_algorithm() {
        let mut text = Vec::new();
        list(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), remat_kernels::algorithms().len());
        assert!(text.starts_with("conv=depthwise ") && text.contains("\ndot=blocked "), "{text}");
    }
}
