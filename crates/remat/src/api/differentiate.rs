//! Forward and reverse mode.

use remat_ir::{Error, ErrorKind, Literal, Loc, Result};

use super::linear_map::LinearMap;
use super::linearization::Linearization;
use super::skeleton::Skeleton;
use crate::trace::{
    Order, Output, Program, ScalarOutput, Tensor, Tree, avals, current_loc, leaves, rebuild, run, structure,
    trace_tree, trace_tree_at,
};
use crate::transform::{self, transpose};

/// The gradient of a scalar function of a tree of floats. It has the type of the argument.
///
/// Values that the closure captures are constant. So capture a batch, a mask or a hyperparameter; there are no argument numbers.
///
/// ```
/// use remat::{Tensor, grad};
/// let x = Tensor::from(vec![1.0f32, 2.0]);
/// let dx = grad(|x: &Tensor| (x * x).sum(..))(&x)?;
/// assert_eq!(dx.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if its result is not a scalar float, or an argument is not a float; if an operation
/// has no derivative.
#[track_caller]
pub fn grad<A: Tree, R: ScalarOutput>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<A> {
    let value_and_grad = value_and_grad(f);
    move |x| Ok(value_and_grad(x)?.1)
}

/// As [`grad`], for a function that also returns a tree that is not differentiated.
///
/// ```
/// use remat::{Tensor, grad_aux};
/// let f = |x: &Tensor| (x.square().sum(..), x.max(..));
/// let (gradient, largest) = grad_aux(f)(&Tensor::new([1.0f32, 3.0]))?;
/// assert_eq!((gradient.to_vec::<f32>()?, largest.item::<f32>()?), (vec![2.0, 6.0], 3.0));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`grad`].
#[track_caller]
pub fn grad_aux<A: Tree, X: Tree, R: Output<Tree = (Tensor, X)>>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<(A, X)> {
    let value_and_grad = value_and_grad_aux(f);
    move |x| {
        let ((_, aux), grad) = value_and_grad(x)?;
        Ok((grad, aux))
    }
}

/// The value and the gradient of a scalar function.
///
/// ```
/// use remat::{Tensor, value_and_grad};
/// let (y, dx) = value_and_grad(|x: &Tensor| x.sin())(&Tensor::from(0.0f64))?;
/// assert_eq!((y.item::<f64>()?, dx.item::<f64>()?), (0.0, 1.0));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`grad`].
#[track_caller]
pub fn value_and_grad<A: Tree, R: ScalarOutput>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<(Tensor, A)> {
    let loc = current_loc();
    move |x| value_and_grad_at(loc, &f, x)
}

/// The value and the gradient at `x` of a function that was given at `loc`.
pub(crate) fn value_and_grad_at<A: Tree, R: ScalarOutput>(loc: Loc, f: impl Fn(&A) -> R, x: &A) -> Result<(Tensor, A)> {
    let (program, _) = trace_tree_at(Order::current().plus(1), x, loc, &f)?;
    let (mut outs, grad) = run_gradient(x, program, loc)?;
    Ok((outs.swap_remove(0), grad))
}

/// As [`value_and_grad`], for a function that also returns a tree that is not differentiated: `((value, aux), gradient)`.
///
/// ```
/// use remat::{Tensor, value_and_grad_aux};
/// let f = |x: &Tensor| (x.square().sum(..), x.max(..));
/// let ((value, largest), gradient) = value_and_grad_aux(f)(&Tensor::new([1.0f32, 3.0]))?;
/// assert_eq!((value.item::<f32>()?, largest.item::<f32>()?), (10.0, 3.0));
/// assert_eq!(gradient.to_vec::<f32>()?, [2.0, 6.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`grad`].
#[track_caller]
pub fn value_and_grad_aux<A: Tree, X: Tree, R: Output<Tree = (Tensor, X)>>(
    f: impl Fn(&A) -> R,
) -> impl Fn(&A) -> Result<((Tensor, X), A)> {
    let loc = current_loc();
    move |x| {
        let (program, like) = trace_tree_at(Order::current().plus(1), x, loc, &f)?;
        let (outs, grad) = run_gradient(x, program, loc)?;
        Ok((rebuild(&like, outs)?, grad))
    }
}

