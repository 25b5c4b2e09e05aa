//! Products that sum nothing become multiplications.
//!
//! ```text
//! outer_products : { lambda ; a:f32[8,5] b:f32[8,6]. let c:f32[8,5,6] = dot_general[batch ([0], [0])] a b in (c,) }
//!                → { lambda ; a:f32[8,5] b:f32[8,6]. let d = broadcast_in_dim a; e = broadcast_in_dim b; f = mul d e; c = add f 0.0 in (c,) }
//! ```
//!
//! The gradient of a weight for one example is such a product, and per-example gradients have one for each example. As a multiplication it
//! is a part of the loop that reads it, such as the squares of a norm, so that its result, which is larger than its operands, need not be
//! in memory.

use std::borrow::Cow;

use remat_ir::{
    Atom, Aval, Binary, BroadcastInDim, Builder, ConvertElementType, DType, DotGeneral, Jaxpr, Literal, Op, Prim,
    Reshape, Result, Shape, Transpose,
};

use crate::rewrite::rewrite;

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let is_any = jaxpr.eqns.iter().any(|eqn| match (&eqn.op, &eqn.ins[..]) {
        (Op::Prim(Prim::DotGeneral(op)), &[x, y]) => is_outer(op, &jaxpr.atom_aval(x), &jaxpr.atom_aval(y)),
        _ => false,
    });
    if !is_any {
        return Ok(jaxpr);
    }
    let program = rewrite(&jaxpr, |b, op, ins, avals, loc| match (&op, &ins[..]) {
        (Op::Prim(Prim::DotGeneral(op)), &[x, y]) if is_outer(op, &b.aval(x), &b.aval(y)) => {
            b.loc = loc;
            Ok(vec![multiplied(b, op, x, y, &avals[0].shape)?])
        }
        _ => Ok(b.push(op, &ins, avals, loc).into_iter().map(Atom::Var).collect()),
    })?;
    Ok(Cow::Owned(program))
}

/// Whether each element of a product is that of two numbers, and is computed in the wide dtype of the operands, or of integers in their own.
fn is_outer(op: &DotGeneral, x: &Aval, y: &Aval) -> bool {
    let out = op.preferred_element_type;
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::Bf16);
    let is_rounded_once = x.dtype == out && y.dtype == out && out != DType::Bool;
    let is_exact = out == DType::F32 && is_half(x.dtype) && is_half(y.dtype);
    op.lhs_contract.iter().all(|&axis| x.shape[axis] == 1) && (is_rounded_once || is_exact)
}

/// The product of each pair of elements, rounded last as a product is. Its sums begin with zero, so that one of negative zero is zero.
fn multiplied(b: &mut Builder, op: &DotGeneral, x: Atom, y: Atom, shape: &Shape) -> Result<Atom> {
    let dtype = op.preferred_element_type;
    let wide = if dtype.is_float() { dtype.wide() } else { dtype };
    let free_of_x = b.aval(x).rank() - op.lhs_batch.len() - op.lhs_contract.len();
    let x = spread(b, x, (&op.lhs_batch, &op.lhs_contract), op.lhs_batch.len(), shape, wide)?;
    let y = spread(b, y, (&op.rhs_batch, &op.rhs_contract), op.lhs_batch.len() + free_of_x, shape, wide)?;
    let mut product = b.emit1(Binary::Mul.into(), &[x, y])?;
    if dtype.is_float() {
        product = b.emit1(Binary::Add.into(), &[product, Literal::from_f64(wide, 0.0).into()])?;
    }
    if wide == dtype { Ok(product) } else { b.emit1(ConvertElementType { dtype }.into(), &[product]) }
}

/// An operand in the shape of the result, where its batch axes are the first and its free axes begin at `first`.
fn spread(
    b: &mut Builder,
    x: Atom,
    (batch, contract): (&Shape, &Shape),
    first: usize,
    shape: &Shape,
    dtype: DType,
) -> Result<Atom> {
    let aval = b.aval(x);
    let free: Vec<usize> = (0..aval.rank()).filter(|axis| !batch.contains(axis) && !contract.contains(axis)).collect();
    let permutation = batch.iter().chain(&free).chain(contract).copied().collect();
    let dims: Shape = (0..batch.len()).chain(first..first + free.len()).collect();
    let x = b.emit1(Transpose { permutation }.into(), &[x])?;
    // The contracted axes have one element.
    let x = b.emit1(Reshape { shape: dims.iter().map(|&axis| shape[axis]).collect() }.into(), &[x])?;
    let x = if aval.dtype == dtype { x } else { b.emit1(ConvertElementType { dtype }.into(), &[x])? };
    b.emit1(BroadcastInDim { shape: shape.clone(), dims }.into(), &[x])
}
