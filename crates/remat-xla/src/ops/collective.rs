//! Collectives, inside an `sdy.manual_computation`, and sharding constraints.
//!
//! A collective lists the groups of devices that communicate; devices are numbered as in the mesh.
//!
//! f16 and bf16 are summed in f32, at twice the traffic. A second exchange computes whether a maximum has a NaN.

use std::sync::Arc;

use remat_ir::{
    AllGather, AllReduce, AllReduceKind, AllToAll, Aval, AxisIndex, DType, Error, ErrorKind, Literal, Mesh, Operation,
    Ppermute, Prim, ReduceScatter, Result, Sharding, ShardingConstraint, axes_of, unbound_axis, unknown_axis,
};

use crate::value::{Type, Value, comma_separated};
use crate::writer::{Manual, Region, Writer};

/// All collectives share one channel, which means that they communicate between the devices of one replica.
const CHANNEL: &str = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>";

/// The result of a collective.
pub(super) fn collective(w: &mut Writer, op: &Prim, ins: &[Value], out: &Aval) -> Result<Value> {
    let Some(manual) = w.manual.clone() else { return Err(unbound_axis(op)) };
    let mesh = &manual.devices;
    let mut names = Vec::new();
    for (name, made_for) in axes_of(op) {
        let known = || manual.axes.iter().map(|name| &**name);
        let size = mesh.size(&name).filter(|_| manual.axes.contains(&name));
        let size = size.ok_or_else(|| unknown_axis(op.name(), &name, known()))?;
        if let Some(made_for) = made_for.filter(|&made_for| made_for != size) {
            let message = format!("it is for {made_for} shards, and the axis `{name}` has size {size}");
            return Err(Error::new(ErrorKind::Axis, op.name(), message));
        }
        names.push(name);
    }
    let groups = Groups::new(mesh, &names);
    match (op, ins) {
        (Prim::AxisIndex(op), []) => Ok(axis_index(w, op, &manual)),
        (Prim::Ppermute(op), [x]) => ppermute(w, op, x, &groups),
        // A device that is alone in its group keeps its value.
        (_, [x]) if mesh.shards(&names) == 1 => Ok(x.clone()),
        (Prim::AllReduce(op), [x]) => all_reduce(w, op, x, &groups),
        (Prim::AllGather(op), [x]) => all_gather(w, op, x, out, &groups),
        (Prim::ReduceScatter(op), [x]) => reduce_scatter(w, op, x, out, &groups),
        (Prim::AllToAll(op), [x]) => all_to_all(w, op, x, out, &groups),
        _ => Err(Error::new(ErrorKind::Internal, op.name(), "is not a collective")),
    }
}

/// The devices along the axes of a collective, in the order of the axes, for each position along the others.
struct Groups(Vec<Vec<usize>>);

impl Groups {
    fn new(mesh: &Mesh, names: &[Arc<str>]) -> Groups {
        let others: Vec<Arc<str>> =
            mesh.axes().iter().map(|(name, _)| name.clone()).filter(|name| !names.contains(name)).collect();
        let group = |at: usize| {
            let mut devices: Vec<usize> =
                (0..mesh.devices()).filter(|&device| mesh.shard(device, &others) == at).collect();
            devices.sort_by_key(|&device| mesh.shard(device, names));
            devices
        };
        Groups((0..mesh.shards(&others)).map(group).collect())
    }

    fn text(&self) -> String {
        format!("replica_groups = {}", dense(&self.0))
    }
}

/// A table of integers.
fn dense(rows: &[Vec<usize>]) -> String {
    let width = rows.first().map_or(2, Vec::len);
    let row = |row: &Vec<usize>| format!("[{}]", comma_separated(row));
    let elements = if rows.is_empty() { String::new() } else { format!("[{}]", comma_separated(rows.iter().map(row))) };
    format!("dense<{elements}> : tensor<{}x{width}xi64>", rows.len())
}

