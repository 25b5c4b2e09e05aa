//! The configuration of a training run: each field is a flag of `remat train`, and a key of its TOML file.

mod file;
mod settings;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use clap::builder::TypedValueParser;
use remat::nn::Lora;
use remat::{DType, Device, JitOptions, eval_shape, random};
use remat_command::arguments::{magnitude, up_to};
use remat_command::table::thousands;
use remat_data::Tokenizer;
use serde::Serialize;

pub(crate) use settings::{Flags, Setting};

use crate::data::plain;
use crate::machine;
use crate::model::{Architecture, Model, Sizes};
use crate::policy;
use crate::sample::Choice;

/// The configuration that determines a run: with the same text, it gives the same losses.
#[derive(Clone, PartialEq, Debug, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Config {
    /// A file or folder of text or of JSON lines [default: the text files of the current git checkout or folder]
    #[arg(long, value_name = "PATH")]
    pub(crate) text: Option<PathBuf>,
    /// The column of JSON lines or Parquet with the text [default: text]
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,
    /// A Hugging Face tokenizer.json, or its folder; the run keeps a copy. It needs a build with the feature `tokenizers` [default: that of
    /// --from, or else bytes]
    #[arg(long, value_name = "PATH")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// A model of known sizes: gpt2-tiny, llama-tiny, gpt2 (124 million parameters), gpt2-medium, gpt2-large, gpt2-xl, llama-1b, llama-3b,
    /// llama-8b, decoder-3b; or the config.json of a Hugging Face model (GPT-2, Llama, Mistral, Qwen2); the following flags override its sizes
    #[arg(long, value_name = "NAME", default_value = "gpt2-tiny")]
    pub(crate) model: String,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) sizes: Sizes,
    #[arg(long, default_value = policy::DEFAULT, help = policy::HELP)]
    pub(crate) policy: String,
    /// Form of the blocks in the program: unroll (the equations of each block), scan (a loop over stacked weights, which compiles once)
    #[arg(long, value_name = "FORM", default_value = "unroll")]
    pub(crate) layers_as: Form,
    /// Dtype of computation: f32, bf16, f16 (with loss scaling); parameters and optimizer stay in f32
    #[arg(long, default_value = "f32")]
    pub(crate) dtype: Precision,
    /// Start with the weights of another run, of one of its checkpoints, or of a Hugging Face folder, with a fresh optimizer; model and
    /// sizes are taken from there
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: Option<PathBuf>,
    /// Train only low-rank adapters (LoRA) of this rank beside the linear maps
    #[arg(long, value_name = "RANK", value_parser = up_to(1 << 16))]
    pub(crate) lora: Option<usize>,
    /// The linear maps that get adapters: path patterns, separated by commas
    #[arg(long, value_name = "PATTERNS", default_value = "**.attn.*")]
    pub(crate) lora_maps: String,
    /// Alpha of the adapters: the product of the adapter matrices is multiplied by alpha / rank
    #[arg(long, value_name = "ALPHA", default_value_t = 16.0, value_parser = magnitude)]
    pub(crate) lora_alpha: f64,
    /// Sequences per batch
    #[arg(long, default_value_t = 8, value_parser = up_to(1 << 24))]
    pub(crate) batch: usize,
    /// Batches per training step: their gradients are averaged before the update
    #[arg(long, value_name = "BATCHES", default_value_t = 1, value_parser = up_to(1 << 16))]
    pub(crate) accumulate: usize,
    /// The most memory that the process may take, such as 6GiB; training starts only if it fits [default: the memory of the machine]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory_limit: Option<String>,
    /// Training steps
    #[arg(long, default_value_t = 2000)]
    pub(crate) steps: u32,
    /// Peak learning rate, after a linear warmup and before a cosine decay to a tenth
    #[arg(long, default_value_t = 3e-3, value_parser = magnitude, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,
    /// The optimizer: adamw, adafactor (less state than adamw), adam8bit (a quarter of it), lion (half of it), sgd (with momentum; half of
    /// it), muon (for matrices; adamw for the rest)
    #[arg(long, value_name = "NAME", default_value = "adamw")]
    pub(crate) optimizer: OptimizerName,
    /// Weight decay of matrices, multiplied by the learning rate; not for adafactor and sgd [default: 0.1]
    #[arg(long, value_parser = magnitude, allow_negative_numbers = true)]
    pub(crate) weight_decay: Option<f64>,
    /// Clip gradients to this global norm, 0 for no limit; it needs all gradients in memory at once
    #[arg(long, default_value_t = 1.0, value_parser = magnitude, allow_negative_numbers = true)]
    pub(crate) clip_norm: f64,
    /// Clip each element of the gradients to this magnitude, 0 for no limit
    #[arg(long, default_value_t = 0.0, value_parser = magnitude, allow_negative_numbers = true)]
    pub(crate) clip_value: f64,
    /// Seed of weights, batches and samples: the same seed gives the same run
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// The device to train on: cpu (the native engine), xla-cpu, cuda:0, tpu [default: the device in REMAT_DEVICE, or else cpu]
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// The folder in which the run is saved [default: a new one in `runs`]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save: Option<PathBuf>,
    /// Steps between checkpoints; the last three are kept
    #[arg(long, value_name = "STEPS", default_value_t = 500, value_parser = up_to(u32::MAX.into()).map(|steps| steps as u32))]
    pub(crate) save_every: u32,
    /// Steps between evaluations of the held-out loss, 0 for only before and after training
    #[arg(long, value_name = "STEPS", default_value_t = 500)]
    pub(crate) eval_every: u32,
    /// Steps between text samples, 0 for a sample only at the end
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    pub(crate) sample_every: u32,
    /// Tokens in a text sample, 0 for none
    #[arg(long, default_value_t = 300, value_name = "TOKENS")]
    pub(crate) sample: usize,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) choice: Choice,
}

