//! Elementwise operations: unary, binary, comparison, selection.
//!
//! Operands of several-operand operations have equal shapes, or are scalars, which stand for every element: that keeps
//! scalar constants scalar. All other broadcasting is a `broadcast_in_dim` of its own.

use super::rules::{Accepts, common_shape, elementwise, same_dtype};
use super::{Operation, Param, ParamMap, Params, dtype_error};
use crate::{Aval, DType, Error, ErrorKind, Result};

/// A function of one operand, applied to each element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "variants are what their names say")]
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
#[allow(missing_docs, reason = "variants are what their names say")]
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
#[allow(missing_docs, reason = "variants are what their names say")]
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

impl Unary {
    /// Every variant, in declaration order.
    pub const ALL: [Unary; 35] = [
        Unary::Neg,
        Unary::Sign,
        Unary::Abs,
        Unary::Floor,
        Unary::Ceil,
        Unary::Round,
        Unary::Exp,
        Unary::Exp2,
        Unary::Expm1,
        Unary::Log,
        Unary::Log1p,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Cbrt,
        Unary::Logistic,
        Unary::Sin,
        Unary::Cos,
        Unary::Tan,
        Unary::Asin,
        Unary::Acos,
        Unary::Atan,
        Unary::Sinh,
        Unary::Cosh,
        Unary::Tanh,
        Unary::Asinh,
        Unary::Acosh,
        Unary::Atanh,
        Unary::Erf,
        Unary::Erfc,
        Unary::ErfInv,
        Unary::Lgamma,
        Unary::Digamma,
        Unary::IsFinite,
        Unary::Not,
        Unary::PopulationCount,
    ];
}

impl Binary {
    /// Every variant, in declaration order.
    pub const ALL: [Binary; 16] = [
        Binary::Add,
        Binary::AddAny,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Rem,
        Binary::Pow,
        Binary::Max,
        Binary::Min,
        Binary::Atan2,
        Binary::And,
        Binary::Or,
        Binary::Xor,
        Binary::ShiftLeft,
        Binary::ShiftRightLogical,
        Binary::ShiftRightArithmetic,
    ];
}

impl Compare {
    /// Every variant, in declaration order.
    pub const ALL: [Compare; 6] = [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge];
}

impl Operation for IntegerPow {
    fn name(&self) -> &'static str {
        "integer_pow"
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let accepts = if self.y < 0 { Accepts::Floats } else { Accepts::Numeric };
        Ok(vec![elementwise(self.name(), ins, 1, accepts)?])
    }

    fn params(&self) -> Params {
        vec![("y", Param::Int(self.y.into()))]
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "integer_pow").then(|| {
            let y = i32::try_from(params.int("y")?).map_err(|_| params.error("y", "does not fit 32 bits"))?;
            Ok(IntegerPow { y })
        })
    }
}

impl Operation for SelectN {
    fn name(&self) -> &'static str {
        "select_n"
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let [which, cases @ ..] = ins else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "takes a selector and cases"));
        };
        match which.dtype {
            DType::Bool if cases.len() > 2 => {
                let message = format!("a bool selects between two cases, not {}; use an i32", cases.len());
                return Err(Error::new(ErrorKind::Argument, self.name(), message));
            }
            DType::Bool | DType::I32 => {}
            _ => return dtype_error(self.name(), format!("the selector is bool or i32, not {which}")),
        }
        let Some(case) = cases.first() else {
            return Err(Error::new(ErrorKind::Argument, self.name(), "takes at least one case"));
        };
        same_dtype(self.name(), cases)?;
        Ok(vec![common_shape(self.name(), ins)?.with_dtype(case.dtype)])
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "select_n").then_some(Ok(SelectN))
    }
}

impl Operation for Clamp {
    fn name(&self) -> &'static str {
        "clamp"
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(vec![elementwise(self.name(), ins, 3, Accepts::Any)?])
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "clamp").then_some(Ok(Clamp))
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

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let accepts = match self {
            Unary::Neg => Accepts::Signed,
            Unary::Sign | Unary::Abs => Accepts::Numeric,
            Unary::Not => Accepts::Bits,
            Unary::PopulationCount => Accepts::Integers,
            _ => Accepts::Floats,
        };
        let out = elementwise(self.name(), ins, 1, accepts)?;
        Ok(vec![if *self == Unary::IsFinite { out.with_dtype(DType::Bool) } else { out }])
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        Unary::ALL.into_iter().find(|op| op.name() == name).map(Ok)
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

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let accepts = match self {
            Binary::Add | Binary::AddAny | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem => Accepts::Numeric,
            Binary::Pow | Binary::Atan2 => Accepts::Floats,
            Binary::Max | Binary::Min => Accepts::Any,
            Binary::And | Binary::Or | Binary::Xor => Accepts::Bits,
            Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => Accepts::Integers,
        };
        Ok(vec![elementwise(self.name(), ins, 2, accepts)?])
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        Binary::ALL.into_iter().find(|op| op.name() == name).map(Ok)
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

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(vec![elementwise(self.name(), ins, 2, Accepts::Any)?.with_dtype(DType::Bool)])
    }

    fn params(&self) -> Params {
        vec![]
    }

    fn parse(name: &str, _params: &ParamMap<'_>) -> Option<Result<Self>> {
        Compare::ALL.into_iter().find(|op| op.name() == name).map(Ok)
    }
}
