//! Gradient clipping, by norm and by value.

use super::leaves::working_dtype;
use crate::trace::pinned;
use crate::tree::leaves;
use crate::{DType, Tensor, Tree, tree};

/// The Euclidean norm of all float leaves of a tree together: a scalar, f64 if a leaf is f64, else f32. A tree without floats has norm 0.
///
/// ```
/// use remat::{Tensor, optim};
/// let gradients = (Tensor::new([3.0f32, 0.0]), Tensor::new([[4.0f32]]));
/// assert_eq!(optim::global_norm(&gradients).item::<f32>()?, 5.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn global_norm<T: Tree>(tree: &T) -> Tensor {
    pinned(|| norm(tree))
}

/// The tree scaled so that its [`global_norm`] is at most `max_norm`, and the norm before scaling. If the norm is NaN, all floats become
/// NaN.
///
/// The norm needs all gradients before the first update, so a training step holds all of them at once, as many bytes as the parameters
/// have. Without it, or with [`clip_by_value`], each gradient is freed by its update as soon as it is computed.
///
/// Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
///
/// ```
/// use remat::{Tensor, optim};
/// let gradients = (Tensor::new([3.0f32, 0.0]), Tensor::new([[4.0f32]]));
/// let (clipped, norm) = optim::clip_by_global_norm(&gradients, 2.5);
/// assert_eq!(clipped.0.to_vec::<f32>()?, [1.5, 0.0]);
/// assert_eq!(norm.item::<f32>()?, 5.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn clip_by_global_norm<T: Tree>(tree: &T, max_norm: f64) -> (T, Tensor) {
    pinned(|| {
        let norm = norm(tree);
        let fits = norm.lt(max_norm);
        let clipped = tree::map(tree, |leaf| match leaf.dtype() {
            Ok(dtype) if dtype.is_float() => {
                let work = working_dtype(dtype);
                let scaled = leaf.to_dtype(work) / norm.to_dtype(work) * max_norm;
                fits.select(leaf, scaled.to_dtype(dtype))
            }
            Ok(_) | Err(_) => leaf.clone(),
        });
        (clipped, norm)
    })
}

/// The tree with each element of its float leaves clipped to `-max..=max`; NaN stays.
///
/// ```
/// use remat::{Tensor, optim};
/// let clipped = optim::clip_by_value(&Tensor::new([3.0f32, -0.5, -7.0]), 2.0);
/// assert_eq!(clipped.to_vec::<f32>()?, [2.0, -0.5, -2.0]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn clip_by_value<T: Tree>(tree: &T, max: f64) -> T {
    pinned(|| {
        tree::map(tree, |leaf| match leaf.dtype() {
            Ok(dtype) if dtype.is_float() => leaf.clamp(-max, max),
            Ok(_) | Err(_) => leaf.clone(),
        })
    })
}

fn norm<T: Tree>(tree: &T) -> Tensor {
    let floats =
        leaves(tree).into_iter().map(|(_, leaf)| leaf).filter(|leaf| !leaf.dtype().is_ok_and(|d| !d.is_float()));
    let floats: Vec<Tensor> = floats.collect();
    let is_wide = floats.iter().any(|leaf| leaf.dtype().is_ok_and(|d| d == DType::F64));
    let dtype = if is_wide { DType::F64 } else { DType::F32 };
    let squares = floats.iter().map(|leaf| leaf.to_dtype(dtype).square().sum(..));
    squares.reduce(|sum, square| sum + square).unwrap_or_else(|| Tensor::scalar(dtype, 0.0)).sqrt()
}
