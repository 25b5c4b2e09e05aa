//! Functions with a derivative of their own.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Builder, CustomJvp, CustomLin, CustomVjp, Error, ErrorKind, Jaxpr, Op, Result};

use super::super::{internal, vmap as vmap_jaxpr};
use super::{batched_mask, batched_outs, front, push, spread};
use crate::rules::{Batched, Emit, Linear, Operand};

/// Which avals can have a tangent.
fn floats(avals: &[Aval]) -> Vec<bool> {
    avals.iter().map(|a| a.dtype.is_float()).collect()
}

pub(super) fn no_forward_mode(op: &CustomLin) -> Error {
    let message = format!(
        "forward-mode differentiation of `{}` is not defined: it has a reverse rule only (custom_vjp); give it a \
         custom_jvp instead",
        op.name
    );
    Error::new(ErrorKind::Differentiation, "custom_vjp", message)
}

pub(super) fn not_linear(op: &Op) -> Error {
    Error::new(ErrorKind::Differentiation, op.name(), crate::rules::NOT_LINEAR)
}

/// The tangents of the floats of the argument, zeros where there is none.
///
/// # Errors
/// If a captured constant has a tangent: the rule says nothing of it, and to drop it would give a wrong gradient.
fn instantiate_floats(
    b: &mut Builder,
    name: &str,
    num_consts: usize,
    ins: &[Atom],
    tangents: &[Option<Atom>],
) -> Result<Vec<Atom>> {
    if let Some(i) = tangents[..num_consts].iter().position(Option::is_some) {
        let message = format!(
            "`{name}` captures a tensor ({}) that is differentiated, and its rule gives no derivative for it; pass it as a part \
             of the argument, or capture it through .stop_gradient()",
            b.aval(ins[i])
        );
        return Err(Error::new(ErrorKind::Differentiation, "custom_jvp", message));
    }
    let mut all = Vec::new();
    for (&atom, &tangent) in ins.iter().zip(tangents).skip(num_consts) {
        let aval = b.aval(atom);
        if aval.dtype.is_float() {
            all.push(b.instantiate(tangent, &aval)?);
        }
    }
    Ok(all)
}

pub(super) fn jvp_of_custom_jvp(
    b: &mut Builder,
    op: &CustomJvp,
    ins: &[Atom],
    tangents: &[Option<Atom>],
) -> Result<(Vec<Atom>, Linear)> {
    let operands = [ins, &instantiate_floats(b, &op.name, op.num_consts, ins, tangents)?].concat();
    let mut outs = b.inline(&op.jvp, &operands)?;
    let out_tangents = outs.split_off(op.call.outs.len());
    Ok((outs, spread(&floats(&op.call.out_avals()), out_tangents)))
}

pub(super) fn jvp_of_custom_vjp(
    b: &mut Builder,
    op: &CustomVjp,
    ins: &[Atom],
    tangents: &[Option<Atom>],
) -> Result<(Vec<Atom>, Linear)> {
    let mut outs = b.inline(&op.fwd, ins)?;
    let residuals = outs.split_off(op.call.outs.len());
    let operands = [residuals.clone(), instantiate_floats(b, &op.name, op.num_consts, ins, tangents)?].concat();
    let out_avals = op.call.out_avals();
    let mask = floats(&out_avals);
    let tangent_avals = out_avals.into_iter().zip(&mask).filter(|(_, f)| **f).map(|(a, _)| a);
    let linear = CustomLin { name: op.name.clone(), bwd: op.bwd.clone(), num_residuals: residuals.len() };
    let loc = b.loc;
    let out_tangents = b.push(linear.into(), &operands, tangent_avals, loc);
    Ok((outs, spread(&mask, out_tangents.into_iter().map(Atom::Var))))
}

pub(super) fn transpose(
    b: &mut Builder,
    op: &CustomLin,
    cotangents: &[Option<Atom>],
    out_avals: &[Aval],
    ins: &[Operand],
) -> Result<Linear> {
    let mut operands = Vec::new();
    for residual in &ins[..op.num_residuals] {
        match residual {
            Operand::Known(atom) => operands.push(*atom),
            Operand::Linear(_) => return Err(not_linear(&op.clone().into())),
        }
    }
    for (&ct, aval) in cotangents.iter().zip(out_avals) {
        operands.push(b.instantiate(ct, aval)?);
    }
    let cts = b.inline(&op.bwd, &operands)?;
    let linear: Vec<bool> = ins.iter().map(Operand::is_linear).collect();
    let mut all = vec![None; op.num_residuals];
    all.extend(cts.into_iter().zip(&linear[op.num_residuals..]).map(|(ct, &linear)| linear.then_some(ct)));
    Ok(all)
}

pub(super) fn vmap_custom_jvp(b: &mut Builder, op: &CustomJvp, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
    let batched = batched_mask(ins);
    let tangents: Vec<bool> = batched
        .iter()
        .zip(floats(&op.call.in_avals()))
        .skip(op.num_consts)
        .filter(|(_, f)| *f)
        .map(|(&m, _)| m)
        .collect();
    let all = |jaxpr: &Jaxpr| vec![true; jaxpr.outs.len()];
    let call = vmap_jaxpr(&op.call, size, &batched, &all(&op.call))?.jaxpr;
    let jvp = vmap_jaxpr(&op.jvp, size, &[batched.clone(), tangents].concat(), &all(&op.jvp))?.jaxpr;
    let operands = super::fronted(b, size, ins)?;
    let vmapped = CustomJvp { call: Arc::new(call.clone()), jvp: Arc::new(jvp), ..op.clone() };
    let outs = push(b, vmapped.into(), &operands, &call);
    let mask = vec![true; outs.len()];
    Ok(batched_outs(outs, &mask))
}

/// A program with every input and output batched.
fn fully_batched(jaxpr: &Jaxpr, size: usize) -> Result<Arc<Jaxpr>> {
    Ok(Arc::new(vmap_jaxpr(jaxpr, size, &vec![true; jaxpr.ins.len()], &vec![true; jaxpr.outs.len()])?.jaxpr))
}

/// Every operand is batched first: the sum over the examples of the cotangent of a shared one is the transpose of its
/// broadcast.
pub(super) fn vmap_custom_vjp(b: &mut Builder, op: &CustomVjp, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
    let operands = ins.iter().map(|&x| front(b, size, x)).collect::<Result<Vec<_>>>()?;
    let vmapped = CustomVjp {
        call: fully_batched(&op.call, size)?,
        fwd: fully_batched(&op.fwd, size)?,
        bwd: fully_batched(&op.bwd, size)?,
        ..op.clone()
    };
    let call = vmapped.call.clone();
    let outs = push(b, vmapped.into(), &operands, &call);
    Ok(outs.into_iter().map(Batched::front).collect())
}

pub(super) fn vmap_custom_lin(b: &mut Builder, op: &CustomLin, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
    let operands = ins.iter().map(|&x| front(b, size, x)).collect::<Result<Vec<_>>>()?;
    let bwd = fully_batched(&op.bwd, size)?;
    let avals = bwd.in_avals().split_off(op.num_residuals);
    if avals.is_empty() && !bwd.outs.is_empty() {
        return Err(internal("a linear map without results is batched"));
    }
    let vmapped = CustomLin { name: op.name.clone(), bwd, num_residuals: op.num_residuals };
    let loc = b.loc;
    let outs = b.push(vmapped.into(), &operands, avals, loc);
    Ok(outs.into_iter().map(|v| Batched::front(Atom::Var(v))).collect())
}
