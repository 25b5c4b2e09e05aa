//! Dead code elimination.
//!
//! ```text
//! dce : { lambda ; a b. -> c d }  ×  which of (c, d) are used
//!     → { lambda ; a. -> c }      ×  which of (a, b) are used
//! ```
//!
//! It reaches into bodies: an unused output of a loop, call, branch or region is no longer computed. An operation with an effect stays, and
//! so does what it reads.

mod calls;

use std::borrow::Cow;

use remat_ir::{Atom, Atoms, Builder, Error, ErrorKind, Jaxpr, Op, Result, VarMap, Vars, counted};

use self::calls::Pruned;
use crate::checked::checked;
use crate::env::{Env, read};
use crate::memo;
use crate::uses::{drop_lost_labels, is_label, vars};

/// Drops equations that no output needs; every input stays.
pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let (outs, ins) = (vec![true; jaxpr.outs.len()], vec![true; jaxpr.ins.len()]);
    Ok(Cow::Owned(dce(&jaxpr, &outs, &ins)?.jaxpr))
}

/// Drops equations whose results reach no output. Bodies stay as they are, since `dce` has already visited them. A label stays as long as
/// its value.
pub(crate) fn drop_unused(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let mut is_needed = jaxpr.var_map(false);
    jaxpr.outs.iter().filter_map(|a| a.var()).for_each(|v| is_needed[v] = true);
    let mut kept = vec![true; jaxpr.eqns.len()];
    for (kept, eqn) in kept.iter_mut().zip(&jaxpr.eqns).rev().filter(|(_, eqn)| !is_label(eqn)) {
        *kept = eqn.outs.iter().any(|&v| is_needed[v]) || eqn.op.has_effect();
        if *kept {
            vars(eqn).for_each(|v| is_needed[v] = true);
        }
    }
    if !kept.contains(&false) {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    let mut kept = kept.into_iter();
    jaxpr.eqns.retain(|_| kept.next() == Some(true));
    drop_lost_labels(&mut jaxpr);
    Ok(Cow::Owned(jaxpr))
}

/// A program without dead code.
#[derive(Clone, Debug)]
pub struct Dce {
    /// The program, which takes the inputs of `used_ins` and gives the used outputs.
    pub jaxpr: Jaxpr,
    /// Which inputs are used, or kept by the caller's request.
    pub used_ins: Vec<bool>,
}

/// Keeps the equations that the outputs in `used` need, and those with an effect. The inputs in `keep_ins` stay even if they are unused.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::dce;
/// let program: Jaxpr = "{ lambda ; a:f32[] b:f32[]. let c:f32[] = sin a; d:f32[] = cos b in (c, d) }".parse()?;
/// let live = dce(&program, &[true, false], &[false, false])?;
/// assert_eq!(live.jaxpr.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }");
/// assert_eq!(live.used_ins, [true, false]);
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the length of `used` is not the number of outputs, or that of `keep_ins` not the number of inputs; if the program is not well formed.
pub fn dce(jaxpr: &Jaxpr, used: &[bool], keep_ins: &[bool]) -> Result<Dce> {
    expect_mask("output", used, jaxpr.outs.len())?;
    expect_mask("input", keep_ins, jaxpr.ins.len())?;
    let _open = memo::open();
    let mut live: VarMap<bool> = jaxpr.var_map(false);
    let outs = select(&jaxpr.outs, used);
    for var in outs.iter().filter_map(|a| a.var()) {
        live[var] = true;
    }
    // The equations to keep, last first: as they are, or with fewer operands and results.
    let mut kept: Vec<(usize, Option<Pruned>)> = Vec::new();
    for (i, eqn) in jaxpr.eqns.iter().enumerate().rev() {
        let used_outs: Vec<bool> = eqn.outs.iter().map(|&v| live[v]).collect();
        if !used_outs.iter().any(|&u| u) && !eqn.op.has_effect() {
            continue;
        }
        let pruned = match &eqn.op {
            Op::Prim(_) => None,
            Op::Call(op) => calls::dce(op, &used_outs)?,
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

/// Fails unless a mask over the inputs or outputs of a program has the right length. `what` names one of them.
fn expect_mask(what: &str, mask: &[bool], expected: usize) -> Result<()> {
    if mask.len() == expected {
        return Ok(());
    }
    let message =
        format!("the mask is for {}, and the program has {}", counted(mask.len(), what), counted(expected, what));
    Err(Error::new(ErrorKind::Argument, "dce", message))
}

/// The items where the mask is `true`.
fn select<T: Clone>(items: &[T], mask: &[bool]) -> Vec<T> {
    items.iter().zip(mask).filter(|(_, m)| **m).map(|(t, _)| t.clone()).collect()
}