/// A region that combines two scalars.
fn combination(operation: &'static str, dtype: DType) -> Region<'static> {
    let scalar = Aval::scalar(dtype);
    Region::new([scalar.clone(), scalar], move |w, args| Ok(vec![w.binary(operation, &args[0], &args[1])]))
}

fn one(results: Vec<Value>) -> Result<Value> {
    let none = || Error::new(ErrorKind::Internal, "stablehlo", "a collective has no result");
    results.into_iter().next().ok_or_else(none)
}

/// Sums of f16 and bf16 are accumulated in f32 and rounded once. The libraries that compute a maximum between devices lose a NaN, so NaN is
/// computed separately.
fn all_reduce(w: &mut Writer, op: &AllReduce, x: &Value, groups: &Groups) -> Result<Value> {
    let reduced = |w: &mut Writer, operation, x: &Value| {
        let properties = format!("{CHANNEL}, {}, use_global_device_ids", groups.text());
        let region = combination(operation, x.dtype());
        one(w.generic(
            "all_reduce",
            std::slice::from_ref(x),
            &properties,
            vec![region],
            std::slice::from_ref(&x.aval),
        )?)
    };
    let is_bool = x.dtype() == DType::Bool;
    let operation = match op.kind {
        AllReduceKind::Sum => {
            let wide = w.widen(x);
            let sum = reduced(w, "add", &wide)?;
            return Ok(w.convert(&sum, x.dtype()));
        }
        AllReduceKind::Max if is_bool => "or",
        AllReduceKind::Min if is_bool => "and",
        AllReduceKind::Max => "maximum",
        AllReduceKind::Min => "minimum",
    };
    let extreme = reduced(w, operation, x)?;
    if !x.dtype().is_float() {
        return Ok(extreme);
    }
    let is_nan = w.is_nan(x);
    let is_nan = w.convert(&is_nan, DType::I32);
    let some = reduced(w, "maximum", &is_nan)?;
    let zero = w.splat_integer(&some, 0);
    let some = w.compare("GT", &some, &zero);
    let nan = w.splat(x, f64::NAN);
    Ok(w.select(&some, &nan, &extreme))
}

fn all_gather(w: &mut Writer, op: &AllGather, x: &Value, out: &Aval, groups: &Groups) -> Result<Value> {
    let properties =
        format!("all_gather_dim = {} : i64, {CHANNEL}, {}, use_global_device_ids", op.dimension, groups.text());
    one(w.generic("all_gather", std::slice::from_ref(x), &properties, Vec::new(), std::slice::from_ref(out))?)
}

fn reduce_scatter(w: &mut Writer, op: &ReduceScatter, x: &Value, out: &Aval, groups: &Groups) -> Result<Value> {
    let wide = w.widen(x);
    let properties =
        format!("{CHANNEL}, {}, scatter_dimension = {} : i64, use_global_device_ids", groups.text(), op.dimension);
    let region = combination("add", wide.dtype());
    let aval = out.with_dtype(wide.dtype());
    let sum = one(w.generic("reduce_scatter", &[wide], &properties, vec![region], &[aval])?)?;
    Ok(w.convert(&sum, x.dtype()))
}

fn all_to_all(w: &mut Writer, op: &AllToAll, x: &Value, out: &Aval, groups: &Groups) -> Result<Value> {
    let properties = format!(
        "{CHANNEL}, concat_dimension = {} : i64, {}, split_count = {} : i64, split_dimension = {} : i64",
        op.concat,
        groups.text(),
        op.axis_size,
        op.split
    );
    one(w.generic("all_to_all", std::slice::from_ref(x), &properties, Vec::new(), std::slice::from_ref(out))?)
}

/// Devices without a sender get zeros.
fn ppermute(w: &mut Writer, op: &Ppermute, x: &Value, groups: &Groups) -> Result<Value> {
    let pairs: Vec<Vec<usize>> =
        groups.0.iter().flat_map(|group| op.pairs.iter().map(|&(from, to)| vec![group[from], group[to]])).collect();
    if pairs.is_empty() {
        return Ok(w.splat(x, 0.0));
    }
    let properties = format!("{CHANNEL}, source_target_pairs = {}", dense(&pairs));
    one(w.generic(
        "collective_permute",
        std::slice::from_ref(x),
        &properties,
        Vec::new(),
        std::slice::from_ref(&x.aval),
    )?)
}

/// The number of the device, divided by the number of devices along the axes after this one.
fn axis_index(w: &mut Writer, op: &AxisIndex, Manual { devices: mesh, positions, .. }: &Manual) -> Value {
    if op.axis_size == 1 {
        return w.constant(Literal::from_i128(DType::I32, 0), &[]);
    }
    if let Some((_, position)) = positions.iter().find(|(axis, _)| *axis == op.axis_name) {
        return position.clone();
    }
    let at = mesh.axes().iter().position(|(name, _)| *name == op.axis_name).unwrap_or(0);
    let stride: usize = mesh.axes()[at + 1..].iter().map(|(_, size)| size).product();
    let aval = Aval::scalar(DType::U32);
    let device = w.define(format!("stablehlo.partition_id : {}", Type(&aval)), aval);
    let integer = |w: &mut Writer, n: usize| w.constant(Literal::from_i128(DType::U32, n as i128), &[]);
    let (stride, size) = (integer(w, stride), integer(w, op.axis_size));
    let position = w.binary("divide", &device, &stride);
    let position = w.binary("remainder", &position, &size);
    w.convert(&position, DType::I32)
}

/// On one device there is nothing to cut, nor along the axes of an enclosing `shard_map`, where the value already is a shard.
pub(super) fn sharding_constraint(w: &mut Writer, op: &ShardingConstraint, x: &Value) -> Value {
    let Some(placement) = w.placement.clone().filter(|placement| placement.devices() > 1) else {
        return x.clone();
    };
    let Sharding { mesh, spec } = &*op.sharding;
    let spec = match &w.manual {
        None => spec.clone(),
        Some(manual) if manual.axes.len() == manual.devices.axes().len() || *mesh != manual.devices => {
            return x.clone();
        }
        Some(manual) => spec.without(&manual.axes),
    };
    let sharding = placement.text(&Sharding { mesh: mesh.clone(), spec }, x.rank());
    w.define(format!("sdy.sharding_constraint {x} {sharding} : {}", Type(&x.aval)), x.aval.clone())
}