/// Runs the forward and the backward pass. The first result is the scalar, the others are not differentiated.
fn run_gradient<A: Tree>(x: &A, program: Program, loc: Loc) -> Result<(Vec<Tensor>, A)> {
    let avals = program.jaxpr.out_avals();
    // What cannot be differentiated is said first: the result of integers is one as well, however it is reduced.
    for (path, tensor) in leaves(x) {
        let aval = tensor.aval()?;
        if !aval.dtype.is_float() {
            let place = path.place();
            let message = format!(
                "the argument{place} is {aval}, and only floats can be differentiated; capture it in the closure instead of \
                 passing it"
            );
            return Err(Error::new(ErrorKind::Differentiation, "grad", message).at(loc));
        }
    }
    if avals[0].rank() != 0 || !avals[0].dtype.is_float() {
        let message = format!(
            "the function must return a float scalar and returned {}; reduce it first, for example with .sum(..) or .mean(..)",
            avals[0]
        );
        return Err(Error::new(ErrorKind::Differentiation, "grad", message).at(loc));
    }
    let linearization = Linearization::new(program, 1).map_err(|e| e.at(loc))?;
    let one = Literal::from_f64(avals[0].dtype, 1.0);
    let gradient = linearization.forward_and_backward(|_, _| Ok(vec![one.into()])).map_err(|e| e.at(loc))?;
    let args = [linearization.program.captured, structure(x).0].concat();
    let mut outs = run("grad", &gradient, &args, loc)?;
    let grads = outs.split_off(avals.len());
    Ok((outs, rebuild(x, grads)?))
}

/// The result of a function and its derivative in one direction: `(f(x), df(x)[t])`.
///
/// The tangent has the structure of the argument. Tangents of argument leaves that are not floats are not read; those of result leaves that
/// are not floats are zeros.
///
/// ```
/// use remat::{Tensor, jvp};
/// let (y, t) = jvp(|x: &Tensor| x.sin(), &Tensor::from(0.0f64), &Tensor::from(2.0f64))?;
/// assert_eq!((y.item::<f64>()?, t.item::<f64>()?), (0.0, 2.0));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if the structures or avals of primal and tangent differ; if an operation has no
/// derivative.
#[track_caller]
pub fn jvp<A: Tree, R: Output>(f: impl Fn(&A) -> R, primal: &A, tangent: &A) -> Result<(R::Tree, R::Tree)> {
    let loc = current_loc();
    let (program, like) = trace_tree_at(Order::current().plus(1), primal, loc, &f)?;
    let num_outs = program.jaxpr.outs.len();
    let primals = structure(primal).0;
    let tangents = Skeleton::of(primal)?.matching("jvp", "tangent", "argument", tangent, loc)?;
    let nonzero: Vec<bool> = primals.iter().map(|t| Ok(t.dtype()?.is_float())).collect::<Result<_>>()?;
    let mask = [vec![false; program.captured.len()], nonzero.clone()].concat();
    let both = transform::jvp(&program.jaxpr, &mask, &vec![true; num_outs]).map_err(|e| e.at(loc))?;
    let args = [program.captured.clone(), primals, transform::select(&tangents, &nonzero)].concat();
    let mut outs = run("jvp", &both.jaxpr, &args, loc)?;
    let tangents = outs.split_off(num_outs);
    let result = Skeleton::new(&like, program.jaxpr.out_avals())?;
    Ok((rebuild(&like, outs)?, result.fill(&both.nonzero, tangents, loc)?))
}

/// The result of a function, and its derivative as a linear map that can be called many times.
///
/// ```
/// use remat::{Tensor, linearize};
/// let (y, df) = linearize(|x: &Tensor| x.sin(), &Tensor::from(0.0f64))?;
/// assert_eq!(df.call(&Tensor::from(3.0f64))?.item::<f64>()?, 3.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if an operation has no derivative.
#[track_caller]
pub fn linearize<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<(R::Tree, LinearMap<A, R::Tree>)> {
    let loc = current_loc();
    let (program, like) = trace_linearized(x, loc, &f)?;
    let num_outs = program.jaxpr.outs.len();
    let linearization = Linearization::new(program, num_outs).map_err(|e| e.at(loc))?;
    let (outs, residuals) = linearization.run_forward("linearize", x, loc)?;
    let result = Skeleton::new(&like, avals(&outs)?)?;
    let linear = LinearMap::derivative(linearization, residuals, Skeleton::of(x)?, result, loc);
    Ok((rebuild(&like, outs)?, linear))
}

