//! The origin of the initial weights.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use remat::{DType, random};
use remat_data::Tokenizer;

use crate::config::Config;
use crate::data::plain;
use crate::model::{Architecture, Model, Sizes};
use crate::run::Saved;

/// The tokenizer file of a Hugging Face folder.
const TOKENIZER: &str = "tokenizer.json";

/// The initial weights of a new run.
pub(super) enum Origin {
    /// Random weights.
    Fresh,
    /// The weights of another run.
    Run(Box<Saved>),
    /// The weights of a Hugging Face folder.
    Folder(PathBuf),
}

impl Origin {
    /// # Errors
    /// If there are no weights at the path of `from`, or sizes are given too.
    pub(super) fn of(config: &Config) -> Result<Origin> {
        let Some(path) = &config.from else { return Ok(Origin::Fresh) };
        let sizes = Sizes { context: None, ..config.sizes };
        ensure!(
            sizes == Sizes::default() && config.model == Config::of(&[])?.model,
            "--from takes the model and its sizes from `{}`, so they cannot be given as well",
            path.display()
        );
        Ok(if is_folder(path) { Origin::Folder(path.clone()) } else { Origin::Run(Box::new(Saved::open(path)?)) })
    }

    /// The architecture of the weights.
    ///
    /// # Errors
    /// If there is no such model.
    pub(super) fn architecture(&self, config: &Config) -> Result<Architecture> {
        let architecture = match self {
            Origin::Fresh => return config.architecture(),
            Origin::Run(saved) => saved.architecture.clone(),
            Origin::Folder(path) => Architecture::read(&path.join("config.json"), config.sizes.context)?,
        };
        if let (Some(most), Some(context)) = (architecture.positions(), config.sizes.context) {
            ensure!(context <= most, "--context {context} is more than the {most} positions that the model has");
        }
        Ok(architecture)
    }

    /// The tokenizer of the weights and its file, unless tokens are bytes.
    ///
    /// # Errors
    /// If it cannot be read, or has changed.
    pub(super) fn tokenizer(&self) -> Result<(Option<PathBuf>, Tokenizer)> {
        Ok(match self {
            Origin::Run(saved) => (saved.tokenizer_file(), saved.tokenizer()?),
            Origin::Folder(path) if path.join(TOKENIZER).exists() => {
                let file = path.join(TOKENIZER);
                let tokenizer = Tokenizer::open(&file).map_err(plain)?;
                (Some(file), tokenizer)
            }
            Origin::Fresh | Origin::Folder(_) => (None, Tokenizer::bytes()),
        })
    }

    /// The weights, in the form for training.
    ///
    /// # Errors
    /// If they cannot be read, or adapters cannot be attached.
    pub(super) fn model(&self, config: &Config, architecture: &Architecture, key: &random::Key) -> Result<Model> {
        let model = match self {
            Origin::Fresh => return Ok(config.model(architecture, key)?),
            Origin::Run(saved) => saved.model()?,
            Origin::Folder(path) => Model::load(path, architecture, Some(DType::F32))?,
        };
        Ok(config.prepared(model, key)?)
    }
}

/// Whether a folder is a Hugging Face folder.
fn is_folder(path: &Path) -> bool {
    path.join("config.json").is_file()
}
