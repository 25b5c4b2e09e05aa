//! The folder of a training run: its checkpoints, its configuration, and its measurements.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use remat::eval_shape;
use remat::nn::Lora;
use remat::optim::LossScale;
use remat_command::command;
use remat_command::text::shell_word;
use remat_data::Tokenizer;
use remat_io::{Checkpoint, CheckpointOptions, Checkpoints, Metrics, Progress, Snapshot, save_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::Config;
use crate::data::{Text, plain};
use crate::model::{Architecture, Model};
use crate::step::{OptimizerState, Step};

/// The parent folder of runs without a given folder.
const RUNS: &str = "runs";

/// The file of the configuration, from which another run can start.
const CONFIG: &str = "config.toml";

/// The copy of the tokenizer, so that the run does not depend on the file that was given.
const TOKENIZER: &str = "tokenizer.json";

/// The options of the tokenizer, beside it.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The file that [`Checkpoints`] locks, which a run creates first in its folder.
const LOCK: &str = ".lock";

/// The saved description of a run, besides its numbers.
#[derive(Serialize, Deserialize)]
struct Written {
    /// The settings of the [`Config`].
    settings: Map<String, Value>,
    /// The `config.json` of the model.
    model: Value,
    /// The fingerprint of the tokenizer, where tokens are not bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<u64>,
}

/// The text of a run, so that a change is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    bytes: usize,
    tokens: u64,
    /// How batches are drawn from the text: [`BATCHES`] of the version that began the run.
    #[serde(default)]
    batches: u32,
}

/// The number of this version's way to draw batches; 0 is that of versions that did not save it.
const BATCHES: u32 = 1;

impl Fingerprint {
    pub(crate) fn of(text: &Text) -> Fingerprint {
        Fingerprint { bytes: text.size(), tokens: text.fingerprint(), batches: BATCHES }
    }

    /// Whether the version that saved this one draws the same batches.
    pub(crate) fn has_same_batches(&self) -> bool {
        self.batches == BATCHES
    }
}

/// The state that training changes.
pub(crate) struct State {
    /// The steps done.
    pub(crate) step: u32,
    pub(crate) model: Model,
    pub(crate) optimizer: OptimizerState<Model>,
    /// The loss scale of a run in f16.
    pub(crate) scale: Option<LossScale>,
}

/// A saved run.
pub(crate) struct Saved {
    checkpoint: Checkpoint,
    /// The folder of the run.
    folder: PathBuf,
    pub(crate) config: Config,
    pub(crate) architecture: Architecture,
    pub(crate) text: Fingerprint,
    /// The fingerprint of the tokenizer, if it was saved.
    tokenizer: Option<u64>,
    /// The steps done.
    pub(crate) step: u32,
    /// Why later checkpoints were not read.
    pub(crate) notes: Vec<String>,
}

