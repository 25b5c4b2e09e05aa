//! Checkpointed regions.

use std::sync::Arc;

use remat_ir::{Aval, Error, ErrorKind, Loc, Policy, Result, did_you_mean};

use crate::trace::{
    InRegion, Names, Order, Output, Program, Tensor, Tree, avals, bind_at, current_loc, fail, failed, rebuild,
    structure, trace_at, untraced,
};
use crate::transform::{budget_of, internal};

/// A function whose intermediate values the backward pass computes again, except those that the policy saves.
///
/// Values and gradients are the same, bit for bit, under every policy, with one exception: a gradient through zeros that pad an operand of
/// a matrix product may differ by roundings (docs/DESIGN.md says why). The inputs of the region are always kept, since they exist anyway;
/// under [`Policy::Nothing`], the default in JAX, nothing else is. The policy applies inside every loop, branch, call and nested checkpoint
/// of the region. With nested checkpoints the outermost policy decides what the forward pass keeps, and the inner ones what is kept while
/// the region is computed again.
///
/// With `None` for the policy there is no region, and the returned function only calls `f`. So a program can have a setting of type
/// `Option<Policy>`.
///
/// The returned function has the type of `f` and can replace it inside a trace. Source: Chen et al., "Training deep nets with sublinear
/// memory cost", 2016; the semantics are those of `jax.checkpoint`.
///
/// ```
/// use remat::{Policy, Tensor, checkpoint, grad};
/// let f = checkpoint(Policy::Nothing, |x: &Tensor| x.sin().sin());
/// let dx = grad(|x: &Tensor| f(x))(&Tensor::from(2.0f64))?;
/// assert!((dx.item::<f64>()? - 2.0f64.sin().cos() * 2.0f64.cos()).abs() < 1e-15);
/// let plain = checkpoint(None, |x: &Tensor| x.sin().sin());
/// assert_eq!(grad(|x: &Tensor| plain(x))(&Tensor::from(2.0f64))?.item::<f64>()?, dx.item::<f64>()?);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the policy mentions a name that no value has in the region or in the rules of custom functions that it calls; the message suggests
/// the nearest name. If it combines a [budget](Policy::budget) with a policy that is neither [`Policy::must`] nor [`Policy::prefer`], or
/// if what it must keep exceeds the budget. The error is a failed tensor, or an `Err` if `f` returns
/// a `Result`.
///
/// # Panics
/// If `f` calls itself forever, returns a plain tree, and is not inside another transformation: then no value can carry the error.
#[doc(alias = "remat")]
#[track_caller]
pub fn checkpoint<A: Tree, R: Output>(policy: impl Into<Option<Policy>>, f: impl Fn(&A) -> R) -> impl Fn(&A) -> R {
    let policy = policy.into().map(Arc::new);
    let loc = current_loc();
    move |x| {
        let Some(policy) = &policy else { return f(x) };
        let Ok(avals) = avals(&structure(x).0) else { return untraced(&f, x, loc) };
        let trace = |order| {
            let _region = InRegion::enter(policy.clone(), order);
            trace_value(order, avals.clone(), &f, x, loc)
        };
        let (program, value) = trace(Order::current());
        value.map_tree(|tree| {
            let outs = program.and_then(|program| {
                let names = || Names::of(&program.jaxpr);
                let traced = |order| Ok(Names::of(&trace(order).0?.jaxpr));
                expect_names("checkpoint", policy, &names, "the region", &traced).map_err(|e| e.at(loc))?;
                apply(policy, &program, x, loc)
            });
            rebuild(tree, outs.inspect_err(|error| drop(fail(error.clone())))?)
        })
    }
}

/// Traces a function on arguments of these avals. Returns its program and its result, whose leaves belong to the ended trace.
pub(super) fn trace_value<A: Tree, R: Output>(
    order: Order,
    avals: Vec<Aval>,
    f: &impl Fn(&A) -> R,
    x: &A,
    loc: Loc,
) -> (Result<Program>, R) {
    let mut value = None;
    let program = trace_at(order, avals, loc, |args| {
        let out = f(&rebuild(x, args.to_vec())?);
        let leaves = out.as_result().map(|tree| structure(tree).0);
        value = Some(out);
        Ok((leaves?, ()))
    });
    let program = program.map(|(program, ())| program);
    match (value, program) {
        (Some(value), program) => {
            remember_first(&program, &value);
            (program, value)
        }
        (None, Err(error)) => (Err(error.clone()), failed(error)),
        (None, Ok(_)) => {
            let error = internal("a traced function was not called");
            (Err(error.clone()), failed(error))
        }
    }
}

/// Records the region's first error in the enclosing trace if the function returned a different one. The caller gets that one and may
/// handle it, but the first must not be lost.
fn remember_first<T, R: Output>(traced: &Result<T>, value: &R) {
    if let (Err(first), Err(own)) = (traced, value.as_result())
        && first.message() != own.message()
    {
        drop(fail(first.clone()));
    }
}

fn apply<A: Tree>(policy: &Arc<Policy>, program: &Program, x: &A, loc: Loc) -> Result<Vec<Tensor>> {
    let op = remat_ir::Checkpoint { jaxpr: program.jaxpr.clone(), differentiated: false, policy: policy.clone() };
    let leaves = structure(x).0;
    let operands: Vec<&Tensor> = program.captured.iter().chain(&leaves).collect();
    bind_at(op, &operands, loc)
}

/// Fails if the policy mentions a name that no value has, or a name both to save and to offload, or if it combines a budget with
/// a policy that has no strength.
///
/// `names` are those of the traced program. A custom function has no rule in it if no derivative is to be taken; then a missing name is
/// looked for in traces for more derivatives, which give the names of a rule, of a rule that it calls, and so on: `traced` has these.
pub(super) fn expect_names(
    operation: &str,
    policy: &Policy,
    names: &dyn Fn() -> Names,
    place: &str,
    traced: &dyn Fn(Order) -> Result<Names>,
) -> Result<()> {
    let error = |message: String| Err(Error::new(ErrorKind::Policy, operation, message));
    if let Some(name) = policy.contradictory_name() {
        return error(format!("the policy {policy} both saves and offloads `{name}`"));
    }
    budget_of(operation, policy)?;
    let mentioned = policy.mentioned_names();
    if mentioned.is_empty() {
        return Ok(());
    }
    let (mut names, mut order) = (names(), Order::current());
    while !mentioned.is_subset(&names.known) && names.may_be_more() {
        order = order.plus(1);
        names = traced(order)?;
    }
    let known = || names.known.iter().map(|name| &**name);
    let Some(mention) = mentioned.iter().find(|mention| !names.known.contains(*mention)) else { return Ok(()) };
    let hint = did_you_mean(mention, known(), || match names.known.is_empty() {
        false => format!("; the names are {}", known().collect::<Vec<_>>().join(", ")),
        true => format!("; no value in it has a name, which .named(\"{mention}\") gives"),
    });
    error(format!("the policy {policy} mentions the name `{mention}`, which no value in {place} has{hint}"))
}
