//! Which kernel computes an operation.

use remat_ir::{Aval, DType, Op};

use super::{
    Kernel, Layout, arg_reduce, attention, bitcast, concatenate, conv, cumulative, gather, iota, matmul, pad, scatter,
    slice, sort, threefry, top_k, window,
};

/// The kernel of an operation on operands of these dtypes and layouts, or `None` where other modules compute the operation, or
/// where it reads its operands row-major and these are not.
pub(crate) fn kernel(op: &Op, ins: &[(DType, &Layout)], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
    match (op, ins, outs) {
        (Op::DotGeneral(op), &[lhs, rhs], [out]) => Some(matmul::kernel(op, [lhs, rhs], out)),
        (Op::Conv(op), &[lhs, rhs], [out]) => Some(conv::kernel(op, [lhs, rhs], out)),
        (Op::DotProductAttention(_) | Op::DotProductAttentionCotangent(_), ..) => attention::kernel(op, ins),
        _ => {
            let is_row_major = ins.iter().all(|(_, layout)| layout.offset == 0 && layout.is_contiguous());
            let avals: Vec<Aval> = ins.iter().map(|(dtype, x)| Aval::new(*dtype, x.shape.iter().copied())).collect();
            if is_row_major { library(op, &avals, outs) } else { None }
        }
    }
}

/// The kernel of an operation that moves, finds, sorts, counts or accumulates elements, or makes random bits, on row-major
/// operands; `None` for others: elementwise operations and reductions, products, views, and operations with programs in them.
fn library(op: &Op, ins: &[Aval], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
    Some(match op {
        Op::BitcastConvertType(op) => bitcast::kernel(op, ins, outs),
        Op::Concatenate(op) => concatenate::kernel(op, ins, outs),
        Op::Pad(op) => pad::kernel(op, ins, outs),
        Op::Iota(op) => iota::kernel(op, ins, outs),
        Op::DynamicSlice(op) => slice::dynamic_slice(op, ins, outs),
        Op::DynamicUpdateSlice(op) => slice::dynamic_update_slice(op, ins, outs),
        Op::Gather(op) => gather::kernel(op, ins, outs),
        Op::Scatter(op) => scatter::kernel(op, ins, outs),
        Op::ArgReduce(op) => arg_reduce::kernel(op, ins, outs),
        Op::Cumulative(op) => cumulative::kernel(op, ins, outs),
        Op::Sort(op) => sort::kernel(op, ins, outs),
        Op::TopK(op) => top_k::kernel(op, ins, outs),
        Op::ReduceWindow(op) => window::reduce(op, ins, outs),
        Op::ArgReduceWindow(op) => window::arg_reduce(op, ins, outs),
        Op::Threefry2x32(_) => threefry::kernel(ins, outs),
        Op::Unary(_) | Op::IntegerPow(_) | Op::Binary(_) | Op::Compare(_) | Op::SelectN(_) | Op::Clamp(_) => {
            return None;
        }
        Op::ConvertElementType(_) | Op::ReducePrecision(_) | Op::Reduce(_) => return None,
        Op::BroadcastInDim(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Squeeze(_) | Op::ExpandDims(_) => return None,
        Op::Rev(_) | Op::Slice(_) => return None,
        Op::DotGeneral(_) | Op::Conv(_) => return None,
        Op::DotProductAttention(_) | Op::DotProductAttentionTangent(_) => return None,
        Op::DotProductAttentionCotangent(_) | Op::CrossEntropyTangent(_) => return None,
        Op::Name(_) | Op::StopGradient(_) | Op::OptimizationBarrier(_) | Op::DevicePut(_) => return None,
        Op::Jit(_) | Op::Checkpoint(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_) => return None,
        Op::CustomJvp(_) | Op::CustomVjp(_) | Op::CustomLin(_) => return None,
    })
}
