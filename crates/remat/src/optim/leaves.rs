//! The float leaves of a model with their gradients and optimizer state.

use remat_ir::{Aval, Error, ErrorKind, Result};

use super::Schedule;
use crate::trace::{current_loc, pinned, rebuild, structure};
use crate::tree::{Path, Structure, leaves};
use crate::{DType, Tensor, Tree, named_scope, tree};

/// The part of a state for one parameter, in one of its trees.
#[derive(Clone)]
pub(super) struct Slot {
    pub shape: Vec<usize>,
    pub dtype: DType,
    /// The value of all elements before the first step.
    pub fill: u8,
}

impl Slot {
    /// Zeros of this shape.
    pub(super) fn zeros(shape: &[usize], dtype: DType) -> Slot {
        Slot { shape: shape.to_vec(), dtype, fill: 0 }
    }

    /// Nothing: no elements.
    pub(super) fn none() -> Slot {
        Slot::zeros(&[0], DType::F32)
    }

    /// Zeros with the shape of a parameter, in the dtype in which it is updated.
    pub(super) fn like(parameter: &Aval) -> Slot {
        Slot::zeros(&parameter.shape, working_dtype(parameter.dtype))
    }

    fn make(&self) -> Tensor {
        Tensor::full(&self.shape[..], i32::from(self.fill), self.dtype)
    }
}

/// The `S` trees of a state before the first step, built from the slots for each parameter and its number of leading axes of layers.
/// Parameters that are not floats have none.
pub(super) fn init<M: Tree, const S: usize>(model: &M, slots: impl Fn(&Aval, usize) -> [Slot; S]) -> [M; S] {
    let layer_axes = Structure::of(model).layer_axes();
    std::array::from_fn(|s| {
        let mut layer_axes = layer_axes.iter();
        tree::map(model, |leaf| {
            let layer_axes = layer_axes.next().copied().unwrap_or(0);
            match leaf.aval() {
                Ok(aval) if aval.dtype.is_float() => slots(aval, layer_axes)[s].make(),
                Ok(_) => Slot::none().make(),
                Err(_) => leaf.clone(),
            }
        })
    })
}

/// A float parameter with its gradient and its state.
pub(super) struct Leaf<const S: usize> {
    /// Its number among the leaves of the model.
    pub index: usize,
    /// The number of its leading axes that are stacked layers, which are updated separately.
    pub layer_axes: usize,
    /// The parameter, in its [`working_dtype`].
    pub parameter: Tensor,
    /// The gradient, in the same dtype.
    pub gradient: Tensor,
    /// The state in its slots.
    pub state: [Tensor; S],
    /// The [`working_dtype`].
    pub work: DType,
}

/// The model and the trees of its state after `f` has updated each float parameter in its working dtype. Other leaves stay as they are.
///
/// # Errors
/// If the gradients or the state differ from the model in structure, a gradient does not have the shape of its parameter, or the state does
/// not match `slots`; the errors of `f`.
pub(super) fn update<M: Tree, const S: usize>(
    operation: &str,
    (model, gradients, state): (&M, &M, [&M; S]),
    slots: impl Fn(&Aval, usize) -> [Slot; S],
    mut f: impl FnMut(Leaf<S>) -> Result<(Tensor, [Tensor; S])>,
) -> Result<(M, [M; S])> {
    let gradient_leaves = belonging(operation, model, ("the gradients", gradients))?;
    let mut states = Vec::new();
    for tree in state {
        states.push(belonging(operation, model, ("the state", tree))?);
    }
    let (mut parameters, mut next) = (Vec::new(), [const { Vec::new() }; S]);
    let of_leaves = leaves(model).into_iter().zip(Structure::of(model).layer_axes());
    for (index, ((path, leaf), layer_axes)) in of_leaves.enumerate() {
        let aval = leaf.aval()?;
        let held: [Tensor; S] = std::array::from_fn(|s| states[s][index].clone());
        let updated = if aval.dtype.is_float() {
            let gradient = &gradient_leaves[index];
            expect_shape(operation, &path, aval, gradient.aval()?)?;
            for (held, slot) in held.iter().zip(slots(aval, layer_axes)) {
                expect_slot(operation, &path, held.aval()?, &slot)?;
            }
            let work = working_dtype(aval.dtype);
            let (parameter, gradient) = (leaf.to_dtype(work), gradient.to_dtype(work));
            let (parameter, held) = f(Leaf { index, layer_axes, parameter, gradient, state: held, work })?;
            (parameter.to_dtype(aval.dtype), held)
        } else {
            (leaf, held)
        };
        parameters.push(updated.0);
        for (next, held) in next.iter_mut().zip(updated.1) {
            next.push(held);
        }
    }
    let mut trees = Vec::new();
    for (tree, next) in state.into_iter().zip(next) {
        trees.push(rebuild(tree, next)?);
    }
    let trees = <[M; S]>::try_from(trees)
        .map_err(|_| Error::new(ErrorKind::Internal, operation, "a state lost one of its trees"))?;
    Ok((rebuild(model, parameters)?, trees))
}

