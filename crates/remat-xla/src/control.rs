//! Whole programs, and operations with bodies.

use std::sync::Arc;

use remat_ir::{
    Atom, Aval, Call, Checkpoint, Cond, Cut, DType, Eqn, Error, ErrorKind, Jaxpr, Literal, Op, PartitionSpec, Prim,
    Result, Scan, ShardMap, Sharding, VarMap, While,
};

use crate::ops::{self, current_all, optimization_barrier};
use crate::products::awaited;
use crate::value::{Type, Value, comma_separated};
use crate::writer::{Manual, Region, Writer};

/// Writes the equations of a program with these operands and returns its outputs. `is_loop_body` tells whether it is the body of a scan.
pub(crate) fn program(w: &mut Writer, jaxpr: &Jaxpr, args: &[Value], is_loop_body: bool) -> Result<Vec<Value>> {
    if args.len() != jaxpr.ins.len() {
        let message = format!("the program takes {} inputs and got {}", jaxpr.ins.len(), args.len());
        return Err(Error::new(ErrorKind::Internal, "stablehlo", message));
    }
    let mut env: VarMap<Option<Value>> = jaxpr.var_map(None);
    for (&var, arg) in jaxpr.ins.iter().zip(args) {
        env[var] = Some(arg.clone());
    }
    for (at, eqn) in jaxpr.eqns.iter().enumerate().filter(|(_, eqn)| !eqn.outs.is_empty() || eqn.op.has_effect()) {
        if let Op::Call(Call::Scan(op)) = &eqn.op
            && w.hides_communication()
            && !is_loop_body
        {
            let awaited = awaited(jaxpr, at, op);
            let values = awaited.iter().map(|&var| read(&env, Atom::Var(var))).collect::<Result<Vec<Value>>>()?;
            // Later equations read the results, as the newest names of these values.
            optimization_barrier(w, &values)?;
        }
        let ins = eqn.ins.iter().map(|&atom| read(&env, atom)).collect::<Result<Vec<Value>>>()?;
        let outs: Vec<Aval> = eqn.outs.iter().map(|&var| jaxpr.aval(var).clone()).collect();
        let results = match &eqn.op {
            Op::Prim(op) => ops::prim(w, op, &ins, &outs),
            Op::Call(Call::Checkpoint(op)) => region(w, op, &ins, !is_loop_body || shares_operand(jaxpr, eqn)),
            Op::Call(op) => call(w, op, &ins, &outs),
        };
        for (&var, result) in eqn.outs.iter().zip(results.map_err(|e| e.at(eqn.loc))?) {
            env[var] = Some(result);
        }
    }
    jaxpr.outs.iter().map(|&atom| read(&env, atom)).collect()
}

fn read(env: &VarMap<Option<Value>>, atom: Atom) -> Result<Value> {
    let var = match atom {
        Atom::Lit(literal) => return Ok(Value::literal(literal)),
        Atom::Var(var) => var,
    };
    let undefined =
        || Error::new(ErrorKind::Check, "stablehlo", format!("variable {} is used before it is defined", var.0));
    env.get(var).cloned().flatten().ok_or_else(undefined)
}

/// A checkpointed region. In a backward pass it is computed again behind one barrier, whose operands are everything that the region uses:
/// residuals, inputs, and the cotangent. So it is not merged with its twin in the forward pass, and does not start before the backward pass
/// reaches it.
fn region(w: &mut Writer, op: &Checkpoint, ins: &[Value], has_twin: bool) -> Result<Vec<Value>> {
    if !(op.differentiated && has_twin) {
        return program(w, &op.jaxpr, ins, false);
    }
    let ins = optimization_barrier(w, ins)?;
    program(w, &op.jaxpr, &ins, false)
}

/// Whether another equation of the program reads an operand of this one. An iteration of a backward loop shares only the operands of the
/// region with the forward loop, which is a separate computation. If no other equation of the body reads one of them, the region cannot be
/// merged with anything and needs no barrier.
fn shares_operand(jaxpr: &Jaxpr, eqn: &Eqn) -> bool {
    let vars: Vec<_> = eqn.ins.iter().filter_map(|atom| atom.var()).collect();
    let others = jaxpr.eqns.iter().filter(|other| !std::ptr::eq(*other, eqn));
    others.flat_map(|other| &other.ins).filter_map(|atom| atom.var()).any(|var| vars.contains(&var))
}

