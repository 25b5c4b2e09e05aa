//! The memory of a run, planned before it begins.
//!
//! The plan is made from abstract tensors: the peak of the step as it runs (arguments donated), that of the held-out loss, and that of a
//! sample, of which the largest counts. The programs share one block for temporaries, which is allocated again when one program follows
//! another. The sampling program gets the model each time, since a reference that it kept would prevent the step from donating. A second
//! state while a checkpoint is written in the background is used only if it fits, too.

use std::fmt::Write;

use anyhow::Result;
use remat::memory::{Part, divided};
use remat::report::readable_bytes;
use remat::stages::{Compiled, Lowered};
use remat::tree::leaves;
use remat::{Cpu, DType, JitOptions, Tensor, Tree, eval_shape, jit_with};

use super::evaluate::HeldOut;
use crate::config::Config;
use crate::data::Batch;
use crate::machine::bytes;
use crate::model::{Architecture, Model};
use crate::records::Timeline;
use crate::sample::Samples;
use crate::step::{Arguments, Step};

/// The subject of a plan.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) config: &'a Config,
    architecture: &'a Architecture,
    /// The tokens of a sequence.
    context: usize,
    /// The most bytes that are live while the model writes a sample, including the model; 0 if it writes none.
    writing: usize,
}

impl<'a> Subject<'a> {
    /// Training, evaluation, and samples of tokens below `vocabulary`.
    ///
    /// # Errors
    /// If the model has an error, such as heads that do not divide the width.
    pub(super) fn new(config: &'a Config, architecture: &'a Architecture, vocabulary: usize) -> Result<Subject<'a>> {
        let this = Subject::of_steps(config, architecture);
        if config.sample == 0 {
            return Ok(this);
        }
        // The prompt is as long as a training sequence.
        let samples = Samples::new(&options(), &this.model()?, vocabulary, this.context, &config.choice)?;
        Ok(Subject { writing: samples.peak(this.context, config.sample)?, ..this })
    }

    /// Training and evaluation only.
    pub(super) fn of_steps(config: &'a Config, architecture: &'a Architecture) -> Subject<'a> {
        Subject { config, architecture, context: config.context(architecture), writing: 0 }
    }

    /// The same for another configuration of this model.
    pub(super) fn with<'b>(&self, config: &'b Config) -> Subject<'b>
    where
        'a: 'b,
    {
        Subject { config, ..*self }
    }

    fn model(&self) -> remat::Result<Model> {
        self.config.shapes(self.architecture)
    }

    /// The arguments of a step, abstract.
    ///
    /// # Errors
    /// If the model or the optimizer has an error.
    fn arguments(&self, step: &Step) -> Result<Arguments> {
        let model = self.model()?;
        let (state, scale) = eval_shape(|model: &Model| step.init(model))(&model)?;
        Ok((model, state, scale, batch(self.config.sequences(self.context)?, self.context)))
    }

    /// The program of a step.
    ///
    /// # Errors
    /// If the step has an error, such as a policy with a name that no value has.
    fn lowered(&self) -> Result<Lowered> {
        let step = Step::of(self.config)?;
        let program = jit_with(&options(), |arguments: &Arguments| step.run(arguments));
        Ok(program.lower(&self.arguments(&step)?)?)
    }

    /// The program of a step, compiled without a limit.
    ///
    /// # Errors
    /// As [`Subject::lowered`]; if the engine cannot run it, which is a defect.
    pub(super) fn program(&self) -> Result<Program<'a>> {
        let lowered = self.lowered()?;
        Ok(Program { subject: *self, compiled: lowered.compile()?, lowered })
    }
}

/// The program of a step, compiled without a limit.
pub(super) struct Program<'a> {
    subject: Subject<'a>,
    lowered: Lowered,
    compiled: Compiled,
}

