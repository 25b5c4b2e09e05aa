//! The kernels of operations that move, find, sort, count or accumulate elements, and of random bits.

use remat_ir::{Aval, Op};

use super::{
    Kernel, arg_reduce, bitcast, concatenate, cumulative, gather, iota, pad, scatter, slice, sort, threefry, top_k,
    window,
};

/// The kernel of an operation on row-major operands, or `None` where other modules compute the operation: elementwise
/// operations and reductions, products, views, and operations with programs in them.
pub(crate) fn library(op: &Op, ins: &[Aval], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
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
