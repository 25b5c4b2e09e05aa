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
#[diagnostic::on_unimplemented(
    message = "a traced function cannot return `{Self}`",
    label = "neither a tree of tensors nor a `remat::Result` of one",
    note = "a struct or enum of trees becomes one by `#[derive(Tree)]`"
)]
pub trait Output: Sized {
    /// The tree.
    type Tree: Tree;

    /// The tree, or the error of the function.
    ///
    /// # Errors
    /// The error that the function returned.
    fn into_result(self) -> Result<Self::Tree>;

    /// As [`Output::into_result`], with a reference to the tree.
    ///
    /// # Errors
    /// The error that the function returned.
    fn as_result(&self) -> Result<&Self::Tree>;

    /// The error as the result of the function; `None` if the function does not return a `Result`.
    fn from_error(error: Error) -> Option<Self>;

    /// The same kind of value with the tree returned by `f`. If `f` fails, it is an `Err` or a tree of failed tensors.
    fn map_tree(self, f: impl FnOnce(&Self::Tree) -> Result<Self::Tree>) -> Self;
}

/// The result of a function that is differentiated: one tensor, or a `Result` of one.
///
/// It is not implemented by hand: a generic function that passes its closure to [`grad`](crate::grad) has this bound too.
///
/// ```
/// use remat::tree::ScalarOutput;
/// use remat::{Result, Tensor, grad};
/// fn slope<R: ScalarOutput>(f: impl Fn(&Tensor) -> R, at: f32) -> Result<Tensor> {
///     grad(f)(&Tensor::from(at))
/// }
/// assert_eq!(slope(|x: &Tensor| x * x, 3.0)?.item::<f32>()?, 6.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the function must return one tensor, and returns `{Self}`",
    label = "not one tensor",
    note = "a function that returns a loss and more is for `grad_aux` and `value_and_grad_aux`, which differentiate the first"
)]
pub trait ScalarOutput: Output<Tree = Tensor> {}

impl ScalarOutput for Tensor {}

impl ScalarOutput for Result<Tensor, Error> {}

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
