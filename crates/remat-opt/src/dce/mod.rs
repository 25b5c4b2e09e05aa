//! Dead code elimination.
//!
//! ```text
//! dce : { lambda ; a b. -> c d }  ×  which of (c, d) are used
//!     → { lambda ; a. -> c }      ×  which of (a, b) are used
//! ```
//!
//! Reaches into bodies: an unused output of a loop, call, branch or region is no longer computed.

use remat_ir::{Atom, Atoms, Builder, Jaxpr, Op, Result, VarMap, Vars};

use super::control::{self, Pruned};
use super::{Env, checked, expect_mask, read, select};

/// A program without dead code.
#[derive(Clone, Debug)]
pub struct Dce {
    /// Takes the used inputs and gives the used outputs.
    pub jaxpr: Jaxpr,
    /// Which inputs are used.
    pub used_ins: Vec<bool>,
}

/// Keeps what the outputs in `used` need. The inputs in `keep_ins` stay though they are not used.
///
/// ```
/// use remat::{Jaxpr, transform::dce};
/// let program: Jaxpr = "{ lambda ; a:f32[] b:f32[]. let c:f32[] = sin a; d:f32[] = cos b in (c, d) }".parse()?;
/// let live = dce(&program, &[true, false], &[false, false])?;
/// assert_eq!(live.jaxpr.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }");
/// assert_eq!(live.used_ins, [true, false]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed.
pub fn dce(jaxpr: &Jaxpr, used: &[bool], keep_ins: &[bool]) -> Result<Dce> {
    expect_mask("dce", "output", used, jaxpr.outs.len())?;
    expect_mask("dce", "input", keep_ins, jaxpr.ins.len())?;
    let mut live: VarMap<bool> = jaxpr.var_map(false);
    let outs = select(&jaxpr.outs, used);
    for var in outs.iter().filter_map(|a| a.var()) {
        live[var] = true;
    }
    // Backwards, what survives of each equation: itself, or with fewer operands and results.
    let mut kept: Vec<(usize, Option<Pruned>)> = Vec::new();
    for (i, eqn) in jaxpr.eqns.iter().enumerate().rev() {
        let used_outs: Vec<bool> = eqn.outs.iter().map(|&v| live[v]).collect();
        if !used_outs.iter().any(|&u| u) {
            continue;
        }
        let pruned = match &eqn.op {
            Op::Prim(_) => None,
            Op::Call(op) => control::dce(op, &used_outs)?,
        };
        let mut mark = |atom: Atom| {
            if let Atom::Var(v) = atom {
                live[v] = true;
            }
        };
        match &pruned {
            None => eqn.ins.iter().copied().for_each(&mut mark),
            Some(p) => eqn.ins.iter().zip(&p.used_ins).filter(|(_, u)| **u).for_each(|(&a, _)| mark(a)),
        }
        kept.push((i, pruned));
    }
    let used_ins: Vec<bool> = jaxpr.ins.iter().zip(keep_ins).map(|(&v, &keep)| keep || live[v]).collect();
    let mut b = Builder::new();
    let mut env: Env = jaxpr.var_map(None);
    for var in select(&jaxpr.ins, &used_ins) {
        env[var] = Some(b.input(jaxpr.avals[var].clone()));
    }
    for (i, pruned) in kept.into_iter().rev() {
        let eqn = &jaxpr.eqns[i];
        let (op, ins, outs): (Op, Atoms, Vars) = match pruned {
            None => (eqn.op.clone(), eqn.ins.clone(), eqn.outs.clone()),
            Some(p) => (p.op, select(&eqn.ins, &p.used_ins).into(), select(&eqn.outs, &p.kept_outs).into()),
        };
        let ins = ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?;
        let avals = outs.iter().map(|&v| jaxpr.avals[v].clone());
        let new = b.push(op, &ins, avals, eqn.loc);
        for (var, new) in outs.into_iter().zip(new) {
            env[var] = Some(Atom::Var(new));
        }
    }
    let outs = outs.iter().map(|&a| read(&env, a)).collect::<Result<Vec<_>>>()?;
    Ok(Dce { jaxpr: checked(b.finish(outs))?, used_ins })
}
