//! Turns programs on meshes into programs on one device.
//!
//! ```text
//! shard_map f, mesh (x=4)  →  operands cut into 4 shards each, f batched over them along the axis x, results put together
//! ```
//!
//! The result has no `shard_map`, no collective and no `sharding_constraint`, so any engine can run it.
//!
//! A `vmap` over a named axis turns the collectives along it into operations on the examples: a sum over them, a reshape, a permutation. So
//! the meaning of a `shard_map` is implemented twice, here and in the evaluator, and tests of samples compare the two.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{Atom, Atoms, Aval, Builder, Call, Jaxpr, Mesh, Op, PartitionSpec, Prim, Result, ShardMap, Slice};

use super::{Env, checked, read, vmap_named};
use crate::rules::Emit;

/// The program without `shard_map`s: each computes all shards of its mesh, as examples of a batch. Sharding constraints are dropped, since
/// one device has the whole array.
///
/// ```
/// use remat::ir::Jaxpr;
/// use remat::transform::on_one_device;
/// let body = "{ lambda ; b:f32[2]. let c:f32[2] = psum[axes=(x,)] b in (c,) }";
/// let program: Jaxpr = format!(
///     "{{ lambda ; a:f32[6]. let b:f32[2] = shard_map[in_specs=((x,),) jaxpr={body} mesh=((x, 3),) out_specs=((),)] a in (b,) }}"
/// )
/// .parse()?;
/// let text = "{ lambda ; a:f32[6]. let b:f32[3,2] = reshape[new_sizes=(3, 2)] a; c:f32[2] = reduce_sum[axes=(0,)] b in (c,) }";
/// assert_eq!(on_one_device(&program)?.to_string(), text.parse::<Jaxpr>()?.to_string());
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If a collective is for an axis of another size.
pub fn on_one_device(jaxpr: &Jaxpr) -> Result<Cow<'_, Jaxpr>> {
    if !has_mesh(jaxpr) {
        return Ok(Cow::Borrowed(jaxpr));
    }
    rewrite(jaxpr, &mut HashMap::new()).map(Cow::Owned)
}

/// Whether an operation is a `shard_map`, or has a mesh in its jaxprs. The native engine handles a single constraint itself.
pub(crate) fn needs_one_device(op: &Op) -> bool {
    matches!(op, Op::Call(Call::ShardMap(_))) || op.bodies().iter().any(|body| has_mesh(body))
}

fn has_mesh(jaxpr: &Jaxpr) -> bool {
    let is_constraint = |op: &Op| matches!(op, Op::Prim(Prim::ShardingConstraint(_)));
    jaxpr.eqns.iter().any(|eqn| is_constraint(&eqn.op) || needs_one_device(&eqn.op))
}

/// Rewrites a program and its bodies; a body that several equations share is rewritten once.
fn rewrite(jaxpr: &Jaxpr, done: &mut HashMap<*const Jaxpr, Arc<Jaxpr>>) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let mut env: Env = jaxpr.var_map(None);
    for &var in &jaxpr.ins {
        env[var] = Some(b.input(jaxpr.aval(var).clone()));
    }
    for eqn in &jaxpr.eqns {
        b.loc = eqn.loc;
        let ins = eqn.ins.iter().map(|&atom| read(&env, atom)).collect::<Result<Atoms>>()?;
        let mut op = eqn.op.clone();
        for body in op.bodies_mut().into_iter().filter(|body| has_mesh(body)) {
            let key = Arc::as_ptr(body);
            *body = match done.get(&key) {
                Some(known) => known.clone(),
                None => Arc::new(rewrite(body, done)?),
            };
            done.insert(key, body.clone());
        }
        let outs: Vec<Atom> = match &op {
            Op::Call(Call::ShardMap(op)) => on_all_shards(&mut b, op, &ins).map_err(|e| e.at(eqn.loc))?,
            Op::Prim(Prim::ShardingConstraint(_)) => ins.to_vec(),
            _ => {
                let avals = eqn.outs.iter().map(|&var| jaxpr.aval(var).clone());
                b.push(op, &ins, avals, eqn.loc).into_iter().map(Atom::Var).collect()
            }
        };
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(out);
        }
    }
    let outs = jaxpr.outs.iter().map(|&atom| read(&env, atom)).collect::<Result<Vec<_>>>()?;
    checked(b.finish(outs))
}

