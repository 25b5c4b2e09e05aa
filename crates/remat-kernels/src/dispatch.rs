//! Which kernel computes an operation.

use remat_ir::{Aval, DType, Op};

use crate::base::copy;
use crate::interface::{Kernel, Layout};
use crate::kernels::{
    arg_reduce, attention, bitcast, concatenate, conv, cumulative, gather, iota, matmul, pad, scatter, slice, sort,
    threefry, top_k, window,
};

/// The kernel of an operation on operands of these dtypes and layouts. `None` for elementwise operations and reductions, which
/// are fused to loops ([`LoopSpec`](crate::LoopSpec)), for changes of layout and calls, and where the kernel reads its operands
/// row-major and these are not.
///
/// # Examples
///
/// ```
/// use remat_ir::{Aval, DType, Iota, Op, Unary};
/// use remat_kernels::{Layout, kernel};
///
/// let numbers = Aval::new(DType::F32, [4]);
/// let iota = Op::from(Iota { dtype: DType::F32, shape: [4].into_iter().collect(), axis: 0 });
/// assert!(kernel(&iota, &[], &[numbers.clone()]).is_some());
///
/// let layout = Layout::from(&numbers);
/// assert!(kernel(&Op::from(Unary::Sin), &[(DType::F32, &layout)], &[numbers]).is_none());
/// ```
pub fn kernel(op: &Op, ins: &[(DType, &Layout)], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
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

/// The kernel that copies an operand of any layout to a row-major output.
///
/// # Examples
///
/// ```
/// use remat_ir::DType;
/// use remat_kernels::{Kernel, Layout, Source, Target, Threads, copy};
///
/// let transposed = Layout::contiguous(&[2, 2]).permuted(&[1, 0]);
/// let (from, mut to) = ([1u8, 2, 3, 4], [0u8; 4]);
/// // SAFETY: all bytes are elements of the dtype.
/// let (source, target) = unsafe { (Source::new(DType::U8, &from), Target::new(DType::U8, &mut to)) };
/// copy(DType::U8, &transposed).run(&[source], &mut [target], &mut [], &Threads::SERIAL);
/// assert_eq!(to, [1, 3, 2, 4]);
/// ```
pub fn copy(dtype: DType, layout: &Layout) -> Box<dyn Kernel> {
    copy::kernel(dtype, layout)
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
