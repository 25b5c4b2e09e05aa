//! Rebuilding a program equation by equation.

use std::sync::Arc;

use remat_ir::{Atom, Atoms, Aval, Builder, Jaxpr, Loc, Op, Result};

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
