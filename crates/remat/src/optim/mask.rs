//! Masks: selections of parameters.

use std::fmt;

use remat_ir::{Error, ErrorKind, Result};

use crate::trace::pattern::matches;
use crate::tree::{Path, Structure, leaves};
use crate::{Tensor, Tree};

/// The parameters to which a rule applies, such as weight decay or an optimizer of a [`Partition`](super::Partition).
///
/// ```
/// use remat::{DType, Tensor, optim::Mask};
/// let model = (vec![Tensor::ones([2, 2], DType::F32), Tensor::ones([2], DType::F32)], Tensor::ones([2], DType::F32));
/// assert_eq!(Mask::Matrices.of(&model)?, [true, false, false]);
/// assert_eq!(Mask::paths(["0.*"]).of(&model)?, [true, true, false]);
/// assert_eq!(Mask::paths(["0.**"]).complement().of(&model)?, [false, false, true]);
/// assert_eq!(Mask::Custom(|_, leaf| leaf.rank().is_ok_and(|rank| rank == 1)).of(&model)?, [false, true, true]);
/// assert_eq!(Mask::paths(["head"]).of(&model).unwrap_err().message(), "the pattern `head` matches no path of the model: 0.0, 0.1, 1");
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Default)]
pub enum Mask {
    /// All parameters.
    #[default]
    All,
    /// Parameters with two or more dimensions: matrices, not biases or gains. The axis of layers of a stacked [`Stack`](crate::nn::Stack)
    /// does not count.
    Matrices,
    /// Parameters whose path matches one of these patterns. A pattern is a path, such as `blocks.3.attn.w`, in which `*` matches any one
    /// segment, and `**` any number of segments, including none. A model that is a single tensor has the empty path.
    Paths(Vec<String>),
    /// All parameters except those that another mask selects.
    Complement(Box<Mask>),
    /// Parameters for which the function returns true. The tensors of a stacked [`Stack`](crate::nn::Stack) that it gets have the axis of
    /// layers in front.
    Custom(fn(&Path, &Tensor) -> bool),
}

impl Mask {
    /// [`Mask::Paths`] of these patterns.
    pub fn paths<S: Into<String>>(patterns: impl IntoIterator<Item = S>) -> Mask {
        Mask::Paths(patterns.into_iter().map(Into::into).collect())
    }

    /// All parameters except those that this mask selects.
    #[must_use]
    pub fn complement(self) -> Mask {
        Mask::Complement(Box::new(self))
    }

    /// Whether the mask selects a leaf. `layer_axes` is the number of its leading axes that come from stacked layers:
    /// [`Structure::layer_axes`](crate::tree::Structure::layer_axes).
    pub fn takes(&self, path: &Path, leaf: &Tensor, layer_axes: usize) -> bool {
        match self {
            Mask::All => true,
            Mask::Matrices => leaf.aval().is_ok_and(|aval| aval.rank() >= 2 + layer_axes),
            Mask::Paths(patterns) => {
                let segments: Vec<String> = path.0.iter().map(ToString::to_string).collect();
                patterns.iter().any(|pattern| matches(split(pattern), &segments, true))
            }
            Mask::Complement(mask) => !mask.takes(path, leaf, layer_axes),
            Mask::Custom(f) => f(path, leaf),
        }
    }

    /// Whether each leaf of a model is selected, in the order of [`leaves`].
    ///
    /// # Errors
    /// If a pattern of [`Mask::Paths`] matches no leaf, because it is misspelt or belongs to another model.
    #[track_caller]
    pub fn of<M: Tree>(&self, model: &M) -> Result<Vec<bool>> {
        let loc = crate::trace::current_loc();
        self.check(&leaves(model)).map_err(|error| error.at(loc))?;
        Ok(self.unchecked(model))
    }

    /// As [`Mask::of`], but patterns may match no leaf.
    pub(super) fn unchecked<M: Tree>(&self, model: &M) -> Vec<bool> {
        let layer_axes = Structure::of(model).layer_axes();
        leaves(model).iter().zip(layer_axes).map(|((path, leaf), axes)| self.takes(path, leaf, axes)).collect()
    }

    fn check(&self, leaves: &[(Path, Tensor)]) -> Result<()> {
        match self {
            Mask::Paths(patterns) => patterns.iter().try_for_each(|pattern| {
                let mask = Mask::paths([pattern]);
                if leaves.iter().any(|(path, leaf)| mask.takes(path, leaf, 0)) {
                    return Ok(());
                }
                let shown: Vec<String> = leaves.iter().take(8).map(|(path, _)| path.to_string()).collect();
                let paths = match leaves {
                    [] => ", which has no tensors".to_string(),
                    [(path, _)] if path.0.is_empty() => ", which is one tensor and has the empty path".to_string(),
                    _ => format!(": {}{}", shown.join(", "), if leaves.len() > shown.len() { ", .." } else { "" }),
                };
                let message = format!("the pattern `{pattern}` matches no path of the model{paths}");
                Err(Error::new(ErrorKind::Argument, "optim::Mask", message))
            }),
            Mask::Complement(mask) => mask.check(leaves),
            Mask::All | Mask::Matrices | Mask::Custom(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mask::All => f.write_str("All"),
            Mask::Matrices => f.write_str("Matrices"),
            Mask::Paths(patterns) => f.debug_tuple("Paths").field(patterns).finish(),
            Mask::Complement(mask) => f.debug_tuple("Complement").field(mask).finish(),
            Mask::Custom(_) => f.write_str("Custom(..)"),
        }
    }
}

/// The segments of a pattern. The empty pattern has none, like the path of a model that is one tensor.
fn split(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('.').filter(|_| !pattern.is_empty())
}
