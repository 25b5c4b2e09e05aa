//! Functions with custom derivatives.

use std::sync::Arc;

use remat_ir::{Aval, Builder, Error, ErrorKind, Jaxpr, Loc, Result, VjpRule, counted};

use super::checkpoint::trace_value;
use super::control::share_captures;
use super::skeleton::mismatch;
use crate::trace::{
    Order, Output, Program, Tensor, Tree, avals, bind_at, current_loc, fail, rebuild, short_type_name, structure,
    trace_at, untraced, zeros,
};
use crate::transform::NO_DERIVATIVE;

/// A function whose derivative is `rule`, which takes the argument and its tangent and returns the result and its tangent.
///
/// The tangent has the structure of the argument; leaves that are not floats have tangents of zeros. The rule must be linear in the
/// tangent. It can be differentiated again, and is transposed for reverse mode. It may call the function itself, whose derivative is then
/// the rule again:
///
/// ```
/// use remat::{Tensor, custom_jvp, grad};
/// // e^(2x), written with its derivative 2 e^(2x).
/// fn square_exp(x: &Tensor) -> Tensor {
///     let rule = |x: &Tensor, t: &Tensor| (square_exp(x), square_exp(x) * t * 2.0);
///     custom_jvp(|x: &Tensor| (x * 2.0).exp(), rule)(x)
/// }
/// let second = grad(|x: &Tensor| grad(square_exp)(x))(&Tensor::from(0.0f32))?;
/// assert_eq!(second.item::<f32>()?, 4.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// The rule is traced where the function is differentiated, once for each derivative, and not where the function is only called.
///
/// ```
/// use remat::{Tensor, custom_jvp, grad};
/// // log(1 + e^x), whose derivative is stable for large x.
/// let softplus = custom_jvp(
///     |x: &Tensor| (x.exp() + 1.0).log(),
///     |x: &Tensor, t: &Tensor| ((x.exp() + 1.0).log(), t * x.sigmoid()),
/// );
/// let dx = grad(|x: &Tensor| softplus(x))(&Tensor::from(1000.0f32))?;
/// assert_eq!(dx.item::<f32>()?, 1.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// A failed tensor (or an `Err` if `f` returns a `Result`): the first error inside the functions; when it is differentiated, if the result
/// of the rule differs from that of the function in structure or avals.
///
/// # Panics
/// As [`checkpoint`](crate::checkpoint).
#[track_caller]
pub fn custom_jvp<A: Tree, R: Output, J: Output<Tree = (R::Tree, R::Tree)>>(
    f: impl Fn(&A) -> R,
    rule: impl Fn(&A, &A) -> J,
) -> impl Fn(&A) -> R {
    let loc = current_loc();
    let name: Arc<str> = short_type_name_of(&f).into();
    move |x| {
        define(&f, x, loc, |call, primal_avals, order| {
            let Some(order) = order else {
                let op = remat_ir::CustomJvp {
                    name: name.clone(),
                    call: call.jaxpr.clone(),
                    jvp: None,
                    num_consts: call.captured.len(),
                };
                return Ok((op.into(), call.captured.clone()));
            };
            let out_avals = call.jaxpr.out_avals();
            let tangent_avals = primal_avals.iter().filter(|a| a.dtype.is_float());
            let (jvp, ()) = trace_at(order, primal_avals.iter().chain(tangent_avals).cloned(), loc, |ins| {
                let (primals, tangents) = ins.split_at(primal_avals.len());
                let tangents = spread_floats(primal_avals, tangents, loc);
                let (out, tangent) = rule(&rebuild(x, primals.to_vec())?, &rebuild(x, tangents)?).into_result()?;
                let (mut outs, tangents) = (structure(&out).0, structure(&tangent).0);
                expect_outs("custom_jvp", "result of the rule", &out_avals, &outs, loc)?;
                expect_outs("custom_jvp", "tangent of the rule", &out_avals, &tangents, loc)?;
                outs.extend(keep_floats(&out_avals, tangents));
                Ok((outs, ()))
            })?;
            let (captured, bodies) = share_captures([call, &jvp].into_iter())?;
            let [call, jvp] = expect_bodies(bodies)?;
            let op = remat_ir::CustomJvp { name: name.clone(), call, jvp: Some(jvp), num_consts: captured.len() };
            Ok((op.into(), captured))
        })
    }
}

