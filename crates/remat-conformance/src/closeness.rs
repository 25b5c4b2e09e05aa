//! How close an engine's results must be to the evaluator's.

use remat_ir::{
    AllReduce, AllReduceKind, Array, Binary, Call, Class, CumulativeKind, DType, Jaxpr, Literal, Op, Operation, Prim,
    ReduceKind, ScatterKind, Unary, WindowKind,
};

use crate::arrays::literals;

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

/// The most roundings in half precision: engine and evaluator compute every operation in f32 and round once, so that different last bits of
/// f32 rarely cause a difference of more than one rounding.
const HALF: u32 = 2;

/// Bounds from this many roundings on belong to programs, not to single operations.
const PROGRAM: u32 = 64;

/// As [`HALF`], for programs: a different rounding changes the input of the next operation. Before its last operation the second derivative
/// of attention rounds two values to half precision, the weights and the cotangents of scores.
const HALF_OF_PROGRAM: u32 = 4;

impl Closeness {
    /// The allowed differences if the coarsest rounding of the computation is this one.
    fn at(self, epsilon: f64) -> Closeness {
        if epsilon < 1e-4 {
            return self;
        }
        let most = |roundings| if roundings < PROGRAM { HALF } else { HALF_OF_PROGRAM };
        match self {
            Closeness::Exact => Closeness::Exact,
            Closeness::Ulps(ulps) => Closeness::Ulps(ulps.min(1)),
            Closeness::Sums(roundings) => Closeness::Sums(roundings.min(most(roundings))),
            Closeness::Sparse(roundings) => Closeness::Sparse(roundings.min(most(roundings))),
        }
    }
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

/// The scale of allowed differences of sums: the largest input, and the coarsest rounding of the computation.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    largest: f64,
    epsilon: f64,
    /// Whether a zero may replace a subnormal number.
    flushes_subnormals: bool,
}

impl Scale {
    pub(crate) fn of(jaxpr: &Jaxpr, args: &[Array]) -> Scale {
        Scale { largest: largest(args), epsilon: coarsest(jaxpr), flushes_subnormals: false }
    }

    pub(crate) fn flushing(self, flushes_subnormals: bool) -> Scale {
        Scale { flushes_subnormals, ..self }
    }
}

/// Why two results are not close.
pub(crate) fn difference(got: &Array, expected: &Array, closeness: Closeness, scale: Scale) -> Option<String> {
    if got.aval() != expected.aval() {
        return Some(format!("it is {} and not {}", got.aval(), expected.aval()));
    }
    let (x, y) = (literals(got), literals(expected));
    let largest = largest(std::slice::from_ref(expected)).max(scale.largest);
    let is_close = |x: Literal, y: Literal| {
        let (a, b) = (x.as_f64(), y.as_f64());
        if x.bits() == y.bits() || (a.is_nan() && b.is_nan()) {
            return true;
        }
        if scale.flushes_subnormals && a == 0.0 && is_subnormal(y) {
            return true;
        }
        let epsilon = epsilon(x.dtype());
        match closeness.at(epsilon.max(scale.epsilon)) {
            Closeness::Sparse(_) if b.is_nan() => true,
            _ if epsilon == 0.0 || !a.is_finite() || !b.is_finite() => false,
            Closeness::Exact => false,
            Closeness::Ulps(ulps) => (a - b).abs() <= f64::from(ulps) * epsilon * b.abs().max(smallest(x.dtype())),
            Closeness::Sums(roundings) | Closeness::Sparse(roundings) => {
                (a - b).abs() <= f64::from(roundings) * epsilon.max(scale.epsilon) * largest
            }
        }
    };
    let i = x.iter().zip(&y).position(|(&x, &y)| !is_close(x, y))?;
    Some(format!("element {i} is {:?} and not {:?}", x[i], y[i]))
}

/// The distance between 1 and the next number; 0 for exact dtypes.
fn epsilon(dtype: DType) -> f64 {
    dtype.float_format().map_or(0.0, |(_, mantissa)| 0.5f64.powi(mantissa as i32))
}

/// The smallest number of full precision.
fn smallest(dtype: DType) -> f64 {
    dtype.float_format().map_or(0.0, |(exponent, _)| 2f64.powi(2 - (1 << (exponent - 1))))
}

/// Whether a number is a float of less than full precision, and not zero.
pub(crate) fn is_subnormal(x: Literal) -> bool {
    let value = x.as_f64().abs();
    value > 0.0 && value < smallest(x.dtype())
}

/// The coarsest rounding of a program and of those in it.
fn coarsest(jaxpr: &Jaxpr) -> f64 {
    let own = jaxpr.avals.iter().map(|(_, aval)| epsilon(aval.dtype));
    let bodies = jaxpr.eqns.iter().flat_map(|eqn| eqn.op.bodies()).map(|body| coarsest(body));
    own.chain(bodies).fold(0.0, f64::max)
}

/// The largest finite number.
fn largest(arrays: &[Array]) -> f64 {
    let numbers = arrays.iter().flat_map(literals).map(|l| l.as_f64().abs());
    numbers.filter(|v| v.is_finite()).fold(0.0, f64::max)
}

/// Whether two lists of results have the same bits.
pub(crate) fn is_identical(a: &[Array], b: &[Array]) -> bool {
    let bits = |x: &Array| literals(x).iter().map(|l| l.bits()).collect::<Vec<_>>();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.aval() == b.aval() && bits(a) == bits(b))
}
