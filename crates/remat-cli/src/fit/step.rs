//! A training step of `remat train` as a program: traced, not run.

use std::sync::Arc;

use anyhow::Result;
use remat::ir::{Cut, Device as _, Jaxpr, MemoryStats};
use remat::optim::LossScale;
use remat::tree::leaves;
use remat::{
    Cpu, DType, Device, JitOptions, Jitted, Mesh, PartitionSpec, Policy, Shardings, Tensor, Tree, eval_shape, jit_with,
    random, tree,
};

use crate::config::{Config, Form};
use crate::data::Batch;
use crate::model::{Architecture, Model};
use crate::policy;
use crate::step::{self, Numbers, OptimizerState, chosen};

/// The range of random weights on either side of 0.
const RANGE: f64 = 0.035;

/// The state that a step changes, and its batch. Without an optimizer there is no state.
type Arguments = (Model, Option<OptimizerState<Model>>, Option<LossScale>, Batch);

/// The results of a step: the changed state, or the gradient in place of the model, and its numbers.
type Results = (Model, Option<OptimizerState<Model>>, Option<LossScale>, Numbers<Tensor>);

/// A step under any policy.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The configuration of `remat train`; its policy does not count.
    pub(crate) config: Config,
    pub(crate) architecture: Architecture,
    /// Dtype of the weights, which are converted to that of the configuration.
    pub(crate) parameters: DType,
    /// Whether the optimizer of the configuration is a part of the step; otherwise it returns the gradient.
    pub(crate) updates: bool,
    /// The number of chips over which everything is cut.
    pub(crate) chips: usize,
}

/// Bytes of arguments on one chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) parameters: u64,
    /// Those of the parameters that the optimizer changes.
    pub(crate) trained: u64,
    pub(crate) optimizer: u64,
}

/// A traced step.
pub(crate) struct Traced {
    pub(crate) jaxpr: Arc<Jaxpr>,
    pub(crate) parts: Parts,
    /// The number of arguments, which are the last inputs of the program.
    pub(crate) arguments: usize,
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
    /// The same with another batch, on this many chips.
    pub(crate) fn with(&self, batch: usize, chips: usize) -> Step {
        Step { config: Config { batch, ..self.config.clone() }, chips, ..self.clone() }
    }

    /// The dtype of activations.
    pub(crate) fn dtype(&self) -> DType {
        self.config.dtype.dtype()
    }

    /// Tokens per sequence.
    pub(crate) fn context(&self) -> usize {
        self.config.context(&self.architecture)
    }

    /// The name of the optimizer.
    pub(crate) fn optimizer(&self) -> String {
        if self.updates { self.config.optimizer.name() } else { NO_OPTIMIZER.to_string() }
    }

    /// The bytes that the optimizer reads and writes on one chip: the trained parameters and its state, and their gradient, of their dtype.
    pub(crate) fn update_bytes(&self, parts: &Parts) -> u64 {
        if self.updates { 3 * parts.trained + 2 * parts.optimizer } else { 0 }
    }

    /// The program of a step under a policy.
    ///
    /// # Errors
    /// If sizes or the policy do not fit.
    pub(crate) fn trace(&self, policy: Option<&Policy>) -> Result<Traced> {
        let arguments = self.arguments()?;
        let lowered = self.jit(policy, &arguments, None)?.lower(&arguments)?;
        let (model, state, scale, _) = &arguments;
        let takes = self.of(policy)?.takes(model)?;
        let parts = Parts {
            parameters: self.bytes(model)?,
            trained: self.bytes(&chosen(model, &takes))?,
            optimizer: self.bytes(state)? + self.bytes(scale)?,
        };
        let count = leaves(&arguments).len();
        Ok(Traced { jaxpr: lowered.jaxpr().clone(), parts, arguments: count, donates: self.updates })
    }

    /// The number of parameters.
    ///
    /// # Errors
    /// If the sizes of the model are not valid.
    pub(crate) fn count(&self) -> Result<u64> {
        Ok(leaves(&self.model()?).iter().map(|(_, leaf)| Ok(leaf.size()? as u64)).sum::<remat::Result<u64>>()?)
    }