/// `f(x)` for a function that has no derivative. To differentiate it is an error that calls it `name`; for what does not depend on the
/// differentiated values it is a function as any other.
pub(crate) fn without_derivative<A: Tree, R: Output>(name: &str, f: impl Fn(&A) -> R, x: &A) -> R {
    let name = format!("{name}{NO_DERIVATIVE}").into();
    define(&f, x, current_loc(), |call, _, _| {
        let num_consts = call.captured.len();
        let op = remat_ir::CustomJvp { name, call: call.jaxpr.clone(), jvp: None, num_consts };
        Ok((op.into(), call.captured.clone()))
    })
}

/// A function with a custom reverse rule. `forward` takes the argument and returns the result and residuals; `backward` takes the residuals
/// and the cotangent of the result and returns the cotangent of the argument.
///
/// The cotangents that `backward` returns for leaves that are not floats are not read. Forward mode is an error. Under a checkpoint,
/// `forward` is part of the region: values named inside it can be saved by name. As with [`custom_jvp`], both may call the function itself,
/// and are traced only where it is differentiated.
///
/// ```
/// use remat::{Tensor, custom_vjp, grad};
/// let clip_gradient = custom_vjp(
///     |x: &Tensor| x.clone(),
///     |x: &Tensor| (x.clone(), ()),
///     |_: &(), ct: &Tensor| ct.clamp(-1.0, 1.0),
/// );
/// let dx = grad(|x: &Tensor| clip_gradient(x) * 5.0)(&Tensor::from(1.0f32))?;
/// assert_eq!(dx.item::<f32>()?, 1.0);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`custom_jvp`].
///
/// # Panics
/// As [`checkpoint`](crate::checkpoint).
#[track_caller]
pub fn custom_vjp<A: Tree, R: Output, S: Tree, F: Output<Tree = (R::Tree, S)>, B: Output<Tree = A>>(
    f: impl Fn(&A) -> R,
    forward: impl Fn(&A) -> F,
    backward: impl Fn(&S, &R::Tree) -> B,
) -> impl Fn(&A) -> R {
    let name = short_type_name_of(&f);
    custom_vjp_at(name.into(), None, current_loc(), f, forward, backward)
}

/// As [`custom_vjp`], with the name `name` in programs and errors. `with_forward` is the function with the same values that has a forward
/// mode, if there is one, which errors advise.
pub(crate) fn custom_vjp_at<A: Tree, R: Output, S: Tree, F: Output<Tree = (R::Tree, S)>, B: Output<Tree = A>>(
    name: Arc<str>,
    with_forward: Option<&str>,
    loc: Loc,
    f: impl Fn(&A) -> R,
    forward: impl Fn(&A) -> F,
    backward: impl Fn(&S, &R::Tree) -> B,
) -> impl Fn(&A) -> R {
    move |x| {
        define(&f, x, loc, |call, primal_avals, order| {
            let Some(order) = order else {
                let op = remat_ir::CustomVjp {
                    name: name.clone(),
                    call: call.jaxpr.clone(),
                    rule: None,
                    forward: with_forward.map(Arc::from),
                    num_consts: call.captured.len(),
                };
                return Ok((op.into(), call.captured.clone()));
            };
            let out_avals = call.jaxpr.out_avals();
            let (fwd, (out_like, residuals_like)) = trace_at(order, primal_avals.iter().cloned(), loc, |ins| {
                let (out, residuals) = forward(&rebuild(x, ins.to_vec())?).into_result()?;
                let mut outs = structure(&out).0;
                expect_outs("custom_vjp", "result of the forward rule", &out_avals, &outs, loc)?;
                outs.extend(structure(&residuals).0);
                Ok((outs, (out, residuals)))
            })?;
            let residual_avals: Vec<Aval> = fwd.jaxpr.out_avals().split_off(out_avals.len());
            let ct_avals = out_avals.iter().filter(|a| a.dtype.is_float());
            let (bwd, ()) = trace_at(order, residual_avals.iter().chain(ct_avals).cloned(), loc, |ins| {
                let (residuals, cts) = ins.split_at(residual_avals.len());
                let cts = rebuild(&out_like, spread_floats(&out_avals, cts, loc))?;
                let cts = structure(&backward(&rebuild(&residuals_like, residuals.to_vec())?, &cts).into_result()?).0;
                expect_outs("custom_vjp", "cotangent of the backward rule", primal_avals, &cts, loc)?;
                Ok((keep_floats(primal_avals, cts), ()))
            })?;
            let (captured, bodies) = share_captures([call, &fwd, &bwd].into_iter())?;
            let [call, fwd, bwd] = expect_bodies(bodies)?;
            let num_consts = captured.len();
            let fwd = Arc::new(return_consts(&fwd, num_consts, out_avals.len())?);
            let rule = Some(VjpRule { fwd, bwd });
            let forward = with_forward.map(Arc::from);
            let op = remat_ir::CustomVjp { name: name.clone(), call, rule, forward, num_consts };
            Ok((op.into(), captured))
        })
    }
}

