//! Slice and pad pushdown: moves slices and zero padding through matrix products.
//!
//! ```text
//! slice_pushdown : slice (dot a b)        → dot (slice a) (slice b)
//!                  dot (pad a 0.0) b      → pad (dot a b) 0.0,  or  dot a (slice b) along summed dimensions
//! ```
//!
//! A loss that leaves out one position slices the logits of all tokens, and its gradient pads theirs with zeros. Both arrays are among the
//! largest of the program. With slices and padding moved, only the small operands are copied, and the logits exist once.
//!
//! The sums of a product leave out a padding with zeros. An infinity or a NaN in the other operand that would meet only these zeros does
//! not reach the result.

use std::borrow::Cow;

use remat_ir::{Atom, Aval, DotGeneral, Eqn, Jaxpr, Literal, Op, Pad, Prim, Result, Shape, Slice, Var, VarMap};

use crate::uses::{drop_lost_labels, is_label, readers};

/// A product, and the ranks of its operands.
struct Sides<'a> {
    op: &'a DotGeneral,
    ranks: [usize; 2],
}

/// The role of an operand's axis in a product.
enum Role {
    /// A contracted axis: the matching axis of the other operand.
    Contracted(usize),
    /// A batch axis: the matching axes of the other operand and of the result.
    Batch(usize, usize),
    /// A free axis: the matching axis of the result.
    Free(usize),
}

impl Sides<'_> {
    fn batch(&self, side: usize) -> &Shape {
        if side == 0 { &self.op.lhs_batch } else { &self.op.rhs_batch }
    }

    fn contracted(&self, side: usize) -> &Shape {
        if side == 0 { &self.op.lhs_contract } else { &self.op.rhs_contract }
    }

    fn free(&self, side: usize) -> impl Iterator<Item = usize> {
        let (batch, contracted) = (self.batch(side), self.contracted(side));
        (0..self.ranks[side]).filter(|d| !batch.contains(d) && !contracted.contains(d))
    }

    fn role(&self, side: usize, dim: usize) -> Option<Role> {
        if let Some(i) = self.contracted(side).iter().position(|&d| d == dim) {
            return Some(Role::Contracted(self.contracted(1 - side)[i]));
        }
        if let Some(i) = self.batch(side).iter().position(|&d| d == dim) {
            return Some(Role::Batch(self.batch(1 - side)[i], i));
        }
        let before = self.op.lhs_batch.len() + if side == 0 { 0 } else { self.free(0).count() };
        self.free(side).position(|d| d == dim).map(|i| Role::Free(before + i))
    }
}

impl Sides<'_> {
    /// The axes of an operand and of a slice of the result along which the slice has only one of several rows (or columns). A product with
    /// one row may be summed in another order than one with several. So two rows are computed, and the slice has the same bits whether it
    /// is moved or not.
    fn axis_of_single_row(&self, side: usize, operand: &Aval, sliced: &Aval) -> Option<(usize, usize)> {
        let axes: Vec<(usize, usize)> = self
            .free(side)
            .filter_map(|dim| match self.role(side, dim)? {
                Role::Free(d) => Some((dim, d)),
                Role::Contracted(_) | Role::Batch(..) => None,
            })
            .collect();
        let is_one = axes.iter().all(|&(_, d)| sliced.shape[d] == 1);
        axes.into_iter().find(|&(dim, _)| is_one && operand.shape[dim] > 1)
    }
}

/// The slice that covers the whole operand.
fn whole(aval: &Aval) -> Slice {
    let rank = aval.shape.len();
    Slice { start: Shape::from_elem(0, rank), limit: aval.shape.clone(), strides: Shape::from_elem(1, rank) }
}

/// Moves slices before products, and zero padding after them.
pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    if !jaxpr.eqns.iter().any(|eqn| matches!(eqn.op, Op::Prim(Prim::DotGeneral(_)))) {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    let (slices, zeros) = (slices(&mut jaxpr), zeros(&mut jaxpr));
    if slices || zeros {
        drop_lost_labels(&mut jaxpr);
    }
    Ok(Cow::Owned(jaxpr))
}

