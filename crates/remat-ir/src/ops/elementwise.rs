//! Elementwise operations: unary, binary, comparison, selection.
//!
//! Operands of several-operand operations have equal shapes, or are scalars, which stand for every element: that keeps
//! scalar constants scalar. All other broadcasting is a `broadcast_in_dim` of its own.

use super::{Operation, ParamMap, Params};
use crate::{Aval, Result};

/// A function of one operand, applied to each element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Sign,
    Abs,
    Floor,
    Ceil,
    /// Half to even.
    Round,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Sqrt,
    Rsqrt,
    Cbrt,
    Logistic,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Erfc,
    ErfInv,
    Lgamma,
    Digamma,
    IsFinite,
    Not,
    PopulationCount,
}

/// A small integer power.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IntegerPow {
    /// The exponent, which may be negative for floats.
    pub y: i32,
}

/// A function of two operands of one dtype, applied to each pair of elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    /// Addition of two cotangents of one value; adds as `Add` does.
    AddAny,
    Sub,
    Mul,
    Div,
    /// The remainder with the sign of the dividend.
    Rem,
    Pow,
    Max,
    Min,
    Atan2,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRightLogical,
    ShiftRightArithmetic,
}

/// A comparison of two operands of one dtype; the result is bool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// `select_n which case_0 case_1 ..`: the element of the case that `which` (bool or i32) numbers. An index out of range
/// is clamped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SelectN;

/// `clamp min x max`, the maximum winning where the bounds cross.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Clamp;

impl Operation for IntegerPow {
    fn name(&self) -> &'static str {
        "integer_pow"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for SelectN {
    fn name(&self) -> &'static str {
        "select_n"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for Clamp {
    fn name(&self) -> &'static str {
        "clamp"
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for Unary {
    fn name(&self) -> &'static str {
        match self {
            Unary::Neg => "neg",
            Unary::Sign => "sign",
            Unary::Abs => "abs",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::Round => "round",
            Unary::Exp => "exp",
            Unary::Exp2 => "exp2",
            Unary::Expm1 => "expm1",
            Unary::Log => "log",
            Unary::Log1p => "log1p",
            Unary::Sqrt => "sqrt",
            Unary::Rsqrt => "rsqrt",
            Unary::Cbrt => "cbrt",
            Unary::Logistic => "logistic",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tan => "tan",
            Unary::Asin => "asin",
            Unary::Acos => "acos",
            Unary::Atan => "atan",
            Unary::Sinh => "sinh",
            Unary::Cosh => "cosh",
            Unary::Tanh => "tanh",
            Unary::Asinh => "asinh",
            Unary::Acosh => "acosh",
            Unary::Atanh => "atanh",
            Unary::Erf => "erf",
            Unary::Erfc => "erfc",
            Unary::ErfInv => "erf_inv",
            Unary::Lgamma => "lgamma",
            Unary::Digamma => "digamma",
            Unary::IsFinite => "is_finite",
            Unary::Not => "not",
            Unary::PopulationCount => "population_count",
        }
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::AddAny => "add_any",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Rem => "rem",
            Binary::Pow => "pow",
            Binary::Max => "max",
            Binary::Min => "min",
            Binary::Atan2 => "atan2",
            Binary::And => "and",
            Binary::Or => "or",
            Binary::Xor => "xor",
            Binary::ShiftLeft => "shift_left",
            Binary::ShiftRightLogical => "shift_right_logical",
            Binary::ShiftRightArithmetic => "shift_right_arithmetic",
        }
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}

impl Operation for Compare {
    fn name(&self) -> &'static str {
        match self {
            Compare::Eq => "eq",
            Compare::Ne => "ne",
            Compare::Lt => "lt",
            Compare::Le => "le",
            Compare::Gt => "gt",
            Compare::Ge => "ge",
        }
    }

    fn infer(&self, _ins: &[Aval]) -> Result<Vec<Aval>> {
        todo!()
    }

    fn params(&self) -> Params {
        todo!()
    }

    fn parse(_name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        None
    }
}
