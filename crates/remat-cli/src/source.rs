//! A trained model, wherever it was saved.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use remat::nn::{self, Lora};
use remat_io::huggingface;

use crate::model::{Architecture, Model};
use crate::run::Saved;

/// A model to generate with or to evaluate: the last checkpoint of a run, one checkpoint, or a folder of Hugging Face. Adapters are merged
/// into its weights.
pub(crate) struct Source {
    pub(crate) model: Model,
    /// The folder of the checkpoint, or of the model.
    pub(crate) path: PathBuf,
    /// The length of sequences that it was trained with.
    pub(crate) context: usize,
    /// The sequences of a step that it was trained with.
    pub(crate) batch: usize,
    /// The tokens that end a text.
    pub(crate) ends: Vec<u32>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
}

/// The sequences that a model of Hugging Face is evaluated with at a time.
const BATCH: usize = 4;

impl Source {
    /// # Errors
    /// If there is no model, or it cannot be read; if its tokens are not bytes.
    pub(crate) fn open(path: &Path) -> Result<Source> {
        let file = path.join("config.json");
        if file.is_file() {
            return Source::of_folder(path, &file);
        }
        let saved = Saved::open(path)?;
        Ok(Source {
            model: Lora::merge(&saved.model()?),
            path: saved.path().to_path_buf(),
            context: saved.context(),
            batch: saved.config.batch,
            ends: ends(&saved.architecture),
            notes: saved.notes,
        })
    }

    fn of_folder(path: &Path, file: &Path) -> Result<Source> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let architecture = Architecture::from_json(file, &text)?;
        let vocabulary = architecture.vocabulary();
        ensure!(
            vocabulary <= 256,
            "`{}` has a vocabulary of {vocabulary} tokens, which are not bytes: this version reads no tokenizers",
            path.display()
        );
        let model = match &architecture {
            Architecture::Gpt2(_) => Model::Gpt2(huggingface::load::<nn::Gpt2>(path, None)?.0),
            Architecture::Llama(_) => Model::Llama(huggingface::load::<nn::Llama>(path, None)?.0),
        };
        Ok(Source {
            model,
            path: path.to_path_buf(),
            context: architecture.context(),
            batch: BATCH,
            ends: ends(&architecture),
            notes: Vec::new(),
        })
    }
}

/// The tokens of a configuration that end a text: numbers that are not tokens end none.
fn ends(architecture: &Architecture) -> Vec<u32> {
    let tokens = match architecture {
        Architecture::Gpt2(config) => &config.eos_token_id,
        Architecture::Llama(config) => &config.eos_token_id,
    };
    tokens.iter().filter_map(|&token| u32::try_from(token).ok()).collect()
}