impl Program<'_> {
    /// The plan of a run in which nothing is computed again but what its policy says.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub(super) fn plan(&self) -> Result<Plan> {
        Plan::new(&self.subject, &self.lowered, &self.compiled)
    }

    /// The plan of a step, from which others come.
    ///
    /// # Errors
    /// If the engine cannot plan it, which is a defect.
    pub(super) fn step(&self) -> Result<remat::Plan> {
        Ok(self.compiled.plan()?)
    }

    /// The plan of a run whose steps run as planned.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub(super) fn planned(&self, step: &remat::Plan) -> Result<Plan> {
        Plan::new(&self.subject, &self.lowered, &step.compile()?)
    }
}

/// The memory and the work of a run on the CPU's native engine. The programs of a run share one block of memory, so their needs do not add
/// up.
pub(super) struct Plan {
    /// The bytes of each part at the peak of a step, unless there are none.
    parts: Vec<(Part, usize)>,
    /// The most bytes that are live in a step that owns the values that it changes.
    pub(super) step: usize,
    /// The same while a checkpoint of these values is written, so that they still exist after the step.
    pub(super) saving: usize,
    /// The most bytes that are live while the loss of held-out text is computed.
    evaluation: usize,
    /// The most bytes that are live while the model writes a sample; 0 if it writes none.
    sampling: usize,
    pub(super) timeline: Timeline,
    /// The flops of a step, including recomputation in the backward pass.
    pub(super) flops: u64,
}

/// The plan of a step of training without a limit, from which others come.
///
/// # Errors
/// As [`Plan::of`].
pub(crate) fn step(config: &Config, architecture: &Architecture) -> Result<remat::Plan> {
    Subject::of_steps(config, architecture).program()?.step()
}

/// The plans of a step of training under policies, without a limit, or what is wrong with them.
pub(crate) fn under<'c>(
    config: &'c Config,
    architecture: &'c Architecture,
    policies: impl IntoIterator<Item = String> + 'c,
) -> impl Iterator<Item = (String, Result<remat::Plan>)> + 'c {
    policies.into_iter().map(move |policy| {
        let plan = step(&Config { policy: policy.clone(), memory_limit: None, ..config.clone() }, architecture);
        (policy, plan)
    })
}

/// The most bytes that are live in a step of training that owns the values that it changes: [`Plan::step`] alone.
///
/// # Errors
/// As [`Plan::of`].
pub(super) fn peak(subject: &Subject<'_>) -> Result<usize> {
    Ok(subject.lowered()?.compile()?.memory_report().stats.donated_peak)
}

impl Plan {
    /// The plan of a configuration.
    ///
    /// # Errors
    /// If the step has an error, such as heads that do not divide the width, or a policy with a name that no value has.
    pub(super) fn of(subject: &Subject<'_>) -> Result<Plan> {
        subject.program()?.plan()
    }

    /// The plan of a configuration whose step is compiled like this.
    fn new(subject: &Subject<'_>, lowered: &Lowered, compiled: &Compiled) -> Result<Plan> {
        let report = compiled.memory_report();
        let (config, step) = (subject.config, Step::of(subject.config)?);
        let (model, state, scale, batches) = subject.arguments(&step)?;
        let counts = [
            (Part::Parameters, leaves(&model).len()),
            (Part::Optimizer, leaves(&state).len() + leaves(&scale).len()),
            (Part::Batch, leaves(&batches).len()),
        ];
        let arguments: Vec<Part> = counts.iter().flat_map(|&(part, count)| vec![part; count]).collect();
        let memory = divided(compiled, &arguments);
        // Evaluation and samples include the model; the state of the optimizer comes on top.
        let state = bytes(&state)? + bytes(&scale)?;
        let rows = batch(config.batch, subject.context);
        let evaluation = HeldOut::new(&options(), &step, Vec::new()).peak(&model, &rows)?;
        let evaluation = state + evaluation;
        let sampling = if subject.writing > 0 { state + subject.writing } else { 0 };
        Ok(Plan {
            parts: memory.parts().collect(),
            step: memory.peak,
            // The state that is being written may still exist while the held-out loss or a sample is computed.
            saving: report.stats.peak.max(bytes(&model)? + state + evaluation.max(sampling)),
            evaluation,
            sampling,
            timeline: Timeline {
                backward: compiled.live_ranges().map(|memory| memory.backward()),
                bytes: report.timeline,
            },
            flops: lowered.cost().flops,
        })
    }

