//! The rules of functions with custom derivatives.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Builder, CustomJvp, CustomLin, CustomVjp, Error, ErrorKind, Jaxpr, Result, VjpRule};

use super::super::Batch;
use super::super::vmap_batch as vmap_jaxpr;
use super::{batched_mask, batched_outs, fronted, not_linear, push, spread};
use crate::rules::{Batched, Emit, Linear, Operand};

/// The avals that can have a tangent.
fn floats(avals: &[Aval]) -> Vec<bool> {
    avals.iter().map(|a| a.dtype.is_float()).collect()
}

/// The end of the name of a function that has no derivative, and so never a rule.
pub(crate) const NO_DERIVATIVE: &str = ", without a derivative";

/// The rule of a function, if the program has it.
fn traced<'a, T>(operation: &str, name: &str, rule: &'a Option<T>) -> Result<&'a T> {
    rule.as_ref().ok_or_else(|| {
        if let Some(function) = name.strip_suffix(NO_DERIVATIVE) {
            return Error::new(ErrorKind::Differentiation, operation, format!("{function} has no derivative"));
        }
        let message = format!(
            "the rule of `{name}` is not in this program, which was traced for fewer derivatives than are taken of it: rules \
             are traced where `grad`, `vjp` or `jvp` calls the function; differentiate the function instead of its program"
        );
        Error::new(ErrorKind::Differentiation, operation, message)
    })
}

/// The tangents of the floats of the argument, with zeros for missing ones.
///
/// # Errors
/// If a captured constant has a tangent: the rule does not cover it, and dropping it would give a wrong gradient.
fn instantiate_floats(
    b: &mut Builder,
    operation: &str,
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
        return Err(Error::new(ErrorKind::Differentiation, operation, message));
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
    let operands = [ins, &instantiate_floats(b, "custom_jvp", &op.name, op.num_consts, ins, tangents)?].concat();
    let mut outs = b.inline(traced("custom_jvp", &op.name, &op.jvp)?, &operands)?;
    let out_tangents = outs.split_off(op.call.outs.len());
    Ok((outs, spread(&floats(&op.call.out_avals()), out_tangents)))
}

pub(super) fn jvp_of_custom_vjp(
    b: &mut Builder,
    op: &CustomVjp,
    ins: &[Atom],
    tangents: &[Option<Atom>],
) -> Result<(Vec<Atom>, Linear)> {
    let rule = traced("custom_vjp", &op.name, &op.rule)?;
    let mut outs = b.inline(&rule.fwd, ins)?;
    let residuals = outs.split_off(op.call.outs.len());
    let operands =
        [residuals.clone(), instantiate_floats(b, "custom_vjp", &op.name, op.num_consts, ins, tangents)?].concat();
    let out_avals = op.call.out_avals();
    let mask = floats(&out_avals);
    if !mask.contains(&true) {
        return Ok((outs, vec![None; mask.len()]));
    }
    let tangent_avals = out_avals.into_iter().zip(&mask).filter(|(_, f)| **f).map(|(a, _)| a);
    let (name, forward) = (op.name.clone(), op.forward.clone());
    let linear = CustomLin { name, forward, bwd: rule.bwd.clone(), num_residuals: residuals.len() };
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
            Operand::Linear(_) => return Err(not_linear(op)),
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

pub(super) fn vmap_custom_jvp(
    b: &mut Builder,
    op: &CustomJvp,
    batch: Batch<'_>,
    ins: &[Batched],
) -> Result<Vec<Batched>> {
    let batched = batched_mask(ins);
    let tangents: Vec<bool> = batched
        .iter()
        .zip(floats(&op.call.in_avals()))
        .skip(op.num_consts)
        .filter(|(_, f)| *f)
        .map(|(&m, _)| m)
        .collect();
    let call = batch_all_outs(&op.call, batch, &batched)?;
    let with_tangents = [batched, tangents].concat();
    let jvp = op.jvp.as_ref().map(|jvp| batch_all_outs(jvp, batch, &with_tangents)).transpose()?;
    let operands = fronted(b, batch.size, ins)?;
    let vmapped = CustomJvp { call: Arc::new(call.clone()), jvp: jvp.map(Arc::new), ..op.clone() };
    let outs = push(b, vmapped.into(), &operands, &call);
    let mask = vec![true; outs.len()];
    Ok(batched_outs(outs, &mask))
}

/// A program whose outputs are all batched.
fn batch_all_outs(jaxpr: &Jaxpr, batch: Batch<'_>, batched: &[bool]) -> Result<Jaxpr> {
    Ok(vmap_jaxpr(jaxpr, batch, batched, &vec![true; jaxpr.outs.len()])?.jaxpr)
}

/// The batch of a backward rule: a cotangent of a value that all examples share is the sum over the examples.
fn batch_backward(bwd: &Jaxpr, batch: Batch<'_>, batched_ins: &[bool], batched_outs: &[bool]) -> Result<Jaxpr> {
    let batch = batch_all_outs(bwd, batch, batched_ins)?;
    let mut b = Builder::new();
    let ins = b.inputs(batch.in_avals());
    let mut outs = b.inline(&batch, &ins)?;
    for (out, _) in outs.iter_mut().zip(batched_outs).filter(|(_, batched)| !**batched) {
        *out = b.reduce_sum(*out, &[0])?;
    }
    Ok(b.finish(outs))
}

pub(super) fn vmap_custom_vjp(
    b: &mut Builder,
    op: &CustomVjp,
    batch: Batch<'_>,
    ins: &[Batched],
) -> Result<Vec<Batched>> {
    let batched = batched_mask(ins);
    let num_outs = op.call.outs.len();
    let argument = &batched[op.num_consts..];
    let float_args = floats(&op.call.in_avals()[op.num_consts..]);
    let float_args: Vec<bool> = argument.iter().zip(float_args).filter(|(_, f)| *f).map(|(&m, _)| m).collect();
    let batch_rule = |VjpRule { fwd, bwd }: &VjpRule| -> Result<VjpRule> {
        let bwd = batch_backward(bwd, batch, &vec![true; bwd.ins.len()], &float_args)?;
        Ok(VjpRule { fwd: Arc::new(batch_all_outs(fwd, batch, &batched)?), bwd: Arc::new(bwd) })
    };
    let rule = op.rule.as_ref().map(batch_rule).transpose()?;
    let call = Arc::new(batch_all_outs(&op.call, batch, &batched)?);
    let vmapped = CustomVjp { call: call.clone(), rule, ..op.clone() };
    let operands = fronted(b, batch.size, ins)?;
    let outs = push(b, vmapped.into(), &operands, &call);
    Ok(batched_outs(outs, &vec![true; num_outs]))
}

pub(super) fn vmap_custom_lin(
    b: &mut Builder,
    op: &CustomLin,
    batch: Batch<'_>,
    ins: &[Batched],
) -> Result<Vec<Batched>> {
    let batched = batched_mask(ins);
    let (residuals, tangents) = batched.split_at(op.num_residuals);
    // All incoming cotangents are batched, since the results are.
    let num_cts = op.bwd.ins.len() - op.num_residuals;
    let bwd = batch_backward(&op.bwd, batch, &[residuals, &vec![true; num_cts]].concat(), tangents)?;
    let operands = fronted(b, batch.size, ins)?;
    let avals = bwd.in_avals().split_off(op.num_residuals);
    let vmapped = CustomLin { bwd: Arc::new(bwd), ..op.clone() };
    let loc = b.loc;
    let outs = b.push(vmapped.into(), &operands, avals, loc);
    Ok(outs.into_iter().map(|v| Batched::front(Atom::Var(v))).collect())
}
