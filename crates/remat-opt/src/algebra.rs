//! Algebra: drops equations that return an operand, bit for bit, and turns dynamic slices at known positions into plain slices, which
//! engines read in place.
//!
//! ```text
//! algebra : { lambda ; a. let b = mul a 1.0; c = sin b in (c,) } → { lambda ; a. let b = sin a in (b,) }
//! ```
//!
//! Identities must hold for every number, including NaN, infinities and zeros of both signs: `x + 0` is not `x`, since `-0 + 0` is `0`, and
//! `x * 0` is not zero. Rules of derivatives write such equations, and so do users: products with a cotangent of one, selections between
//! equal branches, conversions to a dtype and back.

use std::borrow::Cow;

use remat_ir::{Atom, Binary, Compare, DType, Eqn, Jaxpr, Literal, Op, Prim, Result, Shape, Slice, Unary, VarMap};

use crate::uses::{is_kept_by, labelled};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let mut jaxpr = jaxpr.into_owned();
    let mut replaced: VarMap<Option<Atom>> = jaxpr.var_map(None);
    // The equation that computes each variable, among those that are kept.
    let mut definitions: VarMap<Option<usize>> = jaxpr.var_map(None);
    let mut has_label = jaxpr.var_map(false);
    for eqn in &jaxpr.eqns {
        labelled(eqn).into_iter().for_each(|v| has_label[v] = true);
    }
    let replace = |replaced: &VarMap<Option<Atom>>, atom: &mut Atom| {
        if let Some(other) = atom.var().and_then(|var| replaced[var]) {
            *atom = other;
        }
    };
    for mut eqn in std::mem::take(&mut jaxpr.eqns) {
        if let Some(old) = labelled(&eqn)
            && let Some(new) = replaced[old]
        {
            // The label moves to the operand that replaces the value, unless that has one.
            if let Atom::Var(var) = new
                && (!has_label[var] || is_kept_by(&eqn, eqn.ins[0]))
            {
                has_label[var] = true;
                eqn.ins[0] = new;
                jaxpr.eqns.push(eqn);
            }
            continue;
        }
        eqn.ins.iter_mut().for_each(|atom| replace(&replaced, atom));
        let definition = |atom: Atom| jaxpr.eqns.get(definitions[atom.var()?]?);
        if let Some(same) = operand(&eqn, |atom| jaxpr.atom_aval(atom).dtype, definition)
            && let [out] = eqn.outs[..]
            && (jaxpr.atom_aval(same).shape == jaxpr.avals[out].shape)
        {
            replaced[out] = Some(same);
            continue;
        }
        if let Some(slice) = known_slice(&eqn, |atom| jaxpr.atom_aval(atom).shape.clone()) {
            eqn.op = Op::from(slice);
            eqn.ins.truncate(1);
        }
        for &out in &eqn.outs {
            definitions[out] = Some(jaxpr.eqns.len());
        }
        jaxpr.eqns.push(eqn);
    }
    jaxpr.outs.iter_mut().for_each(|atom| replace(&replaced, atom));
    Ok(Cow::Owned(jaxpr))
}

