//! Adafactor.

use remat_ir::{Aval, Result};

use super::leaves::{self, PerDType, Slot, next_step, no_steps, rate, scoped, working_dtype};
use super::schedule::of_rate;
use super::{Mask, Optimizer, Schedule};
use crate::argument::keep;
use crate::trace::{pinned, setters};
use crate::{Tensor, Tree};

/// Adam without the first moment, and with the second moment as the product of a row and a column: for an `r` by `c` matrix a state of `r +
/// c` elements instead of `2 r c`.
///
/// With `d = 1 - (t + 1)^-decay_rate` in step `t`, counted from 0, the averages are `R = d * R + (1 - d) * mean(g^2 + eps)` over each row
/// and `C`, in the same way, over each column, and the update is `u = g / sqrt(R C / mean(R))`. It is divided by `max(1, rms(u) / clip)`,
/// multiplied by the rate and by `max(rms(p), 1e-3)`, and averaged if there is momentum. The new parameter is `p - u - weight_decay * p`.
/// The rows and columns are those of the two largest dimensions. If the smaller of these is below `min_factored`, there is an average of
/// `g^2` for each element, as in Adam. Each layer of a stacked [`Stack`](crate::nn::Stack) has its own rows, columns and root mean squares.
///
/// Source: Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018; defaults of Optax.
///
/// ```
/// use remat::optim::{Adafactor, Optimizer};
/// use remat::{DType, Tensor};
/// let adafactor = Adafactor::new(0.1);
/// let model = (Tensor::ones([256, 512], DType::F32), Tensor::ones([512], DType::F32));
/// let state = adafactor.init(&model);
/// assert_eq!((state.row.0.shape()?, state.column.0.shape()?), (&[256][..], &[512][..]));
/// assert_eq!((state.full.0.size()?, state.full.1.size()?), (0, 512));
/// let (model, _) = adafactor.update(&model, &model, &state)?;
/// assert!(model.0.allclose(&Tensor::full([256, 512], 0.9, DType::F32), 1e-5, 0.0)?);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adafactor {
    /// The learning rate; 1e-2 by default. It is relative to the root mean square of each parameter if `scale_by_parameter` is set.
    pub learning_rate: Schedule,
    /// The second moment is factored if both of the two largest axes have at least this size; 128 by default.
    pub min_factored: usize,
    /// The exponent in `d`, the decay rate of the averages, which grows towards 1; 0.8 by default.
    pub decay_rate: f64,
    /// Whether updates are multiplied by the root mean square of the parameter; true by default.
    pub scale_by_parameter: bool,
    /// The largest root mean square of an update before it is multiplied by the rate; 1 by default. `None` for no bound.
    pub clip: Option<f64>,
    /// The decay rate of the moving average of updates; `None`, the default, for no average and no memory for it.
    pub momentum: Option<f64>,
    /// The number added to the squared gradient; 1e-30 by default.
    pub eps: f64,
    /// The weight decay, which is not multiplied by the rate, as in Optax; 0 by default.
    pub weight_decay: f64,
    /// The parameters with weight decay; all by default.
    pub decay: Mask,
}

/// The state of [`Adafactor`]. All tensors except `step` are f32 (f64 for parameters in f64), and empty where a parameter does not need
/// them.
#[derive(Clone, Debug, Tree)]
pub struct Factored<M> {
    /// The number of steps done, i32.
    pub step: Tensor,
    /// Averages of squared gradients over the largest dimension, which is missing from their shape.
    pub row: M,
    /// Averages of squared gradients over the second largest dimension, which is missing from their shape.
    pub column: M,
    /// The averages of squared gradients of parameters that are not factored, in the shape of the parameter.
    pub full: M,
    /// The moving average of updates, in the shape of the parameter; `None` without momentum.
    pub momentum: Option<M>,
}

impl Default for Adafactor {
    fn default() -> Adafactor {
        Adafactor {
            learning_rate: Schedule::Constant(1e-2),
            min_factored: 128,
            decay_rate: 0.8,
            scale_by_parameter: true,
            clip: Some(1.0),
            momentum: None,
            eps: 1e-30,
            weight_decay: 0.0,
            decay: Mask::All,
        }
    }
}

of_rate!(Adafactor: learning_rate);

setters! { Adafactor:
    min_factored(usize) => min_factored;
    decay_rate(f64) => decay_rate;
    scale_by_parameter(bool) => scale_by_parameter;
    clip(impl Into<Option<f64>>) => clip;
    momentum(impl Into<Option<f64>>) => momentum;
    eps(f64) => eps;
    weight_decay(f64) => weight_decay;
    decay(Mask) => decay;
}

impl Optimizer for Adafactor {
    type State<M: Tree> = Factored<M>;

