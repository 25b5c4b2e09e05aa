//! The rules of operations with jaxprs in their parameters, one file per operation. Each applies its transformation to the bodies.

mod call;
mod cond;
mod custom;
mod scan;
mod shard_map;
mod while_loop;

pub(crate) use custom::NO_DERIVATIVE;
use remat_ir::{Atom, Aval, Builder, Call, DevicePut, Jaxpr, MemorySpace, Op, Result, SelectN};

use super::Batch;
use super::partial_eval::split_eqn::{Context, SplitEqn};
use crate::rules::{Batched, Linear, Operand, not_linear};

/// Results and their tangents; at least one operand has a tangent.
pub(super) fn jvp(b: &mut Builder, op: &Call, ins: &[Atom], tangents: &[Option<Atom>]) -> Result<(Vec<Atom>, Linear)> {
    match op {
        Call::Jit(op) => call::jvp(b, op, ins, tangents),
        Call::Checkpoint(op) => call::jvp(b, op, ins, tangents),
        Call::Scan(op) => scan::jvp(b, op, ins, tangents),
        Call::While(op) => while_loop::jvp(b, op, ins, tangents),
        Call::Cond(op) => cond::jvp(b, op, ins, tangents),
        Call::CustomJvp(op) => custom::jvp_of_custom_jvp(b, op, ins, tangents),
        Call::CustomVjp(op) => custom::jvp_of_custom_vjp(b, op, ins, tangents),
        Call::CustomLin(op) => Err(op.not_evaluated()),
        Call::ShardMap(op) => shard_map::jvp(b, op, ins, tangents),
    }
}

/// The known and the staged part of an equation; `None` if it is treated as one operation.
pub(super) fn split(op: &Call, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    match op {
        Call::Jit(op) => call::split_jit(op, eqn),
        Call::Checkpoint(op) => call::split_checkpoint(op, eqn),
        Call::Scan(op) => scan::split(op, eqn),
        Call::While(op) => while_loop::split(op, eqn),
        Call::Cond(op) => cond::split(op, eqn),
        Call::ShardMap(op) => shard_map::split(op, eqn),
        Call::CustomJvp(_) | Call::CustomVjp(_) | Call::CustomLin(_) => Ok(None),
    }
}

/// The cotangents of the linear operands; at least one result has a cotangent.
pub(super) fn transpose(
    b: &mut Builder,
    op: &Call,
    cotangents: &[Option<Atom>],
    out_avals: &[Aval],
    ins: &[Operand],
) -> Result<Linear> {
    match op {
        Call::Jit(op) => call::transpose(b, op, cotangents, ins),
        Call::Checkpoint(op) => call::transpose(b, op, cotangents, ins),
        Call::Scan(op) => scan::transpose(b, op, cotangents, out_avals, ins),
        Call::While(op) => Err(while_loop::no_reverse_mode(op)),
        Call::Cond(op) => cond::transpose(b, op, cotangents, ins),
        Call::CustomLin(op) => custom::transpose(b, op, cotangents, out_avals, ins),
        Call::ShardMap(op) => shard_map::transpose(b, op, cotangents, ins),
        Call::CustomJvp(_) | Call::CustomVjp(_) => Err(not_linear(op)),
    }
}

/// The results for a batch; at least one operand is batched.
pub(super) fn vmap(b: &mut Builder, op: &Call, batch: Batch<'_>, ins: &[Batched]) -> Result<Vec<Batched>> {
    match op {
        Call::Jit(op) => call::vmap(b, op, batch, ins),
        Call::Checkpoint(op) => call::vmap(b, op, batch, ins),
        Call::Scan(op) => scan::vmap(b, op, batch, ins),
        Call::While(op) => while_loop::vmap(b, op, batch, ins),
        Call::Cond(op) => cond::vmap(b, op, batch, ins),
        Call::CustomJvp(op) => custom::vmap_custom_jvp(b, op, batch, ins),
        Call::CustomVjp(op) => custom::vmap_custom_vjp(b, op, batch, ins),
        Call::CustomLin(op) => custom::vmap_custom_lin(b, op, batch, ins),
        Call::ShardMap(op) => shard_map::vmap(b, op, batch, ins),
    }
}

/// Adds an equation whose results have the avals of the outputs of `like`.
fn push(b: &mut Builder, op: Op, ins: &[Atom], like: &Jaxpr) -> Vec<Atom> {
    let loc = b.loc;
    b.push(op, ins, like.out_avals(), loc).into_iter().map(Atom::Var).collect()
}

/// Distributes the values in order to the entries where the mask is `true`.
fn spread<T>(mask: &[bool], values: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
    let mut values = values.into_iter();
    mask.iter().map(|&m| if m { values.next() } else { None }).collect()
}

/// The present ones of optional values.
fn present<T: Copy>(values: &[Option<T>]) -> Vec<T> {
    values.iter().flatten().copied().collect()
}

/// The operands that are known.
fn known(ins: &[Operand]) -> Vec<Atom> {
    let atom = |i: &Operand| match i {
        Operand::Known(atom) => Some(*atom),
        Operand::Linear(_) => None,
    };
    ins.iter().filter_map(atom).collect()
}

/// The operands with the batch dimension in front if they have one.
fn fronted(b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Atom>> {
    ins.iter().map(|&i| if i.axis.is_some() { front(b, size, i) } else { Ok(i.atom) }).collect()
}

/// The value with the batch dimension in front, repeated if it is shared.
fn front(b: &mut Builder, size: usize, x: Batched) -> Result<Atom> {
    crate::rules::Emit::batch_front(b, x, size)
}

/// Selects for each example the case given by `which`. Values in another memory are selected in device memory.
fn select_example(b: &mut Builder, which: Atom, cases: &[Atom]) -> Result<Atom> {
    let aval = b.aval(cases[0]);
    let which = crate::rules::Emit::broadcast(b, which, &aval.shape, &[0])?;
    if aval.memory == MemorySpace::Device {
        return b.emit1(SelectN.into(), &[&[which], cases].concat());
    }
    let mut operands = vec![which];
    for &case in cases {
        operands.push(b.emit1(DevicePut { memory: MemorySpace::Device }.into(), &[case])?);
    }
    let chosen = b.emit1(SelectN.into(), &operands)?;
    b.emit1(DevicePut { memory: aval.memory }.into(), &[chosen])
}

fn batched_mask(ins: &[Batched]) -> Vec<bool> {
    ins.iter().map(|i| i.axis.is_some()).collect()
}

/// The results of a batched body, in front where the mask says so.
fn batched_outs(outs: Vec<Atom>, batched: &[bool]) -> Vec<Batched> {
    let pack = |(atom, &batched): (Atom, &bool)| if batched { Batched::front(atom) } else { Batched::shared(atom) };
    outs.into_iter().zip(batched).map(pack).collect()
}
