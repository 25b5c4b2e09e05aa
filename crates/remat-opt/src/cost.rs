//! The cost of operations: the one model that passes, engines, plans and reports ask.

use remat_ir::{Binary, Op, Prim, Unary};

/// What kind of work an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Class {
    /// No work: names, barriers, transfers.
    Marker,
    /// A change of layout, which engines can read through: reshapes, transposes, broadcasts, slices, reversals, counts.
    View,
    /// An elementwise operation of a few instructions: arithmetic, comparisons, selections, conversions.
    Elementwise,
    /// An elementwise operation of tens of instructions: exponentials, logarithms, roots, trigonometric and special functions.
    Transcendental,
    /// Elements are moved: paddings, concatenations, gathers, scatters, slices at positions that are computed.
    Movement,
    /// Many elements become few, or each becomes that of those before it: reductions, cumulative ones, those of windows.
    Reduction,
    /// Sums of products: matrix products, convolutions, attention.
    Contraction,
    /// Sorting and selecting the largest.
    Sort,
    /// Random bits.
    Random,
    /// An operation with programs in it: its cost is that of the programs.
    Call,
}

/// The class of an operation.
///
/// ```
/// use remat_ir::Unary;
/// use remat_opt::cost::{Class, class};
/// assert_eq!(class(&Unary::Neg.into()), Class::Elementwise);
/// assert_eq!(class(&Unary::Tanh.into()), Class::Transcendental);
/// ```
pub fn class(op: &Op) -> Class {
    match op {
        Op::Prim(op) => class_of_prim(op),
        Op::Call(_) => Class::Call,
    }
}

fn class_of_prim(op: &Prim) -> Class {
    match op {
        Prim::Unary(unary) => match unary {
            Unary::Neg | Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => Class::Elementwise,
            Unary::IsFinite | Unary::Not | Unary::PopulationCount => Class::Elementwise,
            Unary::Exp | Unary::Exp2 | Unary::Expm1 | Unary::Log | Unary::Log1p => Class::Transcendental,
            Unary::Sqrt | Unary::Rsqrt | Unary::Cbrt | Unary::Logistic => Class::Transcendental,
            Unary::Sin | Unary::Cos | Unary::Tan | Unary::Asin | Unary::Acos | Unary::Atan => Class::Transcendental,
            Unary::Sinh | Unary::Cosh | Unary::Tanh => Class::Transcendental,
            Unary::Asinh | Unary::Acosh | Unary::Atanh => Class::Transcendental,
            Unary::Erf | Unary::Erfc | Unary::ErfInv | Unary::Lgamma | Unary::Digamma => Class::Transcendental,
        },
        Prim::Binary(binary) => match binary {
            Binary::Pow | Binary::Atan2 | Binary::Rem => Class::Transcendental,
            Binary::Add | Binary::AddAny | Binary::Sub | Binary::Mul | Binary::Div => Class::Elementwise,
            Binary::Max | Binary::Min | Binary::And | Binary::Or | Binary::Xor => Class::Elementwise,
            Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => Class::Elementwise,
        },
        Prim::IntegerPow(pow) if pow.y.unsigned_abs() <= 4 => Class::Elementwise,
        Prim::IntegerPow(_) => Class::Transcendental,
        Prim::Compare(_) | Prim::SelectN(_) | Prim::Clamp(_) => Class::Elementwise,
        Prim::ConvertElementType(_) | Prim::BitcastConvertType(_) | Prim::ReducePrecision(_) => Class::Elementwise,
        Prim::BroadcastInDim(_) | Prim::Reshape(_) | Prim::Transpose(_) | Prim::Squeeze(_) => Class::View,
        Prim::ExpandDims(_) | Prim::Rev(_) | Prim::Slice(_) | Prim::Iota(_) => Class::View,
        Prim::Concatenate(_) | Prim::Pad(_) | Prim::DynamicSlice(_) | Prim::DynamicUpdateSlice(_) => Class::Movement,
        Prim::Gather(_) | Prim::Scatter(_) => Class::Movement,
        Prim::Reduce(_) | Prim::ArgReduce(_) | Prim::Cumulative(_) => Class::Reduction,
        Prim::ReduceWindow(_) | Prim::ArgReduceWindow(_) | Prim::CrossEntropyTangent(_) => Class::Reduction,
        Prim::DotGeneral(_) | Prim::Conv(_) => Class::Contraction,
        Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) => Class::Contraction,
        Prim::DotProductAttentionCotangent(_) => Class::Contraction,
        Prim::Sort(_) | Prim::TopK(_) => Class::Sort,
        Prim::Threefry2x32(_) => Class::Random,
        Prim::Name(_) | Prim::StopGradient(_) | Prim::OptimizationBarrier(_) | Prim::DevicePut(_) => Class::Marker,
    }
}

/// Whether computing the results again costs about as little as reading them from memory.
pub fn is_cheap(op: &Op) -> bool {
    // A name says that the user wants to see the value; a barrier and a transfer are there for a reason.
    let is_identity = matches!(op, Op::Prim(Prim::StopGradient(_)));
    is_identity || matches!(class(op), Class::View | Class::Elementwise)
}

/// Whether an operation costs next to nothing as a part of the loop that reads its result: engines fuse it.
pub fn is_fused(op: &Op) -> bool {
    matches!(class(op), Class::View | Class::Elementwise | Class::Transcendental)
}

/// How many equations may stand between a residual that partial evaluation drops and those it is computed from. Longer chains
/// are worth their memory: what they compute again is no longer about as cheap as a read.
pub const MOST_CHAINED: usize = 4;

/// Values of fewer bytes are never worth to be computed again: a half of a first-level cache.
pub const SMALL_BYTES: usize = 1 << 14;

/// A value that is this many times smaller than another may be kept so that the other need not be: the mean of a row, for
/// instance.
pub const MUCH_SMALLER: usize = 32;

/// At most this many fused equations are computed again for one value. A tile stays in the first-level cache that long.
pub const MOST_RECOMPUTED: usize = 24;

/// A value that is read this many steps after it was computed is read far away: it takes up memory meanwhile, and has left the
/// caches.
pub const FAR_STEPS: usize = 6;