    #[track_caller]
    fn init<M: Tree>(&self, model: &M) -> Factored<M> {
        pinned(|| {
            let [row, column, full, momentum] =
                leaves::init(model, |parameter, layer_axes| self.slots(parameter, layer_axes));
            let momentum = self.momentum.is_some().then_some(momentum);
            Factored { step: no_steps(), row, column, full, momentum }
        })
    }

    #[track_caller]
    fn update<M: Tree>(&self, model: &M, gradients: &M, state: &Factored<M>) -> Result<(M, Factored<M>)> {
        const NAME: &str = "optim::Adafactor::update";
        scoped("adafactor", || {
            let mut rate = rate(&self.learning_rate, &state.step);
            let mut averaging = PerDType::new(|dtype| 1 - (state.step.to_dtype(dtype) + 1).pow(-self.decay_rate));
            let decays = self.decay.of(model)?;
            // Without momentum an empty tree takes its place.
            let [none] = leaves::init(model, |_, _| [Slot::none()]);
            let momentum = state.momentum.as_ref().unwrap_or(&none);
            let trees = (model, gradients, [&state.row, &state.column, &state.full, momentum]);
            let slots = |parameter: &Aval, layer_axes| self.slots(parameter, layer_axes);
            let (model, [row, column, full, momentum]) = leaves::update(NAME, trees, slots, |leaf| {
                let (p, g, [row, column, full, momentum]) = (leaf.parameter, leaf.gradient, leaf.state);
                let d = averaging.get(leaf.work);
                let square = g.square() + self.eps;
                let (mut update, row, column, full) = match self.factored(p.shape()?, leaf.layer_axes) {
                    Some(axes) => {
                        let row = row * &d + square.mean(axes.columns) * (1 - &d);
                        let column = column * &d + square.mean(axes.rows) * (1 - &d);
                        let scale = (&row / row.mean(keep(axes.rows_of_row()))).pow(-0.5).expand_dims([axes.columns]);
                        (g * scale * column.pow(-0.5).expand_dims([axes.rows]), row, column, full)
                    }
                    None => {
                        let full = full * &d + square * (1 - &d);
                        (g * full.pow(-0.5), row, column, full)
                    }
                };
                if let Some(clip) = self.clip {
                    update = &update / (rms(&update, leaf.layer_axes)? / clip).maximum(1);
                }
                update *= rate.get(leaf.work);
                if self.scale_by_parameter {
                    update *= rms(&p, leaf.layer_axes)?.maximum(1e-3);
                }
                let momentum = match self.momentum {
                    Some(b) => {
                        update = momentum * b + update * (1.0 - b);
                        update.clone()
                    }
                    None => momentum,
                };
                if self.weight_decay != 0.0 && decays[leaf.index] {
                    update += &p * self.weight_decay;
                }
                Ok((p - update, [row, column, full, momentum]))
            })?;
            let momentum = self.momentum.is_some().then_some(momentum);
            Ok((model, Factored { step: next_step(&state.step), row, column, full, momentum }))
        })
    }
}

/// The two dimensions in which a second moment is factored.
#[derive(Clone, Copy)]
struct FactoredAxes {
    /// The second largest, which rows are counted along.
    rows: usize,
    /// The largest, which columns are counted along.
    columns: usize,
}

impl FactoredAxes {
    /// The axis of rows in a shape without the axis of columns.
    fn rows_of_row(self) -> usize {
        self.rows - usize::from(self.rows > self.columns)
    }
}

impl Adafactor {
    /// The dimensions in which the second moment of a parameter is factored, if it is.
    fn factored(&self, shape: &[usize], layer_axes: usize) -> Option<FactoredAxes> {
        let mut axes: Vec<usize> = (layer_axes..shape.len()).collect();
        axes.sort_by_key(|&axis| shape[axis]);
        let [.., rows, columns] = axes[..] else { return None };
        (shape[rows] >= self.min_factored && !shape.contains(&0)).then_some(FactoredAxes { rows, columns })
    }

    fn slots(&self, parameter: &Aval, layer_axes: usize) -> [Slot; 4] {
        let without = |axis: usize| {
            let mut shape = parameter.shape.to_vec();
            shape.remove(axis);
            Slot::zeros(&shape, working_dtype(parameter.dtype))
        };
        let momentum = if self.momentum.is_some() { Slot::like(parameter) } else { Slot::none() };
        match self.factored(&parameter.shape, layer_axes) {
            Some(axes) => [without(axes.columns), without(axes.rows), Slot::none(), momentum],
            None => [Slot::none(), Slot::none(), Slot::like(parameter), momentum],
        }
    }
}

/// The root mean square of all elements of each layer, which broadcasts to `x`.
fn rms(x: &Tensor, layer_axes: usize) -> Result<Tensor> {
    let own: Vec<usize> = (layer_axes..x.rank()?).collect();
    Ok(x.square().mean(keep(own)).sqrt())
}
