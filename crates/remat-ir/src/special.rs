//! Special functions of f64, one element at a time, with the same values as XLA at poles and outside of their domains.
//!
//! The evaluator uses them, and so do engines that have no faster way to compute the same values.

use std::f64::consts::PI;

/// The inverse hyperbolic cosine; NaN below 1, where `libm` may give a number.
///
/// ```
/// assert_eq!(remat_ir::special::acosh(1.0), 0.0);
/// assert!(remat_ir::special::acosh(0.5).is_nan());
/// ```
pub fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// The inverse of the error function; NaN outside of [-1, 1].
///
/// ```
/// assert_eq!(remat_ir::special::erf_inv(1.0), f64::INFINITY);
/// assert!((remat_ir::special::erf_inv(0.5) - 0.476_936_276_204_469_9).abs() < 1e-15);
/// ```
pub fn erf_inv(x: f64) -> f64 {
    if x == 0.0 {
        return x;
    }
    if x.abs() <= 1.0 { statrs::function::erf::erf_inv(x) } else { f64::NAN }
}

/// The logarithmic derivative of the gamma function; NaN at its poles.
///
/// ```
/// assert!((remat_ir::special::digamma(1.0) + 0.577_215_664_901_532_9).abs() < 1e-14);
/// assert!(remat_ir::special::digamma(-1.0).is_nan());
/// ```
pub fn digamma(x: f64) -> f64 {
    if x == f64::INFINITY {
        return x;
    }
    if x.is_nan() || (x <= 0.0 && x == x.floor()) {
        return f64::NAN;
    }
    if x < 0.0 {
        // Reflected at the nearest pole, whose distance is exact: the tangent of pi x loses the digits near it.
        return statrs::function::gamma::digamma(1.0 - x) - PI / (PI * (x - x.round())).tan();
    }
    statrs::function::gamma::digamma(x)
}

/// The scaled complementary error function `exp(x^2) erfc(x)`, which falls as `1 / x` where `erfc` underflows; infinite below
/// -26.6.
///
/// From zero on, `(1 + 2 x) erfcx(x)` is a polynomial of `(x - 4) / (x + 4)` (the substitution is that of Shepherd and
/// Laframboise, *Chebyshev approximation of (1 + 2x) exp(x^2) erfc x*, 1981); below zero it is `2 exp(x^2) - erfcx(-x)`.
///
/// ```
/// assert!((remat_ir::special::erfcx(1.0) - 0.427_583_576_155_807).abs() < 1e-15);
/// assert_eq!(remat_ir::special::erfcx(f64::INFINITY), 0.0);
/// ```
pub fn erfcx(x: f64) -> f64 {
    let distance = x.abs();
    // The next term of the asymptotic series is smaller by a factor of `2 x^2`.
    let right = if distance > 1e8 {
        1.0 / (distance * PI.sqrt())
    } else {
        let t = (distance - 4.0) / (distance + 4.0);
        ERFCX.iter().rev().fold(0.0, |sum, c| t.mul_add(sum, *c)) / (1.0 + 2.0 * distance)
    };
    if x < -26.7 {
        return f64::INFINITY;
    }
    if x < 0.0 {
        // The square has twice the digits, and its rounding error would be multiplied by the square.
        let square = x * x;
        return 2.0 * square.exp() * (1.0 + x.mul_add(x, -square)) - right;
    }
    right
}

/// `(1 + 2 x) erfcx(x)` as a polynomial of `(x - 4) / (x + 4)`, from the Chebyshev series computed with 60 digits.
pub const ERFCX: [f64; 24] = [
    1.2329951186255526,
    -0.1396211168405623,
    0.015379652102610473,
    0.06809705425466908,
    -0.10103906603586531,
    0.0937328349990944,
    -0.06633036582031154,
    0.03716751552655567,
    -0.016197733981455194,
    0.005031970067657489,
    -0.000757773707063825,
    -0.00019925714661091188,
    0.00015062309720018628,
    -2.4397746422436416e-5,
    -1.1225101875659178e-5,
    5.706604414895734e-6,
    2.9801353803031333e-7,
    -8.210939042560568e-7,
    7.115337800585303e-8,
    1.0633855618594884e-7,
    -1.6371779763566967e-8,
    -1.234686604382353e-8,
    1.5738283774192037e-9,
    9.311744978232572e-10,
];