/// Calls are inlined, which XLA would do anyway.
fn call(w: &mut Writer, op: &Call, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    match op {
        Call::Jit(op) => program(w, &op.jaxpr, ins, false),
        Call::CustomJvp(op) => program(w, &op.call, ins, false),
        Call::CustomVjp(op) => program(w, &op.call, ins, false),
        Call::Checkpoint(op) => region(w, op, ins, true),
        Call::CustomLin(op) => Err(op.not_evaluated()),
        Call::Scan(op) => operation(w, ins, |w, ins| scan(w, op, ins, outs)),
        Call::While(op) => operation(w, ins, |w, ins| while_loop(w, op, ins, outs)),
        Call::Cond(op) => operation(w, ins, |w, ins| cond(w, op, ins, outs)),
        Call::ShardMap(op) => operation(w, ins, |w, ins| shard_map(w, op, ins, outs)),
    }
}

/// An operation with regions, which reads its operands by their newest names.
fn operation(
    w: &mut Writer,
    ins: &[Value],
    write: impl FnOnce(&mut Writer, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Value>> {
    let ins = current_all(w, ins)?;
    let results = write(w, &ins)?;
    w.versions_mut().record(&ins, &results, None);
    Ok(results)
}

/// A computation on shards, with its collectives written as they are.
fn shard_map(w: &mut Writer, op: &ShardMap, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    let around = w.manual.clone();
    let own = op.mesh.axes().iter().map(|(name, _)| name.clone());
    let manual = match &around {
        None => Manual { devices: op.devices().clone(), axes: own.collect(), positions: Vec::new() },
        Some(around)
            if around.devices == *op.devices()
                && op.mesh.axes().iter().all(|(name, _)| !around.axes.contains(name)) =>
        {
            Manual { axes: around.axes.iter().cloned().chain(own).collect(), ..around.clone() }
        }
        Some(around) => {
            let message = format!(
                "a shard_map over {} is inside one over {} of {}; it has to be over other axes of the same mesh",
                op.mesh,
                around.devices.part(|name| around.axes.iter().any(|axis| **axis == *name)),
                around.devices
            );
            return Err(Error::new(ErrorKind::Axis, "shard_map", message));
        }
    };
    let body = |w: &mut Writer, args: &[Value], manual: Manual| {
        w.manual = Some(manual);
        let results = program(w, &op.jaxpr, args, false);
        w.manual = around;
        results
    };
    // A program for one device is not partitioned.
    if op.devices().devices() == 1 {
        return body(w, ins, manual);
    }
    let missing = || Error::new(ErrorKind::Internal, "shard_map", "its mesh is not among those of the program");
    let placement = w.placement.clone().ok_or_else(missing)?;
    let is_partial = op.mesh.axes().len() < op.devices().axes().len();
    let sharding = |(spec, aval): (&PartitionSpec, &Aval)| {
        let sharding = Sharding { mesh: op.devices().clone(), spec: spec.clone() };
        if is_partial { placement.open_text(&sharding, aval.rank()) } else { placement.text(&sharding, aval.rank()) }
    };
    // Operands; then the positions along its own axes, cut so that each device has its own; then those along the enclosing axes.
    let mut operands = ins.to_vec();
    let mut in_specs = op.in_specs.clone();
    let mut args = op.jaxpr.in_avals();
    let mut positions = manual.positions.clone();
    for (name, size) in op.mesh.axes().iter().filter(|(name, _)| is_partial && uses_position(&op.jaxpr, name)) {
        let all = Aval::new(DType::I32, [*size]);
        operands.push(w.define(format!("stablehlo.iota dim = 0 : {}", Type(&all)), all.clone()));
        in_specs.push(PartitionSpec::new([Cut(vec![name.clone()])]));
        args.push(all.with_shape([1]));
        positions.push((name.clone(), Value::literal(Literal::from_i128(DType::I32, 0))));
    }
    for (_, position) in &manual.positions {
        operands.push(position.clone());
        in_specs.push(PartitionSpec::default());
        args.push(position.aval.clone());
    }
    let count = manual.positions.len();
    let region = |w: &mut Writer, args: &[Value]| {
        let (args, own) = args.split_at(op.jaxpr.ins.len());
        let (own, known) = own.split_at(own.len() - count);
        for ((_, position), arg) in positions.iter_mut().zip(known.iter().chain(own)) {
            *position = w.reshape(arg, &[]);
        }
        body(w, args, Manual { positions, ..manual })
    };
    let axes = comma_separated(op.mesh.axes().iter().map(|(name, _)| format!("{name:?}")));
    let avals: Vec<Aval> = operands.iter().map(|operand| operand.aval.clone()).collect();
    let properties = format!(
        "in_shardings = #sdy.sharding_per_value<[{}]>, manual_axes = #sdy<manual_axes{{{axes}}}>, \
         out_shardings = #sdy.sharding_per_value<[{}]>",
        comma_separated(in_specs.iter().zip(&avals).map(sharding)),
        comma_separated(op.out_specs.iter().zip(outs).map(sharding)),
    );
    let region = Region::new(args, region).of_shardy();
    w.generic("sdy.manual_computation", &operands, &properties, vec![region], outs)
}

/// Whether a program reads the position along an axis.
fn uses_position(jaxpr: &Jaxpr, axis: &str) -> bool {
    jaxpr.eqns.iter().any(|eqn| match &eqn.op {
        Op::Prim(Prim::AxisIndex(op)) => *op.axis_name == *axis,
        op => op.bodies().into_iter().any(|body| uses_position(body, axis)),
    })
}

/// A loop over a counter, constants, carries, stacked inputs and stacked outputs. An iteration reads its slices of the inputs and
/// writes those of the outputs.
fn scan(w: &mut Writer, op: &Scan, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    let avals: Vec<Aval> = ins.iter().map(|value| value.aval.clone()).collect();
    if let Some(unrolled) = remat_opt::unrolled(op, &avals)? {
        return program(w, &unrolled, ins, false);
    }
    let stacked = outs[op.num_carry..].iter().map(|aval| Value::literal(Literal::from_f64(aval.dtype, 0.0)));
    // The stack of a value in host memory is in host memory too.
    let stack = |(zero, aval): (Value, &Aval)| Value { aval: aval.clone(), ..w.spread(&zero, &aval.shape) };
    let stacked: Vec<Value> = stacked.zip(&outs[op.num_carry..]).map(stack).collect();
    let first_carry = op.num_consts;
    if op.length == 0 {
        let carries = &ins[first_carry..first_carry + op.num_carry];
        return Ok(carries.iter().chain(&stacked).cloned().collect());
    }
    let counter = if i32::try_from(op.length).is_ok() { DType::I32 } else { DType::I64 };
    let integer = |i: usize| Literal::from_i128(counter, i as i128);
    let carried: Vec<Value> =
        std::iter::once(Value::literal(integer(0))).chain(ins.iter().cloned()).chain(stacked).collect();
    let avals: Vec<Aval> = carried.iter().map(|value| value.aval.clone()).collect();
    let holds = Region::new(avals.clone(), |w, args| {
        let length = w.constant(integer(op.length), &[]);
        Ok(vec![w.compare("LT", &args[0], &length)])
    });
    let body = Region::new(avals.clone(), |w, args| {
        let (i, args) = (&args[0], &args[1..]);
        let at = if op.reverse {
            let last = w.constant(integer(op.length - 1), &[]);
            w.binary("subtract", &last, i)
        } else {
            i.clone()
        };
        let (operands, stacked) = args.split_at(ins.len());
        let (kept, xs) = operands.split_at(op.num_consts + op.num_carry);
        let mut inputs = kept.to_vec();
        for x in xs {
            inputs.push(slice_at(w, x, &at)?);
        }
        let mut results = program(w, &op.jaxpr, &inputs, true)?;
        let ys = results.split_off(op.num_carry);
        let one = w.constant(integer(1), &[]);
        let mut next = vec![w.binary("add", i, &one)];
        next.extend_from_slice(&kept[..op.num_consts]);
        next.extend(results);
        next.extend_from_slice(xs);
        for (stack, y) in stacked.iter().zip(ys) {
            next.push(write_at(w, stack, &y, &at)?);
        }
        Ok(next)
    });
    let results = w.generic("while", &carried, "", vec![holds, body], &avals)?;
    let carries = results[1 + first_carry..].iter().take(op.num_carry);
    Ok(carries.chain(&results[1 + ins.len()..]).cloned().collect())
}

/// The slice of a stacked value at this index.
fn slice_at(w: &mut Writer, x: &Value, at: &Value) -> Result<Value> {
    let shape = &x.shape()[1..];
    if x.aval.size() == 0 {
        return Ok(w.empty(&x.aval.with_shape(shape.iter().copied())));
    }
    let sizes: Vec<usize> = std::iter::once(1).chain(shape.iter().copied()).collect();
    let operands = starts(w, at, x.rank());
    let operands: Vec<Value> = std::iter::once(x.clone()).chain(operands).collect();
    let slice = ops::dynamic_slice(w, &operands, &sizes)?;
    let slice = w.reshape(&slice, shape);
    Ok(Value { aval: slice.aval.in_memory(x.aval.memory), ..slice })
}

/// The stacked value with this slice at this index.
fn write_at(w: &mut Writer, stack: &Value, slice: &Value, at: &Value) -> Result<Value> {
    let slice = w.operand(slice);
    let sizes: Vec<usize> = std::iter::once(1).chain(slice.shape().iter().copied()).collect();
    let slice = w.reshape(&slice, &sizes);
    let operands = starts(w, at, stack.rank());
    let operands: Vec<Value> = [stack.clone(), slice].into_iter().chain(operands).collect();
    ops::dynamic_update_slice(w, &operands)
}

/// This index along the first axis, 0 along the others.
fn starts(w: &mut Writer, at: &Value, rank: usize) -> Vec<Value> {
    let zero = (rank > 1).then(|| w.splat_integer(at, 0));
    std::iter::once(at.clone()).chain(std::iter::repeat_n(zero, rank - 1).flatten()).collect()
}

/// A loop over the constants of the condition, those of the body, and the carries.
fn while_loop(w: &mut Writer, op: &While, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    let avals: Vec<Aval> = ins.iter().map(|value| value.aval.clone()).collect();
    let consts = op.cond_consts + op.body_consts;
    let holds = Region::new(avals.clone(), |w, args| {
        let args: Vec<Value> = args[..op.cond_consts].iter().chain(&args[consts..]).cloned().collect();
        program(w, &op.cond, &args, false)
    });
    let body = Region::new(avals.clone(), |w, args| {
        let carries = program(w, &op.body, &args[op.cond_consts..], false)?;
        Ok(args[..consts].iter().cloned().chain(carries).collect())
    });
    let mut results = w.generic("while", ins, "", vec![holds, body], &avals)?;
    debug_assert_eq!(results.len() - consts, outs.len());
    Ok(results.split_off(consts))
}

/// One of several branches. `stablehlo.case` takes the last branch for every index out of range, while remat takes the first for a negative
/// one.
fn cond(w: &mut Writer, op: &Cond, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    let [index, operands @ ..] = ins else {
        return Err(Error::new(ErrorKind::Check, "cond", "there is no index"));
    };
    if let [branch] = &op.branches[..] {
        return program(w, branch, operands, false);
    }
    // Branches refer to outer values, whose statements come before the operation.
    let operands: Vec<Value> = operands.iter().map(|value| w.operand(value)).collect();
    let (index, zero) = (w.operand(index), w.splat_integer(index, 0));
    let index = w.binary("maximum", &index, &zero);
    let branch = |branch: &Arc<Jaxpr>| {
        let (branch, operands) = (branch.clone(), &operands);
        Region::new([], move |w, _| program(w, &branch, operands, false))
    };
    let regions = op.branches.iter().map(branch).collect();
    w.generic("case", &[index], "", regions, outs)
}