/// The leaves of a tree that belongs to a model.
pub(super) fn belonging<M: Tree>(operation: &str, model: &M, (name, tree): (&str, &M)) -> Result<Vec<Tensor>> {
    let (leaves, given) = structure(tree);
    match structure(model).1.difference(&given) {
        None => Ok(leaves),
        Some(difference) => {
            let message = format!("the structures of the model and of {name} differ: {difference}");
            Err(Error::new(ErrorKind::Structure, operation, message))
        }
    }
}

/// Fails unless a gradient has the shape of its parameter.
pub(super) fn expect_shape(operation: &str, path: &Path, parameter: &Aval, gradient: &Aval) -> Result<()> {
    if parameter.shape == gradient.shape {
        return Ok(());
    }
    let message = format!("{} is {parameter} in the model and {gradient} in the gradients", named(path));
    Err(Error::new(ErrorKind::Shape, operation, message))
}

/// A parameter in a message: its path, which is empty in a model that is one tensor.
fn named(path: &Path) -> String {
    if path.0.is_empty() { "the parameter".into() } else { format!("`{path}`") }
}

fn expect_slot(operation: &str, path: &Path, held: &Aval, slot: &Slot) -> Result<()> {
    if held.shape[..] == slot.shape[..] && held.dtype == slot.dtype {
        return Ok(());
    }
    let expected = Aval::new(slot.dtype, slot.shape.clone());
    let message = format!(
        "the state of {} is {held} where this optimizer keeps {expected}; make it with `init` of the same optimizer and model",
        named(path)
    );
    Err(Error::new(ErrorKind::Shape, operation, message))
}

/// Runs an update as one operation of the user, in a scope of this name.
#[track_caller]
pub(super) fn scoped<R>(name: &str, update: impl FnOnce() -> Result<R>) -> Result<R> {
    let loc = current_loc();
    pinned(|| named_scope(name, update)).map_err(|error| error.at(loc))
}

/// The dtype in which a parameter is updated, and that of its state.
pub(super) fn working_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The number of steps before the first.
pub(super) fn no_steps() -> Tensor {
    Tensor::from(0i32)
}

/// One more step; the largest number stays.
pub(super) fn next_step(step: &Tensor) -> Tensor {
    step.minimum(i32::MAX - 1) + 1
}

/// `1 - b^step`, the divisor of an average that started at zero. It uses the logarithm of `b`: in f32 the power itself would leave four
/// digits in the first steps.
pub(super) fn correction(step: &Tensor, dtype: DType, b: f64) -> Tensor {
    if b == 0.0 { Tensor::scalar(dtype, 1.0) } else { -(step.to_dtype(dtype) * b.ln()).expm1() }
}

/// A value that is computed once for all parameters of a dtype.
pub(super) struct PerDType<'a, T> {
    made: [Option<T>; 2],
    make: Box<dyn Fn(DType) -> T + 'a>,
}

impl<'a, T: Clone> PerDType<'a, T> {
    pub(super) fn new(make: impl Fn(DType) -> T + 'a) -> PerDType<'a, T> {
        PerDType { made: [None, None], make: Box::new(make) }
    }

    /// The value for a [`working_dtype`].
    pub(super) fn get(&mut self, dtype: DType) -> T {
        self.made[usize::from(dtype == DType::F64)].get_or_insert_with(|| (self.make)(dtype)).clone()
    }
}

/// The learning rate of a step.
pub(super) fn rate<'a>(schedule: &'a Schedule, step: &'a Tensor) -> PerDType<'a, Tensor> {
    PerDType::new(move |dtype| schedule.at(step, dtype))
}
