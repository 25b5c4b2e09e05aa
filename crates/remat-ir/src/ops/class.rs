//! What kind of work an operation is: what passes and engines ask before they look closer.

use crate::{Call, Op, Prim};

/// What kind of work an operation is.
///
/// ```
/// use remat_ir::{Class, Op, Unary};
/// assert_eq!(Op::from(Unary::Neg).class(), Class::Elementwise);
/// assert_eq!(Op::from(Unary::Tanh).class(), Class::Transcendental);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Class {
    /// No work: names, barriers, identities of derivatives.
    Marker,
    /// A change of layout, which engines can read through: reshapes, transposes, broadcasts, slices, reversals, counts.
    View,
    /// An elementwise operation of a few instructions: arithmetic, comparisons, selections, conversions.
    Elementwise,
    /// An elementwise operation of tens of instructions: exponentials, logarithms, roots, trigonometric and special functions.
    Transcendental,
    /// Moves elements: paddings, concatenations, gathers, scatters, slices whose start is computed, transfers.
    Movement,
    /// Combines elements along axes: reductions, cumulative operations, windows.
    Reduction,
    /// Sums of products: matrix products, convolutions, attention.
    Contraction,
    /// Sorting, and selecting the largest elements.
    Sort,
    /// Random bits.
    Random,
    /// An operation with jaxprs in its parameters: its work is theirs.
    Call,
}

impl Op {
    /// What kind of work the operation is.
    pub fn class(&self) -> Class {
        match self {
            Op::Prim(op) => op.class(),
            Op::Call(op) => op.class(),
        }
    }
}

impl Call {
    /// What kind of work the operation is: that of its jaxprs.
    pub fn class(&self) -> Class {
        Class::Call
    }
}

impl Prim {
    /// What kind of work the operation is.
    pub fn class(&self) -> Class {
        match self {
            Prim::Unary(op) => op.class(),
            Prim::Binary(op) => op.class(),
            // Small powers are a few products.
            Prim::IntegerPow(op) if op.y.unsigned_abs() <= 4 => Class::Elementwise,
            Prim::IntegerPow(_) => Class::Transcendental,
            Prim::Compare(_) | Prim::SelectN(_) | Prim::Clamp(_) => Class::Elementwise,
            Prim::ConvertElementType(_) | Prim::BitcastConvertType(_) | Prim::ReducePrecision(_) => Class::Elementwise,
            Prim::BroadcastInDim(_) | Prim::Reshape(_) | Prim::Transpose(_) | Prim::Squeeze(_) => Class::View,
            Prim::ExpandDims(_) | Prim::Rev(_) | Prim::Slice(_) | Prim::Iota(_) => Class::View,
            Prim::Concatenate(_) | Prim::Pad(_) | Prim::DynamicSlice(_) | Prim::DynamicUpdateSlice(_) => {
                Class::Movement
            }
            Prim::Gather(_) | Prim::Scatter(_) | Prim::DevicePut(_) => Class::Movement,
            Prim::Reduce(_) | Prim::ArgReduce(_) | Prim::Cumulative(_) => Class::Reduction,
            Prim::ReduceWindow(_) | Prim::ArgReduceWindow(_) | Prim::CrossEntropyTangent(_) => Class::Reduction,
            Prim::DotGeneral(_) | Prim::Conv(_) => Class::Contraction,
            Prim::TriangularSolve(_) | Prim::Cholesky(_) => Class::Contraction,
            Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) => Class::Contraction,
            Prim::DotProductAttentionCotangent(_) => Class::Contraction,
            Prim::Sort(_) | Prim::TopK(_) => Class::Sort,
            Prim::Threefry2x32(_) => Class::Random,
            Prim::Name(_) | Prim::StopGradient(_) | Prim::OptimizationBarrier(_) => Class::Marker,
        }
    }
}
