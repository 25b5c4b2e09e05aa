//! Functions of f32 that are computed in f64 and rounded once.
//!
//! About 35 bits are enough for that, and the exponents of f64 leave room for every intermediate result.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, PI};

use super::double::{HALF_PI_LOW, TO_INTEGER, exponent_and_fraction};
use super::{clamp, polynomial};

/// The tangent, for arguments up to [`super::trigonometric::LIMIT`].
#[inline(always)]
pub(crate) fn tan(x: f32) -> f32 {
    let wide = f64::from(x);
    let k = wide.mul_add(FRAC_2_PI, TO_INTEGER);
    let whole = k - TO_INTEGER;
    let r = whole.mul_add(-HALF_PI_LOW, whole.mul_add(-FRAC_PI_2, wide));
    let square = r * r;
    let sine = r * polynomial(
        square,
        [0.999999999995449, -0.16666666630443985, 0.008333328690141271, -0.00019839178371861989, 2.7171530095412876e-6],
    );
    let cosine = polynomial(
        square,
        [
            0.9999999999999344,
            -0.4999999999927132,
            0.041666666533695926,
            -0.0013888879934418803,
            2.479884424971589e-5,
            -2.716798025660287e-7,
        ],
    );
    let even = k.to_bits() & 1 == 0;
    ((if even { sine } else { -cosine }) / (if even { cosine } else { sine })) as f32
}

/// The inverse sine.
#[inline(always)]
pub(crate) fn asin(x: f32) -> f32 {
    let (reduced, near) = reduced_asin(x);
    (if near { reduced } else { 2.0f64.mul_add(-reduced, FRAC_PI_2) } as f32).copysign(x)
}

/// The inverse cosine.
#[inline(always)]
pub(crate) fn acos(x: f32) -> f32 {
    let (reduced, near) = reduced_asin(x);
    let signed = reduced.copysign(x.into());
    let far = if x < 0.0 { 2.0f64.mul_add(-reduced, PI) } else { 2.0 * reduced };
    (if near { FRAC_PI_2 - signed } else { far }) as f32
}

/// The inverse tangent.
#[inline(always)]
pub(crate) fn atan(x: f32) -> f32 {
    let distance = f64::from(x.abs());
    (atan_of_ratio(distance, 1.0) as f32).copysign(x)
}

/// The angle of the point `(x, y)`.
#[inline(always)]
pub(crate) fn atan2(y: f32, x: f32) -> f32 {
    let (height, width) = (f64::from(y.abs()), f64::from(x.abs()));
    // The angles of the corners and of the origin, where a ratio does not exist.
    let infinite = (height == f64::INFINITY) & (width == f64::INFINITY);
    let (height, width) = (if infinite { 1.0 } else { height }, if infinite { 1.0 } else { width });
    let width = if (height == 0.0) & (width == 0.0) { 1.0 } else { width };
    let angle = atan_of_ratio(height, width);
    let angle = if x.is_sign_negative() { PI - angle } else { angle };
    let result = (angle as f32).copysign(y);
    if x.is_nan() | y.is_nan() { f32::NAN } else { result }
}

/// The hyperbolic sine.
#[inline(always)]
pub(crate) fn sinh(x: f32) -> f32 {
    let distance = clamp(f64::from(x.abs()), 0.0, 100.0);
    let power = exp(distance);
    let square = distance * distance;
    let near = distance * polynomial(square, [1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362_880.0]);
    let far = 0.5 * (power - 1.0 / power);
    ((if distance < 0.5 { near } else { far }) as f32).copysign(x)
}

/// The hyperbolic cosine.
#[inline(always)]
pub(crate) fn cosh(x: f32) -> f32 {
    let power = exp(clamp(f64::from(x.abs()), 0.0, 100.0));
    (0.5 * (power + 1.0 / power)) as f32
}

/// The inverse hyperbolic sine.
#[inline(always)]
pub(crate) fn asinh(x: f32) -> f32 {
    let distance = f64::from(x.abs());
    let square = distance * distance;
    let far = log(distance + (square + 1.0).sqrt());
    let near = distance * square.mul_add(-1.0 / 6.0, 1.0);
    let result = (if distance < 1e-3 { near } else { far }) as f32;
    (if x.is_finite() { result } else { x }).copysign(x)
}

/// The inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub(crate) fn acosh(x: f32) -> f32 {
    let wide = f64::from(x);
    let result = log(wide + wide.mul_add(wide, -1.0).sqrt()) as f32;
    let result = if x == f32::INFINITY { x } else { result };
    if x >= 1.0 { result } else { f32::NAN }
}

/// The inverse hyperbolic tangent; NaN outside of [-1, 1].
#[inline(always)]
pub(crate) fn atanh(x: f32) -> f32 {
    let distance = f64::from(x.abs());
    let far = 0.5 * log((1.0 + distance) / (1.0 - distance));
    let near = distance * (distance * distance).mul_add(1.0 / 3.0, 1.0);
    let result = (if distance < 1e-3 { near } else { far }) as f32;
    let result = if distance == 1.0 { f32::INFINITY } else { result };
    (if distance <= 1.0 { result } else { f32::NAN }).copysign(x)
}

