//! Shared parts of shape rules: sets of dtypes, scalars that broadcast, axes.

use super::{expect_operands, shape_error};
use crate::{Aval, DType, Error, ErrorKind, Result};

/// The dtypes that an operation takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accepts {
    /// All.
    Any,
    /// Integers and floats.
    Numeric,
    /// Signed integers and floats.
    Signed,
    /// Floats.
    Floats,
    /// Signed and unsigned integers.
    Integers,
    /// Bool and integers.
    Bits,
}

impl Accepts {
    /// Whether this dtype is among them.
    pub(super) fn takes(self, dtype: DType) -> bool {
        match self {
            Accepts::Any => true,
            Accepts::Numeric => dtype != DType::Bool,
            Accepts::Signed => dtype.is_signed(),
            Accepts::Floats => dtype.is_float(),
            Accepts::Integers => dtype.is_integer(),
            Accepts::Bits => !dtype.is_float(),
        }
    }

    /// Fails unless the operand's dtype is among them.
    pub(super) fn check(self, name: &str, operand: &Aval) -> Result<()> {
        if self.takes(operand.dtype) {
            return Ok(());
        }
        let (words, conversion) = match self {
            Accepts::Any => ("any dtype", operand.dtype),
            Accepts::Numeric => ("integers and floats", DType::I32),
            Accepts::Signed => ("signed integers and floats", DType::I32),
            Accepts::Floats => ("floats", DType::F32),
            Accepts::Integers => ("integers", DType::I32),
            Accepts::Bits => ("bools and integers", DType::I32),
        };
        let message = format!("takes {words}, not {operand}; convert it with .to_dtype(DType::{conversion:?})");
        Err(Error::new(ErrorKind::DType, name, message))
    }
}

/// Fails unless all operands have the same dtype; the message contains the conversion to write.
pub(super) fn same_dtype(name: &str, ins: &[Aval]) -> Result<()> {
    let Some((first, rest)) = ins.split_first() else { return Ok(()) };
    let Some(other) = rest.iter().find(|a| a.dtype != first.dtype) else { return Ok(()) };
    // The conversion that loses least: to a float, else to the wider dtype.
    let rank = |d: DType| (d.is_float(), d.is_integer(), d.size(), d.is_signed());
    let wider = if rank(other.dtype) > rank(first.dtype) { other.dtype } else { first.dtype };
    let message = format!("{first} and {other} have different dtypes; convert one with .to_dtype(DType::{wider:?})");
    Err(Error::new(ErrorKind::DType, name, message))
}

/// Fails unless all operands are in the same memory space.
pub(super) fn same_memory(name: &str, ins: &[Aval]) -> Result<()> {
    let Some((first, rest)) = ins.split_first() else { return Ok(()) };
    match rest.iter().find(|a| a.memory != first.memory) {
        Some(other) => shape_error(name, format!("{first} and {other} are in different memory spaces")),
        None => Ok(()),
    }
}

/// The aval with the common shape of the operands, where scalars broadcast, and the dtype and memory of the first operand. Dtypes are not
/// compared.
pub(super) fn common_shape(name: &str, ins: &[Aval]) -> Result<Aval> {
    same_memory(name, ins)?;
    let Some(first) = ins.first() else { return shape_error(name, "takes at least one operand") };
    let mut widest = first;
    for aval in ins {
        if widest.rank() == 0 {
            widest = aval;
        } else if aval.rank() != 0 && aval.shape != widest.shape {
            let message = format!("{widest} and {aval} have different shapes, and neither is a scalar");
            return shape_error(name, message);
        }
    }
    Ok(first.with_shape(widest.shape.iter().copied()))
}

/// The result of an elementwise operation on operands of one dtype.
pub(super) fn elementwise(name: &str, ins: &[Aval], operands: usize, accepts: Accepts) -> Result<Aval> {
    expect_operands(name, ins, operands)?;
    same_dtype(name, ins)?;
    for aval in ins {
        accepts.check(name, aval)?;
    }
    common_shape(name, ins)
}

/// Fails unless `axis` is a dimension of the operand.
pub(super) fn check_axis(name: &str, operand: &Aval, axis: usize) -> Result<()> {
    if axis < operand.rank() {
        return Ok(());
    }
    let message = format!("axis {axis} is out of range for {operand}, which has {} dimensions", operand.rank());
    Err(Error::new(ErrorKind::Axis, name, message))
}

/// Fails unless these are different dimensions of the operand.
pub(super) fn check_axes(name: &str, operand: &Aval, axes: &[usize]) -> Result<()> {
    for (i, &axis) in axes.iter().enumerate() {
        check_axis(name, operand, axis)?;
        if axes[..i].contains(&axis) {
            return Err(Error::new(ErrorKind::Axis, name, format!("axis {axis} of {operand} is given twice")));
        }
    }
    Ok(())
}
