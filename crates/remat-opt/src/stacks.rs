//! Stacks: the joined outputs of unrolled loops need no second copy of their parts.
//!
//! ```text
//! stacks : c = concatenate a b; d = slice c (within b) → d = slice b
//!          c = concatenate a b in (c,)                 → c = dynamic_update_slice (dynamic_update_slice 0 a) b in (c,)
//! ```
//!
//! An unrolled scan joins the outputs of its iterations, and the backward pass takes the same parts out of them again: after this pass it
//! reads the parts themselves. A stack that the program returns, the gradients of stacked weights, is written part by part where the parts
//! are computed far apart: its memory exists from the beginning, and otherwise all parts would be live beside it when they are joined.

use std::borrow::Cow;
use std::collections::HashMap;

use remat_ir::{Atom, BroadcastInDim, Concatenate, Eqn, Jaxpr, Literal, Op, Prim, Result, Shape, Slice, Var};

use crate::cost::FAR_STEPS;
use crate::rewrite::{push, push_update};
use crate::uses::{OUTPUT, definitions, readers};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    if !jaxpr.eqns.iter().any(|eqn| matches!(eqn.op, Op::Prim(Prim::Concatenate(_)))) {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    slices(&mut jaxpr);
    outputs(&mut jaxpr);
    Ok(Cow::Owned(jaxpr))
}

/// The operands of a concatenation with the positions at which they begin, and its axis.
fn parts(jaxpr: &Jaxpr, eqn: &Eqn, op: &Concatenate) -> Vec<(usize, Atom)> {
    let mut start = 0;
    let place = |&part: &Atom| {
        start += jaxpr.atom_aval(part).shape[op.axis];
        (start - jaxpr.atom_aval(part).shape[op.axis], part)
    };
    eqn.ins.iter().map(place).collect()
}

/// Lets slices of a concatenation read its operands, if each lies within one and nothing else reads the concatenation.
fn slices(jaxpr: &mut Jaxpr) {
    let readers = readers(jaxpr);
    let mut changed: HashMap<usize, (Slice, Atom)> = HashMap::new();
    for eqn in &jaxpr.eqns {
        let Op::Prim(Prim::Concatenate(op)) = &eqn.op else { continue };
        let parts = parts(jaxpr, eqn, op);
        let of_part = |&reader: &usize| {
            let Op::Prim(Prim::Slice(slice)) = &jaxpr.eqns.get(reader)?.op else { return None };
            let at = parts.partition_point(|&(start, _)| start <= slice.start[op.axis]).checked_sub(1)?;
            let (start, part) = parts[at];
            let mut slice = Slice::clone(slice);
            slice.start[op.axis] -= start;
            slice.limit[op.axis] = slice.limit[op.axis].checked_sub(start)?;
            (slice.limit[op.axis] <= jaxpr.atom_aval(part).shape[op.axis]).then_some((reader, (slice, part)))
        };
        let of_parts: Option<Vec<_>> = readers[eqn.outs[0]].iter().map(of_part).collect();
        changed.extend(of_parts.into_iter().flatten());
    }
    for (at, (slice, part)) in changed {
        let eqn = &mut jaxpr.eqns[at];
        (eqn.op, eqn.ins[0]) = (slice.into(), part);
    }
}

/// A returned concatenation that is written part by part.
struct Stack {
    /// Its equation.
    at: usize,
    axis: usize,
    /// The parts that are not written yet.
    left: usize,
    /// What is written so far.
    written: Atom,
}

/// A part of a stack, and the position at which it begins.
struct Part {
    stack: usize,
    start: usize,
    var: Var,
}

/// Writes returned concatenations part by part, each part after the equation that computes it, where these are far apart.
fn outputs(jaxpr: &mut Jaxpr) {
    let (readers, definitions) = (readers(jaxpr), definitions(jaxpr));
    let mut stacks: Vec<Stack> = Vec::new();
    let mut parts_at: HashMap<usize, Vec<Part>> = HashMap::new();
    for (at, eqn) in jaxpr.eqns.iter().enumerate() {
        let Op::Prim(Prim::Concatenate(op)) = &eqn.op else { continue };
        if readers[eqn.outs[0]][..] != [OUTPUT] {
            continue;
        }
        let part = |(start, atom): (usize, Atom)| {
            let var = atom.var().filter(|&var| readers[var].len() == 1)?;
            Some((definitions[var]?, Part { stack: stacks.len(), start, var }))
        };
        let Some(parts) = parts(jaxpr, eqn, op).into_iter().map(part).collect::<Option<Vec<_>>>() else { continue };
        let places = || parts.iter().map(|(place, _)| *place);
        if places().max() > places().min().map(|first| first + FAR_STEPS) {
            let nothing = Literal::from_bits(jaxpr.avals[eqn.outs[0]].dtype, 0).into();
            stacks.push(Stack { at, axis: op.axis, left: parts.len(), written: nothing });
            parts.into_iter().for_each(|(place, part)| parts_at.entry(place).or_default().push(part));
        }
    }
    if stacks.is_empty() {
        return;
    }
    let eqns = std::mem::take(&mut jaxpr.eqns);
    for (at, eqn) in eqns.iter().enumerate() {
        if !stacks.iter().any(|stack| stack.at == at) {
            jaxpr.eqns.push(eqn.clone());
        }
        for part in parts_at.remove(&at).into_iter().flatten() {
            let stack = &mut stacks[part.stack];
            write(jaxpr, &eqns[stack.at], stack, &part);
        }
    }
}

/// Adds the equation that writes a part, for that of the concatenation.
fn write(jaxpr: &mut Jaxpr, eqn: &Eqn, stack: &mut Stack, part: &Part) {
    let aval = jaxpr.avals[eqn.outs[0]].clone();
    if let Atom::Lit(_) = stack.written {
        let op = BroadcastInDim { shape: aval.shape.clone(), dims: Shape::new() };
        stack.written = push(jaxpr, eqn, op.into(), &[stack.written], &aval);
    }
    let mut start = Shape::from_elem(0, aval.rank());
    start[stack.axis] = part.start;
    stack.written = push_update(jaxpr, eqn, stack.written, part.var.into(), &start);
    stack.left -= 1;
    if stack.left == 0
        && let Some(last) = jaxpr.eqns.last_mut()
    {
        last.outs = eqn.outs.clone();
    }
}
