//! Changes that lower the peak of a training step, each with a plan.

use remat_ir::{DType, ErrorKind, Policy, Result};

use super::Options;
use super::parts::{Part, Step, shape_only};
use crate::api::repeated;
use crate::optim::{Adafactor, Adam8bit, Optimizer};
use crate::trace::ScalarOutput;
use crate::{Layers, Tensor, Tree, checkpoint_layers, eval_shape, tree};

/// A change of a training step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A [`checkpoint_layers`] with this policy around these layers. The results stay the same.
    Policy(Layers, Policy),
    /// [`Adafactor`] instead of the optimizer.
    Adafactor,
    /// [`Adam8bit`] instead of the optimizer.
    Adam8bit,
    /// Parameters in bf16.
    HalfPrecision,
    /// Parameters, gradients and the optimizer's state cut over this many chips. The results stay the same.
    Sharded(usize),
}

/// A change, and the cost of the step with it. A program with a step of its own can describe changes by a type of its own.
#[derive(Clone, Debug)]
pub struct Lever<C = Change> {
    /// The change.
    pub change: C,
    /// The peak with the change, in bytes; with several chips, of each chip.
    pub peak: usize,
    /// The additional floating-point operations, as a share of those without the change: 0.25 for a quarter more.
    pub more_operations: f64,
    /// Whether the step computes the same results, up to the order of sums.
    pub keeps_results: bool,
    /// Whether the peak is that of a plan; otherwise it is an estimate.
    pub is_planned: bool,
}

impl Lever {
    fn planned(change: Change, step: &Step, before: &Step) -> Lever {
        let more_operations = step.flops as f64 / before.flops.max(1) as f64 - 1.0;
        let keeps_results = matches!(change, Change::Policy(..));
        Lever { change, peak: step.memory.peak, more_operations, keeps_results, is_planned: true }
    }
}

/// The most scopes that a note names.
const NAMED: usize = 8;

/// The policies around the layers, and the reason if one could not be tried.
///
/// # Errors
/// If a step cannot be planned for a reason other than its layers.
pub(super) fn of_policies<M: Tree, O: Optimizer, R: ScalarOutput>(
    options: &Options,
    optimizer: &O,
    model: &M,
    loss: &impl Fn(&M) -> R,
    before: &Step,
) -> Result<(Vec<Lever>, Option<String>)> {
    let (mut levers, mut note) = (Vec::new(), None);
    if options.policies.is_empty() {
        return Ok((levers, note));
    }
    let layers = match &options.layers {
        Some(layers) => Ok(layers.clone()),
        None => repeated(loss, &shape_only(model)?)?,
    };
    let layers = match layers {
        Ok(layers) => layers,
        Err(once) => {
            let more = if once.len() > NAMED { ", .." } else { "" };
            let there = once.iter().take(NAMED).map(|scope| &**scope).collect::<Vec<_>>().join(", ");
            let there = if once.is_empty() { String::new() } else { format!(" (there are {there}{more})") };
            let advice = "give all layers one name with remat::named_scope, or name them in `Options::layers`";
            return Ok((levers, Some(format!("no layer has a named scope that runs more than once{there}; {advice}"))));
        }
    };
    for policy in &options.policies {
        let step = Step::plan(optimizer, model, checkpoint_layers(layers.clone(), policy.clone(), loss));
        match step {
            Ok(step) => {
                let change = Change::Policy(layers.clone(), policy.clone());
                levers.push(Lever::planned(change, &step, before));
            }
            // No layers, or a policy with a name that no value in them has.
            Err(error) if matches!(error.kind(), ErrorKind::Argument | ErrorKind::Policy) => {
                note.get_or_insert_with(|| error.message().to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok((levers, note))
}

/// Optimizers with a smaller state.
///
/// # Errors
/// If a step cannot be planned.
pub(super) fn of_optimizers<M: Tree, R: ScalarOutput>(
    model: &M,
    loss: &impl Fn(&M) -> R,
    before: &Step,
) -> Result<Vec<Lever>> {
    let mut levers = Vec::new();
    let smaller = |state: usize| state < before.memory.bytes(Part::Optimizer);
    let (adafactor, adam8bit) = (Adafactor::default(), Adam8bit::default());
    if smaller(state_bytes(&adafactor, model)?) {
        levers.push(Lever::planned(Change::Adafactor, &Step::plan(&adafactor, model, loss)?, before));
    }
    if smaller(state_bytes(&adam8bit, model)?) {
        levers.push(Lever::planned(Change::Adam8bit, &Step::plan(&adam8bit, model, loss)?, before));
    }
    Ok(levers)
}

/// The bytes of the state of an optimizer.
fn state_bytes<M: Tree, O: Optimizer>(optimizer: &O, model: &M) -> Result<usize> {
    let state = eval_shape(|model: &M| optimizer.init(model))(&shape_only(model)?)?;
    tree::leaves(&state).iter().map(|(_, leaf)| Ok(leaf.aval()?.bytes())).sum()
}

/// Parameters in bf16, if some are wider and the loss accepts bf16.
pub(super) fn of_precision<M: Tree, O: Optimizer, R: ScalarOutput>(
    optimizer: &O,
    model: &M,
    loss: &impl Fn(&M) -> R,
    before: &Step,
) -> Option<Lever> {
    let is_wide = |leaf: &Tensor| leaf.dtype().is_ok_and(|dtype| dtype.is_float() && dtype.size() > DType::Bf16.size());
    let wide = tree::leaves(model).iter().any(|(_, leaf)| is_wide(leaf));
    let narrow =
        |model: &M| tree::map(model, |leaf| if is_wide(leaf) { leaf.to_dtype(DType::Bf16) } else { leaf.clone() });
    let model = wide.then(|| shape_only(model)).and_then(Result::ok)?;
    let model = eval_shape(narrow)(&model).ok()?;
    // A loss may require the dtype of its parameters; then this change is not proposed.
    let step = Step::plan(optimizer, &model, loss).ok()?;
    Some(Lever::planned(Change::HalfPrecision, &step, before))
}

/// Parameters, gradients and state cut over several chips, each with its own batch.
pub(super) fn of_chips(options: &Options, before: &Step) -> Option<Lever> {
    let cut: usize =
        [Part::Parameters, Part::Optimizer, Part::Gradients].iter().map(|&part| before.memory.bytes(part)).sum();
    let peak = before.memory.peak - cut + cut.div_ceil(options.chips.max(1));
    let change = Change::Sharded(options.chips);
    (options.chips > 1).then_some(Lever { change, peak, more_operations: 0.0, keeps_results: true, is_planned: false })
}
