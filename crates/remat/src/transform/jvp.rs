//! Forward-mode differentiation.
//!
//! ```text
//! jvp : { lambda ; a b. -> c d }  ×  which of (a, b) have a tangent
//!     → { lambda ; a b a' b'. -> c d c' d' }
//! ```
//!
//! Tangents exist only where they can be nonzero: the result tells which outputs have one. Source: Griewank and Walther, "Evaluating
//! Derivatives"; the decomposition into jvp, partial evaluation and transposition is that of Radul et al., "You only linearize once", POPL
//! 2023.

use std::sync::Arc;

use remat_ir::{Atom, Builder, Jaxpr, Op, Result, Role};

use super::{Env, checked, control, expect_mask, lookup, memo, read};
use crate::rules::{Emit, rules_of};

/// A program with its derivative.
#[derive(Clone, Debug)]
pub struct Jvp {
    /// The inputs are the primals, then the nonzero tangents. The outputs have the same order.
    pub jaxpr: Jaxpr,
    /// The outputs that have a tangent.
    pub nonzero: Vec<bool>,
}

/// Differentiates a program forward. `nonzero` selects the inputs that have a tangent, `instantiate` the outputs that get one in any case,
/// of zeros if necessary. Only floats can have one.
///
/// ```
/// use remat::ir::Jaxpr;
/// use remat::transform::jvp;
/// let sine: Jaxpr = "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }".parse()?;
/// let both = jvp(&sine, &[true], &[false])?;
/// assert_eq!(both.nonzero, [true]);
/// let text = "{ lambda ; a:f32[] b:f32[]. let c:f32[] = sin a; d:f32[] = cos a; e:f32[] = mul b d in (c, e) }";
/// assert_eq!(both.jaxpr, text.parse()?);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If an operation has no derivative.
pub fn jvp(jaxpr: &Jaxpr, nonzero: &[bool], instantiate: &[bool]) -> Result<Jvp> {
    expect_mask("jvp", "input", nonzero, jaxpr.ins.len())?;
    expect_mask("jvp", "output", instantiate, jaxpr.outs.len())?;
    let _open = memo::open();
    let mut b = Builder::new();
    let mut primals: Env = jaxpr.var_map(None);
    let mut tangents: Env = jaxpr.var_map(None);
    for &var in &jaxpr.ins {
        primals[var] = Some(b.input(jaxpr.avals[var].clone()));
    }
    for (&var, &nonzero) in jaxpr.ins.iter().zip(nonzero) {
        if nonzero {
            tangents[var] = Some(b.input(jaxpr.avals[var].clone()));
        }
    }
    for eqn in &jaxpr.eqns {
        b.loc = eqn.loc;
        let ins = eqn.ins.iter().map(|&a| read(&primals, a)).collect::<Result<Vec<Atom>>>()?;
        let in_tangents: Vec<Option<Atom>> = eqn.ins.iter().map(|&a| a.var().and_then(|v| tangents[v])).collect();
        let is_linearized = in_tangents.iter().any(Option::is_some);
        let (outs, out_tangents) = match &eqn.op {
            Op::Call(op) if is_linearized => control::jvp(&mut b, op, &ins, &in_tangents).map_err(|e| e.at(eqn.loc))?,
            op => {
                let avals = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone());
                let outs: Vec<Atom> = b.push(op.clone(), &ins, avals, eqn.loc).into_iter().map(Atom::Var).collect();
                let out_tangents = match op {
                    Op::Prim(op) if is_linearized => {
                        b.role = Role::Derivative;
                        let tangents = rules_of(op).write_jvp(&mut b, &ins, &outs, &in_tangents);
                        b.role = Role::Written;
                        tangents.map_err(|e| e.at(eqn.loc))?
                    }
                    _ => vec![None; outs.len()],
                };
                (outs, out_tangents)
            }
        };
        for ((&var, out), tangent) in eqn.outs.iter().zip(outs).zip(out_tangents) {
            primals[var] = Some(out);
            tangents[var] = tangent;
        }
    }
    let mut outs = jaxpr.outs.iter().map(|&a| read(&primals, a)).collect::<Result<Vec<Atom>>>()?;
    let mut out_nonzero = Vec::with_capacity(outs.len());
    for (&atom, &instantiate) in jaxpr.outs.iter().zip(instantiate) {
        let tangent = atom.var().and_then(|v| lookup(&tangents, Atom::Var(v)));
        let aval = jaxpr.atom_aval(atom);
        let instantiate = instantiate && aval.dtype.is_float();
        let tangent = if instantiate { Some(b.instantiate(tangent, &aval)?) } else { tangent };
        out_nonzero.push(tangent.is_some());
        outs.extend(tangent);
    }
    Ok(Jvp { jaxpr: checked(b.finish(outs))?, nonzero: out_nonzero })
}

/// As [`jvp`] for a body, which an outer loop may request again.
pub(super) fn jvp_body(body: &Arc<Jaxpr>, nonzero: &[bool], instantiate: &[bool]) -> Result<Jvp> {
    memo::get_or_compute(body, [nonzero, instantiate].concat(), || jvp(body, nonzero, instantiate))
}
