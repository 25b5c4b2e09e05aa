//! Exponentials in f32.
//!
//! The argument is reduced to `x = k ln 2 + r`, `|r| <= ln 2 / 2`, with `ln 2` in two parts (Cody and Waite, *Software Manual for the
//! Elementary Functions*, 1980). A polynomial approximates the function of `r`, and `k` gives the exponent of the result.

use std::f32::consts::{LN_2, LOG2_E};

use super::{clamp, polynomial, zero_below};

/// Adding this number rounds to an integer, which the last bits of the sum then contain.
pub(super) const TO_INTEGER: f32 = 12_582_912.0;
/// The logarithm of 2 minus [`LN_2`].
const LN_2_LOW: f32 = -1.904_654_2e-9;

/// Below 2^-25, functions of slope 1 return their argument.
pub(super) const TINY: f32 = 1.0 / 33_554_432.0;

/// The logarithm of 2^-150, half of the smallest positive number.
const LOG_OF_HALF_LEAST: f32 = -103.972_08;

/// The logarithm of 2^-126, the smallest normal number, rounded up.
const LOG_OF_LEAST_NORMAL: f32 = -87.336_54;

/// `e^x`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    zero_below(LOG_OF_HALF_LEAST, x, |x| {
        let (k, r) = reduce(if x > 89.0 { 89.0 } else { x });
        let q = polynomial(r, [0.499_999_94, 0.166_665_17, 0.041_668_136, 0.008_369_31, 0.001_382_586_9]);
        // The error of adding 1 to `r` is added to the small remainder.
        let sum = 1.0 + r;
        let rest = (r * r).mul_add(q, r - (sum - 1.0));
        scale(sum + rest, k)
    })
}

/// `e^x` within 1.1 units in the last place, where results below the smallest normal number are zero, and those above 2^127.5 infinite: the exponent is added
/// in one step, and nothing is added for what `1 + r` loses.
#[inline(always)]
pub(crate) fn exp_normal(x: f32) -> f32 {
    zero_below(LOG_OF_LEAST_NORMAL, x, |x| {
        let (k, r) = reduce(if x > 89.0 { 89.0 } else { x });
        let q = polynomial(r, [0.499_999_94, 0.166_665_17, 0.041_668_136, 0.008_369_31, 0.001_382_586_9]);
        let power = f32::from_bits((k.to_bits() << 23).wrapping_add(127 << 23));
        (1.0 + (r * r).mul_add(q, r)) * power
    })
}

/// `2^x`.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    zero_below(-150.0, x, |x| {
        let x = if x > 129.0 { 129.0 } else { x };
        let k = x + TO_INTEGER;
        let r = x - (k - TO_INTEGER);
        let q = polynomial(
            r,
            [LN_2, 0.240_226_5, 0.055_504_01, 0.009_618_083, 0.001_334_284_2, 0.000_154_538_78, 1.298_690_7e-5],
        );
        scale(r.mul_add(q, 1.0), k)
    })
}

/// `e^x - 1`.
#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let (k, r) = reduce(clamp(x, -18.0, 89.0));
    let q = polynomial(r, [0.5, 0.166_666_36, 0.041_666_51, 0.008_341_62, 0.001_393_052_3, 0.000_149_170_42]);
    let reduced = (r * r).mul_add(q, r);
    // One half of 2^k, which is finite also where 2^k is not.
    let half = f32::from_bits((k.to_bits() << 23).wrapping_add(126 << 23));
    let result = 2.0 * half.mul_add(reduced, half - 0.5);
    // Half of a subnormal number is not exact, and a zero keeps its sign.
    if x.abs() < TINY { x } else { result }
}

/// `1 / (1 + e^-x)`, without overflow.
#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    let e = exp(-x.abs());
    let divisor = 1.0 + e;
    quotient(if x < 0.0 { e } else { 1.0 }, divisor, e - (divisor - 1.0))
}

/// The hyperbolic tangent, `e / (e + 2)` with `e = exp(2 |x|) - 1`.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let e = expm1(clamp(2.0 * x.abs(), 0.0, 40.0));
    let divisor = 2.0 + e;
    quotient(e, divisor, e - (divisor - 2.0)).copysign(x)
}

/// The quotient by a rounded divisor, corrected for `lost`, the error of the divisor, and for the error of the division.
#[inline(always)]
fn quotient(dividend: f32, divisor: f32, lost: f32) -> f32 {
    let reciprocal = 1.0 / divisor;
    let quotient = dividend * reciprocal;
    let rest = quotient.mul_add(-lost, quotient.mul_add(-divisor, dividend));
    rest.mul_add(reciprocal, quotient)
}

/// `k + TO_INTEGER` and `r` of `x = k ln 2 + r`.
#[inline(always)]
fn reduce(x: f32) -> (f32, f32) {
    let k = x.mul_add(LOG2_E, TO_INTEGER);
    let whole = k - TO_INTEGER;
    // The first difference is exact: it is a small multiple of the last bit of `LN_2`.
    (k, whole.mul_add(-LN_2_LOW, whole.mul_add(-LN_2, x)))
}

/// `x * 2^k`, of `k + TO_INTEGER`. In two steps, because `2^k` may be out of range where the product is not.
#[inline(always)]
fn scale(x: f32, k: f32) -> f32 {
    let exponents = k.to_bits().wrapping_sub(TO_INTEGER.to_bits() - 2 * 127);
    let first = exponents >> 1;
    x * f32::from_bits(first << 23) * f32::from_bits(exponents.wrapping_sub(first) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_of_weights_are_those_of_normal_numbers() {
        for i in -1_000_000..890_000 {
            let x = i as f32 * 1e-4;
            let (got, expected) = (exp_normal(x), f64::from(x).exp());
            if x < LOG_OF_LEAST_NORMAL {
                assert_eq!(got.to_bits(), 0, "{x}");
            } else if expected < 2f64.powf(127.4) {
                let unit = 2f64.powi((expected.log2().floor() as i32).max(-126) - 23);
                assert!((f64::from(got) - expected).abs() <= 1.1 * unit, "{x}: {got} and not {expected}");
            }
        }
        assert_eq!(
            [f32::NEG_INFINITY, 0.0, f32::INFINITY, 1e30].map(exp_normal),
            [0.0, 1.0, f32::INFINITY, f32::INFINITY]
        );
        assert!([f32::NAN, -f32::NAN, f32::from_bits(0x7FFF_FFFF)].iter().all(|&x| exp_normal(x).is_nan()));
        assert!(exp_normal(LOG_OF_LEAST_NORMAL) >= f32::MIN_POSITIVE);
    }
}