    /// The model, abstract.
    fn model(&self) -> remat::Result<Model> {
        let Step { config, architecture, parameters, .. } = self;
        eval_shape(|(): &()| config.prepared(Model::init(random::key(0), architecture, *parameters), &random::key(0)))(
            &(),
        )
    }

    fn of(&self, policy: Option<&Policy>) -> Result<step::Step> {
        step::Step::of(&Config { policy: policy::shown(policy), ..self.config.clone() })
    }

    fn arguments(&self) -> Result<Arguments> {
        let (model, context, step) = (self.model()?, self.context(), self.of(None)?);
        let init = |model: &Model| -> remat::Result<_> { self.updates.then(|| step.init(model)).transpose() };
        let (state, scale) = eval_shape(init)(&model)?.unzip();
        let tokens = Tensor::shape_only([self.config.sequences(context)?, context], DType::I32);
        Ok((model, state, scale.flatten(), Batch { targets: tokens.clone(), tokens }))
    }

    fn jit(
        &self,
        policy: Option<&Policy>,
        arguments: &Arguments,
        device: Option<&Device>,
    ) -> Result<Jitted<Arguments, remat::Result<Results>, impl Fn(&Arguments) -> remat::Result<Results> + use<>>> {
        let step = self.of(policy)?;
        let mut options =
            JitOptions { name: Some("step".to_string()), device: device.cloned(), ..JitOptions::default() };
        if self.chips > 1 {
            let mesh = Mesh::new([(AXIS, self.chips)])?;
            let (model, state, scale, batch) = arguments;
            let of_state = [self.specs(state)?, self.specs(scale)?].concat();
            options.in_shardings =
                Some(Shardings::new(&mesh, [self.specs(model)?, of_state.clone(), self.specs(batch)?].concat()));
            // Without an update the gradient is given, which has no elements of weights that are not trained.
            let given =
                if self.updates { self.specs(model)? } else { self.specs(&chosen(model, &step.takes(model)?))? };
            let changed = [given, of_state].concat();
            // The numbers are scalars.
            let numbers = 1 + usize::from(self.updates && self.config.clip_norm > 0.0);
            let given = [changed, vec![PartitionSpec::default(); numbers]].concat();
            options.out_shardings = Some(Shardings::new(&mesh, given));
        }
        Ok(jit_with(&options, move |(model, state, scale, batch): &Arguments| match state {
            Some(state) => {
                let arguments = (model.clone(), state.clone(), scale.clone(), batch.clone());
                let (model, state, scale, numbers) = step.run(&arguments)?;
                Ok((model, Some(state), scale, numbers))
            }
            None => {
                let (loss, gradient) = step.loss_and_gradient(model, None, batch)?;
                Ok((gradient, None, None, Numbers { loss, gradient_norm: None }))
            }
        }))
    }

    /// The arguments of the first step on a device, with random weights and tokens. The weights are drawn on the native engine, so that they are
    /// the same everywhere, and that the device needs no memory to draw them: of -0.035 to 0.035, so that their deviation is 0.02; scales of
    /// norms are 1, and biases 0. The weights of leaf `i` are `uniform(fold_in(key(0), i), ..)` of f32, which JAX's generator gives too.
    ///
    /// # Errors
    /// If the sizes are not valid, or the device has no memory for them.
    pub(super) fn random(&self, device: &Device) -> Result<Arguments> {
        let (mut number, mut failure) = (0, None);
        let (shapes, ..) = self.arguments()?;
        let model = tree::map_with_path(&shapes, |path, leaf| {
            let (name, index) = (path.to_string(), number);
            number += 1;
            let drawn = |_: &()| -> remat::Result<Tensor> {
                let aval = leaf.aval()?;
                let (shape, dtype) = (&aval.shape[..], aval.dtype);
                Ok(if name.ends_with("scale") {
                    Tensor::ones(shape, dtype)
                } else if name.ends_with("bias") {
                    Tensor::zeros(shape, dtype)
                } else {
                    random::uniform(random::key(0).fold_in(index), shape, DType::F32, -RANGE..RANGE).to_dtype(dtype)
                })
            };
            let drawn = jit_with(&native(), drawn).call(()).map(|weights| weights.to_device(device));
            drawn.unwrap_or_else(|error| {
                failure.get_or_insert(error);
                leaf.clone()
            })
        });
        if let Some(error) = failure {
            return Err(error.into());
        }
        let step = self.of(None)?;
        let zeros = |_: &()| -> remat::Result<_> { self.updates.then(|| step.init(&shapes)).transpose() };
        let (state, scale) = jit_with(&native(), zeros).call(())?.unzip();
        // Each leaf is copied on its own, so that the first step takes the memory of all of them, as the next ones do.
        let there = |leaf: &Tensor| leaf.to_device(device);
        let batch = tree::map(&self.tokens()?, there);
        Ok((model, tree::map(&state, there), tree::map(&scale.flatten(), there), batch))
    }