impl Saved {
    /// Opens the last checkpoint of a run, or a single checkpoint.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Saved> {
        let (checkpoint, skipped, folder) = if is_checkpoint(path) {
            (Some(Checkpoint::open(path)?), Vec::new(), folder_of(path)?)
        } else {
            let latest = Checkpoint::latest(path)?;
            (latest.checkpoint, latest.skipped, path.to_path_buf())
        };
        let Some(checkpoint) = checkpoint else {
            let path = path.display();
            bail!("`{path}` has no checkpoint: `remat train` has not written one there, or has ended before its first")
        };
        let progress: Progress<Value, Value> = checkpoint.progress()?;
        let read = || -> Result<_> {
            let Written { settings, model, tokenizer } = serde_json::from_value(progress.config)?;
            let architecture = Architecture::from_json(Path::new("config.json"), &model.to_string())?;
            Ok((Config::from_settings(&settings)?, architecture, serde_json::from_value(progress.data)?, tokenizer))
        };
        let (config, architecture, text, tokenizer) = read().with_context(|| {
            format!(
                "`{}` was written by another version of remat, or not by `remat train`",
                checkpoint.path().display()
            )
        })?;
        let notes = skipped.iter().map(ToString::to_string).collect();
        let step = u32::try_from(progress.step).context("the number of the step")?;
        Ok(Saved { checkpoint, folder, config, architecture, text, tokenizer, step, notes })
    }

    /// As [`Saved::open`], for a run alone.
    ///
    /// # Errors
    /// As [`Saved::open`]; if the path is a single checkpoint, in which the rest of the run would be saved and later removed with it.
    pub(crate) fn of_run(path: &Path) -> Result<Saved> {
        expect_run(path)?;
        Saved::open(path)
    }

    /// Opens the last checkpoint of a run to resume it in its folder, where no other process writes from then on. A checkpoint that a
    /// killed process had written, and not named, gets its name first: it is the last one.
    ///
    /// # Errors
    /// As [`Saved::of_run`]; if another process writes there, or this one cannot.
    pub(crate) fn to_resume(path: &Path) -> Result<(Saved, Checkpoints)> {
        expect_run(path)?;
        // In a folder of other files, nothing is made.
        let locked = path.join(LOCK).exists().then(|| Checkpoints::open(path)).transpose()?;
        let saved = Saved::open(path)?;
        let checkpoints = locked.map_or_else(|| Checkpoints::open(path), Ok)?;
        Ok((saved, checkpoints))
    }

    /// The folder of the checkpoint.
    pub(crate) fn path(&self) -> &Path {
        self.checkpoint.path()
    }

    /// The model, with adapters merged into its weights, and its blocks as a list.
    ///
    /// # Errors
    /// If the file does not belong to this model.
    pub(crate) fn model(&self) -> Result<Model> {
        Ok(Lora::merge(&self.checkpoint.tree("model", &self.shapes()?)?).unstacked())
    }

    /// The model as it is trained, and the state of the optimizer.
    ///
    /// # Errors
    /// As [`Saved::model`].
    pub(crate) fn state(&self, step: &Step) -> Result<State> {
        let model = self.shapes()?;
        let (optimizer, scale) = eval_shape(|model: &Model| step.init(model))(&model)?;
        let optimizer = self.checkpoint.tree("optimizer", &optimizer)?;
        let scale = scale.map(|scale| self.checkpoint.tree("scale", &scale)).transpose()?;
        Ok(State { step: self.step, model: self.checkpoint.tree("model", &model)?, optimizer, scale })
    }

    /// An abstract model of the same sizes.
    fn shapes(&self) -> remat::Result<Model> {
        self.config.shapes(&self.architecture)
    }

    /// The file of the tokenizer, unless tokens are bytes: the copy in the folder of the run, or else the original file.
    pub(crate) fn tokenizer_file(&self) -> Option<PathBuf> {
        let given = self.config.tokenizer.as_ref()?;
        let copy = self.folder.join(TOKENIZER);
        Some(if copy.exists() { copy } else { given.clone() })
    }

    /// The tokenizer that the run was trained with.
    ///
    /// # Errors
    /// If its file cannot be read, or has changed.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let Some(path) = self.tokenizer_file() else { return Ok(Tokenizer::bytes()) };
        let tokenizer = Tokenizer::open(&path).map_err(plain)?;
        ensure!(
            self.tokenizer.is_none_or(|fingerprint| fingerprint == tokenizer.fingerprint()),
            "`{}` is not the tokenizer that the run was trained with: its tokens would mean something else",
            path.display()
        );
        Ok(tokenizer)
    }

    /// The length of the sequences that the model was trained with.
    pub(crate) fn context(&self) -> usize {
        self.config.context(&self.architecture)
    }
}

/// The folder of a run in progress.
pub(crate) struct Run {
    folder: PathBuf,
    checkpoints: Checkpoints,
    metrics: Metrics,
    description: Description,
    /// The last step whose state was submitted for saving.
    saved: Option<u32>,
}

/// The description of a new or resumed run.
pub(crate) struct Description {
    pub(crate) config: Config,
    pub(crate) architecture: Architecture,
    pub(crate) text: Fingerprint,
    pub(crate) tokenizer: Tokenizer,
    /// Whether training may continue while a checkpoint is written, which takes the memory of a second model.
    pub(crate) saves_in_background: bool,
}

impl Run {
    /// Begins a run in this folder, which must not contain one, or in a new folder of `runs`. Remains of a run that ended before its first
    /// checkpoint are replaced, with a note.
    ///
    /// # Errors
    /// If the folder has a run, or other files with the same names; if it cannot be created or written.
    pub(crate) fn begin(description: Description, out: &mut impl Write) -> Result<Run> {
        let folder = description.config.save.as_ref().map_or_else(new_folder, |folder| Ok(folder.clone()))?;
        let shown = folder.display();
        if has_checkpoint(&folder)? {
            let word = shell_word(&folder);
            bail!("`{shown}` has a run: resume it with --resume {word}, or save the new run elsewhere");
        }
        let tokenizer = description.config.tokenizer.as_ref().map(|_| [TOKENIZER, TOKENIZER_CONFIG]);
        let there = [CONFIG, Metrics::FILE]
            .into_iter()
            .chain(tokenizer.into_iter().flatten())
            .find(|name| folder.join(name).exists());
        match there {
            Some(name) if !folder.join(LOCK).exists() => {
                bail!(
                    "`{shown}` has a file `{name}` that no run has written, and that this run would replace: save the run elsewhere"
                )
            }
            Some(_) => {
                let note = format!("`{shown}` has a run that ended before its first checkpoint; this run replaces it");
                command::note(out, &note)?;
            }
            None => {}
        }
        let tokenizer = description.tokenizer.clone();
        let checkpoints = Checkpoints::open(&folder)?;
        let run = Run::open(folder, checkpoints, description, 0)?;
        tokenizer.save(&run.folder).map_err(plain)?;
        Ok(run)
    }

