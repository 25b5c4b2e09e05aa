//! Programs on meshes: computes the shards of all devices together, equation by equation, so that a collective has the operands of all
//! devices. This defines what a `shard_map` means; engines are tested against it.
//!
//! A branch that only some devices take is run on these.

use std::sync::Arc;

use super::walk::{Walk, row_major};
use super::{apply, elements, read, reduce, shape};
use crate::{
    AllReduce, AllReduceKind, Array, Aval, Call, Concatenate, Cond, Element, Eqn, Error, ErrorKind, Jaxpr, Literal,
    Mesh, Op, Operation, PartitionSpec, Prim, Reduce, Result, Scan, ShardMap, VarMap, While, axes_of, unknown_axis,
    uses_axis, with_dtype,
};

/// One array for each device that takes part.
type Shards = Vec<Array>;

/// The devices that run a program: all devices of the mesh, or those selected by an index or a condition.
struct Devices<'a> {
    mesh: &'a Mesh,
    numbers: Vec<usize>,
}

impl Devices<'_> {
    /// The devices at these positions of the list.
    fn only(&self, positions: &[usize]) -> Devices<'_> {
        Devices { mesh: self.mesh, numbers: chosen(&self.numbers, positions) }
    }
}

/// The elements at these positions.
fn chosen<T: Clone>(all: &[T], positions: &[usize]) -> Vec<T> {
    positions.iter().map(|&k| all[k].clone()).collect()
}

/// The shards of the devices at these positions.
fn shards_of(values: &[Shards], positions: &[usize]) -> Vec<Shards> {
    values.iter().map(|shards| chosen(shards, positions)).collect()
}

/// Runs the body on every device of the mesh.
pub(super) fn shard_map(op: &ShardMap, ins: &[Array]) -> Result<Vec<Array>> {
    let cut = |(x, spec): (&Array, &PartitionSpec)| {
        (0..op.mesh.devices()).map(|device| cut_shard(x, spec, &op.mesh, device)).collect::<Result<Shards>>()
    };
    let args = ins.iter().zip(&op.in_specs).map(cut).collect::<Result<Vec<Shards>>>()?;
    let devices = Devices { mesh: &op.mesh, numbers: (0..op.mesh.devices()).collect() };
    let outs = program(&devices, &op.jaxpr, args)?;
    outs.iter().zip(&op.out_specs).map(|(shards, spec)| join_shards(shards, spec, &op.mesh)).collect()
}

/// The shard of an array that a device has.
///
/// ```
/// use remat_ir::{Array, Mesh, cut_shard, join_shards, spec};
/// let (mesh, spec) = (Mesh::new([("data", 2)])?, spec!["data"]);
/// let x = Array::from_vec(vec![1i32, 2, 3, 4], [4])?;
/// let shards = [cut_shard(&x, &spec, &mesh, 0)?, cut_shard(&x, &spec, &mesh, 1)?];
/// assert_eq!(shards[1].as_slice::<i32>(), Some(&[3, 4][..]));
/// assert_eq!(join_shards(&shards, &spec, &mesh)?.as_slice::<i32>(), Some(&[1, 2, 3, 4][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the array cannot be cut in this way.
pub fn cut_shard(x: &Array, spec: &PartitionSpec, mesh: &Mesh, device: usize) -> Result<Array> {
    let aval = spec.shard_aval("shard", x.aval(), mesh)?;
    if aval == *x.aval() {
        return Ok(x.clone());
    }
    let strides = row_major(x.shape());
    shape::view(x, offset(&aval, &strides, spec, mesh, device), &strides, &aval.shape)
}

