//! Functions with custom rematerialization.
//!
//! It becomes a `custom_vjp` whose residuals are its arguments and the passed values; dead code elimination drops arguments that are not
//! read. The backward rule is one `checkpoint` equation, marked `differentiated`. A passed value goes through a `name` with
//! `keep=everyone`, which partial evaluation saves under every policy. In the forward pass that it writes the mark is `keep=planner`: the
//! rule has been applied, so that a region around the derivative decides about these values like about others, but engines still do not
//! compute them again.

use std::sync::Arc;

use remat_ir::{Aval, Checkpoint, Keep, Name, Policy, VjpRule};

use super::control::share_captures;
use super::custom::{
    define, expect_bodies, expect_outs, keep_floats, return_consts, short_type_name_of, spread_floats,
};
use crate::trace::{Output, Tree, bind_at, current_loc, rebuild, region_policy, structure, trace_at};

/// A function that says itself what it passes to its backward pass, and how the rest is computed again there.
///
/// - `forward` takes the argument and returns the result and the *passed* values: these are kept, and nothing else of the function is.
/// - `recompute` takes the argument and the passed values, and returns the *rest*: what else the backward pass needs. It runs in the backward
///   pass, as the body of a checkpointed region does, when the cotangent is there.
/// - `backward` takes the passed values, the rest, and the cotangent of the result, and returns the cotangent of the argument. Those of
///   leaves that are not floats are not read.
///
/// Passed values are kept whatever the policy of a region around the function is, and count for its [budget](Policy::budget); the
/// native engine does not compute them again. An argument that `recompute` reads is kept like any value: by the policy of the region, which may
/// compute it again, and without a region as it is. So a function that passes nothing, `()`, is computed again as a whole, and one that reads no argument frees
/// it.
///
/// `forward` gets the policy that decides about it, that of the outermost region around the call, to pass more or less. It is `None` without
/// a region.
///
/// It nests in loops, batches, meshes and regions, and can be differentiated again, by any rule that is a formula of the same function.
/// Forward mode is an error, as for [`custom_vjp`](crate::custom_vjp): so `jacfwd` of it, and `hessian`, which is `jacfwd` of `jacrev`, works
/// on it. The rules are traced where the function is differentiated, once for each derivative. Source: `jax.custom_remat`.
///
/// ```
/// use remat::report::saved_residuals;
/// use remat::{Policy, Tensor, checkpoint, custom_remat, grad};
/// // The exponential passes its result. Its sine passes nothing, and is computed again.
/// let f = custom_remat(
///     |x: &Tensor, _: Option<&Policy>| {
///         let e = x.exp();
///         (e.sin(), e)
///     },
///     |_: &Tensor, e: &Tensor| e.cos(),
///     |e: &Tensor, cos: &Tensor, ct: &Tensor| ct * cos * e,
/// );
/// let x = Tensor::from(0.5f64);
/// assert!((grad(|x: &Tensor| f(x))(&x)?.item::<f64>()? - 0.5f64.exp().cos() * 0.5f64.exp()).abs() < 1e-15);
/// let region = checkpoint(Policy::Nothing, |x: &Tensor| f(x).square());
/// let kept = saved_residuals(|x: &Tensor| region(x), &x)?;
/// assert_eq!(kept.intermediates().map(|r| r.kind.to_string()).collect::<Vec<_>>(), ["output of exp"]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`custom_jvp`](crate::custom_jvp). With a budget that is less than what is passed, where it is differentiated.
///
/// # Panics
/// As [`checkpoint`](crate::checkpoint).
#[track_caller]
pub fn custom_remat<A: Tree, R: Output, S: Tree, T: Output, B: Output<Tree = A>>(
    forward: impl Fn(&A, Option<&Policy>) -> (R, S),
    recompute: impl Fn(&A, &S) -> T,
    backward: impl Fn(&S, &T::Tree, &R::Tree) -> B,
) -> impl Fn(&A) -> R {
    const OPERATION: &str = "custom_remat";
    let loc = current_loc();
    let name: Arc<str> = short_type_name_of(&forward).into();
    move |x| {
        let policy = region_policy();
        let policy = policy.as_deref();
        define(&|x: &A| forward(x, policy).0, x, loc, |call, primal_avals, order| {
            let op = |call, rule, num_consts| remat_ir::CustomVjp {
                name: name.clone(),
                call,
                rule,
                forward: None,
                num_consts,
            };
            let Some(order) = order else {
                return Ok((op(call.jaxpr.clone(), None, call.captured.len()).into(), call.captured.clone()));
            };
            let out_avals = call.jaxpr.out_avals();
            let num_args = primal_avals.len();
            // The residuals are the arguments, of which those that are not read are dropped later, and the passed values with a mark.
            let (fwd, (out_like, passed_like)) = trace_at(order, primal_avals.iter().cloned(), loc, |ins| {
                let (out, passed) = forward(&rebuild(x, ins.to_vec())?, policy);
                let out = out.into_result()?;
                let mut outs = structure(&out).0;
                expect_outs(OPERATION, "result of the forward rule", &out_avals, &outs, loc)?;
                outs.extend_from_slice(ins);
                for leaf in structure(&passed).0 {
                    outs.extend(bind_at(Name::kept(Keep::Everyone), &[&leaf], loc)?);
                }
                Ok((outs, (out, passed)))
            })?;
            let residual_avals = fwd.jaxpr.out_avals().split_off(out_avals.len());
            let ct_avals = out_avals.iter().filter(|a| a.dtype.is_float());
            let bwd_avals: Vec<Aval> = residual_avals.iter().chain(ct_avals).cloned().collect();
            // As in the backward pass of a region, all of it is the body of a region.
            let (bwd, ()) = trace_at(order, bwd_avals.iter().cloned(), loc, |ins| {
                let (body, ()) = trace_at(order, bwd_avals.iter().cloned(), loc, |ins| {
                    let (residuals, cts) = ins.split_at(residual_avals.len());
                    let (args, passed) = residuals.split_at(num_args);
                    let passed = rebuild(&passed_like, passed.to_vec())?;
                    let cts = rebuild(&out_like, spread_floats(&out_avals, cts, loc))?;
                    let rest = recompute(&rebuild(x, args.to_vec())?, &passed).into_result()?;
                    let cts = structure(&backward(&passed, &rest, &cts).into_result()?).0;
                    expect_outs(OPERATION, "cotangent of the backward rule", primal_avals, &cts, loc)?;
                    Ok((keep_floats(primal_avals, cts), ()))
                })?;
                let policy = Arc::new(Policy::Nothing);
                let op = Checkpoint { jaxpr: body.jaxpr.clone(), differentiated: true, policy };
                let operands: Vec<_> = body.captured.iter().chain(ins).collect();
                Ok((bind_at(op, &operands, loc)?, ()))
            })?;
            let (captured, bodies) = share_captures([call, &fwd, &bwd].into_iter())?;
            let [call, fwd, bwd] = expect_bodies(bodies)?;
            let fwd = Arc::new(return_consts(&fwd, captured.len(), out_avals.len())?);
            Ok((op(call, Some(VjpRule { fwd, bwd }), captured.len()).into(), captured))
        })
    }
}
