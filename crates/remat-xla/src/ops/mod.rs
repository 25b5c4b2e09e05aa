//! First-order operations, one file per family.
//!
//! Results are those of the reference evaluator. If StableHLO leaves a case open, or compilers are known to read it differently (NaN, ties,
//! integers out of range), the text handles it explicitly.
//!
//! f16 and bf16 are widened for functions and sums and rounded once; so are f64 and wide integers on the way to them, which XLA would round
//! to f32 first. An array without elements is a constant.

mod barrier;
mod collective;
mod conv;
mod convert;
mod cudnn;
mod cumulative;
mod dot;
mod elementwise;
mod gather;
mod linalg;
mod marker;
mod random;
mod reduce;
mod shape;
mod slice;
mod sort;
mod unary;
mod window;

pub(crate) use barrier::{current_all, optimization_barrier};
pub(crate) use marker::memory_kind;
pub(crate) use slice::{dynamic_slice, dynamic_update_slice};

use remat_ir::{Aval, Class, Error, ErrorKind, Operation, Prim, Result};

use crate::value::Value;
use crate::versions::View;
use crate::writer::Writer;

/// Writes an operation with these operands, read by their newest names, and returns its results, which have these avals.
pub(crate) fn prim(w: &mut Writer, op: &Prim, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    if let Prim::DebugPrint(op) = op
        && !op.batch.contains(&0)
    {
        let message = "prints on the native engine only: a plugin of PJRT cannot call back into the program. \
                       Print results of the function instead, or run it on the device `cpu`";
        return Err(Error::new(ErrorKind::Unsupported, op.name(), message));
    }
    if let Prim::OptimizationBarrier(_) = op {
        return optimization_barrier(w, ins);
    }
    let ins = &current_all(w, ins)?;
    let results = write(w, op, ins, outs)?;
    let view = match (&ins[..], outs) {
        ([x], [out]) => View::new(op, x, out),
        _ => None,
    };
    w.versions_mut().record(ins, &results, view);
    Ok(results)
}

