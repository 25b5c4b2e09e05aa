//! Functions of f64, by the methods of their f32 counterparts.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E};

use super::{clamp, polynomial, zero_below};

/// Adding this number rounds to an integer, which the last bits of the sum then contain.
pub(super) const TO_INTEGER: f64 = 6_755_399_441_055_744.0;
/// The logarithm of 2 minus [`LN_2`].
const LN_2_LOW: f64 = 2.3190468138462996e-17;
/// The logarithm of 2 in two parts. The first has so few bits that its multiples are exact.
const LN_2_SHORT: f64 = 0.6931471805437468;
const LN_2_REST: f64 = 1.619851018665656e-11;
/// One half of pi minus [`FRAC_PI_2`], in two parts.
pub(super) const HALF_PI_LOW: f64 = 6.123233995736766e-17;
const HALF_PI_LOWEST: f64 = -1.4973849048591698e-33;
/// The bits of the root of one half.
const ROOT_HALF: u64 = 0x3FE6_A09E_667F_3BCD;
/// The factor that makes a subnormal number normal: 2^54.
const SUBNORMAL_SCALE: f64 = (1u64 << 54) as f64;
/// Below 2^-54, functions of slope 1 return their argument.
const TINY: f64 = 1.0 / SUBNORMAL_SCALE;
/// From 2^52 on, numbers are integers, and the last bits of `2^52 + n` are `n`.
const INTEGERS: f64 = (1u64 << 52) as f64;
/// The largest argument of the sine and the cosine.
pub(crate) const LIMIT: f64 = 1_048_576.0;

/// The logarithm of 2^-1075, half of the smallest positive number.
const LOG_OF_HALF_LEAST: f64 = -745.1332191019412;

/// `e^x`.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    zero_below(LOG_OF_HALF_LEAST, x, |x| {
        let (k, r) = reduce(if x > 710.0 { 710.0 } else { x });
        let q = polynomial(
            r,
            [
                0.5000000000000011,
                0.16666666666666438,
                0.04166666666652546,
                0.008333333333466527,
                0.001388888894508328,
                0.00019841269607597613,
                2.480149133401437e-5,
                2.7557455032122878e-6,
                2.7630965886148496e-7,
                2.5054668671623288e-8,
            ],
        );
        let sum = 1.0 + r;
        let rest = (r * r).mul_add(q, r - (sum - 1.0));
        scale(sum + rest, k)
    })
}

/// `2^x`.
#[inline(always)]
pub(crate) fn exp2(x: f64) -> f64 {
    zero_below(-1075.0, x, |x| {
        let x = if x > 1025.0 { 1025.0 } else { x };
        let k = x + TO_INTEGER;
        let r = x - (k - TO_INTEGER);
        let q = polynomial(
            r,
            [
                LN_2,
                0.24022650695910172,
                0.055504108664824574,
                0.009618129107577112,
                0.0013333558145566177,
                0.00015403530478604762,
                1.525273474019405e-5,
                1.321542479827776e-6,
                1.0177655878980631e-7,
                7.0755213838976584e-9,
                4.5190155440267707e-10,
            ],
        );
        scale(r.mul_add(q, 1.0), k)
    })
}

/// `e^x - 1`.
#[inline(always)]
pub(crate) fn expm1(x: f64) -> f64 {
    let x_in_range = clamp(x, -38.0, 710.0);
    let (k, r) = reduce(x_in_range);
    // The error of the reduction: multiplied by 2 it would show in the last place.
    let whole = k - TO_INTEGER;
    let lost = whole.mul_add(-LN_2_LOW, whole.mul_add(-LN_2, x_in_range) - r);
    let q = polynomial(
        r,
        [
            0.5,
            0.16666666666666677,
            0.04166666666666669,
            0.008333333333321738,
            0.0013888888888884444,
            0.00019841269885438316,
            2.4801587301523567e-5,
            2.755724513280044e-6,
            2.75573095396876e-7,
            2.5108668768876254e-8,
            2.0899933946550877e-9,
        ],
    );
    // One half of 2^k, which is finite also where 2^k is not.
    let half = f64::from_bits((k.to_bits() << 52).wrapping_add(1022 << 52));
    let result = 2.0 * half.mul_add((r * r).mul_add(q, lost), half.mul_add(r, half - 0.5));
    if x.abs() < TINY { x } else { result }
}

/// `1 / (1 + e^-x)`, without overflow.
#[inline(always)]
pub(crate) fn logistic(x: f64) -> f64 {
    let e = exp(-x.abs());
    let divisor = 1.0 + e;
    quotient(if x < 0.0 { e } else { 1.0 }, divisor, e - (divisor - 1.0))
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f64) -> f64 {
    let e = expm1(clamp(2.0 * x.abs(), 0.0, 80.0));
    let divisor = 2.0 + e;
    quotient(e, divisor, e - (divisor - 2.0)).copysign(x)
}

/// The natural logarithm.
#[inline(always)]
pub(crate) fn log(x: f64) -> f64 {
    let subnormal = x < f64::MIN_POSITIVE;
    let (k, f) = exponent_and_fraction(if subnormal { x * SUBNORMAL_SCALE } else { x });
    let result = reduced_log(f, k - if subnormal { 54.0 } else { 0.0 });
    let special = if x == 0.0 { f64::NEG_INFINITY } else { x };
    let special = if x < 0.0 { f64::NAN } else { special };
    // Positive finite numbers are those whose bits are between those of zero and infinity.
    if x.to_bits().wrapping_sub(1) < f64::INFINITY.to_bits() - 1 { result } else { special }
}

