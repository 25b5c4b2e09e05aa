//! Bits and integers.

use std::ops::Range;

use remat_ir::{Error, ErrorKind, Literal, Result};

use super::Key;
use super::ops::{integer, shape, stretch, unsigned};
use crate::argument::{Dims, Operand, Scalar};
use crate::tensor::Argument;
use crate::trace::{composed, deferred};
use crate::{DType, Tensor};

/// Uniform random bits as unsigned integers: JAX's `bits`.
///
/// A dtype other than u8, u16, u32 or u64 gives a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::bits(random::key(0), [2], DType::U32);
/// assert_eq!(x.to_vec::<u32>()?, [4070199207, 4202968722]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn bits(key: Key, shape: impl Dims, dtype: DType) -> Tensor {
    const NAME: &str = "random::bits";
    deferred(|| {
        if !dtype.is_integer() || dtype.is_signed() {
            let message = format!("bits are unsigned integers, not {dtype}; take DType::{:?}", unsigned(dtype));
            return Err(Error::new(ErrorKind::DType, NAME, message));
        }
        let shape = self::shape(NAME, shape)?;
        composed(NAME, [], |[]| raw(&key, NAME, &shape, dtype))
    })
}

/// The random bits of `operation`.
///
/// # Errors
/// As [`Key::blocks`].
pub(super) fn raw(key: &Key, operation: &str, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let [first, second] = key.blocks(operation, shape)?;
    let flat = if dtype == DType::U64 {
        (first.to_dtype(dtype) << 32) | second.to_dtype(dtype)
    } else {
        (first ^ second).to_dtype(dtype)
    };
    Ok(flat.reshape(shape))
}

/// Integers in `range`, uniform except for a bias of at most 2^-32: JAX's `randint`.
///
/// The bounds are integers, or integer tensors of any dtype that broadcast to the shape. They are clipped to the range of `dtype`; the end
/// may be one more than its largest value. An empty range gives its start. A dtype or bounds that are not integers give a failed tensor.
///
/// ```
/// use remat::{DType, random};
/// let x = random::randint(random::key(0), [5], DType::I32, 0..10);
/// assert_eq!(x.to_vec::<i32>()?, [9, 0, 2, 3, 1]);
/// let bytes = random::randint(random::key(0), [5], DType::U8, 0..256);
/// # bytes.to_vec::<u8>()?;
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn randint<T: Operand>(key: Key, shape: impl Dims, dtype: DType, range: Range<T>) -> Tensor {
    deferred(|| {
        if !dtype.is_integer() {
            let message = format!("draws integers, not {dtype}; `uniform` draws floats");
            return Err(Error::new(ErrorKind::DType, NAME, message));
        }
        let shape = self::shape(NAME, shape)?;
        let drawn = drawn(dtype);
        let (min, span) = match (range.start.argument(), range.end.argument()) {
            (Argument::Scalar(Scalar::Int(min)), Argument::Scalar(Scalar::Int(max))) => known_span(min, max, dtype),
            (min, max) => span(&bound(min, &shape)?, &bound(max, &shape)?, dtype)?,
        };
        composed(NAME, [&min, &span], |[min, span]| Ok(sample(key, &shape, drawn, min, span)?.to_dtype(dtype)))
    })
}

const NAME: &str = "random::randint";

/// The dtype of the random bits: at least 32 bits, since the bias grows with the square of the range relative to it.
fn drawn(dtype: DType) -> DType {
    if dtype.bits() < 32 { DType::I32 } else { dtype }
}

/// The remainder of twice as many bits as `dtype` has, divided by the size of the range.
fn sample(key: Key, shape: &[usize], dtype: DType, min: &Tensor, span: &Tensor) -> Result<Tensor> {
    let unsigned = unsigned(dtype);
    let [first, second] = key.split();
    let (high, low) = (raw(&first, NAME, shape, unsigned)?, raw(&second, NAME, shape, unsigned)?);
    // (2^bits) mod span, as a product of two factors of half as many bits.
    let half = integer(unsigned, 1 << (dtype.bits() / 2)) % span;
    let multiplier = &half * &half % span;
    let offset = (high % span * multiplier + low % span) % span;
    Ok(min + offset.to_dtype(dtype))
}

/// The start of a range and its size. The size of a dtype's whole range wraps to zero, and the remainder by zero is the dividend, as it
/// should be. An empty range has its start only.
fn known_span(min: i128, max: i128, dtype: DType) -> (Tensor, Tensor) {
    let (smallest, largest) = limits(dtype);
    let min = min.clamp(smallest, largest);
    let span = (max.min(largest + 1) - min).max(1);
    (integer(drawn(dtype), min), integer(unsigned(drawn(dtype)), span))
}

/// As [`known_span`], for tensors.
fn span(min: &Tensor, max: &Tensor, dtype: DType) -> Result<(Tensor, Tensor)> {
    let drawn = drawn(dtype);
    let (smallest, largest) = limits(dtype);
    if drawn != dtype {
        // The end is clipped to one more than the largest value, which the wider dtype can represent.
        let min = clip(min, drawn, (smallest, largest))?;
        let max = clip(max, drawn, (smallest, largest + 1))?;
        let span = max.gt(&min).select(&max - &min, 1).to_dtype(unsigned(drawn));
        return Ok((min, span));
    }
    let beyond = max.gt(Tensor::literal(clipped(largest, max.dtype()?)));
    let (min, max) = (clip(min, dtype, (smallest, largest))?, clip(max, dtype, (smallest, largest))?);
    let size = (&max - &min).to_dtype(unsigned(dtype));
    let size = beyond.select(&size + 1, &size);
    Ok((min.clone(), max.gt(&min).select(&size, 1)))
}

/// A bound as a tensor.
///
/// # Errors
/// If it is not of integers; if it does not broadcast to the shape.
fn bound(x: Argument<'_>, shape: &[usize]) -> Result<Tensor> {
    let wrong = |what: String| {
        let message = format!("takes integer bounds, not {what}; convert it with .to_dtype(DType::I32)");
        Err(Error::new(ErrorKind::DType, NAME, message))
    };
    match x {
        Argument::Tensor(x) if x.dtype()?.is_integer() => stretch(NAME, x, shape),
        Argument::Tensor(x) => wrong(x.aval()?.to_string()),
        Argument::Scalar(Scalar::Int(x)) => Ok(integer(DType::I64, x.clamp(i64::MIN.into(), i64::MAX.into()))),
        Argument::Scalar(Scalar::Float(x)) => wrong(format!("{x:?}")),
        Argument::Scalar(Scalar::Bool(x)) => wrong(x.to_string()),
    }
}

/// An integer tensor clipped to a range and converted.
fn clip(x: &Tensor, dtype: DType, (smallest, largest): (i128, i128)) -> Result<Tensor> {
    let from = x.dtype()?;
    let bounds = [smallest, largest].map(|bound| Tensor::literal(clipped(bound, from)));
    Ok(if from == dtype && limits(dtype) == (smallest, largest) {
        x.clone()
    } else {
        x.clamp(&bounds[0], &bounds[1]).to_dtype(dtype)
    })
}

/// `value` clipped to the range of `dtype`.
fn clipped(value: i128, dtype: DType) -> Literal {
    let (smallest, largest) = limits(dtype);
    Literal::from_i128(dtype, value.clamp(smallest, largest))
}

/// The smallest and the largest value of an integer dtype.
fn limits(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if dtype.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}
