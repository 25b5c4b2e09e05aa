//! Prepares a run: everything is read and checked before training.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use remat::report::readable_bytes;
use remat::{Device, Policy, Tensor, jit_with, random, tree};
use remat_command::arguments;
use remat_command::command;
use remat_command::table::thousands;
use remat_data::Tokenizer;
use remat_io::Checkpoints;

use super::limit::Limit;
use super::origin::Origin;
use super::plan::{self, Plan, Program, Subject};
use crate::config::Config;
use crate::data::{Batches, Text, load, open, open_again, plain};
use crate::lock::Lock;
use crate::model::{Architecture, Model};
use crate::run::{Description, Fingerprint, Run, Saved, State};
use crate::step::Step;
use crate::{machine, memory};

/// A resumed run: its folder, and its last checkpoint.
pub(super) type Resumed<'a> = (&'a Path, Saved);

/// The memory and work of a run, planned before it begins.
pub(super) struct Planned {
    pub(super) plan: Plan,
    /// Whether there is memory for a second state while a checkpoint is written.
    saves_in_background: bool,
    /// The useful flops of a step.
    pub(super) useful_flops: u64,
    /// How a step runs, if it computes values again to fit.
    pub(super) step: Option<remat::Plan>,
}

/// A run before its first step.
pub(super) struct Job<'a> {
    /// The configuration, with absolute paths of text and tokenizer.
    pub(super) config: Config,
    resumed: Option<Resumed<'a>>,
    origin: Origin,
    pub(super) architecture: Architecture,
    pub(super) tokenizer: Tokenizer,
    /// The tokens of a sequence.
    pub(super) context: usize,
    /// The sequences of a step.
    pub(super) sequences: usize,
    pub(super) step: Step,
    pub(super) device: Device,
    text: Text,
    pub(super) batches: Batches,
    /// The key of random weights and samples.
    weights: random::Key,
    pub(super) samples: random::Key,
}

