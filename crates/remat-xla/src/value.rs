//! Values of a module and their types, as text.

use std::fmt;

use remat_ir::{Aval, DType, Literal};

/// A value that operations can use.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) name: Name,
    pub(crate) aval: Aval,
}

/// The name of a value in the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Name {
    /// An argument of the function.
    Argument(usize),
    /// The only result of a statement, or an argument of a region.
    Result(usize),
    /// One of several results of a statement.
    Part(usize, usize),
    /// A scalar constant that is not yet written, since its use determines its shape.
    Literal(Literal),
}

impl Value {
    pub(crate) fn literal(literal: Literal) -> Value {
        Value { name: Name::Literal(literal), aval: literal.aval() }
    }

    pub(crate) fn dtype(&self) -> DType {
        self.aval.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.aval.shape
    }

    pub(crate) fn rank(&self) -> usize {
        self.aval.rank()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Name::Argument(i) => write!(f, "%arg{i}"),
            Name::Result(i) => write!(f, "%{i}"),
            Name::Part(i, part) => write!(f, "%{i}#{part}"),
            // Never part of the text: a writer first writes literals as constants.
            Name::Literal(literal) => write!(f, "{literal}"),
        }
    }
}

/// Names of values, separated by commas.
pub(crate) fn names(values: &[Value]) -> String {
    comma_separated(values)
}

/// Types of values, separated by commas.
pub(crate) fn types<'a>(avals: impl IntoIterator<Item = &'a Aval>) -> String {
    comma_separated(avals.into_iter().map(Type))
}

pub(crate) fn comma_separated<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The type of an array: `tensor<2x3xf32>`.
pub(crate) struct Type<'a>(pub(crate) &'a Aval);

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for size in &self.0.shape {
            write!(f, "{size}x")?;
        }
        write!(f, "{}>", element_type(self.0.dtype))
    }
}

fn element_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "i1",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "ui8",
        DType::U16 => "ui16",
        DType::U32 => "ui32",
        DType::U64 => "ui64",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// A scalar in a `dense` attribute. Finite floats are the shortest digits that read back as the same bits; others are written as bits.
pub(crate) fn element(literal: Literal) -> String {
    let value = literal.as_f64();
    match literal.dtype() {
        DType::Bool => (!literal.is_zero()).to_string(),
        dtype if !dtype.is_float() => literal.as_i128().unwrap_or(0).to_string(),
        dtype if !value.is_finite() => format!("0x{:0width$X}", literal.bits(), width = 2 * dtype.size()),
        DType::F64 => with_point(format!("{value:?}")),
        _ => with_point(format!("{:?}", value as f32)),
    }
}

/// The digits with a decimal point; without it MLIR reads an integer.
fn with_point(digits: String) -> String {
    match digits.split_once('e') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0e{exponent}"),
        _ => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_as_the_same_bits() {
        let text = |dtype, value| element(Literal::from_f64(dtype, value));
        assert_eq!(text(DType::F32, 0.1), "0.1");
        assert_eq!(text(DType::F32, 1e-40), "1.0e-40");
        assert_eq!(text(DType::F64, -1.5e300), "-1.5e300");
        assert_eq!(text(DType::F32, -0.0), "-0.0");
        assert_eq!(text(DType::F32, f64::NAN), "0x7FC00000");
        assert_eq!(text(DType::Bf16, f64::NEG_INFINITY), "0xFF80");
        assert_eq!(text(DType::F64, f64::INFINITY), "0x7FF0000000000000");
        assert_eq!(text(DType::Bool, 1.0), "true");
        assert_eq!(element(Literal::from_i128(DType::U64, u64::MAX.into())), "18446744073709551615");
        assert_eq!(element(Literal::from_i128(DType::I8, -3)), "-3");
    }

    #[test]
    fn types_have_the_names_of_mlir() {
        assert_eq!(Type(&Aval::new(DType::F32, [2, 3])).to_string(), "tensor<2x3xf32>");
        assert_eq!(Type(&Aval::scalar(DType::Bool)).to_string(), "tensor<i1>");
        assert_eq!(Type(&Aval::new(DType::U16, [0])).to_string(), "tensor<0xui16>");
    }
}