/// The most tokens of a training step: their batch takes a gibibyte.
const MOST_TOKENS: usize = 1 << 27;

/// A size in bytes, kept as text.
///
/// # Errors
/// What is wrong with the text, for the user.
fn bytes(text: &str) -> Result<String, String> {
    let is_size = remat::ir::parse_bytes(text).is_some();
    is_size.then(|| text.into()).ok_or_else(|| "must be a number of bytes such as 500000, 512MiB or 1.5GiB".into())
}

/// The form of the blocks in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Form {
    Unroll,
    Scan,
}

/// The dtype of computation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Precision {
    F32,
    Bf16,
    F16,
}

impl Precision {
    pub(crate) fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
            Precision::F16 => DType::F16,
        }
    }
}

/// The optimizers by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OptimizerName {
    Adamw,
    Adafactor,
    Adam8bit,
    Lion,
    Sgd,
    Muon,
}

impl OptimizerName {
    /// The name, as it is typed.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

/// The longest default sequence.
const CONTEXT: usize = 1024;

/// The default weight decay.
const WEIGHT_DECAY: f64 = 0.1;

/// The keys that a resumed run may change; the others determine the run.
const CHANGEABLE: [&str; 14] = [
    "text",
    "column",
    "policy",
    "memory-limit",
    "steps",
    "learning-rate",
    "device",
    "save-every",
    "eval-every",
    "sample-every",
    "sample",
    "temperature",
    "top-k",
    "top-p",
];

impl Config {
    /// The model.
    ///
    /// # Errors
    /// If there is no model of that name, or its sizes do not belong to its family; as [`Config::tokenizer`].
    pub(crate) fn architecture(&self) -> Result<Architecture> {
        let architecture = Architecture::named(&self.model, &self.sizes)?;
        if self.tokenizer.is_none() || self.sizes.vocab.is_some() {
            return Ok(architecture);
        }
        // A model for fewer tokens gets the vocabulary of the tokenizer.
        let vocab = architecture.vocabulary().max(self.tokenizer()?.vocabulary());
        Architecture::named(&self.model, &Sizes { vocab: Some(vocab), ..self.sizes })
    }

