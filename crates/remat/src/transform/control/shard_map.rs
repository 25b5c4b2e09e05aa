//! The rules of `shard_map`, which runs one body on every device of a mesh.
//!
//! The body is transformed as a map from all shards to all shards (see the rules of collectives). At its border, an operand that is not cut
//! over an axis is copied along it, so its cotangent is the sum over the copies. The shards of a result that is not cut over an axis are
//! equal, so each takes an equal part of its cotangent.
//!
//! Residuals that the body computes get a first dimension that is cut over all axes, with one entry for each device. Operands that are
//! residuals stay cut as they are.

use std::sync::Arc;

use remat_ir::{
    AllReduce, AllReduceKind, Atom, Binary, Builder, Cut, ExpandDims, Jaxpr, Literal, Mesh, PartitionSpec, Result,
    ShardMap, Squeeze,
};

use super::super::partial_eval::reach::unknown_outs;
use super::super::partial_eval::split_eqn::{Context, SplitEqn, program_of};
use super::super::partial_eval::{PartialEval, Request, ResidualSource, StageOuts, split as split_body};
use super::super::{Batch, invert, jvp_body, select, transpose as transpose_jaxpr, vmap_batch};
use super::{batched_mask, batched_outs, fronted, known, present, spread};
use crate::rules::{Batched, Emit, Linear, Operand};

pub(super) fn jvp(
    b: &mut Builder,
    op: &ShardMap,
    ins: &[Atom],
    tangents: &[Option<Atom>],
) -> Result<(Vec<Atom>, Linear)> {
    let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let jvp = jvp_body(&op.jaxpr, &nonzero, &vec![false; op.jaxpr.outs.len()])?;
    let in_specs = [op.in_specs.clone(), select(&op.in_specs, &nonzero)].concat();
    let out_specs = [op.out_specs.clone(), select(&op.out_specs, &jvp.nonzero)].concat();
    let both = on_mesh_of(op, jvp.jaxpr, in_specs, out_specs);
    let mut outs = emit(b, both, &[ins, &present(tangents)].concat())?;
    let out_tangents = outs.split_off(op.jaxpr.outs.len());
    Ok((outs, spread(&jvp.nonzero, out_tangents)))
}

/// Residuals that the body computes get a first dimension, which is cut over all axes: one entry per device.
pub(super) fn split(op: &ShardMap, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    let has_known_outs = || unknown_outs(&op.jaxpr, &eqn.unknown()).contains(&false) || op.jaxpr.has_effect();
    let Some(saving) = eqn.saving_of_bodies(has_known_outs) else { return Ok(None) };
    let stage_outs = if eqn.saving.recomputes() { StageOuts::Recomputed } else { StageOuts::Unknown };
    let force_unknown = vec![false; op.jaxpr.outs.len()];
    let request = Request {
        ins: eqn.ins,
        force_unknown: &force_unknown,
        stage_outs,
        saving,
        is_minimised_outside: false,
        log: eqn.log,
    };
    let parts = split_body(&op.jaxpr, &request)?;
    let known = known_part(op, &parts, eqn)?;
    let staged = staged_part(op, &parts, eqn)?;
    Ok(Some(SplitEqn::of_call(parts, known, staged.into(), eqn)))
}

/// The spec of an array with a first dimension for all devices.
fn of_each_device(mesh: &Mesh) -> PartitionSpec {
    PartitionSpec::new([Cut(mesh.axes().iter().map(|(name, _)| name.clone()).collect())])
}

/// The known part, which returns the known results, then the residuals.
fn known_part(op: &ShardMap, parts: &PartialEval, eqn: &Context<'_>) -> Result<Jaxpr> {
    let mut b = Builder::new();
    b.loc = eqn.loc;
    let ins = b.inputs(parts.known.in_avals());
    let mut outs = b.inline(&parts.known, &ins)?;
    let mut out_specs = select(&op.out_specs, &invert(&parts.unknown_outs));
    for residual in &mut outs[parts.num_known_outs()..] {
        *residual = b.apply(ExpandDims { axes: [0].into_iter().collect() }, &[*residual])?;
        out_specs.push(of_each_device(&op.mesh));
    }
    let in_specs = eqn.known().into_iter().map(|i| op.in_specs[i].clone()).collect();
    let known = on_mesh_of(op, b.finish(outs), in_specs, out_specs);
    let out_avals = remat_ir::Operation::infer(&known, &eqn.known_avals())?;
    Ok(program_of(known.into(), eqn.known_avals(), out_avals, eqn.loc))
}