impl<'a> Job<'a> {
    /// Reads everything that a run needs.
    ///
    /// # Errors
    /// If the configuration, the environment, the weights or the text are not valid.
    pub(super) fn prepare(mut config: Config, resumed: Option<Resumed<'a>>) -> Result<Job<'a>> {
        let saved = resumed.as_ref().map(|(_, saved)| saved);
        let origin = if saved.is_some() { Origin::Fresh } else { Origin::of(&config)? };
        let (file, tokenizer) = match (saved, config.tokenizer.take()) {
            (Some(saved), file) => (file, saved.tokenizer()?),
            (None, Some(file)) => {
                let file = whole(file);
                let tokenizer = Tokenizer::open(&file).map_err(plain)?;
                (Some(file), tokenizer)
            }
            (None, None) => origin.tokenizer()?,
        };
        config.tokenizer = file.map(whole);
        let architecture =
            saved.map_or_else(|| origin.architecture(&config), |saved| Ok(saved.architecture.clone()))?;
        let context = config.context(&architecture);
        let sequences = config.sequences(context)?;
        let (vocabulary, least) = (architecture.vocabulary(), tokenizer.vocabulary());
        ensure!(vocabulary >= least, "a vocabulary of {vocabulary} is too small: the tokenizer has {least} tokens");
        let step = Step::of(&config)?;
        // This compiles, so that mistakes in the environment are reported before anything else.
        let device = config.device()?;
        let probe = Tensor::from(0.0f32).to_device(&device);
        jit_with(&machine::options(&probe)?, |x: &Tensor| x.clone()).call(probe)?;
        let open = if saved.is_some() { open_again } else { open };
        let text = load(&open(config.text.as_deref(), config.column.as_deref())?, &tokenizer)?;
        // Mistakes that would prevent saving are reported before training.
        config.text = text.path.clone().map(whole);
        config.to_settings()?;
        let [weights, batch_key, samples] = random::key(config.seed).split();
        let batches = Batches::new(&text, batch_key, sequences, config.batch, context)?;
        Ok(Job {
            config,
            resumed,
            origin,
            architecture,
            tokenizer,
            context,
            sequences,
            step,
            device,
            text,
            batches,
            weights,
            samples,
        })
    }

    fn saved(&self) -> Option<&Saved> {
        self.resumed.as_ref().map(|(_, saved)| saved)
    }

    /// The model as a line.
    ///
    /// # Errors
    /// If its sizes do not fit each other.
    pub(super) fn model(&self) -> Result<String> {
        let parameters = thousands(plan::size(&self.config.shapes(&self.architecture)?)?);
        let (context, batch) = (self.context, self.config.batch);
        Ok(format!("{parameters} parameters ({}), context {context}, batch {batch}", self.architecture))
    }

    /// Tells the user what is trained, on which text, and what each policy would keep.
    ///
    /// # Errors
    /// If the model cannot be traced, or the output cannot be written.
    pub(super) fn describe(&self, out: &mut impl Write) -> Result<()> {
        let Job { config, text, step, .. } = self;
        for note in text.notes.iter().chain(self.saved().into_iter().flat_map(|saved| &saved.notes)) {
            command::note(out, note)?;
        }
        self.note_changes(out)?;
        let (size, held_out) = (thousands(text.size()), thousands(self.batches.held_out()));
        let count = config.tokenizer.as_ref().map(|_| format!(", {} tokens", thousands(text.tokens())));
        let tokens = count.unwrap_or_default();
        writeln!(out, "text: {size} bytes in {}{tokens}; {held_out} of them are held out", text.source)?;
        let shapes = config.shapes(&self.architecture)?;
        writeln!(out, "model: {}", self.model()?)?;
        writeln!(
            out,
            "the memory of a step under each policy, and what it keeps of one batch for its backward pass:\n"
        )?;
        let batch = plan::batch(config.batch, self.context);
        let loss = |model: &Model, policy: Option<&Policy>| step.loss(model, &batch, policy);
        let policy = arguments::policy(&config.policy)?;
        let peak = |policy: &str| -> Result<Option<usize>> {
            if !self.device.engine().plans_memory() {
                return Ok(None);
            }
            let config = Config { policy: policy.into(), ..config.clone() };
            plan::peak(&Subject::of_steps(&config, &self.architecture)).map(Some)
        };
        Ok(writeln!(out, "{}\n", memory::report(&shapes, loss, peak, policy.as_ref())?)?)
    }

    /// Reports changes that make the rest of a run differ from the original.
    fn note_changes(&self, out: &mut impl Write) -> Result<()> {
        let Some(saved) = self.saved() else { return Ok(()) };
        if !saved.text.has_same_batches() {
            let message = "the version that began this run drew batches differently, so the resumed run is not bitwise equal to a run of either version";
            command::note(out, message)?;
        } else if saved.text != Fingerprint::of(&self.text) {
            command::note(out, "the text is not the one that the run began with, so its batches differ")?;
        }
        let schedule = |config: &Config| (config.steps, config.learning_rate);
        if schedule(&saved.config) != schedule(&self.config) {
            let message = "steps or learning rate differ from the saved run: the new schedule applies from here on, so losses are those of neither schedule alone";
            command::note(out, message)?;
        }
        Ok(())
    }

    /// The plan of the run's memory; `None` on devices whose own compilers plan.
    ///
    /// # Errors
    /// If it does not fit; if the step has an error; if the plan of a file cannot be used and no other may be made, or cannot be written; if the
    /// output cannot be written.
    pub(super) fn plan(&self, lock: &Lock, out: &mut impl Write) -> Result<Option<Planned>> {
        if !self.device.engine().plans_memory() {
            ensure!(
                !lock.is_given(),
                "--plan: the engine of {} has no plans; the native engine has",
                self.device.name()
            );
            return Ok(None);
        }
        let subject = Subject::new(&self.config, &self.architecture, self.tokenizer.vocabulary())?;
        let program = subject.program()?;
        let mut plan = program.plan()?;
        writeln!(out, "{}", plan.describe())?;
        let (mut limit, mut step) = (Limit::of(&self.config), None);
        let locked = if lock.is_given() { self.locked(lock, &program, limit.as_ref(), out)? } else { None };
        let is_locked = locked.is_some();
        if let Some((planned, of_step)) = locked {
            (plan, step) = (planned, Some(of_step));
        } else if let Some(full) = limit.take_if(|limit| !limit.fits(plan.total())) {
            match full.rematerialized(&plan, &program, &self.config, out)? {
                Some((planned, of_step, now)) => (plan, step, limit) = (planned, Some(of_step), Some(now)),
                None => full.refuse(&plan, &subject, out)?,
            }
        }
        if lock.is_given() && !is_locked {
            lock.write(&step.clone().map_or_else(|| program.step(), Ok)?)?;
        }
        let saves_in_background = limit.is_none_or(|limit| limit.fits(plan.saving));
        Ok(Some(Planned { saves_in_background, useful_flops: plan.useful_flops(&subject)?, plan, step }))
    }

    /// The plans of the run and of a step of it in a file, if they fit; a line says so.
    fn locked(
        &self,
        lock: &Lock,
        program: &Program<'_>,
        limit: Option<&Limit>,
        out: &mut impl Write,
    ) -> Result<Option<(Plan, remat::Plan)>> {
        let mut planned = None;
        let fits = |step: &remat::Plan| {
            let plan = planned.insert(program.planned(step)?);
            Ok(limit.is_none_or(|limit| limit.fits(plan.total())))
        };
        let Some(step) = lock.read(&program.step()?, fits, out)? else { return Ok(None) };
        let Some(plan) = planned else { return Ok(None) };
        let (bytes, more) = (readable_bytes(plan.step), 100.0 * step.overhead());
        writeln!(
            out,
            "a step runs as the plan of the file says: it takes {bytes}, for {more:.1} % more time by the cost model"
        )?;
        Ok(Some((plan, step)))
    }

    /// The initial state of training.
    ///
    /// # Errors
    /// If weights cannot be read or drawn.
    pub(super) fn state(&self) -> Result<State> {
        let state = match self.saved() {
            Some(saved) => saved.state(&self.step)?,
            None => {
                let model = self.origin.model(&self.config, &self.architecture, &self.weights)?;
                let (optimizer, scale) = self.step.init(&model)?;
                State { step: 0, optimizer, scale, model }
            }
        };
        let device = &self.device;
        Ok(State {
            model: tree::map(&state.model, |leaf| leaf.to_device(device)),
            optimizer: tree::map(&state.optimizer, |leaf| leaf.to_device(device)),
            scale: tree::map(&state.scale, |leaf| leaf.to_device(device)),
            ..state
        })
    }

    /// The folder in which the run is saved: of a resumed run, that of these checkpoints.
    ///
    /// # Errors
    /// If it cannot be created or written, or contains other files; if the output cannot be written.
    pub(super) fn folder(
        &self,
        planned: Option<&Planned>,
        state: &State,
        checkpoints: Option<Checkpoints>,
        out: &mut impl Write,
    ) -> Result<Run> {
        let description = Description {
            config: self.config.clone(),
            architecture: self.architecture.clone(),
            text: Fingerprint::of(&self.text),
            tokenizer: self.tokenizer.clone(),
            saves_in_background: planned.is_none_or(|planned| planned.saves_in_background),
        };
        let (Some((folder, saved)), Some(checkpoints)) = (&self.resumed, checkpoints) else {
            return Run::begin(description, out);
        };
        let run = Run::resume(folder, checkpoints, description, state.step)?;
        writeln!(out, "resuming after step {} from {}", state.step, saved.path().display())?;
        Ok(run)
    }
}

/// The absolute path, so that the run can be resumed from another folder.
fn whole(path: PathBuf) -> PathBuf {
    path.canonicalize().ok().filter(|path| path.to_str().is_some()).unwrap_or(path)
}