/// Cuts the operands, computes the body on a batch of shards, and joins the results.
fn on_all_shards(b: &mut Builder, op: &ShardMap, ins: &[Atom]) -> Result<Vec<Atom>> {
    let cuts = |specs: &[PartitionSpec], axis: &Arc<str>| -> Vec<bool> {
        specs.iter().map(|spec| spec.axes().any(|name| name == axis)).collect()
    };
    // The slowest axis is batched last, so its dimension is the first.
    let mut body = Cow::Borrowed(&*op.jaxpr);
    for (name, size) in op.mesh.axes().iter().rev() {
        let cut_outs = cuts(&op.out_specs, name);
        let batch = vmap_named(&body, name, *size, &cuts(&op.in_specs, name), &cut_outs)?;
        let copies: Vec<bool> = batch.batched_outs.iter().zip(&cut_outs).map(|(&has, &cut)| has && !cut).collect();
        body = Cow::Owned(if copies.contains(&true) { first_copies(&batch.jaxpr, &copies)? } else { batch.jaxpr });
    }
    let cut = |(&x, spec): (&Atom, &PartitionSpec)| cut(b, x, spec, &op.mesh);
    let operands = ins.iter().zip(&op.in_specs).map(cut).collect::<Result<Vec<_>>>()?;
    let outs = b.inline(&body, &operands)?;
    outs.iter().zip(&op.out_specs).map(|(&x, spec)| join(b, x, spec, &op.mesh)).collect()
}

/// The program with only the first entry of results that have one entry for each of several equal shards.
fn first_copies(jaxpr: &Jaxpr, copies: &[bool]) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let ins = b.inputs(jaxpr.in_avals());
    let mut outs = b.inline(jaxpr, &ins)?;
    for (out, _) in outs.iter_mut().zip(copies).filter(|(_, copies)| **copies) {
        let shape = b.shape(*out);
        let mut limit = shape.clone();
        limit[0] = 1;
        let start = limit.iter().map(|_| 0).collect();
        let strides = limit.iter().map(|_| 1).collect();
        let first = b.apply(Slice { start, limit, strides }, &[*out])?;
        *out = b.reshape(first, &shape[1..])?;
    }
    Ok(b.finish(outs))
}

/// How a whole array is divided into its shards: with the dimensions cut into parts, and these moved to the front.
struct Parts {
    /// For each dimension, the sizes of the axes over which it is cut, then that of a shard.
    parted: Vec<usize>,
    /// The positions in `parted` of the mesh's axes, slowest first, then of the dimensions of a shard.
    order: Vec<usize>,
}

impl Parts {
    fn new(whole: &Aval, spec: &PartitionSpec, mesh: &Mesh) -> Parts {
        let (mut parted, mut axes, mut dims) = (Vec::new(), Vec::new(), Vec::new());
        for (d, &size) in whole.shape.iter().enumerate() {
            for axis in spec.axes_of(d) {
                axes.push((axis, parted.len()));
                parted.push(mesh.size(axis).unwrap_or(1));
            }
            dims.push(parted.len());
            parted.push(size / mesh.shards(spec.axes_of(d)));
        }
        let position = |name: &Arc<str>| axes.iter().find(|(axis, _)| *axis == name).map(|&(_, at)| at);
        let mut order: Vec<usize> = mesh.axes().iter().filter_map(|(name, _)| position(name)).collect();
        order.extend(dims);
        Parts { parted, order }
    }
}

/// The shards of an array, with a dimension in front for each axis over which it is cut, in the order of the mesh.
fn cut(b: &mut Builder, x: Atom, spec: &PartitionSpec, mesh: &Mesh) -> Result<Atom> {
    let Parts { parted, order } = Parts::new(&b.aval(x), spec, mesh);
    let parted = b.reshape(x, &parted)?;
    b.transpose(parted, &order)
}

/// The array of these shards.
fn join(b: &mut Builder, x: Atom, spec: &PartitionSpec, mesh: &Mesh) -> Result<Atom> {
    let aval = b.aval(x);
    let cut_axes = mesh.axes().iter().filter(|(name, _)| spec.axes().any(|axis| axis == name)).count();
    let shard = aval.with_shape(aval.shape[cut_axes..].iter().copied());
    let whole = spec.whole_aval("shard_map", &shard, mesh)?;
    let Parts { order, .. } = Parts::new(&whole, spec, mesh);
    let mut back = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        back[from] = to;
    }
    let parted = b.transpose(x, &back)?;
    b.reshape(parted, &whole.shape)
}