    /// A batch of random tokens, the same for each engine.
    fn tokens(&self) -> Result<Batch> {
        let context = self.context();
        let shape = [self.config.sequences(context)?, context + 1];
        let most = self.architecture.vocabulary() as i64;
        let drawn = |_: &()| {
            let all = random::randint(random::key(1), shape, DType::I32, 0..most);
            Batch { tokens: all.index((.., ..context)), targets: all.index((.., 1..)) }
        };
        Ok(jit_with(&native(), drawn).call(())?)
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
        Ok(Running { step: self.jit(policy, arguments, Some(device))?, updates: self.updates })
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
        let is_batch = shape == [self.config.batch * self.config.accumulate, self.context()];
        let is_stacked = self.config.layers_as == Form::Scan && shape.first() == Some(&self.architecture.layers());
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
    updates: bool,
}

impl<F: Fn(&Arguments) -> remat::Result<Results>> Running<F> {
    /// The loss, and the arguments of the next step, which take the memory of these. It returns before they are computed.
    ///
    /// # Errors
    /// If the step cannot be compiled, or the device has no memory for it.
    pub(super) fn call(&self, arguments: Arguments) -> remat::Result<(Tensor, Arguments)> {
        let batch = arguments.3.clone();
        let kept = (!self.updates).then(|| arguments.0.clone());
        let (model, state, scale, numbers) = self.step.call(arguments)?;
        Ok((numbers.loss, (kept.unwrap_or(model), state, scale, batch)))
    }
}

/// On the native engine, whatever the default device is.
pub(super) fn native() -> JitOptions {
    JitOptions { device: Some(Device::cpu()), ..JitOptions::default() }
}

/// The name of the mesh axis over which everything is cut.
const AXIS: &str = "data";

/// The name of a step without an optimizer.
pub(super) const NO_OPTIMIZER: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::usual;

    #[test]
    fn weights_are_cut_along_their_largest_axis_that_is_not_that_of_layers() {
        let step = Step { updates: false, ..usual("decoder-3b", 2048).unwrap() }.with(32, 8);
        assert_eq!(step.cut(&[28, 3072, 8192]), Some(2));
        assert_eq!(step.cut(&[28, 3072, 3072]), Some(1));
        assert_eq!(step.cut(&[3072, 32_768]), Some(1));
        assert_eq!(step.cut(&[32, 2048]), Some(0));
        let parts = Parts { parameters: 4, trained: 2, optimizer: 8 };
        let adamw = Step { updates: true, ..step.clone() };
        assert_eq!((step.update_bytes(&parts), adamw.update_bytes(&parts)), (0, 22));
        assert_eq!((step.cut(&[28, 3]), step.cut(&[])), (None, None));
        assert_eq!(step.count().unwrap(), 3_020_073_984);
    }

    /// The parts of a batch and a step of f16 have more arguments and results than others.
    #[test]
    fn every_leaf_is_cut() {
        let settings = |config: Config| Step { config, ..usual("llama-tiny", 64).unwrap() };
        let config = usual("llama-tiny", 64).unwrap().config;
        for config in [
            Config { clip_norm: 1.0, ..config.clone() },
            Config { accumulate: 2, dtype: crate::config::Precision::F16, ..config.clone() },
            Config { layers_as: Form::Unroll, lora: Some(2), ..config },
        ] {
            for updates in [true, false] {
                let traced = Step { updates, ..settings(config.clone()) }.with(8, 2).trace(None).unwrap();
                assert!(traced.jaxpr.to_string().contains(AXIS));
            }
        }
    }
}