/// Replaces a slice of a product that has no other readers by a product of slices. Returns whether anything changed.
fn slices(jaxpr: &mut Jaxpr) -> bool {
    let readers = readers(jaxpr);
    let mut sliced: Vec<Option<(Slice, Var)>> = vec![None; jaxpr.eqns.len()];
    let mut definition = VarMap::filled(jaxpr.avals.len(), None);
    let mut moved = vec![false; jaxpr.eqns.len()];
    for (at, eqn) in jaxpr.eqns.iter().enumerate() {
        if let (Op::Prim(Prim::Slice(op)), Some(Atom::Var(var))) = (&eqn.op, eqn.ins.first())
            && let Some(product) = definition[*var]
            && readers[*var].len() == 1
        {
            sliced[product] = Some((Slice::clone(op), eqn.outs[0]));
            moved[at] = true;
        }
        if let Op::Prim(Prim::DotGeneral(_)) = eqn.op {
            definition[eqn.outs[0]] = Some(at);
        }
    }
    if !moved.contains(&true) {
        return false;
    }
    for (at, eqn) in std::mem::take(&mut jaxpr.eqns).into_iter().enumerate() {
        match (&eqn.op, &sliced[at]) {
            (Op::Prim(Prim::DotGeneral(op)), Some((part, out))) => {
                let avals = [0, 1].map(|side| jaxpr.atom_aval(eqn.ins[side]));
                let sides = Sides { op, ranks: [avals[0].shape.len(), avals[1].shape.len()] };
                let mut ins = eqn.ins.clone();
                // The slice of the new product, where that has more rows or columns than needed.
                let mut rest = whole(&jaxpr.avals[*out]);
                let mut result = jaxpr.avals[*out].clone();
                for (side, aval) in avals.iter().enumerate() {
                    let mut operand = whole(aval);
                    for dim in 0..sides.ranks[side] {
                        if let Some(Role::Free(d) | Role::Batch(_, d)) = sides.role(side, dim) {
                            operand.start[dim] = part.start[d];
                            operand.limit[dim] = part.limit[d];
                            operand.strides[dim] = part.strides[d];
                        }
                    }
                    if let Some((dim, d)) = sides.axis_of_single_row(side, aval, &result) {
                        let first = operand.start[dim].min(aval.shape[dim] - 2);
                        rest.start[d] = operand.start[dim] - first;
                        rest.limit[d] = rest.start[d] + 1;
                        (operand.start[dim], operand.limit[dim], operand.strides[dim]) = (first, first + 2, 1);
                        result.shape[d] = 2;
                    }
                    ins[side] = slice(jaxpr, operand, eqn.ins[side], &eqn);
                }
                if result == jaxpr.avals[*out] {
                    jaxpr.eqns.push(Eqn { ins, outs: [*out].into_iter().collect(), ..eqn });
                    continue;
                }
                let product = jaxpr.avals.push(result);
                let op = Op::from(rest);
                jaxpr.eqns.push(Eqn { ins, outs: [product].into_iter().collect(), ..eqn.clone() });
                let ins = [Atom::Var(product)].into_iter().collect();
                jaxpr.eqns.push(Eqn { op, ins, outs: [*out].into_iter().collect(), loc: eqn.loc });
            }
            _ if moved[at] => {}
            _ => jaxpr.eqns.push(eqn),
        }
    }
    true
}