    /// The tokenizer of the text.
    ///
    /// # Errors
    /// If its file cannot be read; without the feature `tokenizers`.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let open = |path| Tokenizer::open(path).map_err(plain);
        self.tokenizer.as_deref().map_or_else(|| Ok(Tokenizer::bytes()), open)
    }

    /// A model of this architecture with random weights, in the form for training.
    ///
    /// # Errors
    /// As [`Config::prepared`].
    pub(crate) fn model(&self, architecture: &Architecture, key: &random::Key) -> remat::Result<Model> {
        self.prepared(Model::init(key.fold_in(0), architecture, DType::F32), key)
    }

    /// The model in the form for training, abstract.
    ///
    /// # Errors
    /// As [`Config::prepared`]; if its sizes do not fit each other.
    pub(crate) fn shapes(&self, architecture: &Architecture) -> remat::Result<Model> {
        eval_shape(|(): &()| self.model(architecture, &random::key(0)))(&())
    }

    /// The model in the form for training: with adapters if requested, and with its blocks as a list or stacked.
    ///
    /// # Errors
    /// If adapters cannot be attached; the error of failed weights.
    pub(crate) fn prepared(&self, model: Model, key: &random::Key) -> remat::Result<Model> {
        let model = match self.lora {
            None => model,
            Some(rank) => {
                let maps = self.lora_maps.split(',').map(|pattern| pattern.trim().to_string()).collect();
                Lora { rank, alpha: self.lora_alpha, maps }.attach(key.fold_in(1), &model)?
            }
        };
        Ok(if self.layers_as == Form::Scan { model.stacked()? } else { model })
    }

    /// The number of sequences in a step.
    ///
    /// # Errors
    /// If the batches of a step have more tokens than a batch may have.
    pub(crate) fn sequences(&self, context: usize) -> Result<usize> {
        let sequences = self.batch.saturating_mul(self.accumulate);
        ensure!(
            sequences.saturating_mul(context) <= MOST_TOKENS,
            "a step of {} sequences of {} tokens is too large: at most {} tokens together",
            thousands(sequences),
            thousands(context),
            thousands(MOST_TOKENS)
        );
        Ok(sequences)
    }

    /// The weight decay of matrices, relative to the learning rate.
    ///
    /// # Errors
    /// If weight decay is requested for an optimizer without it. Adafactor's is not multiplied by the rate, so it does not count.
    pub(crate) fn weight_decay(&self) -> Result<f64> {
        let has_none = matches!(self.optimizer, OptimizerName::Adafactor | OptimizerName::Sgd);
        let is_asked = self.weight_decay.is_some_and(|decay| decay > 0.0);
        ensure!(!(has_none && is_asked), "--weight-decay: the optimizers adafactor and sgd have none here");
        Ok(self.weight_decay.unwrap_or(WEIGHT_DECAY))
    }

    /// The device for training.
    ///
    /// # Errors
    /// If there is no device of that name.
    pub(crate) fn device(&self) -> remat::Result<Device> {
        self.device.as_deref().map_or_else(Device::default_device, Device::named)
    }

    /// Options of the programs that train a model on its device, within the memory limit.
    ///
    /// # Errors
    /// The error of a failed weight.
    pub(crate) fn options(&self, model: &Model) -> remat::Result<JitOptions> {
        let options = machine::options(model)?;
        Ok(JitOptions { memory_limit: self.limit().or(options.memory_limit), ..options })
    }

    /// The requested memory limit.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.memory_limit.as_deref().and_then(remat::ir::parse_bytes)
    }

    /// The tokens of a sequence; if not given, those of the model, up to a number that a CPU can train with.
    pub(crate) fn context(&self, architecture: &Architecture) -> usize {
        self.sizes.context.unwrap_or_else(|| architecture.context().min(CONTEXT))
    }
}
