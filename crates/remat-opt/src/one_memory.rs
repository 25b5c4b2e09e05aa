//! One memory: in an engine with one memory space a transfer is replaced by its operand.
//!
//! ```text
//! one_memory : { lambda ; a:f32[3] b:f32<host>[3]. let c:f32<host>[3] = device_put a ... }
//!            → { lambda ; a:f32[3] b:f32[3]. let ... }, in which `a` replaces `c`
//! ```
//!
//! Afterwards everything is in device memory, including arguments and results. The engine tells its caller the avals of the original
//! program.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use remat_ir::{Atom, Aval, Jaxpr, MemorySpace, Op, Prim, Result};

use crate::env::{Env, read};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    if !has_transfers(&jaxpr) {
        return Ok(jaxpr);
    }
    merge(jaxpr.into_owned()).map(Cow::Owned)
}

/// Whether a program or one of its bodies uses another memory space.
fn has_transfers(jaxpr: &Jaxpr) -> bool {
    let mut met: HashSet<*const Jaxpr> = HashSet::new();
    let mut todo = vec![jaxpr];
    while let Some(body) = todo.pop() {
        if body.avals.iter().any(|(_, aval)| aval.memory != MemorySpace::Device)
            || body.eqns.iter().any(|eqn| matches!(eqn.op, Op::Prim(Prim::DevicePut(_))))
        {
            return true;
        }
        let bodies = body.eqns.iter().flat_map(|eqn| eqn.op.bodies());
        todo.extend(bodies.filter(|inner| met.insert(Arc::as_ptr(inner))).map(|inner| &**inner));
    }
    false
}

fn merge(mut jaxpr: Jaxpr) -> Result<Jaxpr> {
    let avals: Vec<Aval> = jaxpr.avals.iter().map(|(_, aval)| aval.in_memory(MemorySpace::Device)).collect();
    jaxpr.avals = Default::default();
    let mut env: Env = Env::default();
    for aval in avals {
        let var = jaxpr.avals.push(aval);
        env.push(Some(Atom::Var(var)));
    }
    let mut eqns = Vec::with_capacity(jaxpr.eqns.len());
    for mut eqn in std::mem::take(&mut jaxpr.eqns) {
        for atom in &mut eqn.ins {
            *atom = read(&env, *atom)?;
        }
        if let Op::Prim(Prim::DevicePut(_)) = eqn.op {
            env[eqn.outs[0]] = Some(eqn.ins[0]);
            continue;
        }
        for body in eqn.op.bodies_mut() {
            *body = Arc::new(merge(Jaxpr::clone(body))?);
        }
        eqns.push(eqn);
    }
    jaxpr.eqns = eqns;
    for out in &mut jaxpr.outs {
        *out = read(&env, *out)?;
    }
    Ok(jaxpr)
}
