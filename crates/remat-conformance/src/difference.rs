//! Differences between two results.

use remat_ir::{Array, DType, Jaxpr, Literal};

use crate::arrays::literals;
use crate::closeness::Closeness;
use crate::half::{is_half, units};

/// The scale of allowed differences.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// The largest input.
    largest: f64,
    /// The coarsest rounding of the computation. What is of half precision is computed in f32.
    epsilon: f64,
    /// What roundings of results to half precision add ([`units`]).
    half: f64,
    /// Whether a zero may replace a subnormal number.
    flushes_subnormals: bool,
}

impl Scale {
    /// The scale of a program with these arguments, whose results may differ as `closeness` says. If they may, so may their roundings to half
    /// precision.
    pub(crate) fn of(jaxpr: &Jaxpr, args: &[Array], closeness: Closeness) -> Scale {
        let half = match coarsest(jaxpr, &half_epsilon) {
            0.0 => 0.0,
            half => half * units(jaxpr).max(f64::from(u8::from(closeness != Closeness::Exact))),
        };
        Scale { largest: largest(args), epsilon: coarsest(jaxpr, &epsilon), half, flushes_subnormals: false }
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
        let (epsilon, half) = (epsilon(x.dtype()), half_epsilon(x.dtype()));
        match closeness {
            Closeness::Sparse(_) if b.is_nan() => true,
            _ if epsilon == 0.0 || !a.is_finite() || !b.is_finite() => false,
            Closeness::Exact => false,
            Closeness::Ulps(ulps) => {
                (a - b).abs() <= (f64::from(ulps) * epsilon + half) * b.abs().max(smallest(x.dtype()))
            }
            Closeness::Sums(roundings) | Closeness::Sparse(roundings) => {
                (a - b).abs() <= (f64::from(roundings) * epsilon.max(scale.epsilon) + scale.half) * largest
            }
        }
    };
    let i = x.iter().zip(&y).position(|(&x, &y)| !is_close(x, y))?;
    Some(format!("element {i} is {:?} and not {:?}", x[i], y[i]))
}

/// The distance between 1 and the next number in the type in which numbers of this dtype are computed; 0 for exact dtypes.
pub(crate) fn epsilon(dtype: DType) -> f64 {
    if half_epsilon(dtype) > 0.0 { epsilon(DType::F32) } else { distance(dtype) }
}

/// The distance between 1 and the next number of a dtype of half precision; 0 for others.
pub(crate) fn half_epsilon(dtype: DType) -> f64 {
    if is_half(dtype) { distance(dtype) } else { 0.0 }
}

/// The distance between 1 and the next number; 0 for dtypes that are not floats.
fn distance(dtype: DType) -> f64 {
    dtype.float_format().map_or(0.0, |(_, mantissa)| 0.5f64.powi(mantissa as i32))
}

/// The smallest number of full precision.
fn smallest(dtype: DType) -> f64 {
    dtype.float_format().map_or(0.0, |(exponent, _)| 2f64.powi(2 - (1 << (exponent - 1))))
}

/// Whether a number is a float of less than full precision, and not zero.
fn is_subnormal(x: Literal) -> bool {
    let value = x.as_f64().abs();
    value > 0.0 && value < smallest(x.dtype())
}

/// The coarsest rounding of a program and of those in it.
fn coarsest(jaxpr: &Jaxpr, epsilon: &impl Fn(DType) -> f64) -> f64 {
    let own = jaxpr.avals.iter().map(|(_, aval)| epsilon(aval.dtype));
    let bodies = jaxpr.eqns.iter().flat_map(|eqn| eqn.op.bodies()).map(|body| coarsest(body, epsilon));
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
