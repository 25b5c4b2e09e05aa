//! Folds `transpose(dot(a, b))` into `dot(b, a)` where that removes the transposition.
//!
//! ```text
//! dot_transpose : { lambda ; a:f32[5,8] b:f32[8,6]. let c:f32[5,6] = dot_general a b; d:f32[6,5] = transpose c in (d,) }
//!               → { lambda ; a:f32[5,8] b:f32[8,6]. let c:f32[6,5] = dot_general b a in (c,) }
//! ```
//!
//! The rule that transposes a product writes the gradient of a weight in this form. As an output of the program it would be copied, element
//! by element, into the order of the weight.

use std::borrow::Cow;

use remat_ir::{DotGeneral, Eqn, Jaxpr, Op, Prim, Result, Shape};

use crate::uses::{drop_lost_labels, readers};

/// Exchanges the operands of each product whose result is only transposed, once or several times in a row, where this removes the
/// transpositions. Also drops transpositions that cancel.
pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let mut jaxpr = jaxpr.into_owned();
    let readers = readers(&jaxpr);
    let mut needless = vec![false; jaxpr.eqns.len()];
    for at in 0..jaxpr.eqns.len() {
        let Op::Prim(Prim::DotGeneral(op)) = &jaxpr.eqns[at].op else { continue };
        let ranks = [0, 1].map(|side| jaxpr.atom_aval(jaxpr.eqns[at].ins[side]).shape.len());
        let product = jaxpr.eqns[at].outs[0];
        let (mut out, mut order, mut transpositions) =
            (product, Shape::from_iter(0..jaxpr.avals[product].shape.len()), Vec::new());
        while let [reader] = readers[out][..]
            && let Some(Eqn { op: Op::Prim(Prim::Transpose(transpose)), outs, .. }) = jaxpr.eqns.get(reader)
        {
            order = transpose.permutation.iter().map(|&d| order[d]).collect();
            out = outs[0];
            transpositions.push(reader);
        }
        let is_exchanged = order[..] == exchanged_order(op, ranks)[..];
        if transpositions.is_empty() || !(is_exchanged || order.is_sorted()) {
            continue;
        }
        if is_exchanged && !order.is_sorted() {
            let op = exchanged(op);
            jaxpr.eqns[at].op = op.into();
            jaxpr.eqns[at].ins.reverse();
        }
        jaxpr.eqns[at].outs[0] = out;
        transpositions.into_iter().for_each(|reader| needless[reader] = true);
    }
    if needless.contains(&true) {
        let mut needless = needless.into_iter();
        jaxpr.eqns.retain(|_| needless.next() != Some(true));
        drop_lost_labels(&mut jaxpr);
    }
    Ok(Cow::Owned(jaxpr))
}

/// The product with exchanged operands.
fn exchanged(op: &DotGeneral) -> DotGeneral {
    DotGeneral {
        lhs_contract: op.rhs_contract.clone(),
        rhs_contract: op.lhs_contract.clone(),
        lhs_batch: op.rhs_batch.clone(),
        rhs_batch: op.lhs_batch.clone(),
        preferred_element_type: op.preferred_element_type,
    }
}

/// The permutation that turns the result of the original product into that of the exchanged one, given the ranks of the operands.
fn exchanged_order(op: &DotGeneral, ranks: [usize; 2]) -> Vec<usize> {
    let batch = op.lhs_batch.len();
    let left = ranks[0] - batch - op.lhs_contract.len();
    let right = ranks[1] - batch - op.rhs_contract.len();
    (0..batch).chain(batch + left..batch + left + right).chain(batch..batch + left).collect()
}