/// Joins shards, one for each device of the mesh, to an array. If several devices have the same shard, the first is read.
///
/// # Errors
/// If the numbers of shards and devices differ, the shards' avals differ, or the array has too many elements to count.
pub fn join_shards(shards: &[Array], spec: &PartitionSpec, mesh: &Mesh) -> Result<Array> {
    let Some(first) = shards.first().filter(|_| shards.len() == mesh.devices()) else {
        let message = format!("{} shards are given for {} devices", shards.len(), mesh.devices());
        return Err(Error::new(ErrorKind::Argument, "shard", message));
    };
    if let Some(other) = shards.iter().find(|shard| shard.aval() != first.aval()) {
        let message = format!("a shard is {} and the first is {}", other.aval(), first.aval());
        return Err(Error::new(ErrorKind::Shape, "shard", message));
    }
    let out = spec.whole_aval("shard", first.aval(), mesh)?;
    if out == *first.aval() {
        return Ok(first.clone());
    }
    let (from, to) = (row_major(first.shape()), row_major(&out.shape));
    let walk = Walk::new(first.shape(), [&from, &to]);
    let data = with_dtype!(out.dtype, T => {
        let mut data = vec![T::default(); out.size()];
        for (device, shard) in shards.iter().enumerate() {
            let is_first = mesh.axes().iter().all(|(name, _)| {
                spec.axes().any(|axis| axis == name) || mesh.position(device, name) == Some(0)
            });
            if is_first {
                walk.copy(elements::<T>(shard)?, 0, &mut data, offset(first.aval(), &to, spec, mesh, device));
            }
        }
        T::wrap(data)
    });
    Array::new(out, data)
}

/// Where the shard of a device begins in the whole array, which has these strides.
fn offset(shard: &Aval, strides: &[isize], spec: &PartitionSpec, mesh: &Mesh, device: usize) -> isize {
    let of_dim = |d: usize| (mesh.shard(device, spec.axes_of(d)) * shard.shape[d]) as isize * strides[d];
    (0..shard.rank()).map(of_dim).sum()
}

/// Runs a program on these devices, each on its own arguments.
fn program(devices: &Devices<'_>, jaxpr: &Jaxpr, args: Vec<Shards>) -> Result<Vec<Shards>> {
    let mut env: Vec<VarMap<Option<Array>>> = vec![jaxpr.var_map(None); devices.numbers.len()];
    for (&var, shards) in jaxpr.ins.iter().zip(args) {
        for (env, shard) in env.iter_mut().zip(shards) {
            env[var] = Some(shard);
        }
    }
    for eqn in &jaxpr.eqns {
        let operand = |&atom| env.iter().map(|env| read(env, atom)).collect::<Result<Shards>>();
        let ins = eqn.ins.iter().map(operand).collect::<Result<Vec<Shards>>>()?;
        let outs = equation(devices, eqn, ins).map_err(|e| e.at(eqn.loc))?;
        for (&var, shards) in eqn.outs.iter().zip(outs) {
            for (env, shard) in env.iter_mut().zip(shards) {
                env[var] = Some(shard);
            }
        }
    }
    jaxpr.outs.iter().map(|&atom| env.iter().map(|env| read(env, atom)).collect()).collect()
}

fn equation(devices: &Devices<'_>, eqn: &Eqn, ins: Vec<Shards>) -> Result<Vec<Shards>> {
    match &eqn.op {
        Op::Prim(op) if !axes_of(op).is_empty() => Ok(vec![collective(devices, op, ins)?]),
        Op::Call(op) if devices.mesh.axes().iter().any(|(name, _)| uses_axis(&eqn.op, name)) => call(devices, op, ins),
        op => {
            let apply = |k: usize| apply(op, ins.iter().map(|shards| shards[k].clone()).collect());
            let outs = (0..devices.numbers.len()).map(apply).collect::<Result<Vec<Vec<Array>>>>()?;
            Ok(by_value(outs, eqn.outs.len()))
        }
    }
}

/// The results of each device, regrouped as the shards of each result.
fn by_value(devices: Vec<Vec<Array>>, count: usize) -> Vec<Shards> {
    (0..count).map(|i| devices.iter().map(|outs| outs[i].clone()).collect()).collect()
}

