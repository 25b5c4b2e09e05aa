//! Sums of negated values become negated sums.
//!
//! ```text
//! negated_sums : { lambda ; a:f32[8,6]. let b:f32[8,6] = neg a; c:f32[6] = reduce_sum[axes=(0,)] b in (c,) }
//!              → { lambda ; a:f32[8,6]. let b:f32[6] = reduce_sum[axes=(0,)] a; c:f32[6] = sub 0.0 b in (c,) }
//! ```
//!
//! The derivative of a difference by a broadcast operand has this form, and often the sum is along other axes than those of the loop that
//! computes the values: the negated ones would be a second array beside them. All roundings are symmetric. Zero is subtracted from, since a
//! sum of negated zeros is zero, as it begins with zero, and the negation of zero is not.

use std::borrow::Cow;

use remat_ir::{Atom, Binary, Eqn, Jaxpr, Literal, Op, Prim, ReduceKind, Result, Unary};

use crate::uses::{definitions, drop_lost_labels, is_kept_by, readers};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let (definitions, readers) = (definitions(&jaxpr), readers(&jaxpr));
    // The negation that each sum reads, if nothing else reads it.
    let negation = |at: usize| {
        let eqn = &jaxpr.eqns[at];
        let Op::Prim(Prim::Reduce(op)) = &eqn.op else { return None };
        let &[Atom::Var(negated)] = &eqn.ins[..] else { return None };
        let before = definitions[negated]?;
        let is_negation = op.kind == ReduceKind::Sum && jaxpr.eqns[before].op == Op::from(Unary::Neg);
        let is_kept = || jaxpr.eqns.iter().any(|eqn| is_kept_by(eqn, negated.into()));
        (is_negation && readers[negated][..] == [at] && !is_kept()).then_some(before)
    };
    let found: Vec<(usize, usize)> = (0..jaxpr.eqns.len()).filter_map(|at| Some((at, negation(at)?))).collect();
    if found.is_empty() {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    let mut after: Vec<Option<Eqn>> = vec![None; jaxpr.eqns.len()];
    let mut is_needless = vec![false; jaxpr.eqns.len()];
    for (at, before) in found {
        is_needless[before] = true;
        jaxpr.eqns[at].ins = jaxpr.eqns[before].ins.clone();
        let out = jaxpr.eqns[at].outs[0];
        let aval = jaxpr.avals[out].clone();
        let sum = jaxpr.avals.push(aval.clone());
        let outs = std::mem::replace(&mut jaxpr.eqns[at].outs, [sum].into_iter().collect());
        let ins = [Literal::from_i128(aval.dtype, 0).into(), sum.into()].into_iter().collect();
        after[at] = Some(Eqn { op: Binary::Sub.into(), ins, outs, loc: jaxpr.eqns[at].loc });
    }
    let eqns = std::mem::take(&mut jaxpr.eqns).into_iter().zip(is_needless).zip(after);
    jaxpr.eqns =
        eqns.flat_map(|((eqn, is_needless), after)| (!is_needless).then_some(eqn).into_iter().chain(after)).collect();
    drop_lost_labels(&mut jaxpr);
    Ok(Cow::Owned(jaxpr))
}
