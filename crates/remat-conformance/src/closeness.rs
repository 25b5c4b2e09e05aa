//! How close an engine's results must be to the evaluator's.

use remat_ir::{
    AllReduce, AllReduceKind, Binary, Call, Class, CumulativeKind, Op, Operation, Prim, ReduceKind, ScatterKind, Unary,
    WindowKind,
};

/// The allowed differences.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Closeness {
    /// None, except in the bits of a NaN.
    Exact,
    /// Each element by this many units in its last place.
    Ulps(u32),
    /// Each element by this many roundings at the scale of the largest number of the computation: for sums in another order.
    Sums(u32),
    /// As sums, but where the evaluator has a NaN anything is allowed. A term with a structural zero as factor (a masked attention weight,
    /// the gap between elements of a dilated image) may be skipped, even if its other factor is not finite.
    Sparse(u32),
}

/// The allowed differences of a single operation.
pub(crate) fn of_operation(op: &Op) -> Closeness {
    match op {
        Op::Prim(op) => of_prim(op),
        Op::Call(Call::ShardMap(op)) if op.jaxpr.eqns.len() == 1 => of_operation(&op.jaxpr.eqns[0].op),
        Op::Call(_) => Closeness::Sums(64),
    }
}

/// The allowed differences of a first-order operation: none, unless it is listed here.
fn of_prim(op: &Prim) -> Closeness {
    match op {
        Prim::Unary(Unary::Sqrt) | Prim::Binary(Binary::Rem) => Closeness::Exact,
        Prim::Unary(_) | Prim::Binary(_) if op.class() == Class::Transcendental => Closeness::Ulps(4),
        Prim::IntegerPow(_) => Closeness::Ulps(4),
        Prim::Reduce(op) => match op.kind {
            ReduceKind::Sum => Closeness::Sums(16),
            ReduceKind::Prod => Closeness::Ulps(16),
            ReduceKind::Max | ReduceKind::Min | ReduceKind::And | ReduceKind::Or => Closeness::Exact,
        },
        Prim::Cumulative(op) => match op.kind {
            CumulativeKind::Sum | CumulativeKind::LogSumExp => Closeness::Sums(16),
            CumulativeKind::Prod => Closeness::Ulps(16),
            CumulativeKind::Max | CumulativeKind::Min => Closeness::Exact,
        },
        Prim::ReduceWindow(op) => match op.kind {
            WindowKind::Sum => Closeness::Sums(16),
            WindowKind::Max | WindowKind::Min => Closeness::Exact,
        },
        Prim::Scatter(op) => match op.kind {
            ScatterKind::Add => Closeness::Sums(16),
            ScatterKind::Mul => Closeness::Ulps(16),
            ScatterKind::Set | ScatterKind::Min | ScatterKind::Max => Closeness::Exact,
        },
        Prim::AllReduce(AllReduce { kind: AllReduceKind::Sum, .. }) | Prim::ReduceScatter(_) => Closeness::Sums(16),
        Prim::DotGeneral(_) => Closeness::Sums(16),
        Prim::Conv(op) if op.lhs_dilation.iter().any(|&d| d > 1) => Closeness::Sparse(16),
        Prim::Conv(_) => Closeness::Sums(16),
        Prim::DotProductAttention(_) | Prim::DotProductAttentionTangent(_) | Prim::DotProductAttentionCotangent(_) => {
            Closeness::Sparse(32)
        }
        Prim::CrossEntropyTangent(_) => Closeness::Sums(32),
        _ => Closeness::Exact,
    }
}
