//! Helpers of the samplers.

use remat_ir::{Aval, Error, ErrorKind, Literal, Result};

use crate::argument::Dims;
use crate::tensor::Argument;
use crate::{DType, Tensor};

/// A scalar constant, wrapped to `dtype`.
pub(super) fn integer(dtype: DType, value: i128) -> Tensor {
    Tensor::literal(Literal::from_i128(dtype, value))
}

/// A parameter of a distribution in this dtype.
///
/// # Errors
/// If it is a bool; if it does not broadcast to the shape.
pub(super) fn parameter(operation: &str, x: Argument<'_>, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    let x = x.of_dtype(operation, dtype)?;
    if x.dtype()? == DType::Bool {
        let message = format!("takes numbers, not {}; convert it with .to_dtype(DType::{dtype:?})", x.aval()?);
        return Err(Error::new(ErrorKind::DType, operation, message));
    }
    stretch(operation, &x.to_dtype(dtype), shape)
}

/// `x` repeated to `shape` as in NumPy. A scalar stays a scalar, since elementwise operations broadcast it.
///
/// # Errors
/// If it does not broadcast to the shape.
pub(super) fn stretch(operation: &str, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let aval = x.aval()?;
    if aval.rank() == 0 || aval.shape[..] == *shape {
        return Ok(x.clone());
    }
    let fits = |first: usize| aval.shape.iter().zip(&shape[first..]).all(|(&size, &to)| size == 1 || size == to);
    if !shape.len().checked_sub(aval.rank()).is_some_and(fits) {
        let message = format!("{aval} does not broadcast to {}", aval.with_shape(shape.iter().copied()));
        return Err(Error::new(ErrorKind::Shape, operation, message));
    }
    Ok(x.broadcast_to(shape))
}

/// The shape of a draw.
///
/// # Errors
/// If a size is negative, or the number of elements does not fit a `usize`.
pub(super) fn shape(operation: &str, dims: impl Dims) -> Result<Vec<usize>> {
    let shape = dims.to_shape(operation)?;
    let product = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if product.is_none() && !shape.contains(&0) {
        return Err(Error::new(ErrorKind::Shape, operation, format!("the shape {:?} is too large", &shape[..])));
    }
    Ok(shape.to_vec())
}

/// Fails unless `dtype` is a float.
pub(super) fn expect_float(operation: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::DType, operation, format!("draws floats, not {dtype}; `randint` draws integers")))
}

/// The unsigned integer dtype of as many bits.
pub(super) fn unsigned(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// The number of elements of a shape that [`shape`] has accepted.
pub(super) fn size(shape: &[usize]) -> usize {
    Aval::new(DType::U8, shape.iter().copied()).size()
}
