//! Logarithms in f32.
//!
//! The argument is reduced to `x = 2^k (1 + f)`, with `1 + f` between the root of one half and the root of 2, and a polynomial approximates
//! `log(1 + f) = f - f^2 / 2 + f^3 q(f)`.

use super::exp::TINY;
use super::polynomial;

/// The logarithm of 2 in two parts. The first has so few bits that its multiples are exact.
const LN_2_SHORT: f32 = 0.693_145_75;
const LN_2_REST: f32 = 1.428_606_8e-6;
/// The bits of the root of one half.
const ROOT_HALF: u32 = 0x3F35_04F3;

/// The natural logarithm.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let normal = if subnormal { x * 8_388_608.0 } else { x };
    let bits = normal.to_bits();
    let exponent = bits.wrapping_sub(ROOT_HALF) & 0xFF80_0000;
    let f = f32::from_bits(bits.wrapping_sub(exponent)) - 1.0;
    let k = (exponent as i32 >> 23) as f32 - if subnormal { 23.0 } else { 0.0 };
    let result = reduced(f, k);
    let special = if x == 0.0 { f32::NEG_INFINITY } else { x };
    let special = if x < 0.0 { f32::NAN } else { special };
    // Positive finite numbers are those whose bits are between those of zero and infinity.
    if x.to_bits().wrapping_sub(1) < f32::INFINITY.to_bits() - 1 { result } else { special }
}

/// `log(1 + x)`.
#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let exponent = (1.0 + x).to_bits().wrapping_sub(ROOT_HALF) & 0xFF80_0000;
    // The reduced argument of `x` itself, without the rounding of `1 + x`: `1 + f = 2^-k + 2^-k x`. The largest `k` is 128, and a quarter
    // of `x` is exact.
    let scale = f32::from_bits((129u32 << 23).wrapping_sub(exponent));
    let f = scale.mul_add(0.25 * x, 0.25f32.mul_add(scale, -1.0));
    let result = reduced(f, (exponent as i32 >> 23) as f32);
    let result = if x < f32::INFINITY { result } else { x };
    let result = if x == -1.0 { f32::NEG_INFINITY } else { result };
    let result = if x < -1.0 { f32::NAN } else { result };
    if x.abs() < TINY { x } else { result }
}

/// `k log(2) + log(1 + f)`.
#[inline(always)]
fn reduced(f: f32, k: f32) -> f32 {
    let q = polynomial(
        f,
        [
            0.333_333_13,
            -0.250_000_03,
            0.200_020_95,
            -0.166_684,
            0.142_198_85,
            -0.123_976_28,
            0.118_800_364,
            -0.117_292_37,
            0.068_332_88,
        ],
    );
    let square = f * f;
    let rest = (square * f).mul_add(q, k * LN_2_REST);
    k.mul_add(LN_2_SHORT, square.mul_add(-0.5, rest) + f)
}