fn write(w: &mut Writer, op: &Prim, ins: &[Value], outs: &[Aval]) -> Result<Vec<Value>> {
    // Arrays without elements are not computed, since many operations of XLA reject such sizes.
    if outs.iter().all(|aval| aval.size() == 0) {
        return Ok(outs.iter().map(|aval| w.empty(aval)).collect());
    }
    let out = outs.first().ok_or_else(|| Error::new(ErrorKind::Internal, op.name(), "has no result"))?;
    let ins = &operands_of(w, op, ins);
    let one = || operands::<1>(op, ins).map(|[x]| x);
    let two = || operands::<2>(op, ins);
    let result = match op {
        Prim::Unary(op) => unary::unary(w, *op, one()?),
        Prim::IntegerPow(op) => elementwise::integer_pow(w, op, one()?),
        Prim::Binary(op) => elementwise::binary(w, *op, two()?),
        Prim::Compare(op) => elementwise::compare(w, *op, two()?),
        Prim::SelectN(op) => elementwise::select_n(w, op, ins)?,
        Prim::Clamp(op) => elementwise::clamp(w, op, ins)?,
        Prim::ConvertElementType(op) => convert::convert_element_type(w, one()?, op.dtype),
        Prim::BitcastConvertType(_) => convert::bitcast_convert_type(w, one()?, out),
        Prim::ReducePrecision(op) => convert::reduce_precision(w, op, one()?),
        Prim::BroadcastInDim(op) => w.broadcast(one()?, &op.dims, &op.shape),
        Prim::Reshape(_) | Prim::Squeeze(_) | Prim::ExpandDims(_) => w.reshape(one()?, &out.shape),
        Prim::Transpose(op) => shape::transpose(w, op, one()?, out),
        Prim::Rev(op) => shape::rev(w, op, one()?),
        Prim::Concatenate(op) => w.concatenate(ins, op.axis, out.clone()),
        Prim::Pad(op) => shape::pad(w, op, two()?, out),
        Prim::Iota(op) => shape::iota(w, op),
        Prim::Slice(op) => w.slice(one()?, &op.start, &op.limit, &op.strides),
        Prim::DynamicSlice(op) => slice::dynamic_slice(w, ins, &op.sizes)?,
        Prim::DynamicUpdateSlice(_) => slice::dynamic_update_slice(w, ins)?,
        Prim::Gather(op) => gather::gather(w, op, two()?, out)?,
        Prim::Scatter(op) => gather::scatter(w, op, ins)?,
        Prim::Reduce(op) => reduce::reduce(w, op, one()?),
        Prim::ArgReduce(op) => reduce::arg_reduce(w, op, one()?, out)?,
        Prim::Cumulative(op) => cumulative::cumulative(w, op, one()?),
        Prim::Sort(op) => return sort::sort(w, op, ins),
        Prim::TopK(op) => return sort::top_k(w, op, one()?),
        Prim::DotGeneral(op) => dot::dot_general(w, op, two()?, out),
        Prim::Conv(op) => conv::conv(w, op, two()?, out),
        Prim::ReduceWindow(op) => window::reduce_window(w, op, one()?, out)?,
        Prim::ArgReduceWindow(op) => window::arg_reduce_window(w, op, one()?, out)?,
        Prim::TriangularSolve(op) => linalg::triangular_solve(w, op, two()?)?,
        Prim::Cholesky(_) => linalg::cholesky(w, one()?),
        Prim::DotProductAttention(_) | Prim::DotProductAttentionCotangent(_) => {
            return cudnn::attention(w, op, ins, outs)?.map_or_else(|| definition(w, op, ins), Ok);
        }
        Prim::DotProductAttentionTangent(_) | Prim::CrossEntropyTangent(_) => return definition(w, op, ins),
        Prim::Threefry2x32(op) => return random::threefry2x32(w, op, ins),
        Prim::Name(_) | Prim::StopGradient(_) | Prim::OptimizationBarrier(_) | Prim::DebugPrint(_) => {
            return Ok(ins.clone());
        }
        Prim::DevicePut(op) => marker::device_put(w, op, one()?),
        Prim::ShardingConstraint(op) => collective::sharding_constraint(w, op, one()?),
        Prim::AllReduce(_)
        | Prim::AllGather(_)
        | Prim::ReduceScatter(_)
        | Prim::AllToAll(_)
        | Prim::Ppermute(_)
        | Prim::AxisIndex(_) => collective::collective(w, op, ins, out)?,
    };
    Ok(vec![result])
}

/// The operands in the form for the operation. A scalar operand of an elementwise operation is broadcast; a constant that is broadcast is
/// written in the shape of the result at once.
fn operands_of(w: &mut Writer, op: &Prim, ins: &[Value]) -> Vec<Value> {
    let shape = ins.iter().find(|value| value.rank() > 0).map(|value| value.aval.shape.clone()).unwrap_or_default();
    let prepare = |value: &Value| match op.class() {
        Class::Elementwise | Class::Transcendental | Class::Random => w.spread(value, &shape),
        _ if matches!(op, Prim::BroadcastInDim(_)) => value.clone(),
        _ => w.operand(value),
    };
    ins.iter().map(prepare).collect()
}

/// Writes the definition of an operation.
fn definition(w: &mut Writer, op: &Prim, ins: &[Value]) -> Result<Vec<Value>> {
    let avals: Vec<Aval> = ins.iter().map(|value| value.aval.clone()).collect();
    let missing = || Error::new(ErrorKind::Internal, op.name(), "has no definition");
    crate::control::program(w, &op.definition(&avals).ok_or_else(missing)??, ins, false)
}

/// The operands; the shape rule has checked their number.
fn operands<'a, const N: usize>(op: &impl Operation, ins: &'a [Value]) -> Result<&'a [Value; N]> {
    ins.try_into()
        .map_err(|_| Error::new(ErrorKind::Internal, op.name(), format!("takes {N} operands and got {}", ins.len())))
}
