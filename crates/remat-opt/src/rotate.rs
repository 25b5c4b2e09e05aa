//! Loop rotation: the condition of a `while` loop is computed at the end of an iteration instead of at the start of the next one.
//!
//! ```text
//! rotate : { lambda ; c. let d = while[cond: p = f c; body: c' = g c] c in (d,) }
//!        → { lambda ; c. let p v = f c; d _ _ = while[cond: p; body: c' = g' c v; p' v' = f c'] c p v in (d,) }
//! ```
//!
//! So an iteration is one body, whose equations fuse across what was the boundary. What the condition and the body both compute, such as the
//! residual of an iterative solver, is computed once and carried to the next iteration (`v`), if that saves more than elementwise operations
//! and takes little memory. Both compute from the same carries, so the bits are the same.
//!
//! A condition with loops or branches of its own stays where it is, since a rotated one exists twice.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{Atom, Atoms, Aval, Builder, Call, Class, Eqn, Jaxpr, Op, Result, Role, Var, VarMap, Vars, While};

use crate::cost::{SMALL_BYTES, is_fusible};
use crate::cse::is_opaque;
use crate::env::{Env, read};
use crate::inline::{self, inline};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    if !jaxpr.eqns.iter().any(|eqn| to_rotate(eqn).is_some()) {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    for eqn in std::mem::take(&mut jaxpr.eqns) {
        let rotated = to_rotate(&eqn).map(|op| rotated(&mut jaxpr, op, &eqn)).transpose()?.flatten();
        jaxpr.eqns.push(rotated.unwrap_or(eqn));
    }
    Ok(Cow::Owned(jaxpr))
}

/// The loop of an equation, unless its condition is one of its carries already.
fn to_rotate(eqn: &Eqn) -> Option<&While> {
    let Op::Call(Call::While(op)) = &eqn.op else { return None };
    let is_carry = |out: Atom| op.cond.ins[op.cond_consts..].iter().any(|&carry| out == Atom::Var(carry));
    (!is_carry(op.cond.outs[0])).then_some(op)
}

/// The rotated loop of an equation. The first condition is added to the program.
fn rotated(jaxpr: &mut Jaxpr, op: &While, eqn: &Eqn) -> Result<Option<Eqn>> {
    let (consts, init) = eqn.ins.split_at(op.cond_consts + op.body_consts);
    let Some(Parts { consts, condition, rest }) = Parts::of(jaxpr, op, consts)? else { return Ok(None) };
    let first = inline(jaxpr, &condition, &[&consts, init].concat(), eqn.loc)?;
    let avals: Vec<Aval> = op.body.out_avals().into_iter().chain(condition.out_avals()).collect();

    let mut b = Builder::new();
    let constants = b.inputs(consts.iter().map(|&atom| jaxpr.atom_aval(atom)));
    let carries = b.inputs(avals.iter().cloned());
    let (old, values) = carries.split_at(init.len());
    let next = b.inline(&rest, &[&constants, old, &values[1..]].concat())?;
    let last = b.inline(&condition, &[&constants[..], &next].concat())?;
    let body = b.finish([next, last].concat());

    let mut b = Builder::new();
    let predicate = b.inputs(avals)[init.len()];
    let cond = b.finish(vec![predicate]);

    let op = While { cond: Arc::new(cond), body: Arc::new(body), cond_consts: 0, body_consts: consts.len() };
    let ins: Atoms = consts.iter().chain(init).copied().chain(first).collect();
    let new: Vars = condition.out_avals().into_iter().map(|aval| jaxpr.avals.push(aval)).collect();
    Ok(Some(Eqn { op: op.into(), ins, outs: eqn.outs.iter().copied().chain(new).collect(), loc: eqn.loc }))
}

/// The programs of which a rotated loop is made.
struct Parts {
    /// The constants of condition and body, in the program of the loop, each once.
    consts: Vec<Atom>,
    /// `consts carries → predicate values`: the condition, and what the body can read instead of computing it.
    condition: Jaxpr,
    /// `consts carries values → carries`: the body.
    rest: Jaxpr,
}

