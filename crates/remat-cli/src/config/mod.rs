//! The configuration of a training run: each field is a flag of `remat train`, and a key of its TOML file.

mod file;
mod settings;

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::TypedValueParser;
use remat_cli::arguments::{magnitude, up_to};
use serde::Serialize;

pub(crate) use settings::{Given, Setting};

use crate::model::{Architecture, Sizes};
use crate::policy;
use crate::sample::Choice;

/// What makes a run: with the same text, the same configuration gives the same losses.
#[derive(Clone, PartialEq, Debug, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Config {
    /// A file or folder of text [default: the text files of the current git checkout or folder]
    #[arg(long, value_name = "PATH")]
    pub(crate) text: Option<PathBuf>,
    /// A model of known sizes: gpt2-tiny, llama-tiny, gpt2 (124 million parameters), gpt2-medium, gpt2-large, gpt2-xl, llama-1b,
    /// llama-3b, llama-8b; other sizes are said by the flags after it
    #[arg(long, value_name = "NAME", default_value = "gpt2-tiny")]
    pub(crate) model: String,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) sizes: Sizes,
    #[arg(long, default_value = policy::DEFAULT, help = policy::HELP)]
    pub(crate) policy: String,
    /// Sequences per training step
    #[arg(long, default_value_t = 8, value_parser = up_to(1 << 24))]
    pub(crate) batch: usize,
    /// Training steps
    #[arg(long, default_value_t = 2000)]
    pub(crate) steps: u32,
    /// Peak learning rate: it rises over the first steps, then falls to a tenth by a cosine
    #[arg(long, default_value_t = 3e-3, value_parser = magnitude, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,
    /// The seed of weights, batches and sample: the same seed gives the same run
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// The device to train on: cpu (the native engine), xla-cpu, cuda:0, tpu [default: what REMAT_DEVICE says, else cpu]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// The folder that the run is saved to [default: a new one in `runs`]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save: Option<PathBuf>,
    /// Steps from one checkpoint to the next; the last three stay
    #[arg(long, value_name = "STEPS", default_value_t = 500, value_parser = up_to(u32::MAX.into()).map(|steps| steps as u32))]
    pub(crate) save_every: u32,
    /// Tokens that the model writes at the end
    #[arg(long, default_value_t = 300, value_name = "TOKENS")]
    pub(crate) sample: usize,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) choice: Choice,
}

/// The longest sequences unless longer ones are asked for.
const CONTEXT: usize = 1024;

/// The keys that a resumed run may change: the others make it what it is.
const CHANGEABLE: [&str; 9] =
    ["text", "steps", "learning-rate", "device", "save-every", "sample", "temperature", "top-k", "top-p"];

impl Config {
    /// The model.
    ///
    /// # Errors
    /// If there is none of that name, or its sizes are not those of its family.
    pub(crate) fn architecture(&self) -> Result<Architecture> {
        Architecture::named(&self.model, &self.sizes)
    }

    /// The tokens of a sequence: where they are not given, what the model is made for, up to a number that a CPU may train with.
    pub(crate) fn context(&self, architecture: &Architecture) -> usize {
        self.sizes.context.unwrap_or_else(|| architecture.context().min(CONTEXT))
    }
}