    /// Resumes the run of a folder after this many steps, with the checkpoints of [`Saved::to_resume`].
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(crate) fn resume(folder: &Path, checkpoints: Checkpoints, description: Description, step: u32) -> Result<Run> {
        let tokenizer = description.tokenizer.clone();
        let run = Run::open(folder.to_path_buf(), checkpoints, description, step)?;
        // Runs of older versions have no copy.
        if !folder.join(TOKENIZER).exists() {
            tokenizer.save(folder).map_err(plain)?;
        }
        Ok(run)
    }

    fn open(folder: PathBuf, checkpoints: Checkpoints, description: Description, step: u32) -> Result<Run> {
        let options = CheckpointOptions { background: description.saves_in_background, ..CheckpointOptions::default() };
        // A pipe would be waited for.
        let is_odd = |name: &&str| fs::metadata(folder.join(name)).is_ok_and(|kind| !kind.is_file());
        if let Some(name) = [CONFIG, Metrics::FILE, TOKENIZER, TOKENIZER_CONFIG].into_iter().find(is_odd) {
            bail!("`{}` is not a file", folder.join(name).display());
        }
        let checkpoints = checkpoints.with_options(options);
        let metrics = Metrics::open(&folder, step.into())?;
        let written = folder.join(CONFIG);
        save_text(&written, &description.config.to_toml()?).map_err(plain)?;
        let saved = (step > 0).then_some(step);
        Ok(Run { folder, checkpoints, metrics, description, saved })
    }

    /// The last step whose state was submitted for saving.
    pub(crate) fn saved(&self) -> Option<u32> {
        self.saved
    }

    /// A sentence about the checkpoint from which a stopped run can be resumed.
    pub(crate) fn last_checkpoint(&mut self) -> String {
        let failed = match self.checkpoints.wait() {
            Ok(()) => String::new(),
            Err(error) => format!("; a later one could not be written: {}", error.message()),
        };
        // The checkpoints on disk, not those that were submitted.
        match Checkpoint::latest(&self.folder).map(|latest| latest.checkpoint) {
            Ok(Some(checkpoint)) => format!("The last checkpoint is {}{failed}", checkpoint.path().display()),
            Ok(None) => format!("There is no earlier checkpoint{failed}"),
            Err(error) => format!("No checkpoint can be read: {}{failed}", error.message()),
        }
    }

    /// Records the measured numbers of a step by name.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn measured(&mut self, step: u32, numbers: &[(&str, f64)]) -> Result<()> {
        Ok(self.metrics.write(step.into(), numbers)?)
    }

    /// Records that the output is no longer read from this step on, and tells the user, if standard error still is.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn unread(&mut self, step: u32) -> Result<()> {
        let note = "the output is no longer read; the run goes on without it";
        let shown = self.folder.display().to_string();
        // It may have gone with the output.
        let _ = command::note(&mut std::io::stderr(), &format!("{note}, and is saved in {shown}"));
        Ok(self.metrics.note(step.into(), note)?)
    }

    /// Saves the state, in the background if there is memory for that. If the previous save failed, this one is written to disk first, if
    /// possible, and then the error is returned.
    ///
    /// # Errors
    /// If this save or the previous one fails: the reason, and the last checkpoint.
    pub(crate) fn save(&mut self, state: &State) -> Result<()> {
        let Description { config, architecture, text, tokenizer, .. } = &self.description;
        let written = Written {
            settings: config.to_settings()?,
            model: serde_json::from_str(&architecture.to_json())?,
            tokenizer: config.tokenizer.is_some().then(|| tokenizer.fingerprint()),
        };
        let progress = Progress { step: state.step.into(), seed: config.seed, data: *text, config: written };
        let mut snapshot =
            Snapshot::new(&progress)?.with("model", &state.model)?.with("optimizer", &state.optimizer)?;
        if let Some(scale) = &state.scale {
            snapshot = snapshot.with("scale", scale)?;
        }
        self.metrics.flush()?;
        let before = self.checkpoints.wait();
        let written = self.checkpoints.save(snapshot);
        if let Err(error) = before.and(written) {
            let last = self.last_checkpoint();
            bail!("{}: {}. {last}", error.operation(), error.message());
        }
        if self.checkpoints.folder() != self.folder {
            self.folder = self.checkpoints.folder().to_path_buf();
            let note = format!("the folder of the run was moved; it goes on in `{}`", self.folder.display());
            // The run goes on without it, as without its output.
            let _ = command::note(&mut std::io::stderr(), &note);
        }
        self.saved = Some(state.step);
        Ok(())
    }

    /// Waits until everything is on disk.
    ///
    /// # Errors
    /// If the last save fails.
    pub(crate) fn finish(mut self) -> Result<PathBuf> {
        self.metrics.flush()?;
        if let Err(error) = self.checkpoints.wait() {
            let last = self.last_checkpoint();
            bail!("{}: {}. {last}", error.operation(), error.message());
        }
        Ok(self.folder)
    }
}