/// An operation with collectives in its bodies.
fn call(devices: &Devices<'_>, op: &Call, ins: Vec<Shards>) -> Result<Vec<Shards>> {
    match op {
        Call::Jit(op) => program(devices, &op.jaxpr, ins),
        Call::Checkpoint(op) => program(devices, &op.jaxpr, ins),
        Call::CustomJvp(op) => program(devices, &op.call, ins),
        Call::CustomVjp(op) => program(devices, &op.call, ins),
        Call::Scan(op) => scan(devices, op, ins),
        Call::While(op) => while_loop(devices, op, ins),
        Call::Cond(op) => cond(devices, op, ins),
        Call::CustomLin(op) => Err(op.not_evaluated()),
        Call::ShardMap(op) => nested(devices, op, ins),
    }
}

/// A `shard_map` in the body of another, with collectives along the axes of both: each device is replaced by the devices of the inner mesh.
fn nested(devices: &Devices<'_>, op: &ShardMap, ins: Vec<Shards>) -> Result<Vec<Shards>> {
    let count = op.mesh.devices();
    let mesh = Mesh::new(devices.mesh.axes().iter().chain(op.mesh.axes()).cloned())?;
    let numbers = devices.numbers.iter().flat_map(|&number| (0..count).map(move |k| number * count + k)).collect();
    let cut = |(shards, spec): (&Shards, &PartitionSpec)| {
        let of_each = shards.iter().flat_map(|x| (0..count).map(move |k| cut_shard(x, spec, &op.mesh, k)));
        of_each.collect::<Result<Shards>>()
    };
    let args = ins.iter().zip(&op.in_specs).map(cut).collect::<Result<Vec<Shards>>>()?;
    let outs = program(&Devices { mesh: &mesh, numbers }, &op.jaxpr, args)?;
    let join = |(shards, spec): (&Shards, &PartitionSpec)| {
        shards.chunks(count).map(|own| join_shards(own, spec, &op.mesh)).collect::<Result<Shards>>()
    };
    outs.iter().zip(&op.out_specs).map(join).collect()
}

fn scan(devices: &Devices<'_>, op: &Scan, mut ins: Vec<Shards>) -> Result<Vec<Shards>> {
    let xs = ins.split_off(op.num_consts + op.num_carry);
    let mut carry = ins.split_off(op.num_consts);
    let y_avals = op.jaxpr.out_avals().split_off(op.num_carry);
    let mut stacks: Vec<Vec<Shards>> = vec![Vec::new(); y_avals.len()];
    for step in 0..op.length {
        let i = if op.reverse { op.length - 1 - step } else { step };
        let slice = |shards: &Shards| shards.iter().map(|x| super::control::slice_at(x, i)).collect::<Result<Shards>>();
        let slices = xs.iter().map(slice).collect::<Result<Vec<Shards>>>()?;
        carry = program(devices, &op.jaxpr, ins.iter().cloned().chain(carry).chain(slices).collect())?;
        for (stack, y) in stacks.iter_mut().zip(carry.split_off(op.num_carry)) {
            stack.push(y);
        }
    }
    for (mut stack, aval) in stacks.into_iter().zip(y_avals) {
        if op.reverse {
            stack.reverse();
        }
        let stacked = |k: usize| {
            let rows: Vec<Array> = stack.iter().map(|y| y[k].clone()).collect();
            stacked(&aval, &rows)
        };
        carry.push((0..devices.numbers.len()).map(stacked).collect::<Result<Shards>>()?);
    }
    Ok(carry)
}

