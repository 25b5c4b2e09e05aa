//! Sine and cosine in f32, for arguments up to [`LIMIT`].
//!
//! The argument is reduced to `x = k pi / 2 + r`, `|r| <= pi / 4`, with `pi / 2` in three parts (Cody and Waite, as for the exponential).
//! Beyond the limit three parts are too few.

use std::f32::consts::{FRAC_2_PI, FRAC_PI_2};

use super::exp::TO_INTEGER;
use super::polynomial;

/// The largest argument.
pub(crate) const LIMIT: f32 = 65536.0;

/// One half of pi minus [`FRAC_PI_2`], in two parts.
const HALF_PI_MIDDLE: f32 = -4.371_139e-8;
const HALF_PI_LOW: f32 = -1.715_124_5e-15;

/// The sine.
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let result = shifted_sin(x, 0);
    // A zero keeps its sign.
    if x == 0.0 { x } else { result }
}

/// The cosine.
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    shifted_sin(x, 1)
}

/// The sine of `x + quarters * pi / 2`.
#[inline(always)]
fn shifted_sin(x: f32, quarters: u32) -> f32 {
    let k = x.mul_add(FRAC_2_PI, TO_INTEGER);
    let whole = k - TO_INTEGER;
    // The first difference is exact: it is a small multiple of the last bit of `FRAC_PI_2`.
    let difference = whole.mul_add(-FRAC_PI_2, x);
    let r = whole.mul_add(-HALF_PI_LOW, whole.mul_add(-HALF_PI_MIDDLE, difference));
    let square = r * r;
    let q = polynomial(square, [-0.166_666_67, 0.008_333_379, -0.000_198_530_64, 2.832_545_5e-6]);
    let sine = (square * r).mul_add(q, r);
    let q = polynomial(square, [0.041_666_653, -0.001_388_761, 2.446_175_1e-5]);
    let cosine = (square * square).mul_add(q, square.mul_add(-0.5, 1.0));
    let quadrant = k.to_bits().wrapping_add(quarters);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    f32::from_bits(value.to_bits() ^ (quadrant & 2) << 30)
}
