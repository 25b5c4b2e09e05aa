//! A training step as a program: traced, not run.

use std::sync::Arc;

use anyhow::Result;
use remat::ir::{Cut, Device as _, Jaxpr, MemoryStats};
use remat::optim::{AdamW, Moments, Optimizer as _, Sgd, Velocity};
use remat::tree::leaves;
use remat::{
    Cpu, DType, Device, JitOptions, Jitted, Mesh, PartitionSpec, Policy, Shardings, Tensor, Tree, eval_shape, jit_with,
    tree, value_and_grad,
};

use super::config::Config;
use super::decoder::{Batch, Decoder};

/// How a step uses the gradient.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Optimizer {
    /// No optimizer: the step returns the gradient
    None,
    /// Gradient descent without momentum, which keeps no state
    Sgd,
    /// AdamW, which keeps two moments per parameter
    Adamw,
}

/// The state of an optimizer.
#[derive(Clone, Tree)]
pub(super) enum State {
    None,
    Sgd(Box<Velocity<Decoder>>),
    Adamw(Box<Moments<Decoder>>),
}

/// The arguments of a step.
#[derive(Clone, Tree)]
pub(super) struct Arguments {
    model: Decoder,
    state: State,
    batch: Batch,
}

/// The results of a step: the loss, the new model (or the gradient) and the new state.
type Results = (Tensor, Decoder, State);

/// The options of a step besides the policy.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) config: Config,
    /// Of activations.
    pub(crate) dtype: DType,
    /// Of the weights, which are converted to the dtype of activations where they are used.
    pub(crate) parameters: DType,
    pub(crate) optimizer: Optimizer,
    pub(crate) batch: usize,
    pub(crate) context: usize,
    /// The number of chips over which everything is cut.
    pub(crate) chips: usize,
}

impl Step {
    /// The bytes that the optimizer reads and writes on one chip: parameters and its state, and the gradient, of the dtype of the
    /// parameters.
    pub(crate) fn update_bytes(&self, parts: &Parts) -> u64 {
        match self.optimizer {
            Optimizer::None => 0,
            Optimizer::Sgd | Optimizer::Adamw => 3 * parts.parameters + 2 * parts.optimizer,
        }
    }
}

/// Bytes of arguments on one chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) parameters: u64,
    pub(crate) optimizer: u64,
    pub(crate) batch: u64,
}

/// A traced step.
pub(crate) struct Traced {
    pub(crate) jaxpr: Arc<Jaxpr>,
    pub(crate) parts: Parts,
    /// Whether results take the memory of arguments.
    pub(crate) donates: bool,
}

impl Traced {
    /// The memory of the step on the native engine.
    ///
    /// # Errors
    /// If the engine cannot run it, which is a defect.
    pub(crate) fn native(&self) -> remat::Result<MemoryStats> {
        Ok(Cpu::default().compile(&self.jaxpr)?.memory())
    }
}

impl Step {
    /// The program of a step under a policy.
    ///
    /// # Errors
    /// If sizes or the policy do not fit.
    pub(crate) fn trace(&self, policy: Option<&Policy>) -> Result<Traced> {
        let arguments = self.arguments()?;
        let lowered = self.jit(policy, &arguments, None)?.lower(&arguments)?;
        let parts = Parts {
            parameters: self.bytes(&arguments.model)?,
            optimizer: self.bytes(&arguments.state)?,
            batch: self.bytes(&arguments.batch)?,
        };
        Ok(Traced { jaxpr: lowered.jaxpr().clone(), parts, donates: self.optimizer != Optimizer::None })
    }

    /// The number of parameters.
    ///
    /// # Errors
    /// If the sizes of the model are not valid.
    pub(crate) fn count(&self) -> remat::Result<u64> {
        let model = Decoder::shape_only(&self.config, self.parameters);
        leaves(&model).iter().map(|(_, leaf)| Ok(leaf.size()? as u64)).sum()
    }