/// The staged part, which maps residuals and unknown operands to the unknown results.
fn staged_part(op: &ShardMap, parts: &PartialEval, eqn: &Context<'_>) -> Result<ShardMap> {
    let known_operands = eqn.known();
    let known_results = select(&op.out_specs, &invert(&parts.unknown_outs));
    let mut b = Builder::new();
    b.loc = eqn.loc;
    let mut in_specs = Vec::new();
    let mut args = Vec::new();
    for (aval, residual) in parts.staged.in_avals().into_iter().zip(&parts.residuals) {
        let (spec, is_of_each_device) = match *residual {
            ResidualSource::Input(i) => (op.in_specs[known_operands[i]].clone(), false),
            ResidualSource::Out(i) if i < known_results.len() => (known_results[i].clone(), false),
            ResidualSource::Out(_) => (of_each_device(&op.mesh), true),
        };
        in_specs.push(spec);
        args.push(if is_of_each_device {
            let entry = b.input(aval.with_shape(std::iter::once(1).chain(aval.shape.iter().copied())));
            b.apply(Squeeze { axes: [0].into_iter().collect() }, &[entry])?
        } else {
            b.input(aval)
        });
    }
    args.extend(b.inputs(parts.staged.in_avals().into_iter().skip(parts.residuals.len())));
    in_specs.extend(select(&op.in_specs, &eqn.unknown()));
    let outs = b.inline(&parts.staged, &args)?;
    let out_specs = select(&op.out_specs, &parts.staged_outs);
    Ok(on_mesh_of(op, b.finish(outs), in_specs, out_specs))
}

pub(super) fn transpose(
    b: &mut Builder,
    op: &ShardMap,
    cotangents: &[Option<Atom>],
    ins: &[Operand],
) -> Result<Linear> {
    let linear: Vec<bool> = ins.iter().map(Operand::is_linear).collect();
    let has_cotangent: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    let transposed = transpose_jaxpr(&op.jaxpr, &linear, &has_cotangent, false)?;
    let known_specs = select(&op.in_specs, &invert(&linear));
    let ct_specs = select(&op.out_specs, &has_cotangent);
    let out_specs = select(&select(&op.in_specs, &linear), &transposed.nonzero);
    let body = {
        let mut b = Builder::new();
        let mut args = b.inputs(transposed.jaxpr.in_avals());
        for (ct, spec) in args[known_specs.len()..].iter_mut().zip(&ct_specs) {
            let copies = op.mesh.shards(&whole_along(&op.mesh, spec));
            if copies > 1 {
                let copies = Literal::from_f64(b.dtype(*ct), copies as f64);
                *ct = b.apply(Binary::Div, &[*ct, copies.into()])?;
            }
        }
        let mut outs = b.inline(&transposed.jaxpr, &args)?;
        for (out, spec) in outs.iter_mut().zip(&out_specs) {
            let axes: Arc<[Arc<str>]> = whole_along(&op.mesh, spec).into();
            if !axes.is_empty() {
                *out = b.apply(AllReduce { kind: AllReduceKind::Sum, axes }, &[*out])?;
            }
        }
        b.finish(outs)
    };
    let in_specs = [known_specs, ct_specs].concat();
    let backward = on_mesh_of(op, body, in_specs, out_specs);
    let outs = emit(b, backward, &[known(ins), present(cotangents)].concat())?;
    let cts = spread(&transposed.nonzero, outs);
    Ok(spread(&linear, cts).into_iter().map(Option::flatten).collect())
}

/// The axes of a mesh over which an array is not cut.
fn whole_along(mesh: &Mesh, spec: &PartitionSpec) -> Vec<Arc<str>> {
    let names = mesh.axes().iter().map(|(name, _)| name);
    names.filter(|name| !spec.axes().any(|axis| axis == *name)).cloned().collect()
}

/// Every device has the whole batch of its shards. A name of the mesh hides the batch's axis of the same name.
pub(super) fn vmap(b: &mut Builder, op: &ShardMap, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    let batched = batched_mask(ins);
    let inside = Batch { name: batch.name.filter(|name| op.mesh.size(name).is_none()), ..batch };
    let vmapped = vmap_batch(&op.jaxpr, inside, &batched, &vec![false; op.jaxpr.outs.len()])?;
    let with_batch = |(spec, &batched): (&PartitionSpec, &bool)| if batched { spec.with_dim(0) } else { spec.clone() };
    let in_specs = op.in_specs.iter().zip(&batched).map(with_batch).collect();
    let out_specs = op.out_specs.iter().zip(&vmapped.batched_outs).map(with_batch).collect();
    let of_batch = on_mesh_of(op, vmapped.jaxpr, in_specs, out_specs);
    let operands = fronted(b, batch.size, ins)?;
    let outs = emit(b, of_batch, &operands)?;
    Ok(batched_outs(outs, &vmapped.batched_outs))
}

/// Another body on the devices of a `shard_map`.
fn on_mesh_of(op: &ShardMap, jaxpr: Jaxpr, in_specs: Vec<PartitionSpec>, out_specs: Vec<PartitionSpec>) -> ShardMap {
    ShardMap { jaxpr: Arc::new(jaxpr), mesh: op.mesh.clone(), in_specs, out_specs, within: op.within.clone() }
}

fn emit(b: &mut Builder, op: ShardMap, ins: &[Atom]) -> Result<Vec<Atom>> {
    Ok(b.emit(op.into(), ins)?.into_vec())
}
