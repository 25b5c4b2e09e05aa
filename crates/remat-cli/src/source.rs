//! A trained model, from any place where one is saved.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use remat::nn::Lora;
use remat_data::Tokenizer;

use crate::model::{Architecture, Model};
use crate::run::Saved;

/// A model to generate with or to evaluate: the last checkpoint of a run, a single checkpoint, or a Hugging Face folder. Adapters are
/// merged into its weights.
pub(crate) struct Source {
    pub(crate) model: Model,
    pub(crate) tokenizer: Tokenizer,
    /// The folder of the checkpoint, or of the model.
    pub(crate) path: PathBuf,
    /// The longest sequence for the model: the length used in training, or all positions of a Hugging Face model, up to those that its
    /// attention reads back.
    pub(crate) context: usize,
    /// The length of sequences in evaluation.
    pub(crate) window: usize,
    /// The number of sequences per batch in evaluation.
    pub(crate) batch: usize,
    /// The token that begins each sequence, if there is one.
    pub(crate) begin: Option<u32>,
    /// The tokens that end a text.
    pub(crate) ends: Vec<u32>,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
}

/// The tokens per batch when a Hugging Face model is evaluated, and the most per sequence: some models have 131,072 positions.
const TOKENS: usize = 1024;

impl Source {
    /// # Errors
    /// If there is no model, or no tokenizer for it, or they cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Source> {
        let file = path.join("config.json");
        if file.is_file() {
            return Source::of_folder(path, &file);
        }
        let saved = Saved::open(path)?;
        let tokenizer = saved.tokenizer()?;
        let ends = ends(&saved.architecture).into_iter().chain(tokenizer.end_of_text()).collect();
        Ok(Source {
            model: Lora::merge(&saved.model()?),
            tokenizer,
            path: saved.path().to_path_buf(),
            context: saved.context(),
            window: saved.context(),
            batch: saved.config.batch,
            begin: None,
            ends,
            notes: saved.notes,
        })
    }

    fn of_folder(path: &Path, file: &Path) -> Result<Source> {
        let architecture = Architecture::read(file, None)?;
        let tokenizer = tokenizer(path, architecture.vocabulary())?;
        let model = Model::load(path, &architecture, None)?;
        let window = architecture.context().clamp(1, TOKENS);
        Ok(Source {
            model,
            path: path.to_path_buf(),
            context: architecture.context(),
            window,
            batch: TOKENS / window,
            begin: tokenizer.begin_of_text(),
            tokenizer,
            ends: ends(&architecture),
            notes: Vec::new(),
        })
    }
}

/// The tokenizer of a folder. Without one, tokens are bytes if the vocabulary has the right size.
fn tokenizer(path: &Path, vocabulary: usize) -> Result<Tokenizer> {
    let bytes = Tokenizer::bytes();
    let has_one = path.join("tokenizer.json").exists();
    let tokenizer = if has_one || vocabulary != bytes.vocabulary() { Tokenizer::open(path)? } else { bytes };
    ensure!(
        tokenizer.vocabulary() <= vocabulary,
        "the tokenizer of `{}` has {} tokens, more than the {vocabulary} of the model",
        path.display(),
        tokenizer.vocabulary()
    );
    Ok(tokenizer)
}

/// The tokens of a configuration that end a text. Numbers that are not tokens are ignored.
fn ends(architecture: &Architecture) -> Vec<u32> {
    architecture.ends().iter().filter_map(|&token| u32::try_from(token).ok()).collect()
}
