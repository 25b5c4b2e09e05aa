//! Inlining: calls and regions become one list of equations, and names become labels.
//!
//! ```text
//! inline : { lambda ; a. let b = jit[jaxpr={ lambda ; a. let b = sin a; c = name[name=x] b in (c,) }] a; c = cos b in (c,) }
//!        → { lambda ; a. let b = sin a; c = name[name=x] b; d = cos b in (d,) }
//! ```
//!
//! The remaining operations are first-order, or loops and branches. Operations with a definition and without a kernel are inlined as calls
//! of their definitions, and so are scans that are to be unrolled (`unroll`). A `name` stays as a label that no equation reads (`uses`).
//!
//! A barrier of one operand only keeps passes from merging, which no later pass does, so its result is replaced by its operand. A barrier
//! of several operands stays, since it orders the equations on both sides.
//!
//! Equations are not merged here. [`JIT`](crate::pipeline::JIT) has already merged common subexpressions within each body. A recomputation
//! is a separate body until it is inlined, so no pass merges it with its twin in the forward pass.

use std::borrow::Cow;

use remat_ir::{
    Atom, Atoms, Aval, Call, Eqn, Error, ErrorKind, Jaxpr, Loc, Op, Operation, Prim, Result, Role, axes_of,
    unbound_axis,
};

use crate::env::{Env, read};
use crate::unroll::unrolled;

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let mut flat = Jaxpr { eqns: Vec::with_capacity(jaxpr.eqns.len()), ..Jaxpr::default() };
    flat.ins = jaxpr.ins.iter().map(|&v| flat.avals.push(jaxpr.aval(v).clone())).collect();
    let ins: Vec<Atom> = flat.ins.iter().map(|&v| v.into()).collect();
    flat.outs = inline(&mut flat, &jaxpr, &ins, Loc::UNKNOWN)?;
    Ok(Cow::Owned(flat))
}

/// Adds the equations of a program with these operands. Equations without a location get `call`, the location of the call, and all have at least
/// its role.
pub(crate) fn inline(flat: &mut Jaxpr, jaxpr: &Jaxpr, ins: &[Atom], call: Loc) -> Result<Vec<Atom>> {
    let mut env: Env = jaxpr.var_map(None);
    for (&var, &atom) in jaxpr.ins.iter().zip(ins) {
        env[var] = Some(atom);
    }
    for eqn in &jaxpr.eqns {
        let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?;
        let loc = located(eqn.loc, call);
        let outs: Vec<Atom> = match &eqn.op {
            Op::Call(Call::Jit(op)) => inline(flat, &op.jaxpr, &ins, loc)?,
            // What a region of the backward pass computes again is not of the derivative, as its other equations are.
            Op::Call(Call::Checkpoint(op)) if op.differentiated => {
                inline(flat, &op.jaxpr, &ins, Loc { role: Role::Recomputed.max(call.role), ..loc })?
            }
            Op::Call(Call::Checkpoint(op)) => inline(flat, &op.jaxpr, &ins, loc)?,
            Op::Call(Call::CustomJvp(op)) => inline(flat, &op.call, &ins, loc)?,
            Op::Call(Call::CustomVjp(op)) => inline(flat, &op.call, &ins, loc)?,
            Op::Prim(Prim::Name(_)) => {
                if let [Atom::Var(_)] = ins[..] {
                    push(flat, jaxpr, eqn, ins.clone(), loc);
                }
                ins.to_vec()
            }
            Op::Prim(Prim::StopGradient(_) | Prim::ShardingConstraint(_)) => ins.to_vec(),
            Op::Prim(Prim::OptimizationBarrier(_)) if ins.len() < 2 => ins.to_vec(),
            Op::Call(Call::Scan(op)) => match unrolled(op, &avals(jaxpr, eqn))? {
                Some(unrolled) => inline(flat, &unrolled, &ins, loc)?,
                None => push(flat, jaxpr, eqn, ins, loc),
            },
            Op::Prim(op) if !axes_of(op).is_empty() => return Err(unbound_axis(op).at(loc)),
            Op::Prim(op) => match definition(op, &avals(jaxpr, eqn)) {
                Some(definition) => inline(flat, &definition?, &ins, loc)?,
                None => push(flat, jaxpr, eqn, ins, loc),
            },
            Op::Call(Call::ShardMap(_)) => return Err(several_devices().at(loc)),
            Op::Call(Call::While(_) | Call::Cond(_) | Call::CustomLin(_)) => push(flat, jaxpr, eqn, ins, loc),
        };
        for (&var, atom) in eqn.outs.iter().zip(outs) {
            env[var] = Some(atom);
        }
    }
    jaxpr.outs.iter().map(|&a| read(&env, a)).collect()
}

/// The location of an equation of a program that is called: that of the call if it has none, and at least the role of the call.
pub(crate) fn located(loc: Loc, call: Loc) -> Loc {
    let at = if loc.site.is_some() || call.site.is_none() { loc } else { call };
    Loc { role: loc.role.max(call.role), ..at }
}

/// The error of a program on a mesh.
fn several_devices() -> Error {
    let message = "the engine has one device; `remat::transform::on_one_device` rewrites the program for one";
    Error::new(ErrorKind::Argument, "shard_map", message)
}

/// The definition of an operation with these operands, if it has one and the engine has no kernel for it.
fn definition(op: &Prim, ins: &[Aval]) -> Option<Result<Jaxpr>> {
    let has_kernel = matches!(op, Prim::DotProductAttention(_) | Prim::DotProductAttentionCotangent(_));
    if has_kernel { None } else { op.definition(ins) }
}

/// Adds an equation of `jaxpr` with other operands.
fn push(flat: &mut Jaxpr, jaxpr: &Jaxpr, eqn: &Eqn, ins: Atoms, loc: Loc) -> Vec<Atom> {
    let outs = eqn.outs.iter().map(|&v| flat.avals.push(jaxpr.aval(v).clone())).collect();
    let eqn = Eqn { outs, op: eqn.op.clone(), ins, loc };
    let outs = eqn.outs.iter().copied().map(Atom::Var).collect();
    flat.eqns.push(eqn);
    outs
}

/// The avals of an equation's operands.
fn avals(jaxpr: &Jaxpr, eqn: &Eqn) -> Vec<Aval> {
    eqn.ins.iter().map(|&atom| jaxpr.atom_aval(atom)).collect()
}
