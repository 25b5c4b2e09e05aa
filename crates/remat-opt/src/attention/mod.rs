//! Attention that is written out becomes the operation.
//!
//! ```text
//! attention : s = dot_general q k; m = reduce_max s; e = exp (s - m); n = reduce_sum e; o = dot_general (e / n) v
//!           → o _ = dot_product_attention q k v
//! ```
//!
//! This is for programs of others, such as those of JAX, whose frameworks write attention out; its scores are the largest arrays of a model.
//! The match is exact in what is computed: every equation from the product of queries and keys to the product with the values is
//! recognised, in any layout, and nothing else reads what they compute. So a derivative that keeps weights is left as it is, and so is a
//! program with a barrier, which JAX writes around a region: all policies give the same bits, and under some the weights are kept.
//!
//! Roundings are others, as those of a sum in another order. The operation gives zeros for a query without keys. What is written out gives
//! the mean of all values there if hidden scores are a finite number, and NaN if they are negative infinity; both are selected afterwards.
//! Results differ all the same where numbers are not finite or as large as the fill: where infinite queries or keys make all scores of a query
//! negative infinity, the result is zero and not NaN, or not the mean of hidden values; where a bias is about as large as the fill, written-out
//! weights spread over keys that the mask hides; and a hidden value that is not finite does not spread, where zero times infinity is NaN.

mod mask;
mod matching;
mod product;
mod values;
mod written;

use std::borrow::Cow;
use std::sync::Arc;

use remat_ir::{Call, Jaxpr, Jit, Op, Prim, Result, Unary};

use self::values::Program;
use crate::{algebra, dce, inline};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let has_softmax =
        any(&jaxpr, |op| *op == Op::from(Unary::Exp)) && any(&jaxpr, |op| matches!(op, Op::Prim(Prim::DotGeneral(_))));
    if !has_softmax || any(&jaxpr, |op| matches!(op, Op::Prim(Prim::OptimizationBarrier(_)))) {
        return Ok(jaxpr);
    }
    let recognised = recognised(&jaxpr)?;
    Ok(recognised.map_or(jaxpr, Cow::Owned))
}

/// Whether there is such an operation, also in bodies.
fn any(jaxpr: &Jaxpr, is: fn(&Op) -> bool) -> bool {
    jaxpr.eqns.iter().any(|eqn| is(&eqn.op) || eqn.op.bodies().into_iter().any(|body| any(body, is)))
}

/// The program with each attention as one operation, if there is one; then it has no calls.
fn recognised(jaxpr: &Jaxpr) -> Result<Option<Jaxpr>> {
    // Masks and selections are calls, and masks are joined with constants.
    let flat = algebra::pass(inline::pass(Cow::Borrowed(jaxpr))?)?;
    let program = Program::new(&flat);
    let mut eqns = flat.eqns.clone();
    let mut is_changed = false;
    for (at, eqn) in eqns.iter_mut().enumerate() {
        for body in eqn.op.bodies_mut() {
            if let Some(other) = recognised(body)? {
                *body = Arc::new(other);
                is_changed = true;
            }
        }
        if let Some(attention) = matching::attention(&program, at) {
            let (jaxpr, ins) = written::written(&program, &attention, &flat.avals[eqn.outs[0]].shape)?;
            eqn.op = Op::Call(Call::Jit(Jit { name: "attention".into(), jaxpr: Arc::new(jaxpr) }));
            eqn.ins = ins.into();
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(None);
    }
    let flat = Jaxpr { eqns, ..flat.into_owned() };
    Ok(Some(dce::drop_unused(inline::pass(Cow::Owned(flat))?)?.into_owned()))
}
