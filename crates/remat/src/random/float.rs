//! Continuous distributions.

use std::ops::Range;

use remat_ir::{Literal, Result};

use super::Key;
use super::integer::raw;
use super::ops::{expect_float, integer, parameter, shape, unsigned};
use crate::argument::{Dims, Operand};
use crate::tensor::Argument;
use crate::trace::{composed, deferred};
use crate::{DType, Tensor};

/// Uniform floats in `range`, including its start and excluding its end: JAX's `uniform`.
///
/// The bounds are converted to `dtype` and broadcast to the shape. The numbers are multiples of 2^-10 (f16), 2^-7 (bf16),
/// 2^-23 (f32) or 2^-52 (f64) of the range. Another dtype gives a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::uniform(random::key(0), [3], DType::F32, 0.0..1.0);
/// assert_eq!(x.to_vec::<f32>()?, [0.947667, 0.9785799, 0.33229148]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn uniform<T: Operand>(key: Key, shape: impl Dims, dtype: DType, range: Range<T>) -> Tensor {
    const NAME: &str = "random::uniform";
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        expect_float(NAME, dtype)?;
        let (span, min) = match (range.start.argument(), range.end.argument()) {
            (Argument::Scalar(min), Argument::Scalar(max)) => {
                let (min, max) = (min.literal(NAME, dtype)?, max.literal(NAME, dtype)?);
                if min.is_zero() && max.is_one() {
                    return composed(NAME, [], |[]| unit(&key, NAME, &shape, dtype));
                }
                // The difference of two f64 rounds to that of any narrower floats.
                (Tensor::scalar(dtype, max.as_f64() - min.as_f64()), Tensor::literal(min))
            }
            (min, max) => {
                let (min, max) = (parameter(NAME, min, dtype, &shape)?, parameter(NAME, max, dtype, &shape)?);
                (max - &min, min)
            }
        };
        composed(NAME, [&span, &min], |[span, min]| Ok(scaled(&unit(&key, NAME, &shape, dtype)?, span, min)))
    })
}

/// Standard normal numbers: JAX's `normal`, that is `sqrt(2) * erf_inv(u)` with the same uniform numbers `u` between -1 and 1.
///
/// A dtype that is not a float gives a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::normal(random::key(0), [2, 3], DType::F32);
/// assert!((x.to_vec::<f32>()?[0] - 1.6226422).abs() < 1e-5);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn normal(key: Key, shape: impl Dims, dtype: DType) -> Tensor {
    const NAME: &str = "random::normal";
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        composed(NAME, [], |[]| {
            let u = unit(&key, NAME, &shape, dtype)?;
            // The open interval from -1: its start is the float after -1, and 1 minus that rounds to 2 in every dtype.
            let (_, mantissa) = dtype.float_format().unwrap_or_default();
            let min = Tensor::scalar(dtype, (-f64::from(mantissa) - 1.0).exp2() - 1.0);
            let x = scaled(&u, &Tensor::scalar(dtype, 2.0), &min).erf_inv();
            Ok(Tensor::scalar(dtype, std::f64::consts::SQRT_2) * x)
        })
    })
}

/// Standard normal numbers truncated to the open interval `range`: JAX's `truncated_normal`.
///
/// The bounds are converted to `dtype` and broadcast to the shape. A dtype that is not a float gives a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::truncated_normal(random::key(0), [100], DType::F32, -2.0..2.0);
/// assert!(x.to_vec::<f32>()?.iter().all(|x| x.abs() < 2.0));
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn truncated_normal<T: Operand>(key: Key, shape: impl Dims, dtype: DType, range: Range<T>) -> Tensor {
    const NAME: &str = "random::truncated_normal";
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        expect_float(NAME, dtype)?;
        let lower = parameter(NAME, range.start.argument(), dtype, &shape)?;
        let upper = parameter(NAME, range.end.argument(), dtype, &shape)?;
        composed(NAME, [&lower, &upper], |[lower, upper]| {
            let u = unit(&key, NAME, &shape, dtype)?;
            let sqrt2 = Tensor::scalar(dtype, std::f64::consts::SQRT_2);
            let (min, max) = ((lower / &sqrt2).erf(), (upper / &sqrt2).erf());
            let x = &sqrt2 * scaled(&u, &(max - &min), &min).erf_inv();
            // Rounding, or a draw of the start itself, must not leave the open interval.
            Ok(x.clamp(next(lower, dtype, true), next(upper, dtype, false)))
        })
    })
}

