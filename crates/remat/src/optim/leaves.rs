//! Leaves of several trees side by side.

use std::fmt;

use remat_ir::{Array, Error, ErrorKind, Literal, Result};

use super::Schedule;
use crate::trace::structure;
use crate::tree::{Path, leaves};
use crate::{DType, Tensor, Tree, tree};

/// Which parameters a rule applies to, the decay of weights for one.
///
/// ```
/// use remat::tree::Path;
/// use remat::{Tensor, optim::{AdamW, Mask}};
/// let matrices = AdamW { decay: Mask::Matrices, ..AdamW::default() };
/// let no_head = AdamW { decay: Mask::Custom(|path, _| !path.to_string().starts_with("head")), ..AdamW::default() };
/// # let _ = (matrices, no_head);
/// ```
#[derive(Clone, Copy, Default)]
pub enum Mask {
    /// All.
    #[default]
    All,
    /// Those of two or more dimensions: matrices and not biases or gains.
    Matrices,
    /// Those for which this holds.
    Custom(fn(&Path, &Tensor) -> bool),
}

impl Mask {
    /// Whether a leaf is meant.
    pub fn takes(&self, path: &Path, leaf: &Tensor) -> bool {
        match self {
            Mask::All => true,
            Mask::Matrices => leaf.aval().is_ok_and(|aval| aval.rank() >= 2),
            Mask::Custom(f) => f(path, leaf),
        }
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mask::All => "All",
            Mask::Matrices => "Matrices",
            Mask::Custom(_) => "Custom(..)",
        })
    }
}

/// The corresponding leaves of a model and of trees that belong to it, with their names for errors.
///
/// # Errors
/// If a structure is not that of the model, or a leaf has not the shape of the model's.
pub(super) fn aligned<M: Tree, const N: usize>(
    operation: &str,
    model: &M,
    others: [(&str, &M); N],
) -> Result<Vec<(Path, Tensor, [Tensor; N])>> {
    let (_, expected) = structure(model);
    for (name, other) in others {
        if let Some(difference) = expected.difference(&structure(other).1) {
            let message = format!("the structures of the model and of {name} differ: {difference}");
            return Err(Error::new(ErrorKind::Structure, operation, message));
        }
    }
    let names = others.map(|(name, _)| name);
    let others = others.map(|(_, tree)| structure(tree).0);
    let mut rows = Vec::new();
    for (i, (path, leaf)) in leaves(model).into_iter().enumerate() {
        let row = std::array::from_fn(|k| others[k][i].clone());
        for (name, other) in names.iter().zip(&row) {
            let (aval, other) = (leaf.aval()?, other.aval()?);
            if aval.shape != other.shape {
                let message = format!("`{path}` is {aval} in the model and {other} in {name}");
                return Err(Error::new(ErrorKind::Shape, operation, message));
            }
        }
        rows.push((path, leaf, row));
    }
    Ok(rows)
}

/// The dtype in which a parameter is updated, and that of its state.
pub(super) fn working_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The state of a model before the first step: zeros, none for a leaf that is not a float.
pub(super) fn zeros<M: Tree>(model: &M) -> M {
    tree::map(model, |_, leaf| match leaf.aval() {
        Ok(aval) if aval.dtype.is_float() => Tensor::zeros(&aval.shape[..], working_dtype(aval.dtype)),
        Ok(_) | Err(_) => leaf.clone(),
    })
}

/// The number of steps before the first.
pub(super) fn no_steps() -> Tensor {
    Tensor::from(0i32)
}

/// One step more; the last number stays.
pub(super) fn next_step(step: &Tensor) -> Tensor {
    step.minimum(i32::MAX - 1) + 1
}

/// A scalar constant.
pub(super) fn scalar(dtype: DType, value: f64) -> Tensor {
    Tensor::from_array(Array::full(Literal::from_f64(dtype, value), []))
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
