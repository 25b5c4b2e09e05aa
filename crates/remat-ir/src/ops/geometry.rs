//! Arithmetic of sizes and axes for the shape rules; it neither overflows nor panics.

use super::rules::{same_dtype, same_memory};
use super::shape_error;
use crate::{Aval, Error, ErrorKind, Result, Shape};

/// The operands, if their number is that of the operation.
pub(crate) fn operands<'a, const N: usize>(name: &str, ins: &'a [Aval]) -> Result<&'a [Aval; N]> {
    super::expect_operands(name, ins, N)?;
    ins.try_into().map_err(|_| Error::new(ErrorKind::Internal, name, "operands were counted wrong"))
}

/// The aval, if the array's elements and bytes can be counted, so that arithmetic with its sizes cannot overflow.
pub(crate) fn sized(name: &str, aval: Aval) -> Result<Aval> {
    match aval.excess() {
        None => Ok(aval),
        Some(excess) => shape_error(name, format!("the result {aval} {excess}")),
    }
}

/// Fails unless every axis is below `rank` and none appears twice; `what` names the parameter.
pub(crate) fn distinct_axes(name: &str, what: &str, axes: &[usize], rank: usize) -> Result<()> {
    for (i, &axis) in axes.iter().enumerate() {
        if axis >= rank {
            let message = format!("{what} {axes:?} has axis {axis}, which rank {rank} does not have");
            return Err(Error::new(ErrorKind::Axis, name, message));
        }
        if axes[..i].contains(&axis) {
            return Err(Error::new(ErrorKind::Axis, name, format!("{what} {axes:?} has axis {axis} twice")));
        }
    }
    Ok(())
}

/// Fails unless the axes are strictly increasing and below `rank`.
pub(crate) fn increasing_axes(name: &str, what: &str, axes: &[usize], rank: usize) -> Result<()> {
    distinct_axes(name, what, axes, rank)?;
    if axes.is_sorted() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Axis, name, format!("{what} {axes:?} is not increasing")))
}

/// Fails unless a parameter has one entry per dimension.
pub(crate) fn one_per_dimension(name: &str, what: &str, len: usize, aval: &Aval) -> Result<()> {
    if len == aval.rank() {
        return Ok(());
    }
    shape_error(name, format!("{what} has {len} entries and {aval} has {} dimensions", aval.rank()))
}

/// Fails unless two operands have the same dtype and memory space.
pub(crate) fn alike(name: &str, a: &Aval, b: &Aval) -> Result<()> {
    let pair = [a.clone(), b.clone()];
    same_dtype(name, &pair)?;
    same_memory(name, &pair)
}

/// Fails unless strides, dilations or counts are at least 1, and no more than programs can print.
pub(crate) fn positive_steps(name: &str, what: &str, steps: &[usize]) -> Result<()> {
    match steps.iter().find(|&&step| step == 0 || i64::try_from(step).is_err()) {
        None => Ok(()),
        Some(0) => Err(Error::new(ErrorKind::Argument, name, format!("{what} has a 0"))),
        Some(step) => Err(Error::new(ErrorKind::Argument, name, format!("{what} has {step}, which is past 2^63"))),
    }
}

/// The size of a dimension after `interior` new elements between any two, and padding, which may be negative.
pub(crate) fn padded_size(size: usize, low: i64, high: i64, interior: usize) -> i128 {
    // A product of two 64-bit sizes can be more than an i128 holds; whatever is that large is an error anyway.
    let dilated = match size {
        0 => 0,
        n => (n as i128 - 1).saturating_mul(interior as i128 + 1).saturating_add(1),
    };
    dilated.saturating_add(low as i128).saturating_add(high as i128)
}

/// The number of windows of `size` elements, `dilation` apart, at every `stride`-th position of `padded` elements.
pub(crate) fn window_count(padded: i128, size: usize, dilation: usize, stride: usize) -> i128 {
    let window = padded_size(size, 0, 0, dilation.saturating_sub(1));
    if padded < window { 0 } else { (padded - window) / (stride.max(1) as i128) + 1 }
}

/// A computed size as one of an array.
pub(crate) fn to_size(name: &str, size: i128) -> Result<usize> {
    match i64::try_from(size) {
        Ok(n) if n >= 0 => Ok(n as usize),
        Ok(n) => shape_error(name, format!("a dimension of the result would have size {n}")),
        Err(_) => shape_error(name, "the result has more than 2^63 elements"),
    }
}

/// The shape without these axes.
pub(crate) fn without_axes(shape: &[usize], axes: &[usize]) -> Shape {
    (0..shape.len()).filter(|d| !axes.contains(d)).map(|d| shape[d]).collect()
}
