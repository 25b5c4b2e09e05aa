//! Transcendental functions that LLVM vectorises.
//!
//! They have no branches, no tables and no calls: every element takes the same path, and both sides of a condition are computed. Their
//! polynomials are minimax approximations found by Remez's exchange algorithm; coefficients are rounded one by one, and the remaining ones
//! fitted again. `mul_add` is part of the definition, so that all CPUs give the same bits.
//!
//! Functions of f32 that take much time in training are computed in f32. The others are computed in f64 to about 35 bits and rounded once,
//! which is simpler and nearly exact.
//!
//! Largest errors found, in units in the last place, over the whole range including subnormal numbers and infinities:
//!
//! | dtype | functions | error |
//! |---|---|---|
//! | f32 | `exp`, `log` | 0.8 |
//! | f32 | `exp2` | 0.9 |
//! | f32 | `erf` | 1.1 |
//! | f32 | `expm1`, `log1p` | 1.5 |
//! | f32 | `logistic`, `digamma` | 1.6 |
//! | f32 | `tanh`, `sin`, `cos` | 1.7 |
//! | f32 | `tan`, `asin`, `acos`, `atan`, `atan2`, `sinh`, `cosh`, `asinh` | 0.6 |
//! | f32 | `acosh`, `atanh`, `cbrt`, `pow`, `erfc`, `erfcx`, `erf_inv`, `lgamma` | 0.6 |
//! | f64 | `exp`, `exp2`, `log`, `log1p` | 0.8 |
//! | f64 | `expm1` | 1.1 |
//! | f64 | `logistic`, `sin`, `cos` | 1.5 |
//! | f64 | `tanh` | 1.7 |
//!
//! `sqrt` is exact, `rsqrt` is `1 / sqrt(x)` with two roundings (1.4). Functions of f16 and bf16 are those of f32, rounded again.
//! All others (`lgamma` and `digamma`; of f64 also `tan`, `pow`, the inverse and the hyperbolic functions, `cbrt`, `erf` and its relatives)
//! call the evaluator's function for each element. Their errors, measured against 200 bits at 8,000 arguments of each range:
//!
//! | dtype | functions | error |
//! |---|---|---|
//! | f64 | `tan`, `asin`, `acos`, `atan`, `atan2`, `cbrt`, `pow` (those of the system, here glibc's) | 0.6 |
//! | f64 | `erf`, `cosh` | 1.0 |
//! | f64 | `sinh`, `asinh`, `atanh` | 1.4 |
//! | f64 | `acosh` | 1.7 |
//! | f64 | **`lgamma` from zero on** | **2.1** |
//! | f64 | **`erf_inv`** | **2.3** |
//! | f64 | **`erfc`** | **2.7** |
//! | f64 | **`erfcx`** | **3.9** |
//! | f64 | **`lgamma` below zero** | **4.3 of the larger of result and 1**: unbounded in its own units near a zero |
//! | f64 | **`digamma` from zero on** | **16 of the larger of result and 1**: unbounded in its own units near the zero at 1.46 |
//! | f64 | **`digamma` below zero** | **170 of the larger of result and 1** down to -11, and more farther down or within 0.1 of a pole |
//!
//! So all errors are within two units, except those of `lgamma`, `erf_inv`, `erfc`, `erfcx` and `digamma` of f64.
//!
//! Sines, cosines and tangents of arguments beyond a limit use another method, also element by element.

pub(crate) mod double;
pub(crate) mod error;
pub(crate) mod exp;
pub(crate) mod log;
pub(crate) mod trigonometric;
pub(crate) mod wide;

use super::Real;

/// `c[0] + c[1] x + c[2] x^2 + ..`, by Horner's scheme.
#[inline(always)]
fn polynomial<T: Real, const N: usize>(x: T, coefficients: [T; N]) -> T {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = sum.fused(x, coefficients[i]);
    }
    sum
}

/// `x` clamped to the bounds; a NaN stays NaN.
#[inline(always)]
fn clamp<T: PartialOrd>(x: T, low: T, high: T) -> T {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// `f(x)`, or zero if `x` is below a bound. `f` is then computed for another number: an intermediate result below the smallest normal
/// number, even if it is rounded to zero, takes some CPUs a hundred cycles, and masked scores are such arguments.
#[inline(always)]
fn zero_below<T: Real>(bound: T, x: T, f: impl Fn(T) -> T) -> T {
    let is_zero = x < bound;
    let y = f(if is_zero { T::ZERO } else { x });
    if is_zero { T::ZERO } else { y }
}
