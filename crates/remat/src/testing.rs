//! What the project's own generic tests run over; not a part of the API.

use remat_ir::{Atom, Aval, Builder, Jaxpr, Result};

use crate::rules::{Batched, Emit, Linear, Operand, first_order};
pub use crate::rules::{Sample, all_samples};

/// A program of first-order operations with its derivative: primals, then the tangents in `nonzero`; results likewise.
pub fn jvp(jaxpr: &Jaxpr, nonzero: &[bool]) -> Result<(Jaxpr, Vec<bool>)> {
    let mut b = Builder::new();
    let mut primals: Vec<Option<Atom>> = vec![None; jaxpr.avals.len()];
    let mut tangents: Vec<Option<Atom>> = vec![None; jaxpr.avals.len()];
    for &v in &jaxpr.ins {
        primals[v.index()] = Some(b.input(jaxpr.aval(v).clone()));
    }
    for (&v, _) in jaxpr.ins.iter().zip(nonzero).filter(|(_, n)| **n) {
        tangents[v.index()] = Some(b.input(jaxpr.aval(v).clone()));
    }
    for eqn in &jaxpr.eqns {
        let ins: Vec<Atom> = eqn.ins.iter().map(|&a| read(&primals, a)).collect();
        let ts: Linear = eqn.ins.iter().map(|&a| a.var().and_then(|v| tangents[v.index()])).collect();
        let outs = b.emit(eqn.op.clone(), &ins)?;
        let out_ts = match first_order(&eqn.op) {
            Some(rules) if ts.iter().any(Option::is_some) => rules.jvp(&mut b, &ins, &outs, &ts)?,
            _ => vec![None; outs.len()],
        };
        for ((&v, &out), t) in eqn.outs.iter().zip(&outs).zip(out_ts) {
            primals[v.index()] = Some(out);
            tangents[v.index()] = t;
        }
    }
    let mut outs: Vec<Atom> = jaxpr.outs.iter().map(|&a| read(&primals, a)).collect();
    let out_ts: Linear = jaxpr.outs.iter().map(|&a| a.var().and_then(|v| tangents[v.index()])).collect();
    outs.extend(out_ts.iter().flatten());
    Ok((b.finish(outs), out_ts.iter().map(Option::is_some).collect()))
}

/// The transpose of a program in its inputs in `linear`: the other inputs, then cotangents of all results; a cotangent for
/// each linear input.
pub fn transpose(jaxpr: &Jaxpr, linear: &[bool], cotangents: &[bool]) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let mut known: Vec<Option<Atom>> = vec![None; jaxpr.avals.len()];
    for (&v, _) in jaxpr.ins.iter().zip(linear).filter(|(_, l)| !**l) {
        known[v.index()] = Some(b.input(jaxpr.aval(v).clone()));
    }
    let mut cts: Vec<Option<Atom>> = vec![None; jaxpr.avals.len()];
    for (&out, _) in jaxpr.outs.iter().zip(cotangents).filter(|(_, c)| **c) {
        let ct = b.input(jaxpr.atom_aval(out));
        if let Some(v) = out.var() {
            cts[v.index()] = b.add_any(cts[v.index()], Some(ct))?;
        }
    }
    let mut backwards = Vec::new();
    for eqn in &jaxpr.eqns {
        if eqn.ins.iter().all(|a| a.var().is_none_or(|v| known[v.index()].is_some())) {
            let ins: Vec<Atom> = eqn.ins.iter().map(|&a| read(&known, a)).collect();
            for (v, out) in eqn.outs.iter().zip(b.emit(eqn.op.clone(), &ins)?) {
                known[v.index()] = Some(out);
            }
        } else {
            backwards.push(eqn);
        }
    }
    for eqn in backwards.into_iter().rev() {
        let out_cts: Linear = eqn.outs.iter().map(|v| cts[v.index()]).collect();
        let Some(rules) = first_order(&eqn.op).filter(|_| out_cts.iter().any(Option::is_some)) else { continue };
        let operand = |&a: &Atom| match a {
            Atom::Var(v) if known[v.index()].is_none() => Operand::Linear(jaxpr.aval(v).clone()),
            _ => Operand::Known(read(&known, a)),
        };
        let operands: Vec<Operand> = eqn.ins.iter().map(operand).collect();
        for ((a, operand), ct) in eqn.ins.iter().zip(&operands).zip(rules.transpose(&mut b, &out_cts, &operands)?) {
            if let (Operand::Linear(_), Some(v)) = (operand, a.var()) {
                cts[v.index()] = b.add_any(cts[v.index()], ct)?;
            }
        }
    }
    let mut outs = Vec::new();
    for (&v, _) in jaxpr.ins.iter().zip(linear).filter(|(_, l)| **l) {
        let aval: Aval = jaxpr.aval(v).clone();
        outs.push(b.instantiate(cts[v.index()], &aval)?);
    }
    Ok(b.finish(outs))
}

/// A program for a batch of `size` examples: inputs with a batch dimension where `axes` has one; where the results have it.
pub fn vmap(jaxpr: &Jaxpr, size: usize, axes: &[Option<usize>]) -> Result<(Jaxpr, Vec<Option<usize>>)> {
    let mut b = Builder::new();
    let mut env: Vec<Option<Batched>> = vec![None; jaxpr.avals.len()];
    for (&v, &axis) in jaxpr.ins.iter().zip(axes) {
        let aval = jaxpr.aval(v);
        let mut shape = aval.shape.clone();
        axis.iter().for_each(|&axis| shape.insert(axis, size));
        let atom = b.input(aval.with_shape(shape));
        env[v.index()] = Some(Batched { atom, axis });
    }
    let get = |env: &[Option<Batched>], a: Atom| match a {
        Atom::Var(v) => env[v.index()].expect("defined"),
        Atom::Lit(_) => Batched::shared(a),
    };
    for eqn in &jaxpr.eqns {
        let ins: Vec<Batched> = eqn.ins.iter().map(|&a| get(&env, a)).collect();
        let rules = first_order(&eqn.op).filter(|_| ins.iter().any(|x| x.axis.is_some()));
        let outs = match rules {
            Some(rules) => rules.vmap(&mut b, size, &ins)?,
            None => {
                let atoms: Vec<Atom> = ins.iter().map(|x| x.atom).collect();
                b.emit(eqn.op.clone(), &atoms)?.into_iter().map(Batched::shared).collect()
            }
        };
        for (v, out) in eqn.outs.iter().zip(outs) {
            env[v.index()] = Some(out);
        }
    }
    let outs: Vec<Batched> = jaxpr.outs.iter().map(|&a| get(&env, a)).collect();
    Ok((b.finish(outs.iter().map(|x| x.atom).collect()), outs.iter().map(|x| x.axis).collect()))
}

fn read(env: &[Option<Atom>], atom: Atom) -> Atom {
    match atom {
        Atom::Var(v) => env[v.index()].expect("a variable is defined before it is used"),
        Atom::Lit(_) => atom,
    }
}