/// Turns values that the backward rule captures into residuals: the forward rule returns its constants right after the results.
pub(super) fn return_consts(fwd: &Jaxpr, num_consts: usize, num_outs: usize) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let ins = b.inputs(fwd.in_avals());
    let mut outs = b.inline(fwd, &ins)?;
    outs.splice(num_outs..num_outs, ins[..num_consts].iter().copied());
    Ok(b.finish(outs))
}

/// Traces the function, creates the operation and applies it. The result has the type of `f`'s result.
///
/// `operation` gets the program, the avals of the argument, and the number of derivatives for which the rule is traced, if it is. The
/// function itself is never differentiated, since the rule replaces its derivative, so it is traced for no derivative.
pub(super) fn define<A: Tree, R: Output>(
    f: &impl Fn(&A) -> R,
    x: &A,
    loc: Loc,
    operation: impl FnOnce(&Program, &[Aval], Option<Order>) -> Result<(remat_ir::Op, Vec<Tensor>)>,
) -> R {
    let args = structure(x).0;
    let Ok(avals) = avals(&args) else { return untraced(f, x, loc) };
    let (program, value) = trace_value(Order::default(), avals.clone(), f, x, loc);
    value.map_tree(|tree| {
        let outs = program.and_then(|program| {
            let (op, captured) = operation(&program, &avals, Order::current().below())?;
            let operands: Vec<&Tensor> = captured.iter().chain(&args).collect();
            bind_at(op, &operands, loc)
        });
        rebuild(tree, outs.inspect_err(|error| drop(fail(error.clone())))?)
    })
}

/// One tensor per aval: the given ones for floats, zeros for the others.
pub(super) fn spread_floats(avals: &[Aval], floats: &[Tensor], loc: Loc) -> Vec<Tensor> {
    let mut floats = floats.iter();
    let spread = |aval: &Aval| match floats.next() {
        Some(t) => t.clone(),
        None => zeros(aval, loc),
    };
    let mut spread = spread;
    avals.iter().map(|aval| if aval.dtype.is_float() { spread(aval) } else { zeros(aval, loc) }).collect()
}

pub(super) fn keep_floats(avals: &[Aval], tensors: Vec<Tensor>) -> Vec<Tensor> {
    avals.iter().zip(tensors).filter(|(aval, _)| aval.dtype.is_float()).map(|(_, t)| t).collect()
}

pub(super) fn expect_outs(operation: &str, what: &str, expected: &[Aval], given: &[Tensor], loc: Loc) -> Result<()> {
    if expected.len() != given.len() {
        let message = format!("the {what} has {} and must have {}", counted(given.len(), "leaf"), expected.len());
        return Err(Error::new(ErrorKind::Structure, operation, message).at(loc));
    }
    for (expected, given) in expected.iter().zip(given) {
        let given = given.aval()?;
        if expected != given && expected.dtype.is_float() {
            let message = format!("the {what} is {given} and must be {expected}");
            return Err(Error::new(mismatch(expected, given), operation, message).at(loc));
        }
    }
    Ok(())
}

pub(super) fn expect_bodies<const N: usize>(bodies: Vec<Arc<Jaxpr>>) -> Result<[Arc<Jaxpr>; N]> {
    <[Arc<Jaxpr>; N]>::try_from(bodies).map_err(|_| crate::transform::internal("a body is missing"))
}

pub(super) fn short_type_name_of<F>(_: &F) -> String {
    short_type_name::<F>()
}
