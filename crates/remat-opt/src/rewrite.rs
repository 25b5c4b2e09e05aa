//! Rebuilding a program equation by equation.

use std::sync::Arc;

use remat_ir::{Atom, Atoms, Aval, Builder, DType, DynamicUpdateSlice, Eqn, Jaxpr, Literal, Loc, Op, Result};

use crate::checked::checked;
use crate::env::{Env, read};

/// Rebuilds a program by passing each equation to `emit`.
pub(crate) fn rewrite(
    jaxpr: &Jaxpr,
    mut emit: impl FnMut(&mut Builder, Op, Atoms, Vec<Aval>, Loc) -> Result<Vec<Atom>>,
) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let mut env: Env = jaxpr.var_map(None);
    for &var in &jaxpr.ins {
        env[var] = Some(b.input(jaxpr.avals[var].clone()));
    }
    for eqn in &jaxpr.eqns {
        let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?;
        let avals = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone()).collect();
        let outs = emit(&mut b, eqn.op.clone(), ins, avals, eqn.loc)?;
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(out);
        }
    }
    let outs = jaxpr.outs.iter().map(|&a| read(&env, a)).collect::<Result<Vec<_>>>()?;
    checked(b.finish(outs))
}

/// The operation with every body transformed. The inputs and outputs of the bodies stay the same.
pub(crate) fn map_bodies(op: &Op, f: impl Fn(&Jaxpr) -> Result<Jaxpr>) -> Result<Op> {
    let mut op = op.clone();
    let map = |body: &mut Arc<Jaxpr>| -> Result<()> {
        *body = Arc::new(f(body)?);
        Ok(())
    };
    op.bodies_mut().into_iter().try_for_each(map)?;
    Ok(op)
}

/// Adds an equation of one result, with the location of another one, after the equations of the program.
pub(crate) fn push(jaxpr: &mut Jaxpr, eqn: &Eqn, op: Op, ins: &[Atom], aval: &Aval) -> Atom {
    let out = jaxpr.avals.push(aval.clone());
    jaxpr.eqns.push(Eqn { op, ins: ins.iter().copied().collect(), outs: [out].into_iter().collect(), loc: eqn.loc });
    Atom::Var(out)
}

/// As [`push`], an equation that writes a part of an array, which begins at `start`.
pub(crate) fn push_update(jaxpr: &mut Jaxpr, eqn: &Eqn, array: Atom, part: Atom, start: &[usize]) -> Atom {
    let starts = start.iter().map(|&start| Literal::from_i128(DType::I64, start as i128).into());
    let ins: Vec<Atom> = [array, part].into_iter().chain(starts).collect();
    let aval = jaxpr.atom_aval(array);
    push(jaxpr, eqn, DynamicUpdateSlice.into(), &ins, &aval)
}