/// The cubic root.
#[inline(always)]
pub(crate) fn cbrt(x: f32) -> f32 {
    let distance = f64::from(x.abs());
    let result = exp2(log2(distance) * (1.0 / 3.0)) as f32;
    let finite = (x != 0.0) & x.is_finite();
    if finite { result.copysign(x) } else { x }
}

/// `x^y`, with the special cases of C's `pow`.
#[inline(always)]
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    let (distance, y_wide) = (f64::from(x.abs()), f64::from(y));
    let exponent = log2(distance);
    let exponent = if distance == 0.0 { f64::NEG_INFINITY } else { exponent };
    let exponent = if distance == f64::INFINITY { f64::INFINITY } else { exponent };
    let product = y_wide * exponent;
    // The logarithm of 1 times any number is zero, even times infinity.
    let product = if (distance == 1.0) & !y.is_nan() { 0.0 } else { product };
    let power = exp2(clamp(product, -300.0, 300.0)) as f32;
    let half = 0.5 * y;
    let whole = (y == y.trunc()) | y.is_infinite();
    let odd = whole & (half != half.trunc()) & y.is_finite();
    let power = if odd { power.copysign(x) } else { power };
    let undefined = (x < 0.0) & (distance < f64::INFINITY) & !whole;
    let power = if undefined | x.is_nan() { f32::NAN } else { power };
    if (y == 0.0) | (x == 1.0) { 1.0 } else { power }
}

/// The inverse sine of `|x|` up to one half, and of `sqrt((1 - |x|) / 2)` above; and whether it is the former.
#[inline(always)]
fn reduced_asin(x: f32) -> (f64, bool) {
    let distance = f64::from(x.abs());
    let near = distance < 0.5;
    let half = distance.mul_add(-0.5, 0.5);
    let square = if near { distance * distance } else { half };
    let root = if near { distance } else { half.sqrt() };
    let p = polynomial(
        square,
        [
            1.0000000000009157,
            0.16666666608613195,
            0.07500006050189736,
            0.04464043782644056,
            0.030430121691681928,
            0.02183858547004875,
            0.020762715286452054,
            0.0017146570868475824,
            0.03315909618162991,
        ],
    );
    (root * p, near)
}

/// The inverse tangent of `height / width`. Neither is negative, and they are not both zero or both infinite.
#[inline(always)]
fn atan_of_ratio(height: f64, width: f64) -> f64 {
    let steep = height > width;
    let (small, large) = (if steep { width } else { height }, if steep { height } else { width });
    // Beyond the tangent of an eighth of pi the angle is measured from the diagonal.
    let diagonal = small > 0.414_213_562_373 * large;
    let (above, below) = (if diagonal { small - large } else { small }, if diagonal { small + large } else { large });
    let t = above / below;
    let p = polynomial(
        t * t,
        [
            0.9999999999992761,
            -0.33333333278711474,
            0.1999999321959442,
            -0.14285392334229297,
            0.11103552788824284,
            -0.08993369674703,
            0.06977649195357886,
            -0.037712424393577255,
        ],
    );
    let angle = t.mul_add(p, if diagonal { FRAC_PI_4 } else { 0.0 });
    if steep { FRAC_PI_2 - angle } else { angle }
}

/// `e^x` for `|x|` up to 700.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    exp2(x * LOG2_E)
}

/// `2^x` for `|x|` up to 1000.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    let k = x + TO_INTEGER;
    let r = x - (k - TO_INTEGER);
    let q = polynomial(
        r,
        [
            0.6931471805482129,
            0.24022650705311427,
            0.05550410938349792,
            0.009618128413455222,
            0.0013333446872521718,
            0.00015403307725801076,
            1.5312105809462393e-5,
            1.338134822182393e-6,
        ],
    );
    r.mul_add(q, 1.0) * f64::from_bits((k.to_bits() << 52).wrapping_add(1023 << 52))
}

/// The natural logarithm of a normal number.
#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    log2(x) * LN_2
}

/// The logarithm to base 2 of a normal number, with a small relative error even near 1.
#[inline(always)]
fn log2(x: f64) -> f64 {
    let (k, f) = exponent_and_fraction(x);
    let p = polynomial(
        f,
        [
            1.4426950408687067,
            -0.7213475208688521,
            0.4808983613955181,
            -0.3606736748186275,
            0.2885372934382413,
            -0.24045316583732568,
            0.20617536079462756,
            -0.18030060026816172,
            0.1587697846791013,
            -0.1431564303988572,
            0.1447485053703004,
            -0.1428393263125765,
            0.07736994118639386,
        ],
    );
    f.mul_add(p, k)
}
