//! Special functions in f64, one element at a time, with the evaluator's values at poles and outside of their domains.

use std::f64::consts::PI;

/// The inverse hyperbolic cosine; NaN below 1, where `libm` may give a number.
pub(in crate::tile) fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// The inverse of the error function; NaN outside of [-1, 1].
pub(in crate::tile) fn erf_inv(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    if x.abs() <= 1.0 { statrs::function::erf::erf_inv(x) } else { f64::NAN }
}

/// The logarithmic derivative of the gamma function; NaN at its poles.
pub(in crate::tile) fn digamma(x: f64) -> f64 {
    if x == f64::INFINITY {
        return x;
    }
    if x.is_nan() || (x <= 0.0 && x == x.floor()) {
        return f64::NAN;
    }
    if x < 0.0 {
        // Reflected by the distance to the nearest pole, which is exact: the tangent of pi x loses the digits near it.
        return statrs::function::gamma::digamma(1.0 - x) - PI / (PI * (x - x.round())).tan();
    }
    statrs::function::gamma::digamma(x)
}
