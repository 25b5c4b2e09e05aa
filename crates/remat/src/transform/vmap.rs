//! Batching.
//!
//! ```text
//! vmap : { lambda ; a b. -> c d }  ×  size n  ×  which of (a, b) are batched
//!      → { lambda ; a:[n,..] b. -> c:[n,..] d }  ×  which of (c, d) are
//! ```
//!
//! At the borders of a program the batch dimension is the first one; inside, each rule leaves it where it ends up.

use std::sync::Arc;

use remat_ir::{Atom, Builder, Jaxpr, Op, Result, VarMap, uses_axis};

use super::{checked, control, expect_mask, internal, memo};
use crate::rules::{Batched, Emit, bind_collective, rules_of};

/// A batched program.
#[derive(Clone, Debug)]
pub struct Vmapped {
    /// The program; batched inputs and outputs have an additional first dimension.
    pub jaxpr: Jaxpr,
    /// The outputs that are batched.
    pub batched_outs: Vec<bool>,
}

/// The examples of a batch: their number, and the name of their axis, if it has one.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) size: usize,
    pub(crate) name: Option<&'a Arc<str>>,
}

/// Batches a program over `size` examples. Outputs in `force` are batched in any case.
///
/// ```
/// use remat::ir::Jaxpr;
/// use remat::transform::vmap;
/// let program: Jaxpr = "{ lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sin a; d:f32[3] = cos b in (c, d) }".parse()?;
/// let batch = vmap(&program, 5, &[true, false], &[false, false])?;
/// assert_eq!(batch.batched_outs, [true, false]);
/// assert_eq!(batch.jaxpr.out_avals()[0].to_string(), "f32[5,3]");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed.
pub fn vmap(jaxpr: &Jaxpr, size: usize, batched_ins: &[bool], force: &[bool]) -> Result<Vmapped> {
    vmap_batch(jaxpr, Batch { size, name: None }, batched_ins, force)
}

/// As [`vmap`]; collectives along the axis `name` communicate between the examples and are removed.
///
/// ```
/// use remat::ir::Jaxpr;
/// use remat::transform::vmap_named;
/// let program: Jaxpr = "{ lambda ; a:f32[3]. let b:f32[3] = psum[axes=(i,)] a in (b,) }".parse()?;
/// let batch = vmap_named(&program, &"i".into(), 5, &[true], &[false])?;
/// let text = "{ lambda ; a:f32[5,3]. let b:f32[3] = reduce_sum[axes=(0,)] a in (b,) }";
/// assert_eq!(batch.jaxpr.to_string(), text.parse::<Jaxpr>()?.to_string());
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vmap`]; if a collective along the axis is for another number of shards.
pub fn vmap_named(
    jaxpr: &Jaxpr,
    name: &Arc<str>,
    size: usize,
    batched_ins: &[bool],
    force: &[bool],
) -> Result<Vmapped> {
    vmap_batch(jaxpr, Batch { size, name: Some(name) }, batched_ins, force)
}

/// As [`vmap`], over this batch.
pub(crate) fn vmap_batch(jaxpr: &Jaxpr, batch: Batch<'_>, batched_ins: &[bool], force: &[bool]) -> Result<Vmapped> {
    let size = batch.size;
    expect_mask("vmap", "input", batched_ins, jaxpr.ins.len())?;
    expect_mask("vmap", "output", force, jaxpr.outs.len())?;
    let _open = memo::open();
    let mut b = Builder::new();
    let mut env: VarMap<Option<Batched>> = jaxpr.var_map(None);
    for (&var, &batched) in jaxpr.ins.iter().zip(batched_ins) {
        let aval = &jaxpr.avals[var];
        env[var] = Some(if batched {
            Batched::front(b.input(aval.with_shape(std::iter::once(size).chain(aval.shape.iter().copied()))))
        } else {
            Batched::shared(b.input(aval.clone()))
        });
    }
    let get = |env: &VarMap<Option<Batched>>, atom: Atom| match atom {
        Atom::Lit(_) => Ok(Batched::shared(atom)),
        Atom::Var(v) => env[v].ok_or_else(|| internal("a variable is used before it is defined")),
    };
    for eqn in &jaxpr.eqns {
        b.loc = eqn.loc;
        let ins = eqn.ins.iter().map(|&a| get(&env, a)).collect::<Result<Vec<_>>>()?;
        let named = batch.name.filter(|name| uses_axis(&eqn.op, name));
        let outs = if named.is_none() && ins.iter().all(|x| x.axis.is_none()) {
            let atoms: Vec<Atom> = ins.iter().map(|x| x.atom).collect();
            let avals = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone());
            b.push(eqn.op.clone(), &atoms, avals, eqn.loc).into_iter().map(|v| Batched::shared(Atom::Var(v))).collect()
        } else {
            vmap_equation(&mut b, &eqn.op, Batch { name: named, ..batch }, &ins).map_err(|e| e.at(eqn.loc))?
        };
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(out);
        }
    }
    let mut outs = Vec::with_capacity(jaxpr.outs.len());
    let mut batched_outs = Vec::with_capacity(jaxpr.outs.len());
    for (&atom, &force) in jaxpr.outs.iter().zip(force) {
        let out = get(&env, atom)?;
        let is_batched = force || out.axis.is_some();
        batched_outs.push(is_batched);
        outs.push(if is_batched { b.batch_front(out, size)? } else { out.atom });
    }
    Ok(Vmapped { jaxpr: checked(b.finish(outs))?, batched_outs })
}

/// Writes a batch of one equation that has a batched operand or communicates along the axis of the examples.
pub(crate) fn vmap_equation(b: &mut Builder, op: &Op, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    match (op, batch.name) {
        (Op::Prim(op), Some(name)) => Ok(vec![bind_collective(b, op, name, batch.size, ins)?]),
        (Op::Prim(op), None) => rules_of(op).write_vmap(b, batch.size, ins),
        (Op::Call(op), _) => control::vmap(b, op, batch, ins),
    }
}