impl Parts {
    /// The parts of a loop with these constants, unless its condition has loops or branches.
    fn of(outer: &Jaxpr, op: &While, all_consts: &[Atom]) -> Result<Option<Parts>> {
        let mut consts: Vec<Atom> = Vec::new();
        for &atom in all_consts {
            if !consts.contains(&atom) {
                consts.push(atom);
            }
        }
        let mut merged = Merged::default();
        let ins = merged.b.inputs(consts.iter().map(|&atom| outer.atom_aval(atom)).chain(op.body.out_avals()));
        let (inputs, carries) = ins.split_at(consts.len());
        let input = |atom: &Atom| consts.iter().position(|other| other == atom).map(|i| inputs[i]);
        let of_atoms = |atoms: &[Atom]| atoms.iter().filter_map(input).chain(carries.iter().copied()).collect();
        let (of_cond, of_body) = all_consts.split_at(op.cond_consts);
        let (of_cond, of_body): (Vec<Atom>, Vec<Atom>) = (of_atoms(of_cond), of_atoms(of_body));
        let predicate = merged.add(&op.cond, &of_cond)?;
        if merged.b.peek().eqns.iter().any(|eqn| !eqn.op.bodies().is_empty()) {
            return Ok(None);
        }
        let of_condition = merged.b.len();
        let next = merged.add(&op.body, &of_body)?;
        let all = merged.b.finish(next);

        let (values, is_needed) = carried(&all, of_condition);
        let mut condition = Jaxpr { outs: predicate, ..all.clone() };
        condition.eqns.truncate(of_condition);
        condition.outs.extend(values.iter().copied().map(Atom::Var));
        let mut rest = all;
        rest.ins.extend(&values);
        let mut is_needed = is_needed.into_iter();
        rest.eqns.retain(|_| is_needed.next().unwrap_or(true));
        Ok(Some(Parts { consts, condition, rest }))
    }
}

/// Programs one after the other, in which an equation that is equal to an earlier one is that one.
#[derive(Default)]
struct Merged {
    b: Builder,
    seen: HashMap<(Op, Atoms), Vars>,
}

impl Merged {
    /// Adds a program with these arguments and returns its outputs.
    fn add(&mut self, jaxpr: &Jaxpr, args: &[Atom]) -> Result<Vec<Atom>> {
        let jaxpr = inline::pass(Cow::Borrowed(jaxpr))?;
        let mut env: Env = jaxpr.var_map(None);
        for (&var, &arg) in jaxpr.ins.iter().zip(args) {
            env[var] = Some(arg);
        }
        for eqn in &jaxpr.eqns {
            let key = (eqn.op.clone(), eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?);
            // What a region computes again stays apart from its twin.
            let is_apart = is_opaque(&eqn.op) || eqn.loc.role == Role::Recomputed;
            let outs = match self.seen.get(&key).filter(|_| !is_apart) {
                Some(outs) => outs.clone(),
                None => {
                    let avals = eqn.outs.iter().map(|&var| jaxpr.avals[var].clone());
                    let outs = self.b.push(key.0.clone(), &key.1, avals, eqn.loc);
                    if !is_apart {
                        self.seen.insert(key, outs.clone());
                    }
                    outs
                }
            };
            for (&var, out) in eqn.outs.iter().zip(outs) {
                env[var] = Some(Atom::Var(out));
            }
        }
        jaxpr.outs.iter().map(|&a| read(&env, a)).collect()
    }
}

/// The values of the first `count` equations, those of the condition, that are carried to the body, and whether the body computes each of
/// all equations.
fn carried(all: &Jaxpr, count: usize) -> (Vec<Var>, Vec<bool>) {
    // Values that take more than elementwise operations and views, which are computed again in the loops that read them.
    let mut is_costly: VarMap<bool> = all.var_map(false);
    for eqn in &all.eqns[..count] {
        let costs = !is_fusible(&eqn.op) || eqn.ins.iter().filter_map(|a| a.var()).any(|var| is_costly[var]);
        eqn.outs.iter().for_each(|&out| is_costly[out] = costs);
    }
    let mut is_read: VarMap<bool> = all.var_map(false);
    all.outs.iter().filter_map(|a| a.var()).for_each(|var| is_read[var] = true);
    let (mut values, mut is_needed) = (Vec::new(), vec![true; all.eqns.len()]);
    for (at, eqn) in all.eqns.iter().enumerate().rev() {
        let read: Vec<Var> = eqn.outs.iter().copied().filter(|&out| is_read[out]).collect();
        let is_carried = |&out: &Var| is_costly[out] && all.avals[out].bytes() < SMALL_BYTES;
        is_needed[at] =
            at >= count || !read.is_empty() && (eqn.op.class() == Class::View || !read.iter().all(is_carried));
        if is_needed[at] {
            eqn.ins.iter().filter_map(|a| a.var()).for_each(|var| is_read[var] = true);
        } else {
            values.extend(read);
        }
    }
    (values, is_needed)
}