    fn arguments(&self) -> remat::Result<Arguments> {
        let model = Decoder::shape_only(&self.config, self.parameters);
        let state = match self.optimizer {
            Optimizer::None => State::None,
            Optimizer::Sgd => State::Sgd(Box::new(eval_shape(|model: &Decoder| Sgd::default().init(model))(&model)?)),
            Optimizer::Adamw => {
                State::Adamw(Box::new(eval_shape(|model: &Decoder| AdamW::default().init(model))(&model)?))
            }
        };
        Ok(Arguments { model, state, batch: Batch::shape_only(self.batch, self.context) })
    }

    fn jit(
        &self,
        policy: Option<&Policy>,
        arguments: &Arguments,
        device: Option<&Device>,
    ) -> Result<Jitted<Arguments, remat::Result<Results>, impl Fn(&Arguments) -> remat::Result<Results> + use<>>> {
        let (config, dtype, policy) = (self.config.clone(), self.dtype, policy.cloned());
        let mut options =
            JitOptions { name: Some("step".to_string()), device: device.cloned(), ..JitOptions::default() };
        if self.chips > 1 {
            let mesh = Mesh::new([(AXIS, self.chips)])?;
            let Arguments { model, state, batch } = arguments;
            let [model, state, batch] = [self.specs(model)?, self.specs(state)?, self.specs(batch)?];
            let given = [vec![PartitionSpec::default()], model.clone(), state.clone()].concat();
            options.in_shardings = Some(Shardings::new(&mesh, [model, state, batch].concat()));
            options.out_shardings = Some(Shardings::new(&mesh, given));
        }
        Ok(jit_with(&options, move |arguments: &Arguments| {
            let Arguments { model, state, batch } = arguments;
            let loss = |model: &Decoder| model.loss(batch, &config, dtype, policy.as_ref());
            let (loss, gradient) = value_and_grad(loss)(model)?;
            Ok(match state {
                State::None => (loss, gradient, State::None),
                State::Sgd(state) => {
                    let (model, state) = Sgd::default().update(model, &gradient, state)?;
                    (loss, model, State::Sgd(Box::new(state)))
                }
                State::Adamw(state) => {
                    let (model, state) = AdamW::default().update(model, &gradient, state)?;
                    (loss, model, State::Adamw(Box::new(state)))
                }
            })
        }))
    }

    /// The arguments of the first step on a device, with random weights and tokens.
    ///
    /// # Errors
    /// If the sizes are not valid, or the device has no memory for them.
    pub(super) fn random(&self, device: &Device) -> Result<Arguments> {
        let model = Decoder::random(&self.config, self.parameters, device)?;
        let native = JitOptions { device: Some(Device::cpu()), ..JitOptions::default() };
        let shapes = Decoder::shape_only(&self.config, self.parameters);
        let zeros = |_: &()| match self.optimizer {
            Optimizer::None => State::None,
            Optimizer::Sgd => State::Sgd(Box::new(Sgd::default().init(&shapes))),
            Optimizer::Adamw => State::Adamw(Box::new(AdamW::default().init(&shapes))),
        };
        // Each leaf is copied on its own, so that the first step takes the memory of all of them, as the next ones do.
        let state = tree::map(&jit_with(&native, zeros).call(())?, |leaf| leaf.to_device(device));
        let batch = tree::map(&super::measured::tokens(self)?, |leaf| leaf.to_device(device));
        Ok(Arguments { model, state, batch })
    }

    /// The step under a policy, compiled for a device at the first call.
    ///
    /// # Errors
    /// If sizes or the policy do not fit.
    pub(super) fn on(
        &self,
        policy: Option<&Policy>,
        arguments: &Arguments,
        device: &Device,
    ) -> Result<Running<impl Fn(&Arguments) -> remat::Result<Results> + use<>>> {
        Ok(Running { step: self.jit(policy, arguments, Some(device))?, trains: self.optimizer != Optimizer::None })
    }

