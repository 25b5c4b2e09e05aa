//! `remat export`: writes the model of a run as a Hugging Face folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use remat::tree;
use remat_command::command;
use remat_io::huggingface::{self, ExportOptions};

use crate::config::Precision;
use crate::data::plain;
use crate::model::{Architecture, Model};
use crate::run::Saved;

/// Arguments of `remat export`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of a run, of which the last checkpoint is written, or of one checkpoint; adapters are merged into the weights
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// The folder to write, which must be new or empty
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Dtype of the weights: f32, bf16, f16
    #[arg(long, default_value = "f32")]
    dtype: Precision,
}

/// Writes `config.json`, the weights, and the tokenizer, if the run has one.
///
/// # Errors
/// If there is no run, or it or its tokenizer cannot be read; if the folder is not empty or cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let saved = Saved::open(&args.from)?;
    for note in &saved.notes {
        command::note(out, note)?;
    }
    if let Some(parent) = args.to.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make the folder `{}`", parent.display()))?;
    }
    let tokenizer = saved.tokenizer()?;
    let model = tree::map(&saved.model()?, |leaf| leaf.to_dtype(args.dtype.dtype()));
    let (options, files) = (ExportOptions::default(), |folder: &Path| tokenizer.save(folder));
    match (&model, &saved.architecture) {
        (Model::Gpt2(model), Architecture::Gpt2(config)) => {
            huggingface::save_with_files(&options, &args.to, model, config, files)
        }
        (Model::Llama(model), Architecture::Llama(config)) => {
            huggingface::save_with_files(&options, &args.to, model, config, files)
        }
        (_, Architecture::Qwen2(_)) => {
            anyhow::bail!("a model of type `qwen2` cannot be written as a Hugging Face folder")
        }
        _ => anyhow::bail!("the weights of `{}` are not those of its model", saved.path().display()),
    }
    .map_err(plain)?;
    let note = match &saved.config.tokenizer {
        Some(_) => "",
        None => "; its tokens are bytes, for which there is no tokenizer.json",
    };
    Ok(writeln!(out, "wrote {} after step {} to {}{note}", saved.path().display(), saved.step, args.to.display())?)
}
