//! Results of traced functions.

use remat_ir::{Error, Result};

use super::{Tensor, Tree, Walk};

/// The result of a traced function: a tree, or a `Result` of one.
///
/// ```
/// use remat::{Tensor, jit};
/// assert_eq!(jit(|x: &Tensor| x + 1).call(Tensor::from(1))?.item::<i32>()?, 2);
/// let failing = jit(|x: &Tensor| -> remat::Result<Tensor> { Ok(x * x.dim(0)? as i32) });
/// assert!(failing.call(Tensor::from(1)).is_err());
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Output: Sized {
    /// The tree.
    type Tree: Tree;

    /// The tree, or the error of the function.
    ///
    /// # Errors
    /// The error that the function returned.
    fn into_result(self) -> Result<Self::Tree>;

    /// As [`Output::into_result`], borrowed.
    ///
    /// # Errors
    /// The error that the function returned.
    fn as_result(&self) -> Result<&Self::Tree>;

    /// The error as the result of the function, if that is a `Result`.
    fn from_error(error: Error) -> Option<Self>;

    /// The same kind of value with the tree returned by `f`. If `f` fails, it is an `Err` or a tree of failed tensors.
    fn map_tree(self, f: impl FnOnce(&Self::Tree) -> Result<Self::Tree>) -> Self;
}

impl<T: Tree> Output for T {
    type Tree = T;

    fn into_result(self) -> Result<T> {
        Ok(self)
    }

    fn as_result(&self) -> Result<&T> {
        Ok(self)
    }

    fn from_error(_: Error) -> Option<T> {
        None
    }

    fn map_tree(self, f: impl FnOnce(&T) -> Result<T>) -> T {
        f(&self).unwrap_or_else(|error| fail(&self, error))
    }
}

impl<T: Tree> Output for Result<T, Error> {
    type Tree = T;

    fn into_result(self) -> Result<T> {
        self
    }

    fn as_result(&self) -> Result<&T> {
        self.as_ref().map_err(Clone::clone)
    }

    fn from_error(error: Error) -> Option<Self> {
        Some(Err(error))
    }

    fn map_tree(self, f: impl FnOnce(&T) -> Result<T>) -> Self {
        self.and_then(|tree| f(&tree))
    }
}

/// The tree with every leaf failed.
fn fail<T: Tree>(tree: &T, error: Error) -> T {
    tree.map_leaves(&mut Walk::new(&mut |_, _| Tensor::failed(error.clone())))
}