/// The atom whose elements equal the result of an equation, if there is one. Its shape may differ, since a scalar represents all elements.
fn operand<'a>(eqn: &Eqn, dtype: impl Fn(Atom) -> DType, definition: impl Fn(Atom) -> Option<&'a Eqn>) -> Option<Atom> {
    // The number that all elements of an operand have.
    let number = |atom: Atom| match (atom, definition(atom)) {
        (Atom::Lit(literal), _) => Some(literal),
        (_, Some(Eqn { op: Op::Prim(Prim::BroadcastInDim(_)), ins, .. })) => ins.first()?.literal(),
        _ => None,
    };
    let is = |atom: Atom, test: fn(Literal) -> bool| number(atom).is_some_and(test);
    match (&eqn.op, &eqn.ins[..]) {
        (Op::Prim(Prim::Unary(op @ (Unary::Neg | Unary::Not))), &[x]) => {
            let before = definition(x)?;
            (before.op == Op::Prim(Prim::Unary(*op))).then(|| before.ins[0])
        }
        (Op::Prim(Prim::IntegerPow(op)), &[x]) => (op.y == 1).then_some(x),
        (Op::Prim(Prim::Binary(Binary::Mul)), &[x, one]) if is(one, Literal::is_one) => Some(x),
        (Op::Prim(Prim::Binary(Binary::Mul)), &[one, x]) if is(one, Literal::is_one) => Some(x),
        (Op::Prim(Prim::Binary(Binary::Div | Binary::Pow)), &[x, one]) if is(one, Literal::is_one) => Some(x),
        (Op::Prim(Prim::Binary(Binary::Sub)), &[x, zero]) if is(zero, |zero| zero.bits() == 0) => Some(x),
        (Op::Prim(Prim::Binary(Binary::Add | Binary::AddAny)), &[x, zero]) if is(zero, adds_nothing) => Some(x),
        (Op::Prim(Prim::Binary(Binary::Add | Binary::AddAny)), &[zero, x]) if is(zero, adds_nothing) => Some(x),
        (Op::Prim(Prim::Binary(Binary::And)), &[x, yes]) if is(yes, is_true) => Some(x),
        (Op::Prim(Prim::Binary(Binary::And)), &[yes, x]) if is(yes, is_true) => Some(x),
        (Op::Prim(Prim::Binary(Binary::Max | Binary::Min | Binary::And | Binary::Or)), &[x, y]) => {
            (x == y).then_some(x)
        }
        // JAX asks a bool whether it is other than false, as it asks numbers.
        (Op::Prim(Prim::Compare(Compare::Ne)), &[x, no]) if is(no, is_false) => Some(x),
        (Op::Prim(Prim::Compare(Compare::Eq)), &[x, yes]) if is(yes, is_true) => Some(x),
        // A slice of the operand's own shape is clamped to start at 0.
        (Op::Prim(Prim::DynamicSlice(_)), [x, ..]) => Some(*x),
        (Op::Prim(Prim::SelectN(_)), [_, x, rest @ ..]) => rest.iter().all(|y| y == x).then_some(*x),
        (Op::Prim(Prim::ConvertElementType(op)), &[x]) => {
            if dtype(x) == op.dtype {
                return Some(x);
            }
            let before = definition(x).filter(|before| matches!(before.op, Op::Prim(Prim::ConvertElementType(_))))?;
            let first = before.ins[0];
            (dtype(first) == op.dtype && has_all_of(dtype(x), op.dtype)).then_some(first)
        }
        _ => None,
    }
}

/// The plain slice that equals a dynamic slice at literal positions, clamped in the same way.
fn known_slice(eqn: &Eqn, shape: impl Fn(Atom) -> Shape) -> Option<Slice> {
    let (Op::Prim(Prim::DynamicSlice(op)), [x, starts @ ..]) = (&eqn.op, &eqn.ins[..]) else { return None };
    let mut start = Shape::new();
    for ((size, whole), at) in op.sizes.iter().zip(&shape(*x)).zip(starts) {
        let most = whole.checked_sub(*size)?;
        let at = at.literal()?.as_i128()?.max(0);
        start.push(usize::try_from(at).map_or(most, |at| at.min(most)));
    }
    let limit = start.iter().zip(&op.sizes).map(|(at, size)| at + size).collect();
    Some(Slice { strides: start.iter().map(|_| 1).collect(), start, limit })
}

/// Whether this literal is `false`, not a zero.
fn is_false(literal: Literal) -> bool {
    literal.dtype() == DType::Bool && literal.is_zero()
}

/// Whether this literal is `true`, which leaves a conjunction unchanged, not a one.
fn is_true(literal: Literal) -> bool {
    literal.dtype() == DType::Bool && literal.is_one()
}

/// Whether adding this literal leaves every number unchanged: negative zero, and the zero of integers.
fn adds_nothing(zero: Literal) -> bool {
    zero.is_zero() && (zero.as_f64().is_sign_negative() || zero.dtype().is_integer())
}

/// Whether `wide` represents every float of `narrow`.
fn has_all_of(wide: DType, narrow: DType) -> bool {
    match (wide.float_format(), narrow.float_format()) {
        (Some((exponent, mantissa)), Some((e, m))) => exponent >= e && mantissa >= m,
        _ => false,
    }
}
