//! Products in the order in which they are read: one whose result is only transposed is the product of its operands in the
//! other order.
//!
//! The gradient of a weight is such a product, by the rule that transposes a product. As an output of the program it would be
//! copied, element by element, into the order of the weight.

use remat_ir::{DotGeneral, Eqn, Op, Prim, Shape};

use super::flat::Flat;

/// Exchanges the operands of each product whose result is only transposed, once or several times in a row, where this makes
/// the transpositions needless; and drops those that undo each other.
pub(super) fn turned_products(flat: &mut Flat) {
    let readers = flat.readers();
    let mut needless = vec![false; flat.eqns.len()];
    for at in 0..flat.eqns.len() {
        let Op::Prim(Prim::DotGeneral(op)) = &flat.eqns[at].op else { continue };
        let ranks = [0, 1].map(|side| flat.atom_aval(flat.eqns[at].ins[side]).shape.len());
        let product = flat.eqns[at].outs[0];
        let (mut out, mut order, mut transpositions) =
            (product, Shape::from_iter(0..flat.avals[product].shape.len()), Vec::new());
        while let [reader] = readers[out][..]
            && let Some(Eqn { op: Op::Prim(Prim::Transpose(transpose)), outs, .. }) = flat.eqns.get(reader)
        {
            order = transpose.permutation.iter().map(|&d| order[d]).collect();
            out = outs[0];
            transpositions.push(reader);
        }
        let is_turned = order[..] == order_when_turned(op, ranks)[..];
        if transpositions.is_empty() || !(is_turned || order.is_sorted()) {
            continue;
        }
        if is_turned && !order.is_sorted() {
            let op = other_order(op);
            flat.eqns[at].op = op.into();
            flat.eqns[at].ins.reverse();
        }
        flat.eqns[at].outs[0] = out;
        transpositions.into_iter().for_each(|reader| needless[reader] = true);
    }
    let mut needless = needless.into_iter();
    flat.eqns.retain(|_| needless.next() != Some(true));
}

/// The product of the operands in the other order.
fn other_order(op: &DotGeneral) -> DotGeneral {
    DotGeneral {
        lhs_contract: op.rhs_contract.clone(),
        rhs_contract: op.lhs_contract.clone(),
        lhs_batch: op.rhs_batch.clone(),
        rhs_batch: op.lhs_batch.clone(),
        preferred_element_type: op.preferred_element_type,
    }
}

/// Where the dimensions of the product in the other order are in the result of a product of operands of these ranks.
fn order_when_turned(op: &DotGeneral, ranks: [usize; 2]) -> Vec<usize> {
    let batch = op.lhs_batch.len();
    let left = ranks[0] - batch - op.lhs_contract.len();
    let right = ranks[1] - batch - op.rhs_contract.len();
    (0..batch).chain(batch + left..batch + left + right).chain(batch..batch + left).collect()
}
