//! The list of residuals: the values in memory between the forward and the backward pass.

use remat_ir::Result;

use super::programs::print;
use crate::api::linearization::Linearization;
use crate::api::residuals::Residuals;
use crate::trace::{Order, Output, Tree, current_loc, leaf_paths, trace_tree_at};

/// The values that the backward pass of a function keeps, for an argument with these avals, whose values are not read: every residual of
/// [`vjp`](crate::vjp).
///
/// Values inside `scan`, `jit`, branches and nested checkpoints keep their name, operation and line, followed by the loops and calls that
/// they passed through. The order is that of [`LinearMap::residuals`](crate::LinearMap::residuals), and of the inputs of the backward
/// program of [`fwd_bwd`](super::fwd_bwd).
///
/// ```
/// use remat::report::{SavedKind, saved_residuals};
/// use remat::{Policy, Tensor, checkpoint};
/// let f = checkpoint(Policy::names(["hidden"]), |x: &Tensor| x.sin().named("hidden").sin().sum(..));
/// let residuals = saved_residuals(|x: &Tensor| f(x), &Tensor::from(vec![1.0f32, 2.0]))?;
/// let kinds: Vec<&SavedKind> = residuals.iter().map(|r| &r.kind).collect();
/// assert_eq!(kinds, [&SavedKind::Argument(String::new()), &SavedKind::Named("hidden".into())]);
/// assert_eq!((residuals.total_bytes(), residuals.intermediate_bytes()), (16, 8));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vjp`](crate::vjp).
#[track_caller]
pub fn saved_residuals<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<Residuals> {
    let (program, _) = trace_tree_at(Order::current().plus(1), x, current_loc(), &f)?;
    let num_outs = program.jaxpr.outs.len();
    Ok(Linearization::new(program, num_outs)?.residuals(&leaf_paths(x)))
}

/// Prints [`saved_residuals`] to standard output.
///
/// ```
/// use remat::report::print_saved_residuals;
/// use remat::Tensor;
/// print_saved_residuals(|x: &Tensor| x.sin(), &Tensor::from(1.0f32))?;
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`saved_residuals`]; of kind `Io` if writing to standard output fails.
#[track_caller]
pub fn print_saved_residuals<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<()> {
    print("print_saved_residuals", &format!("{}\n", saved_residuals(f, x)?))
}
