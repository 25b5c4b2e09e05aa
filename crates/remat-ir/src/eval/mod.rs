//! The reference evaluator: defines what every program means, by computing one operation at a time.
//!
//! It is straightforward and handles every dtype: f16 and bf16 are computed in f32 and rounded once per operation. Engines are tested
//! against it. A value is dropped after its last use, so that memory does not grow with the length of a program. It has no fusion, no
//! threads, and no other optimization that would cost clarity.

mod accumulate;
mod control;
mod conv;
mod convert;
mod dot;
mod elementwise;
mod gather;
mod linalg;
mod memory;
mod number;
mod reduce;
mod shape;
mod shards;
mod slice;
mod sort;
mod sum;
mod threefry;
mod walk;
mod window;

pub use memory::Reference;
pub use shards::{cut_shard, join_shards};
pub use threefry::threefry_block;

use crate::{
    Array, Atom, Aval, Call, Element, Error, ErrorKind, Jaxpr, Op, Operation, Prim, Result, Var, VarMap,
    expect_arguments, unbound_axis,
};

/// Evaluates one operation. Operands are checked by the shape rule of the operation.
///
/// ```
/// use remat_ir::{Array, Binary, eval_op};
/// let x = Array::from_vec(vec![1.0f32, 2.0], [2])?;
/// let y = eval_op(&Binary::Add.into(), &[x, Array::scalar(1.0f32)])?;
/// assert_eq!(y[0].as_slice::<f32>(), Some(&[2.0, 3.0][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the operation does not take operands of these avals, or is a linear map of which only the transpose is known (`custom_lin`).
pub fn eval_op(op: &Op, ins: &[Array]) -> Result<Vec<Array>> {
    apply(op, ins.to_vec())
}

/// Evaluates a program.
///
/// ```
/// use remat_ir::{Array, Aval, Builder, DType, Unary, eval};
/// let mut b = Builder::new();
/// let x = b.input(Aval::new(DType::F32, [2]));
/// let y = b.emit1(Unary::Neg.into(), &[x])?;
/// let out = eval(&b.finish(vec![y]), vec![Array::from_vec(vec![1.0f32, -2.0], [2])?])?;
/// assert_eq!(out[0].as_slice::<f32>(), Some(&[-1.0, 2.0][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the number of arguments or the aval of one is not the program's, or an operation fails; the error then has the
/// location of its equation.
pub fn eval(jaxpr: &Jaxpr, args: Vec<Array>) -> Result<Vec<Array>> {
    expect_arguments("eval", jaxpr.ins.iter().map(|&var| jaxpr.aval(var)), args.iter().map(Array::aval))?;
    let last = last_uses(jaxpr);
    let mut env: VarMap<Option<Array>> = jaxpr.var_map(None);
    for (&var, arg) in jaxpr.ins.iter().zip(args) {
        env[var] = last[var].map(|_| arg);
    }
    for (i, eqn) in jaxpr.eqns.iter().enumerate() {
        let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Vec<_>>>()?;
        for var in eqn.ins.iter().filter_map(|a| a.var()) {
            if last[var] == Some(i) {
                env[var] = None;
            }
        }
        let outs = apply(&eqn.op, ins).map_err(|e| e.at(eqn.loc))?;
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = last[var].map(|_| out);
        }
    }
    jaxpr.outs.iter().map(|&a| read(&env, a)).collect()
}

/// The position of the last equation that reads each variable: the number of equations for an output, `None` for a
/// variable that nothing reads.
fn last_uses(jaxpr: &Jaxpr) -> VarMap<Option<usize>> {
    let mut last = jaxpr.var_map(None);
    for (i, eqn) in jaxpr.eqns.iter().enumerate() {
        for var in eqn.ins.iter().filter_map(|a| a.var()) {
            last[var] = Some(i);
        }
    }
    for var in jaxpr.outs.iter().filter_map(|a| a.var()) {
        last[var] = Some(jaxpr.eqns.len());
    }
    last
}

