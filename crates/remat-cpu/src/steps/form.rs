//! The table of forms: how the engine runs each operation.
//!
//! Loops, matrix products, convolutions and attention read their operands through layouts; other kernels get a row-major copy if they need
//! one.

use remat_ir::{Eqn, Jaxpr, Op, Prim};

/// The form of an equation among the steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form<'a> {
    /// A label, which is not a step.
    Label,
    /// A barrier: its results are its operands, read after its token.
    Barrier,
    /// A view: another layout of the operand's buffer, where there is one.
    View,
    /// A member of a loop, whose operands have its shape.
    Elementwise,
    /// A member of a loop that reduces these axes, at the end of rows or of the loop.
    Reduction(&'a [usize]),
    /// A step of its own, whose kernel reads operands of any layout.
    Strided,
    /// A step of its own, whose kernel reads row-major operands.
    RowMajor,
}

/// The form of an equation. Operations that the passes always replace get a step without a kernel, which is an error.
pub(super) fn form<'a>(jaxpr: &Jaxpr, eqn: &'a Eqn) -> Form<'a> {
    let Op::Prim(op) = &eqn.op else { return Form::RowMajor };
    match op {
        Prim::Name(_) => Form::Label,
        Prim::OptimizationBarrier(_) => Form::Barrier,
        Prim::BroadcastInDim(_) | Prim::Reshape(_) | Prim::Transpose(_) | Prim::Squeeze(_) => Form::View,
        Prim::ExpandDims(_) | Prim::Rev(_) | Prim::Slice(_) | Prim::Iota(_) => Form::View,
        Prim::Unary(_) | Prim::IntegerPow(_) | Prim::Binary(_) => Form::Elementwise,
        Prim::Compare(_) | Prim::SelectN(_) | Prim::Clamp(_) => Form::Elementwise,
        Prim::ConvertElementType(_) | Prim::ReducePrecision(_) => Form::Elementwise,
        // A bitcast between dtypes of different sizes changes the shape.
        Prim::BitcastConvertType(op) => {
            let is_same_size = jaxpr.atom_aval(eqn.ins[0]).dtype.size() == op.dtype.size();
            if is_same_size { Form::Elementwise } else { Form::RowMajor }
        }
        Prim::Reduce(op) => Form::Reduction(&op.axes),
        Prim::DotGeneral(_) | Prim::Conv(_) => Form::Strided,
        Prim::DotProductAttention(_) | Prim::DotProductAttentionCotangent(_) | Prim::DebugPrint(_) => Form::Strided,
        Prim::TriangularSolve(_) | Prim::Cholesky(_) => Form::RowMajor,
        Prim::Concatenate(_) | Prim::Pad(_) | Prim::DynamicSlice(_) | Prim::DynamicUpdateSlice(_) => Form::RowMajor,
        Prim::Gather(_) | Prim::Scatter(_) => Form::RowMajor,
        Prim::ArgReduce(_) | Prim::Cumulative(_) => Form::RowMajor,
        Prim::ReduceWindow(_) | Prim::ArgReduceWindow(_) => Form::RowMajor,
        Prim::Sort(_) | Prim::TopK(_) | Prim::Threefry2x32(_) => Form::RowMajor,
        Prim::DotProductAttentionTangent(_) | Prim::CrossEntropyTangent(_) => Form::RowMajor,
        Prim::StopGradient(_) | Prim::DevicePut(_) | Prim::ShardingConstraint(_) => Form::RowMajor,
        Prim::AllReduce(_) | Prim::AllGather(_) | Prim::ReduceScatter(_) => Form::RowMajor,
        Prim::AllToAll(_) | Prim::Ppermute(_) | Prim::AxisIndex(_) => Form::RowMajor,
    }
}
