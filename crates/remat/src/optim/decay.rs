//! Weight decay through the gradients.

use remat_ir::Result;

use super::Mask;
use super::leaves::{belonging, expect_shape, scoped, working_dtype};
use crate::Tree;
use crate::trace::rebuild;
use crate::tree::leaves;

/// The gradients plus `weight_decay` times the parameters that `decay` selects, which corresponds to adding half of `weight_decay` times
/// their squares to the loss (L2 regularisation). It is the usual weight decay for [`Sgd`](super::Sgd); the other optimizers have decoupled
/// weight decay.
///
/// # Errors
/// If the gradients differ from the model in structure or shapes; if a pattern of the mask matches no path of the model.
///
/// ```
/// use remat::optim::{Mask, add_decayed_weights};
/// use remat::Tensor;
/// let model = (Tensor::new([10.0f32]), Tensor::new([10.0f32]));
/// let gradients = (Tensor::new([1.0f32]), Tensor::new([1.0f32]));
/// let gradients = add_decayed_weights(&gradients, &model, 0.1, &Mask::paths(["0"]))?;
/// assert_eq!((gradients.0.to_vec::<f32>()?, gradients.1.to_vec::<f32>()?), (vec![2.0], vec![1.0]));
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn add_decayed_weights<M: Tree>(gradients: &M, model: &M, weight_decay: f64, decay: &Mask) -> Result<M> {
    const NAME: &str = "optim::add_decayed_weights";
    scoped("add_decayed_weights", || {
        let (mut sums, decays) = (Vec::new(), decay.of(model)?);
        let given = belonging(NAME, model, ("the gradients", gradients))?;
        for (((path, parameter), gradient), decays) in leaves(model).into_iter().zip(given).zip(decays) {
            let aval = parameter.aval()?;
            if decays && aval.dtype.is_float() {
                expect_shape(NAME, &path, aval, gradient.aval()?)?;
                let (work, dtype) = (working_dtype(aval.dtype), gradient.dtype()?);
                let decayed = gradient.to_dtype(work) + parameter.to_dtype(work) * weight_decay;
                sums.push(decayed.to_dtype(dtype));
            } else {
                sums.push(gradient);
            }
        }
        rebuild(gradients, sums)
    })
}