fn read(env: &VarMap<Option<Array>>, atom: Atom) -> Result<Array> {
    match atom {
        Atom::Lit(literal) => Ok(Array::full(literal, [])),
        Atom::Var(var) => env.get(var).cloned().flatten().ok_or_else(|| undefined(var)),
    }
}

fn undefined(var: Var) -> Error {
    Error::new(ErrorKind::Check, "eval", format!("variable {} is used before it is defined", var.0))
}

/// The results of an operation. It owns its operands, so that a body can drop them, and buffers without other references are reused.
fn apply(op: &Op, ins: Vec<Array>) -> Result<Vec<Array>> {
    let out_avals = op.infer(&avals(&ins))?;
    expect_memory(op, &out_avals)?;
    let outs = match op {
        Op::Prim(op) => prim(op, ins)?,
        Op::Call(op) => call(op, ins)?,
    };
    if remat_debug::CHECKS {
        assert_eq!(out_avals, avals(&outs), "{}", op.name());
    }
    Ok(outs)
}

/// Fails if there is no memory for large results: a failed allocation would end the process.
fn expect_memory(op: &Op, outs: &[Aval]) -> Result<()> {
    const LARGE: usize = 1 << 30;
    let bytes = outs.iter().fold(0usize, |sum, aval| sum.saturating_add(aval.bytes()));
    if bytes < LARGE || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    let outs: Vec<String> = outs.iter().map(Aval::to_string).collect();
    let message = format!("there is no memory for the result {}, of {bytes} bytes", outs.join(" "));
    Err(Error::new(ErrorKind::Memory, op.name(), message))
}

/// The results of a first-order operation on operands that its shape rule takes.
fn prim(op: &Prim, ins: Vec<Array>) -> Result<Vec<Array>> {
    let one = |array: Result<Array>| Ok(vec![array?]);
    match op {
        Prim::Unary(op) => one(elementwise::unary(op, ins)),
        Prim::IntegerPow(op) => one(elementwise::integer_pow(op, ins)),
        Prim::Binary(op) => one(elementwise::binary(op, ins)),
        Prim::Compare(op) => one(elementwise::compare(op, ins)),
        Prim::SelectN(_) => one(elementwise::select_n(ins)),
        Prim::Clamp(_) => one(elementwise::clamp(ins)),
        Prim::ConvertElementType(op) => one(convert::convert_element_type(op, ins)),
        Prim::BitcastConvertType(op) => one(convert::bitcast_convert_type(op, &ins)),
        Prim::ReducePrecision(op) => one(convert::reduce_precision(op, &ins)),
        Prim::BroadcastInDim(op) => one(shape::broadcast_in_dim(op, &ins)),
        Prim::Reshape(op) => one(shape::reshape(op, &ins)),
        Prim::Transpose(op) => one(shape::transpose(op, &ins)),
        Prim::Squeeze(op) => one(shape::squeeze(op, &ins)),
        Prim::ExpandDims(op) => one(shape::expand_dims(op, &ins)),
        Prim::Rev(op) => one(shape::rev(op, &ins)),
        Prim::Concatenate(op) => one(shape::concatenate(op, &ins)),
        Prim::Pad(op) => one(shape::pad(op, &ins)),
        Prim::Iota(op) => one(shape::iota(op, &ins)),
        Prim::Slice(op) => one(slice::slice(op, &ins)),
        Prim::DynamicSlice(op) => one(slice::dynamic_slice(op, &ins)),
        Prim::DynamicUpdateSlice(op) => one(slice::dynamic_update_slice(op, ins)),
        Prim::Gather(op) => one(gather::gather(op, &ins)),
        Prim::Scatter(op) => one(gather::scatter(op, ins)),
        Prim::Reduce(op) => one(reduce::reduce(op, &ins)),
        Prim::ArgReduce(op) => one(reduce::arg_reduce(op, &ins)),
        Prim::Cumulative(op) => one(reduce::cumulative(op, &ins)),
        Prim::Sort(op) => sort::sort(op, &ins),
        Prim::TopK(op) => sort::top_k(op, &ins),
        Prim::DotGeneral(op) => one(dot::dot_general(op, &ins)),
        Prim::Conv(op) => one(conv::conv(op, &ins)),
        Prim::TriangularSolve(op) => one(linalg::triangular_solve(op, &ins)),
        Prim::Cholesky(op) => one(linalg::cholesky(op, &ins)),
        Prim::ReduceWindow(op) => one(window::reduce_window(op, &ins)),
        Prim::ArgReduceWindow(op) => one(window::arg_reduce_window(op, &ins)),
        Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) | Prim::DotProductAttentionCotangent(_) => {
            definition(op, ins)
        }
        Prim::CrossEntropyTangent(_) => definition(op, ins),
        Prim::Threefry2x32(_) => threefry::threefry2x32(&ins),
        Prim::Name(_) | Prim::StopGradient(_) | Prim::OptimizationBarrier(_) => Ok(ins),
        Prim::ShardingConstraint(_) => Ok(ins),
        Prim::DebugPrint(op) => {
            op.print(&avals(&ins), &|operand, index| ins.get(operand)?.data().get(index));
            Ok(Vec::new())
        }
        Prim::AllReduce(_)
        | Prim::AllGather(_)
        | Prim::ReduceScatter(_)
        | Prim::AllToAll(_)
        | Prim::Ppermute(_)
        | Prim::AxisIndex(_) => Err(unbound_axis(op)),
        Prim::DevicePut(op) => Ok(ins.iter().map(|a| a.in_memory(op.memory)).collect()),
    }
}