/// Runs each device until its own condition is false.
fn while_loop(devices: &Devices<'_>, op: &While, mut ins: Vec<Shards>) -> Result<Vec<Shards>> {
    let mut carry = ins.split_off(op.cond_consts + op.body_consts);
    let body_consts = ins.split_off(op.cond_consts);
    let mut running: Vec<usize> = (0..devices.numbers.len()).collect();
    loop {
        let args = [shards_of(&ins, &running), shards_of(&carry, &running)].concat();
        let holds = integers("while", "condition", program(&devices.only(&running), &op.cond, args)?.first())?;
        running = running.into_iter().zip(holds).filter(|(_, holds)| *holds != 0).map(|(k, _)| k).collect();
        if running.is_empty() {
            return Ok(carry);
        }
        let args = [shards_of(&body_consts, &running), shards_of(&carry, &running)].concat();
        let outs = program(&devices.only(&running), &op.body, args)?;
        for (shards, new) in carry.iter_mut().zip(outs) {
            for (&k, new) in running.iter().zip(new) {
                shards[k] = new;
            }
        }
    }
}

/// Runs each branch on the devices whose index selects it.
fn cond(devices: &Devices<'_>, op: &Cond, mut ins: Vec<Shards>) -> Result<Vec<Shards>> {
    let last = op.branches.len() as i128 - 1;
    let indices = integers("cond", "index", Some(&ins.remove(0)))?;
    let mut results: Vec<Vec<Array>> = vec![Vec::new(); devices.numbers.len()];
    for (i, branch) in op.branches.iter().enumerate() {
        let own: Vec<usize> = (0..indices.len()).filter(|&k| indices[k].clamp(0, last) == i as i128).collect();
        if own.is_empty() {
            continue;
        }
        for shards in program(&devices.only(&own), branch, shards_of(&ins, &own))? {
            for (&k, shard) in own.iter().zip(shards) {
                results[k].push(shard);
            }
        }
    }
    match op.branches.first() {
        Some(branch) => Ok(by_value(results, branch.outs.len())),
        None => Err(Error::new(ErrorKind::Check, "cond", "there is no branch")),
    }
}

/// The integer or bool of each device.
fn integers(operation: &str, what: &str, shards: Option<&Shards>) -> Result<Vec<i128>> {
    let value = |x: &Array| x.to_literal().and_then(|x| if x.is_zero() { Some(0) } else { x.as_i128().or(Some(1)) });
    let not_a_scalar = || Error::new(ErrorKind::Check, operation, format!("the {what} is not a scalar"));
    shards.ok_or_else(not_a_scalar)?.iter().map(|x| value(x).ok_or_else(not_a_scalar)).collect()
}

/// The results of a collective.
fn collective(devices: &Devices<'_>, op: &Prim, ins: Vec<Shards>) -> Result<Shards> {
    let (mesh, numbers) = (devices.mesh, &devices.numbers);
    let used = axes_of(op);
    for (name, size) in &used {
        let known = || mesh.axes().iter().map(|(name, _)| &**name);
        let actual = mesh.size(name).ok_or_else(|| unknown_axis(op.name(), name, known()))?;
        if size.is_some_and(|size| size != actual) {
            return Err(wrong_size(op, name, size.unwrap_or(0), actual));
        }
    }
    let names: Vec<Arc<str>> = used.into_iter().map(|(name, _)| name).collect();
    let others: Vec<Arc<str>> =
        mesh.axes().iter().map(|(name, _)| name.clone()).filter(|name| !names.contains(name)).collect();
    let mut results: Vec<Option<Array>> = vec![None; numbers.len()];
    for group in 0..mesh.shards(&others) {
        let mut members: Vec<usize> =
            (0..numbers.len()).filter(|&k| mesh.shard(numbers[k], &others) == group).collect();
        if members.is_empty() {
            continue;
        }
        if members.len() != mesh.shards(&names) {
            return Err(not_all(op, members.len(), mesh.shards(&names)));
        }
        members.sort_by_key(|&k| mesh.shard(numbers[k], &names));
        let operands: Option<Vec<Array>> = ins.first().map(|shards| chosen(shards, &members));
        for (&k, result) in members.iter().zip(exchange(op, members.len(), operands.as_deref())?) {
            results[k] = Some(result);
        }
    }
    let missing = || Error::new(ErrorKind::Internal, op.name(), "a shard has no result");
    results.into_iter().map(|result| result.ok_or_else(missing)).collect()
}