/// Removes zero padding from an operand that only products read. A product skips the padding of one operand. Returns whether anything
/// changed.
fn zeros(jaxpr: &mut Jaxpr) -> bool {
    if !jaxpr.eqns.iter().any(|eqn| matches!(eqn.op, Op::Prim(Prim::Pad(_)))) {
        return false;
    }
    let mut changed = false;
    let readers = readers(jaxpr);
    let eqns = std::mem::take(&mut jaxpr.eqns);
    let mut left_out: VarMap<Option<(Pad, Var)>> = VarMap::filled(jaxpr.avals.len(), None);
    let mut is_taken = vec![false; eqns.len()];
    for eqn in &eqns {
        let padded = eqn.ins.iter().filter_map(|a| a.var()).find_map(|v| Some((v, left_out[v].clone()?)));
        let first = jaxpr.eqns.len();
        match padded {
            // The label of the dropped value.
            Some(_) if is_label(eqn) => continue,
            Some((padded, (pad, inner))) => without_zeros(jaxpr, eqn, &pad, padded, inner),
            None => jaxpr.eqns.push(eqn.clone()),
        }
        // The padding of this result may be removed from the products that read it in turn.
        let Some(Eqn { op: Op::Prim(Prim::Pad(pad)), ins, outs, .. }) = jaxpr.eqns[first..].last() else { continue };
        let (&[Atom::Var(inner), Atom::Lit(value)], out) = (&ins[..], outs[0]) else { continue };
        let size = jaxpr.avals[out].bytes();
        let takes = |&reader: &usize| {
            eqns.get(reader).is_some_and(|eqn| {
                let is_one = eqn.ins.iter().filter(|a| a.var() == Some(out)).count() == 1;
                let is_smaller = jaxpr.avals[eqn.outs[0]].bytes() < size;
                matches!(eqn.op, Op::Prim(Prim::DotGeneral(_))) && is_one && is_smaller && !is_taken[reader]
            })
        };
        let is_plain = value.is_zero() && pad.config.iter().all(|&(low, high, _)| low >= 0 && high >= 0);
        if is_plain && !readers[out].is_empty() && readers[out].iter().all(takes) {
            readers[out].iter().for_each(|&reader| is_taken[reader] = true);
            left_out[out] = Some((pad.clone(), inner));
            jaxpr.eqns.pop();
            changed = true;
        }
    }
    changed
}

/// Adds the equations of the product with `inner` in place of `padded`.
fn without_zeros(jaxpr: &mut Jaxpr, eqn: &Eqn, pad: &Pad, padded: Var, inner: Var) {
    let Op::Prim(Prim::DotGeneral(op)) = &eqn.op else { return };
    let side = usize::from(eqn.ins[0].var() != Some(padded));
    let avals = [0, 1].map(|side| jaxpr.atom_aval(eqn.ins[side]));
    let sides = Sides { op, ranks: [avals[0].shape.len(), avals[1].shape.len()] };
    let (mut other, out) = (whole(&avals[1 - side]), jaxpr.avals[eqn.outs[0]].clone());
    let mut config = vec![(0, 0, 0); out.shape.len()];
    let mut result = out.clone();
    for (dim, &(low, high, interior)) in pad.config.iter().enumerate() {
        let role = sides.role(side, dim);
        if let Some(Role::Contracted(d) | Role::Batch(d, _)) = role {
            other.start[d] = low as usize;
            other.limit[d] = (avals[side].shape[dim] - high as usize).max(low as usize);
            other.strides[d] = interior + 1;
        }
        if let Some(Role::Free(d) | Role::Batch(_, d)) = role {
            config[d] = (low, high, interior);
            result.shape[d] = jaxpr.avals[inner].shape[dim];
        }
    }
    let mut ins = eqn.ins.clone();
    ins[side] = Atom::Var(inner);
    ins[1 - side] = slice(jaxpr, other, eqn.ins[1 - side], eqn);
    if config.iter().all(|&dim| dim == (0, 0, 0)) {
        jaxpr.eqns.push(Eqn { ins, ..eqn.clone() });
        return;
    }
    let product = jaxpr.avals.push(result);
    jaxpr.eqns.push(Eqn { ins, outs: [product].into_iter().collect(), ..eqn.clone() });
    let zero = Atom::Lit(Literal::from_f64(out.dtype, 0.0));
    let ins = [Atom::Var(product), zero].into_iter().collect();
    jaxpr.eqns.push(Eqn { op: Pad { config }.into(), ins, ..eqn.clone() });
}

/// The slice of an operand, for an equation.
fn slice(jaxpr: &mut Jaxpr, part: Slice, operand: Atom, eqn: &Eqn) -> Atom {
    let aval = jaxpr.atom_aval(operand);
    if part == whole(&aval) {
        return operand;
    }
    let sizes = part.start.iter().zip(&part.limit).zip(&part.strides);
    let shape: Shape = sizes.map(|((start, limit), stride)| (limit - start).div_ceil(*stride)).collect();
    let out = jaxpr.avals.push(Aval { shape, ..aval });
    let ins = [operand].into_iter().collect();
    jaxpr.eqns.push(Eqn { op: part.into(), ins, outs: [out].into_iter().collect(), loc: eqn.loc });
    Atom::Var(out)
}
