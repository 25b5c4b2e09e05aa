//! Finds the axes of a mesh along which the values of a body differ between shards.
//!
//! ```text
//! operands cut over an axis, and the position along it, differ; a sum or a gathering along it is the same for all shards
//! ```
//!
//! Along an axis that the spec of a result does not name, the result must not differ. Where shards along an axis may take different
//! branches there may be no collective along it, since all of them would have to meet; one along another axis is allowed. The analysis runs
//! when a `shard_map` is traced.

use std::collections::BTreeSet;
use std::sync::Arc;

use remat_ir::{Call, Error, ErrorKind, Jaxpr, Op, PartitionSpec, Prim, Result, ShardMap, VarMap, uses_axis};

/// The names of axes.
type Axes = BTreeSet<Arc<str>>;

/// Fails if a result differs between shards along an axis that its spec does not name, or if an equation that only some shards run has a
/// collective. `describe` names a result for the message: ` at .loss`.
///
/// # Errors
/// Of kind [`ErrorKind::Axis`].
pub(crate) fn expect_invariant(op: &ShardMap, describe: impl Fn(usize) -> String) -> Result<()> {
    let ins: Vec<Axes> = op.in_specs.iter().map(|spec| spec.axes().cloned().collect()).collect();
    let outs = program(&op.jaxpr, &ins)?;
    for (i, (out, spec)) in outs.iter().zip(&op.out_specs).enumerate() {
        if let Some(axis) = out.iter().find(|axis| op.mesh.size(axis).is_some() && !spec.axes().any(|a| a == *axis)) {
            let message = format!(
                "the result{} differs between shards along `{axis}`, which its spec {spec} does not name: reduce it with psum or \
                 pmean, gather it with all_gather, or name the axis",
                describe(i)
            );
            return Err(Error::new(ErrorKind::Axis, "shard_map", message));
        }
    }
    Ok(())
}

fn program(jaxpr: &Jaxpr, ins: &[Axes]) -> Result<Vec<Axes>> {
    let mut env: VarMap<Axes> = jaxpr.var_map(Axes::new());
    for (&var, axes) in jaxpr.ins.iter().zip(ins) {
        env[var] = axes.clone();
    }
    for eqn in &jaxpr.eqns {
        let ins: Vec<Axes> =
            eqn.ins.iter().map(|atom| atom.var().map(|var| env[var].clone()).unwrap_or_default()).collect();
        let outs = match &eqn.op {
            Op::Prim(op) => vec![prim(op, &ins); eqn.outs.len()],
            Op::Call(op) => call(op, &ins).map_err(|e| e.at(eqn.loc))?,
        };
        for (&var, axes) in eqn.outs.iter().zip(outs) {
            env[var] = axes;
        }
    }
    Ok(jaxpr.outs.iter().map(|atom| atom.var().map(|var| env[var].clone()).unwrap_or_default()).collect())
}

fn union<'a>(all: impl IntoIterator<Item = &'a Axes>) -> Axes {
    all.into_iter().flatten().cloned().collect()
}

fn prim(op: &Prim, ins: &[Axes]) -> Axes {
    let mut axes = union(ins);
    match op {
        Prim::AllReduce(op) => axes.retain(|axis| !op.axes.contains(axis)),
        Prim::AllGather(op) => {
            axes.remove(&op.axis_name);
        }
        Prim::ReduceScatter(op) => {
            axes.insert(op.axis_name.clone());
        }
        Prim::AllToAll(op) => {
            axes.insert(op.axis_name.clone());
        }
        Prim::Ppermute(op) => {
            axes.insert(op.axis_name.clone());
        }
        Prim::AxisIndex(op) => {
            axes.insert(op.axis_name.clone());
        }
        _ => {}
    }
    axes
}

fn call(op: &Call, ins: &[Axes]) -> Result<Vec<Axes>> {
    match op {
        Call::Jit(op) => program(&op.jaxpr, ins),
        Call::Checkpoint(op) => program(&op.jaxpr, ins),
        Call::CustomJvp(op) => program(&op.call, ins),
        Call::CustomVjp(op) => program(&op.call, ins),
        Call::Scan(op) => {
            let mut ins = ins.to_vec();
            loop {
                let mut outs = program(&op.jaxpr, &ins)?;
                let carries = &mut ins[op.num_consts..op.num_consts + op.num_carry];
                if op.length == 0 {
                    // The results are the carries with which it begins.
                    grow(&mut outs, carries);
                }
                if !grow(carries, &outs) {
                    return Ok(outs);
                }
            }
        }
        Call::While(op) => {
            let (consts, carry) = ins.split_at(op.cond_consts + op.body_consts);
            let (cond_consts, body_consts) = consts.split_at(op.cond_consts);
            let mut carry = carry.to_vec();
            loop {
                let holds = union(&program(&op.cond, &[cond_consts, &carry].concat())?);
                expect_agreement("while", "condition", &holds, [&op.cond, &op.body])?;
                let outs = program(&op.body, &[body_consts, &carry].concat())?;
                let outs: Vec<Axes> = outs.iter().map(|out| union([out, &holds])).collect();
                if !grow(&mut carry, &outs) {
                    return Ok(carry);
                }
            }
        }
        Call::Cond(op) => {
            let Some((index, operands)) = ins.split_first() else { return Ok(Vec::new()) };
            expect_agreement("cond", "index", index, &op.branches)?;
            let mut outs = vec![index.clone(); op.branches.first().map_or(0, |branch| branch.outs.len())];
            for branch in &op.branches {
                grow(&mut outs, &program(branch, operands)?);
            }
            Ok(outs)
        }
        Call::CustomLin(op) => Ok(vec![union(ins); op.bwd.in_avals().len() - op.num_residuals]),
        Call::ShardMap(op) => {
            // Results were checked against their specs along its own axes when it was traced.
            let own = |(axes, spec): (&Axes, &PartitionSpec)| axes.iter().chain(spec.axes()).cloned().collect();
            let mut outs = program(&op.jaxpr, &ins.iter().zip(&op.in_specs).map(own).collect::<Vec<Axes>>())?;
            outs.iter_mut().for_each(|out| out.retain(|axis| op.mesh.size(axis).is_none()));
            Ok(outs)
        }
    }
}

/// Adds axes to those of each value. Returns whether any were new.
fn grow(values: &mut [Axes], more: &[Axes]) -> bool {
    let before: usize = values.iter().map(BTreeSet::len).sum();
    for (value, more) in values.iter_mut().zip(more) {
        value.extend(more.iter().cloned());
    }
    before != values.iter().map(BTreeSet::len).sum::<usize>()
}

/// Fails if shards that may run different equations would have to meet in a collective.
fn expect_agreement<'a>(
    operation: &str,
    what: &str,
    differs: &Axes,
    bodies: impl IntoIterator<Item = &'a Arc<Jaxpr>>,
) -> Result<()> {
    let bodies: Vec<_> = bodies.into_iter().collect();
    let meets = |axis: &&Arc<str>| bodies.iter().any(|body| body.eqns.iter().any(|eqn| uses_axis(&eqn.op, axis)));
    match differs.iter().find(meets) {
        None => Ok(()),
        Some(axis) => {
            let message = format!(
                "the {what} differs between shards along `{axis}`, and what depends on it has a collective along `{axis}`, in \
                 which all shards have to take part"
            );
            Err(Error::new(ErrorKind::Axis, operation, message))
        }
    }
}