    /// How each leaf is cut over the chips.
    fn specs<T: Tree>(&self, tree: &T) -> remat::Result<Vec<PartitionSpec>> {
        let spec = |leaf: &Tensor| {
            let Some(axis) = self.cut(leaf.shape()?) else { return Ok(PartitionSpec::default()) };
            let cut = |dim| Cut(if dim == axis { vec![AXIS.into()] } else { Vec::new() });
            Ok(PartitionSpec::new((0..=axis).map(cut)))
        };
        leaves(tree).iter().map(|(_, leaf)| spec(leaf)).collect()
    }

    /// The axis along which an array of this shape is cut: the first for a batch; for weights the largest that the chips divide, other than
    /// a stack's axis of layers.
    fn cut(&self, shape: &[usize]) -> Option<usize> {
        let is_batch = shape == [self.batch, self.context];
        let is_stacked = shape.first() == Some(&self.config.layers);
        let mut axes = if is_batch { 0..1 } else { usize::from(is_stacked)..shape.len() }
            .filter(|&axis| shape[axis] > 0 && shape[axis].is_multiple_of(self.chips))
            .collect::<Vec<_>>();
        axes.sort_by_key(|&axis| std::cmp::Reverse(shape[axis]));
        axes.first().copied()
    }

    /// The bytes of the leaves on one chip.
    fn bytes<T: Tree>(&self, tree: &T) -> remat::Result<u64> {
        let bytes = |leaf: &Tensor| {
            let aval = leaf.aval()?;
            let chips = if self.cut(&aval.shape).is_some() { self.chips } else { 1 };
            Ok((aval.bytes() / chips) as u64)
        };
        leaves(tree).iter().map(|(_, leaf)| bytes(leaf)).sum()
    }
}

/// A step on a device.
pub(super) struct Running<F> {
    step: Jitted<Arguments, remat::Result<Results>, F>,
    /// Whether there is an optimizer; without one the weights stay as they are.
    trains: bool,
}

impl<F: Fn(&Arguments) -> remat::Result<Results>> Running<F> {
    /// The loss, and the arguments of the next step, which take the memory of these. It returns before they are computed.
    ///
    /// # Errors
    /// If the step cannot be compiled, or the device has no memory for it.
    pub(super) fn call(&self, arguments: Arguments) -> remat::Result<(Tensor, Arguments)> {
        let batch = arguments.batch.clone();
        let kept = (!self.trains).then(|| arguments.model.clone());
        let (loss, model, state) = self.step.call(arguments)?;
        Ok((loss, Arguments { model: kept.unwrap_or(model), state, batch }))
    }
}

/// The name of the mesh axis over which everything is cut.
const AXIS: &str = "data";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_cut_along_their_largest_axis_that_is_not_that_of_layers() {
        let config = Config::read("decoder-3b").unwrap();
        let optimizer = Optimizer::None;
        let dtype = DType::Bf16;
        let step = Step { config, dtype, parameters: dtype, optimizer, batch: 32, context: 2048, chips: 8 };
        assert_eq!(step.cut(&[28, 3072, 8192]), Some(2));
        assert_eq!(step.cut(&[28, 3072, 3072]), Some(1));
        assert_eq!(step.cut(&[32_768, 3072]), Some(0));
        assert_eq!(step.cut(&[32, 2048]), Some(0));
        let parts = Parts { parameters: 2, optimizer: 8, batch: 0 };
        let adamw = Step { optimizer: Optimizer::Adamw, ..step.clone() };
        assert_eq!((step.update_bytes(&parts), adamw.update_bytes(&parts)), (0, 22));
        assert_eq!((step.cut(&[28, 3]), step.cut(&[])), (None, None));
        assert_eq!(step.count().unwrap(), 3_020_073_984);
    }
}