/// The error of a collective that waits for shards that took another branch.
fn not_all(op: &Prim, present: usize, all: usize) -> Error {
    let message =
        format!("{present} of {all} shards take part: the index or condition that it depends on differs between them");
    Error::new(ErrorKind::Argument, op.name(), message)
}

/// The error of a collective that was traced for an axis of another size.
fn wrong_size(op: &Prim, name: &str, made_for: usize, actual: usize) -> Error {
    let message = format!("it is for {made_for} shards, and the axis `{name}` has size {actual}");
    Error::new(ErrorKind::Axis, op.name(), message)
}

/// The results of the shards along the axes of a collective, in their order.
fn exchange(op: &Prim, size: usize, operands: Option<&[Array]>) -> Result<Vec<Array>> {
    if let Prim::AxisIndex(_) = op {
        return Ok((0..size).map(|i| Array::scalar(i as i32)).collect());
    }
    let internal = |message| Error::new(ErrorKind::Internal, op.name(), message);
    let xs = operands.ok_or_else(|| internal("has no operand"))?;
    let first = xs.first().ok_or_else(|| internal("has no shards"))?;
    let parts = |x: &Array, d: usize| -> Result<Vec<Array>> {
        let spec = PartitionSpec::new((0..=d).map(|i| (i == d).then_some("parts")));
        let mesh = Mesh::new([("parts", size)])?;
        (0..size).map(|i| cut_shard(x, &spec, &mesh, i)).collect()
    };
    match op {
        Prim::AllReduce(AllReduce { kind, .. }) => {
            let sum = reduce::reduce(
                &Reduce { kind: kind.reduce(), axes: [0].into_iter().collect() },
                &[stacked(first.aval(), xs)?],
            )?;
            Ok(vec![sum; size])
        }
        Prim::AllGather(op) => Ok(vec![shape::concatenate(&Concatenate { axis: op.dimension }, xs)?; size]),
        Prim::ReduceScatter(op) => {
            let kind = AllReduceKind::Sum.reduce();
            let sum = reduce::reduce(&Reduce { kind, axes: [0].into_iter().collect() }, &[stacked(first.aval(), xs)?])?;
            parts(&sum, op.dimension)
        }
        Prim::AllToAll(op) => {
            let sent = xs.iter().map(|x| parts(x, op.split)).collect::<Result<Vec<Vec<Array>>>>()?;
            let received = |i: usize| {
                let got: Vec<Array> = sent.iter().map(|parts| parts[i].clone()).collect();
                shape::concatenate(&Concatenate { axis: op.concat }, &got)
            };
            (0..size).map(received).collect()
        }
        Prim::Ppermute(op) => {
            let zeros = Array::full(Literal::from_f64(first.dtype(), 0.0), first.shape().to_vec());
            let zeros = zeros.in_memory(first.aval().memory);
            let mut results = vec![zeros; size];
            for &(from, to) in &*op.pairs {
                results[to] = xs[from].clone();
            }
            Ok(results)
        }
        _ => Err(internal("is not a collective")),
    }
}

/// Arrays of this aval, stacked along a new first dimension.
fn stacked(aval: &Aval, rows: &[Array]) -> Result<Array> {
    let shape = std::iter::once(rows.len()).chain(aval.shape.iter().copied());
    let data = with_dtype!(aval.dtype, T => {
        let mut data = Vec::with_capacity(rows.len() * aval.size());
        for row in rows {
            data.extend_from_slice(elements::<T>(row)?);
        }
        T::wrap(data)
    });
    Array::new(aval.with_shape(shape), data)
}
