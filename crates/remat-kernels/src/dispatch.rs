//! Selects the kernel of an operation.

use remat_ir::{Aval, DType, Prim};

use crate::base::copy;
use crate::interface::{Kernel, Layout};
use crate::kernels::{
    arg_reduce, attention, bitcast, concatenate, conv, cumulative, debug_print, gather, iota, linalg, matmul, pad,
    scatter, slice, sort, threefry, top_k, window,
};

/// The kernel of an operation on operands of these dtypes and layouts. `None` for elementwise operations and reductions, which are fused
/// into loops ([`LoopSpec`](crate::LoopSpec)), for changes of layout, and if the kernel needs row-major operands and these are not.
///
/// # Examples
///
/// ```
/// use remat_ir::{Aval, DType, Iota, Prim, Unary};
/// use remat_kernels::{Layout, kernel};
///
/// let numbers = Aval::new(DType::F32, [4]);
/// let iota = Prim::from(Iota { dtype: DType::F32, shape: [4].into_iter().collect(), axis: 0 });
/// assert!(kernel(&iota, &[], &[numbers.clone()]).is_some());
///
/// let layout = Layout::from(&numbers);
/// assert!(kernel(&Prim::from(Unary::Sin), &[(DType::F32, &layout)], &[numbers]).is_none());
/// ```
pub fn kernel(op: &Prim, ins: &[(DType, &Layout)], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
    match (op, ins, outs) {
        (Prim::DotGeneral(op), &[lhs, rhs], [out]) => Some(matmul::kernel(op, [lhs, rhs], out)),
        (Prim::Conv(op), &[lhs, rhs], [out]) => Some(conv::kernel(op, [lhs, rhs], out)),
        (Prim::DotProductAttention(_) | Prim::DotProductAttentionCotangent(_), ..) => attention::kernel(op, ins),
        (Prim::DebugPrint(op), ..) => Some(debug_print::kernel(op, ins)),
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

/// The kernel of an operation that moves, finds, sorts, counts or accumulates elements, or generates random bits, on row-major operands.
/// `None` for elementwise operations, reductions, products and views.
fn library(op: &Prim, ins: &[Aval], outs: &[Aval]) -> Option<Box<dyn Kernel>> {
    Some(match op {
        Prim::BitcastConvertType(op) => bitcast::kernel(op, ins, outs),
        Prim::Concatenate(op) => concatenate::kernel(op, ins, outs),
        Prim::Pad(op) => pad::kernel(op, ins, outs),
        Prim::Iota(op) => iota::kernel(op, ins, outs),
        Prim::DynamicSlice(op) => slice::dynamic_slice(op, ins, outs),
        Prim::DynamicUpdateSlice(op) => slice::dynamic_update_slice(op, ins, outs),
        Prim::Gather(op) => gather::kernel(op, ins, outs),
        Prim::Scatter(op) => scatter::kernel(op, ins, outs),
        Prim::ArgReduce(op) => arg_reduce::kernel(op, ins, outs),
        Prim::Cumulative(op) => cumulative::kernel(op, ins, outs),
        Prim::Sort(op) => sort::kernel(op, ins, outs),
        Prim::TopK(op) => top_k::kernel(op, ins, outs),
        Prim::TriangularSolve(op) => linalg::triangular_solve(op, ins),
        Prim::Cholesky(_) => linalg::cholesky(ins),
        Prim::ReduceWindow(op) => window::reduce(op, ins, outs),
        Prim::ArgReduceWindow(op) => window::arg_reduce(op, ins, outs),
        Prim::Threefry2x32(_) => threefry::kernel(ins, outs),
        Prim::Unary(_) | Prim::IntegerPow(_) | Prim::Binary(_) => return None,
        Prim::Compare(_) | Prim::SelectN(_) | Prim::Clamp(_) => return None,
        Prim::ConvertElementType(_) | Prim::ReducePrecision(_) | Prim::Reduce(_) => return None,
        Prim::BroadcastInDim(_) | Prim::Reshape(_) | Prim::Transpose(_) | Prim::Squeeze(_) | Prim::ExpandDims(_) => {
            return None;
        }
        Prim::Rev(_) | Prim::Slice(_) => return None,
        Prim::DotGeneral(_) | Prim::Conv(_) => return None,
        Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) => return None,
        Prim::DotProductAttentionCotangent(_) | Prim::CrossEntropyTangent(_) => return None,
        Prim::Name(_) | Prim::StopGradient(_) | Prim::OptimizationBarrier(_) | Prim::DevicePut(_) => {
            return None;
        }
        Prim::ShardingConstraint(_) | Prim::AllReduce(_) | Prim::AllGather(_) | Prim::ReduceScatter(_) => return None,
        Prim::AllToAll(_) | Prim::Ppermute(_) | Prim::AxisIndex(_) | Prim::DebugPrint(_) => return None,
    })
}