/// The results of the operation's definition: a program of other operations.
fn definition(op: &Prim, ins: Vec<Array>) -> Result<Vec<Array>> {
    let missing = || Error::new(ErrorKind::Internal, op.name(), "has no definition");
    eval(&op.definition(&avals(&ins)).ok_or_else(missing)??, ins)
}

/// The results of an operation with jaxprs on operands that its shape rule takes.
fn call(op: &Call, ins: Vec<Array>) -> Result<Vec<Array>> {
    match op {
        Call::Jit(op) => eval(&op.jaxpr, ins),
        Call::Checkpoint(op) => eval(&op.jaxpr, ins),
        Call::Scan(op) => control::scan(op, ins),
        Call::While(op) => control::while_loop(op, ins),
        Call::Cond(op) => control::cond(op, ins),
        Call::CustomJvp(op) => eval(&op.call, ins),
        Call::CustomVjp(op) => eval(&op.call, ins),
        Call::CustomLin(op) => control::custom_lin(op),
        Call::ShardMap(op) => shards::shard_map(op, &ins),
    }
}

fn avals(arrays: &[Array]) -> Vec<Aval> {
    arrays.iter().map(|a| a.aval().clone()).collect()
}

/// The elements of an operand whose dtype a shape rule has checked.
fn elements<T: Element>(x: &Array) -> Result<&[T]> {
    x.as_slice().map_or_else(|| internal(T::DTYPE.name(), x), Ok)
}

/// The operands, whose number a shape rule has checked.
fn operands<const N: usize>(operation: &str, ins: Vec<Array>) -> Result<[Array; N]> {
    ins.try_into().map_err(|ins: Vec<Array>| {
        Error::new(ErrorKind::Internal, operation, format!("takes {N} operands and got {}", ins.len()))
    })
}

/// The error for an operand that a shape rule should have rejected.
fn internal<T>(operation: &str, operand: &Array) -> Result<T> {
    Err(Error::new(ErrorKind::Internal, operation, format!("the shape rule let {} pass", operand.aval())))
}

/// The aval of the one result, by the shape rule.
fn result_aval(op: &impl Operation, ins: &[Array]) -> Result<Aval> {
    let first = op.infer(&avals(ins))?.into_iter().next();
    first.ok_or_else(|| Error::new(ErrorKind::Internal, op.name(), "has no result"))
}