    /// The most bytes that are live at one time.
    pub(super) fn total(&self) -> usize {
        self.step.max(self.evaluation).max(self.sampling)
    }

    /// The bytes of model, optimizer state and batch, which no recomputation lowers.
    pub(super) fn fixed(&self) -> usize {
        let is_fixed = |part: &Part| matches!(part, Part::Parameters | Part::Optimizer | Part::Batch);
        self.parts.iter().filter(|(part, _)| is_fixed(part)).map(|(_, bytes)| bytes).sum()
    }

    /// The part of the run in which they are live.
    pub(super) fn largest(&self) -> &'static str {
        match self.total() {
            bytes if bytes == self.step => "training",
            bytes if bytes == self.evaluation => "the loss of held-out text",
            _ => "a sample of text",
        }
    }

    /// The useful flops of a step, without recomputation.
    ///
    /// # Errors
    /// As [`Plan::of`].
    pub(super) fn useful_flops(&self, subject: &Subject<'_>) -> Result<u64> {
        let plain = Config { policy: "none".into(), ..subject.config.clone() };
        if subject.config.policy == plain.policy {
            return Ok(self.flops);
        }
        Ok(subject.with(&plain).lowered()?.cost().flops)
    }

    /// The non-empty parts of the peak, by name.
    pub(super) fn parts(&self) -> Vec<(String, usize)> {
        self.parts.iter().map(|(part, bytes)| (part.to_string(), *bytes)).collect()
    }

    /// The peaks, and the parts of that of a step, as lines.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("a step takes {} at its peak", readable_bytes(self.step));
        let mut before = ": ";
        for (part, bytes) in self.parts() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{before}{part} {}", readable_bytes(bytes));
            before = ", ";
        }
        let _ = write!(text, "\nthe loss of held-out text takes {}", readable_bytes(self.evaluation));
        if self.sampling > 0 {
            let _ = write!(text, ", a sample {}", readable_bytes(self.sampling));
        }
        let _ = write!(text, "; the most at one time is {}", readable_bytes(self.total()));
        text
    }
}

/// The options of planned programs: the peak is computed without the limit of the environment.
fn options() -> JitOptions {
    JitOptions { device: Some(Cpu::default().into()), memory_limit: Some(usize::MAX), ..JitOptions::default() }
}

/// An abstract batch.
pub(super) fn batch(rows: usize, context: usize) -> Batch {
    let tokens = Tensor::shape_only([rows, context], DType::I32);
    Batch { targets: tokens.clone(), tokens }
}

/// The number of parameters of a tree.
///
/// # Errors
/// The error of a failed leaf.
pub(super) fn size(tree: &impl Tree) -> remat::Result<usize> {
    leaves(tree).iter().map(|(_, leaf)| leaf.size()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_named() {
        let plan = |step, evaluation, sampling| Plan {
            parts: vec![(Part::Batch, step)],
            step,
            saving: 0,
            evaluation,
            sampling,
            timeline: Timeline::default(),
            flops: 0,
        };
        let of = |plan: Plan| (plan.total(), plan.largest());
        assert_eq!(of(plan(3, 2, 1)), (3, "training"));
        assert_eq!(plan(3, 2, 1).fixed(), 3);
        assert_eq!(of(plan(2, 3, 1)), (3, "the loss of held-out text"));
        assert_eq!(of(plan(1, 2, 3)), (3, "a sample of text"));
        let expected = "a step takes 3 B at its peak: batch 3 B\nthe loss of held-out text takes 4 B, a sample 5 B; the most at one time is 5 B";
        assert_eq!(plan(3, 4, 5).describe(), expected);
        assert!(plan(3, 4, 0).describe().ends_with("takes 4 B; the most at one time is 4 B"));
    }
}