/// Exponentially distributed numbers, with density `exp(-x)` for `x >= 0`: JAX's `exponential`.
///
/// A dtype that is not a float gives a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::exponential(random::key(0), [3], DType::F32);
/// assert!((x.to_vec::<f32>()?[0] - 2.950128).abs() < 1e-5);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn exponential(key: Key, shape: impl Dims, dtype: DType) -> Tensor {
    const NAME: &str = "random::exponential";
    // The logarithm of 1 - u, which is never zero.
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        composed(NAME, [], |[]| Ok(-(-unit(&key, NAME, &shape, dtype)?).log1p()))
    })
}

/// Numbers of the standard Gumbel distribution, `-log(-log(u))`: JAX's `gumbel` in its default mode.
///
/// The largest number in f32 is about 16, so draws of events with a probability below 1e-7 are biased. A dtype that is not a float gives a
/// failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::gumbel(random::key(0), [3], DType::F32);
/// assert!((x.to_vec::<f32>()?[0] - 2.9233725).abs() < 1e-5);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn gumbel(key: Key, shape: impl Dims, dtype: DType) -> Tensor {
    const NAME: &str = "random::gumbel";
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        composed(NAME, [], |[]| noise(&key, NAME, &shape, dtype))
    })
}

/// Uniform numbers in `[0, 1)`: random mantissa bits with the exponent of 1, minus 1.
///
/// # Errors
/// If `dtype` is not a float; as [`raw`].
pub(super) fn unit(key: &Key, operation: &str, shape: &[usize], dtype: DType) -> Result<Tensor> {
    expect_float(operation, dtype)?;
    let (_, mantissa) = dtype.float_format().unwrap_or_default();
    // JAX draws 8 bits for a mantissa of 7.
    let drawn = if mantissa < 8 { DType::U8 } else { unsigned(dtype) };
    let bits = raw(key, operation, shape, drawn)?.to_dtype(unsigned(dtype));
    let distance = integer(unsigned(dtype), drawn.bits() as i128 - i128::from(mantissa));
    let one = Tensor::literal(Literal::from_bits(unsigned(dtype), Literal::from_f64(dtype, 1.0).bits()));
    Ok((bits.shift_right_logical(distance) | one).bitcast(dtype) - 1)
}

/// Gumbel numbers, `-log(-log(u))`.
///
/// # Errors
/// As [`unit`].
pub(super) fn noise(key: &Key, operation: &str, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let u = unit(key, operation, shape, dtype)?;
    let (exponent, _) = dtype.float_format().unwrap_or_default();
    // From the smallest normal number, which 1 absorbs in rounding, so that the logarithm is finite.
    let tiny = Tensor::scalar(dtype, (2.0 - (f64::from(exponent) - 1.0).exp2()).exp2());
    Ok(-(-(u + tiny).log()).log())
}

/// `u * span + min`, at least `min` in spite of rounding.
fn scaled(u: &Tensor, span: &Tensor, min: &Tensor) -> Tensor {
    (u * span + min).maximum(min)
}

/// The float after `x` in a direction. Positive infinity upwards and NaN stay. It has no tangent.
fn next(x: &Tensor, dtype: DType, up: bool) -> Tensor {
    let unsigned = unsigned(dtype);
    let bits = x.bitcast(unsigned);
    let away = if up { x.gt(0) } else { x.lt(0) };
    let next = away.select(&bits + 1, &bits - 1);
    // From zero of either sign to the smallest subnormal of the direction's sign.
    let sign = if up { 0 } else { 1u64 << (dtype.bits() - 1) };
    let next = x.eq(0).select(Tensor::literal(Literal::from_bits(unsigned, sign | 1)), next).bitcast(dtype);
    let end = if up { f64::INFINITY } else { f64::NEG_INFINITY };
    (x.eq(end) | x.ne(x)).select(x.stop_gradient(), next)
}