/// `log(1 + x)`.
#[inline(always)]
pub(crate) fn log1p(x: f64) -> f64 {
    let exponent = (1.0 + x).to_bits().wrapping_sub(ROOT_HALF) & (0xFFF << 52);
    // As in f32, the reduced argument is that of `x` itself.
    let scale = f64::from_bits((1025u64 << 52).wrapping_sub(exponent));
    let f = scale.mul_add(0.25 * x, 0.25f64.mul_add(scale, -1.0));
    let result = reduced_log(f, signed_exponent(exponent));
    let result = if x < f64::INFINITY { result } else { x };
    let result = if x == -1.0 { f64::NEG_INFINITY } else { result };
    let result = if x < -1.0 { f64::NAN } else { result };
    if x.abs() < TINY { x } else { result }
}

/// The sine, for arguments up to [`LIMIT`].
#[inline(always)]
pub(crate) fn sin(x: f64) -> f64 {
    let result = shifted_sin(x, 0);
    // A zero keeps its sign.
    if x == 0.0 { x } else { result }
}

/// The cosine, for arguments up to [`LIMIT`].
#[inline(always)]
pub(crate) fn cos(x: f64) -> f64 {
    shifted_sin(x, 1)
}

/// The sine of `x + quarters * pi / 2`.
#[inline(always)]
fn shifted_sin(x: f64, quarters: u64) -> f64 {
    let k = x.mul_add(FRAC_2_PI, TO_INTEGER);
    let whole = k - TO_INTEGER;
    // The first difference is exact: it is a small multiple of the last bit of `FRAC_PI_2`.
    let difference = whole.mul_add(-FRAC_PI_2, x);
    let r = whole.mul_add(-HALF_PI_LOWEST, whole.mul_add(-HALF_PI_LOW, difference));
    let square = r * r;
    let q = polynomial(
        square,
        [
            -0.16666666666666638,
            0.008333333333323397,
            -0.0001984126983038878,
            2.755731385219589e-6,
            -2.505077916228346e-8,
            1.5897858909888356e-10,
        ],
    );
    let sine = (square * r).mul_add(q, r);
    let q = polynomial(
        square,
        [
            0.04166666666666666,
            -0.0013888888888882445,
            2.480158729393667e-5,
            -2.7557315481315875e-7,
            2.0875860240156805e-9,
            -1.1366061531824992e-11,
        ],
    );
    let cosine = (square * square).mul_add(q, square.mul_add(-0.5, 1.0));
    let quadrant = k.to_bits().wrapping_add(quarters);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    f64::from_bits(value.to_bits() ^ (quadrant & 2) << 62)
}

/// `k` and `f` of a normal number `2^k (1 + f)`, with `1 + f` between the root of one half and the root of 2.
#[inline(always)]
pub(super) fn exponent_and_fraction(x: f64) -> (f64, f64) {
    let exponent = x.to_bits().wrapping_sub(ROOT_HALF) & (0xFFF << 52);
    (signed_exponent(exponent), f64::from_bits(x.to_bits().wrapping_sub(exponent)) - 1.0)
}

/// The number whose low 12 bits are the high bits of the argument.
#[inline(always)]
fn signed_exponent(bits: u64) -> f64 {
    // AVX2 neither shifts nor converts signed integers of 64 bits.
    let biased = bits.wrapping_add(2048 << 52) >> 52;
    f64::from_bits(INTEGERS.to_bits() | biased) - (INTEGERS + 2048.0)
}

/// `k log(2) + log(1 + f)`, with `log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + r(s^2))` and `s = f / (2 + f)`, the method of
/// FreeBSD's `log`.
#[inline(always)]
fn reduced_log(f: f64, k: f64) -> f64 {
    let s = f / (2.0 + f);
    let square = s * s;
    let r = square
        * polynomial(
            square,
            [
                0.6666666666666713,
                0.3999999999952506,
                0.28571428721839603,
                0.2222220041554516,
                0.18183478363321945,
                0.15316062300305186,
                0.14777285494507064,
            ],
        );
    let half = 0.5 * f * f;
    let rest = s.mul_add(half + r, k * LN_2_REST);
    k.mul_add(LN_2_SHORT, f - (half - rest))
}

/// The quotient by a rounded divisor, corrected for `lost`, the error of the divisor, and for the error of the division.
#[inline(always)]
fn quotient(dividend: f64, divisor: f64, lost: f64) -> f64 {
    let reciprocal = 1.0 / divisor;
    let quotient = dividend * reciprocal;
    let rest = quotient.mul_add(-lost, quotient.mul_add(-divisor, dividend));
    rest.mul_add(reciprocal, quotient)
}

/// `k + TO_INTEGER` and `r` of `x = k ln 2 + r`.
#[inline(always)]
fn reduce(x: f64) -> (f64, f64) {
    let k = x.mul_add(LOG2_E, TO_INTEGER);
    let whole = k - TO_INTEGER;
    (k, whole.mul_add(-LN_2_LOW, whole.mul_add(-LN_2, x)))
}

/// `x * 2^k`, given `k + TO_INTEGER`, in two steps.
#[inline(always)]
fn scale(x: f64, k: f64) -> f64 {
    let exponents = k.to_bits().wrapping_sub(TO_INTEGER.to_bits() - 2 * 1023);
    let first = exponents >> 1;
    x * f64::from_bits(first << 52) * f64::from_bits(exponents.wrapping_sub(first) << 52)
}