/// Whether a folder is a single checkpoint rather than a run.
fn is_checkpoint(path: &Path) -> bool {
    path.join("state.json").exists()
}

/// # Errors
/// If a folder to resume is a single checkpoint.
fn expect_run(path: &Path) -> Result<()> {
    if is_checkpoint(path) {
        let (shown, run) = (path.display(), shell_word(&folder_of(path)?));
        bail!("`{shown}` is one checkpoint of a run: resume the last one with --resume {run}")
    }
    Ok(())
}

/// The run of a checkpoint.
///
/// # Errors
/// If the path cannot be resolved.
fn folder_of(checkpoint: &Path) -> Result<PathBuf> {
    let named = checkpoint.parent().filter(|_| checkpoint.file_name().is_some());
    Ok(match named {
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) => folder.to_path_buf(),
        // As for `.`.
        None => {
            let checkpoint =
                checkpoint.canonicalize().with_context(|| format!("cannot read `{}`", checkpoint.display()))?;
            checkpoint.parent().unwrap_or(&checkpoint).to_path_buf()
        }
    })
}

fn has_checkpoint(folder: &Path) -> Result<bool> {
    Ok(folder.exists() && Checkpoint::latest(folder)?.checkpoint.is_some())
}

/// A new folder in `runs`, with the next free number.
fn new_folder() -> Result<PathBuf> {
    let runs = PathBuf::from(RUNS);
    let failed = |error| anyhow!("cannot make a folder for the run in `{RUNS}`: {error}");
    fs::create_dir_all(&runs).map_err(failed)?;
    let numbers = fs::read_dir(&runs).map_err(failed)?.flatten();
    let last = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max().unwrap_or(0);
    for number in last + 1.. {
        let folder = runs.join(number.to_string());
        match fs::create_dir(&folder) {
            // Another run may start at the same time.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
            Ok(()) => return Ok(folder),
        }
    }
    bail!("cannot make a folder for the run in `{RUNS}`: no number is free")
}

#[cfg(test)]
mod tests {
    use remat::random;

    use super::*;
    use crate::config::Setting;

    #[test]
    fn a_save_that_failed_costs_no_other() {
        for saves_in_background in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("run");
            let settings = [("width", "8"), ("heads", "2"), ("context", "6"), ("save", path.to_str().unwrap())];
            let config = Config::of(&settings.map(|(key, value)| Setting::flag(key, value))).unwrap();
            let architecture = config.architecture().unwrap();
            let model = config.model(&architecture, &random::key(0)).unwrap();
            let (optimizer, scale) = Step::of(&config).unwrap().init(&model).unwrap();
            let mut state = State { step: 1, model, optimizer, scale };
            let text = Fingerprint { bytes: 1, tokens: 1, batches: BATCHES };
            let tokenizer = Tokenizer::bytes();
            let description = Description { config, architecture, text, tokenizer, saves_in_background };
            let mut run = Run::begin(description, &mut Vec::new()).unwrap();
            assert_eq!(run.last_checkpoint(), "There is no earlier checkpoint");
            run.save(&state).unwrap();
            // A file blocks the checkpoint of step 2.
            let obstacle = path.join(".step-000002.partial");
            fs::write(&obstacle, "").unwrap();
            state.step = 2;
            let mut failed = run.save(&state);
            if saves_in_background {
                failed.unwrap();
                state.step = 3;
                failed = run.save(&state);
            }
            let error = failed.unwrap_err().to_string();
            let last = path.join(if saves_in_background { "step-000003" } else { "step-000001" });
            assert!(error.starts_with("Checkpoints::save: cannot remove `"), "{error}");
            assert!(error.ends_with(&format!(". The last checkpoint is {}", last.display())), "{error}");
            // The disk is asked, not the submissions.
            state.step = 2;
            if saves_in_background {
                run.save(&state).unwrap();
                let said = run.last_checkpoint();
                let expected = format!("The last checkpoint is {}; a later one could not be written: ", last.display());
                assert!(said.starts_with(&expected), "{said}");
            }
        }
    }
}
