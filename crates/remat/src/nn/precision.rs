//! Mixed precision.

use remat_ir::{Error, ErrorKind, Result};

use crate::layer::deferred;
use crate::trace::{current_loc, pinned};
use crate::{DType, Tree, tree};

/// Mixed precision: the dtypes of parameters, of computation, and of results.
///
/// Inside a gradient the conversions are part of the function, so gradients have the dtype of the parameters. The design is that of
/// DeepMind's `jmp`. Losses and norms of [`nn`](crate::nn) sum in f32 in any case.
///
/// ```
/// use remat::nn::{Linear, Precision};
/// use remat::{DType, Tensor, grad, random};
/// let precision = Precision { compute: DType::Bf16, ..Precision::default() };
/// let model = Linear::new(random::key(0), 4, 3);
/// let x = Tensor::ones([2, 4], DType::F32);
/// let loss = |model: &Linear| {
///     let (model, x) = precision.to_compute(&(model.clone(), x.clone()));
///     let y = model.apply(&x);
///     assert_eq!(y.dtype().unwrap(), DType::Bf16);
///     precision.to_output(&y).square().sum(..)
/// };
/// assert_eq!(loss(&model).dtype()?, DType::F32);
/// assert_eq!(grad(loss)(&model)?.weight.dtype()?, DType::F32);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Tree)]
pub struct Precision {
    /// The dtype in which parameters are kept and updated.
    pub params: DType,
    /// The dtype of activations.
    pub compute: DType,
    /// The dtype of results.
    pub output: DType,
}

/// f32 throughout.
impl Default for Precision {
    fn default() -> Precision {
        Precision { params: DType::F32, compute: DType::F32, output: DType::F32 }
    }
}

impl Precision {
    /// Parameters and results in f32, computation in bf16.
    pub fn bf16() -> Precision {
        Precision { compute: DType::Bf16, ..Precision::default() }
    }

    /// Parameters and results in f32, computation in f16, whose gradients need a [`LossScale`](crate::optim::LossScale).
    pub fn f16() -> Precision {
        Precision { compute: DType::F16, ..Precision::default() }
    }

    /// The tree with its float leaves in the dtype of parameters. Others, such as tokens and masks, stay.
    ///
    /// # Errors
    /// If that dtype is not a float: the float leaves are failed tensors.
    #[track_caller]
    pub fn to_params<T: Tree>(&self, tree: &T) -> T {
        pinned(|| floats_to("parameters", self.params, tree))
    }

    /// The tree with its float leaves in the dtype of activations.
    ///
    /// # Errors
    /// As [`Precision::to_params`].
    #[track_caller]
    pub fn to_compute<T: Tree>(&self, tree: &T) -> T {
        pinned(|| floats_to("computation", self.compute, tree))
    }

    /// The tree with its float leaves in the dtype of results.
    ///
    /// # Errors
    /// As [`Precision::to_params`].
    #[track_caller]
    pub fn to_output<T: Tree>(&self, tree: &T) -> T {
        pinned(|| floats_to("results", self.output, tree))
    }

    /// Fails unless all three are float dtypes.
    ///
    /// # Errors
    /// If one is not.
    ///
    /// ```
    /// use remat::{DType, nn::Precision};
    /// let error = Precision { compute: DType::I8, ..Precision::default() }.check().unwrap_err();
    /// assert_eq!(error.message(), "the dtype of computation is not a float: i8");
    /// ```
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let kinds = [("parameters", self.params), ("computation", self.compute), ("results", self.output)];
        let loc = current_loc();
        kinds.into_iter().try_for_each(|(what, dtype)| expect_float(what, dtype)).map_err(|error| error.at(loc))
    }
}

fn expect_float(what: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    let message = format!("the dtype of {what} is not a float: {dtype}");
    Err(Error::new(ErrorKind::DType, "nn::Precision", message))
}

fn floats_to<T: Tree>(what: &str, dtype: DType, tree: &T) -> T {
    tree::map(tree, |leaf| match leaf.dtype() {
        Ok(own) if own.is_float() && own != dtype => deferred(|| {
            expect_float(what, dtype)?;
            Ok(leaf.to_dtype(dtype))
        }),
        _ => leaf.clone(),
    })
}
