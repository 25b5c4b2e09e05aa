//! The total order of floats.

use remat_ir::{Atom, Binary, BitcastConvertType, Builder, DType, Literal, Result};

/// Integers in the order of these floats, in which -0 is below 0, and NaNs are at both ends by their sign; what is no float stays as it is. The
/// bits of a float are a signed number, whose other bits are reversed where it is negative.
pub(crate) fn total_order(builder: &mut Builder, x: Atom, dtype: DType) -> Result<Atom> {
    let integer = match dtype {
        DType::F16 | DType::Bf16 => DType::I16,
        DType::F32 => DType::I32,
        DType::F64 => DType::I64,
        _ => return Ok(x),
    };
    let last = dtype.bits() as i128 - 1;
    let bits = builder.emit1(BitcastConvertType { dtype: integer }.into(), &[x])?;
    let sign = builder.emit1(Binary::ShiftRightArithmetic.into(), &[bits, Literal::from_i128(integer, last).into()])?;
    let others = Literal::from_i128(integer, (1 << last) - 1);
    let mask = builder.emit1(Binary::And.into(), &[sign, others.into()])?;
    builder.emit1(Binary::Xor.into(), &[bits, mask])
}