/// The result of a function and its pullback: the transpose of its derivative, from cotangents of the result to those of the
/// argument.
///
/// ```
/// use remat::{Tensor, vjp};
/// let x = (Tensor::from(2.0f64), Tensor::from(3.0f64));
/// let (y, pullback) = vjp(|(a, b): &(Tensor, Tensor)| a * b, &x)?;
/// let (da, db) = pullback.call(&Tensor::from(1.0f64))?;
/// assert_eq!((da.item::<f64>()?, db.item::<f64>()?), (3.0, 2.0));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if an operation has no derivative or cannot be transposed.
#[track_caller]
pub fn vjp<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<(R::Tree, LinearMap<R::Tree, A>)> {
    let loc = current_loc();
    let (program, like) = trace_linearized(x, loc, &f)?;
    let (outs, pullback) = pull_back(program, x, &like, loc)?;
    Ok((rebuild(&like, outs)?, pullback))
}

/// As [`vjp`], for a function that also returns a tree that is not differentiated: `(result, pullback, aux)`.
///
/// ```
/// use remat::{Tensor, vjp_aux};
/// let f = |x: &Tensor| (x.square(), x.max(..));
/// let (squares, pullback, largest) = vjp_aux(f, &Tensor::new([1.0f32, 3.0]))?;
/// assert_eq!((squares.to_vec::<f32>()?, largest.item::<f32>()?), (vec![1.0, 9.0], 3.0));
/// assert_eq!(pullback.call(&Tensor::new([1.0f32, 10.0]))?.to_vec::<f32>()?, [2.0, 60.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vjp`].
#[track_caller]
pub fn vjp_aux<A: Tree, B: Tree, X: Tree, R: Output<Tree = (B, X)>>(
    f: impl Fn(&A) -> R,
    x: &A,
) -> Result<(B, LinearMap<B, A>, X)> {
    let loc = current_loc();
    let (program, like) = trace_linearized(x, loc, &f)?;
    let num_outs = structure(&like.0).0.len();
    let (mut outs, pullback) = pull_back(program, x, &like.0, loc)?;
    let aux = outs.split_off(num_outs);
    Ok((rebuild(&like.0, outs)?, pullback, rebuild(&like.1, aux)?))
}

/// Runs the forward pass and creates the pullback of the results in `like`, which come first.
fn pull_back<A: Tree, B: Tree>(program: Program, x: &A, like: &B, loc: Loc) -> Result<(Vec<Tensor>, LinearMap<B, A>)> {
    let num_outs = structure(like).0.len();
    let linearization = Linearization::new(program, num_outs).map_err(|e| e.at(loc))?;
    let (outs, residuals) = linearization.run_forward("vjp", x, loc)?;
    let result = Skeleton::new(like, avals(&outs[..num_outs])?)?;
    let pullback =
        LinearMap::pullback(linearization, residuals, result, Skeleton::of(x)?, loc).map_err(|e| e.at(loc))?;
    Ok((outs, pullback))
}

/// The transpose of a linear function: it maps cotangents of the result to cotangents of the argument. `example` provides the structure and
/// avals of the argument; its values are not read.
///
/// ```
/// use remat::{Tensor, linear_transpose};
/// let x = Tensor::from(vec![0.0f32, 0.0]);
/// let transposed = linear_transpose(|x: &Tensor| x * 3.0, &x)?;
/// assert_eq!(transposed.call(&Tensor::from(vec![1.0f32, 2.0]))?.to_vec::<f32>()?, [3.0, 6.0]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if it is not linear.
#[track_caller]
pub fn linear_transpose<A: Tree, R: Output>(f: impl Fn(&A) -> R, example: &A) -> Result<LinearMap<R::Tree, A>> {
    let loc = current_loc();
    let (program, like) = trace_tree(example, loc, &f)?;
    let linear: Vec<bool> = (0..program.jaxpr.ins.len()).map(|i| i >= program.captured.len()).collect();
    let out_avals = program.jaxpr.out_avals();
    let transposed = transpose(&program.jaxpr, &linear, &vec![true; out_avals.len()], true).map_err(|e| e.at(loc))?;
    let result = Skeleton::new(&like, out_avals)?;
    Ok(LinearMap::transposed(transposed.jaxpr, program.captured, result, Skeleton::of(example)?, loc))
}

/// Traces a function that will be differentiated once, and whose linear map will be differentiated once more.
fn trace_linearized<A: Tree, R: Output>(x: &A, loc: Loc, f: impl FnOnce(&A) -> R) -> Result<(Program, R::Tree)> {
    trace_tree_at(Order::current().plus(2), x, loc, f)
}
