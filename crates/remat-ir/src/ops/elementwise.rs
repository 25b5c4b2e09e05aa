//! Elementwise operations: unary, binary, comparison, selection.
//!
//! The operands of one operation have equal shapes, or are scalars, which broadcast, so that scalar constants stay scalar. All other
//! broadcasting is a separate `broadcast_in_dim`.

use super::kinds::kinds;
use super::op::op;
use super::rules::{Accepts, common_shape, elementwise, same_dtype};
use super::{Operation, dtype_error};
use crate::{Aval, Class, DType, Error, ErrorKind, Result};

kinds! {
    /// A function of one operand, applied to each element.
    Unary {
        Neg "neg" Signed Elementwise;
        Sign "sign" Numeric Elementwise;
        Abs "abs" Numeric Elementwise;
        Floor "floor" Floats Elementwise;
        Ceil "ceil" Floats Elementwise;
        /// Half to even.
        Round "round" Floats Elementwise;
        Exp "exp" Floats Transcendental;
        Exp2 "exp2" Floats Transcendental;
        Expm1 "expm1" Floats Transcendental;
        Log "log" Floats Transcendental;
        Log1p "log1p" Floats Transcendental;
        Sqrt "sqrt" Floats Transcendental;
        Rsqrt "rsqrt" Floats Transcendental;
        Cbrt "cbrt" Floats Transcendental;
        Logistic "logistic" Floats Transcendental;
        Sin "sin" Floats Transcendental;
        Cos "cos" Floats Transcendental;
        Tan "tan" Floats Transcendental;
        Asin "asin" Floats Transcendental;
        Acos "acos" Floats Transcendental;
        Atan "atan" Floats Transcendental;
        Sinh "sinh" Floats Transcendental;
        Cosh "cosh" Floats Transcendental;
        Tanh "tanh" Floats Transcendental;
        Asinh "asinh" Floats Transcendental;
        Acosh "acosh" Floats Transcendental;
        Atanh "atanh" Floats Transcendental;
        Erf "erf" Floats Transcendental;
        Erfc "erfc" Floats Transcendental;
        /// `exp(x^2) erfc(x)`.
        Erfcx "erfcx" Floats Transcendental;
        ErfInv "erf_inv" Floats Transcendental;
        Lgamma "lgamma" Floats Transcendental;
        Digamma "digamma" Floats Transcendental;
        IsFinite "is_finite" Floats Elementwise;
        Not "not" Bits Elementwise;
        PopulationCount "population_count" Integers Elementwise;
    }
}

/// A small integer power.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IntegerPow {
    /// The exponent, which may be negative for floats.
    pub y: i32,
}

kinds! {
    /// A function of two operands of one dtype, applied to each pair of elements.
    Binary {
        Add "add" Numeric Elementwise;
        /// Addition of two cotangents of one value; adds as `Add` does.
        AddAny "add_any" Numeric Elementwise;
        Sub "sub" Numeric Elementwise;
        Mul "mul" Numeric Elementwise;
        Div "div" Numeric Elementwise;
        /// The remainder with the sign of the dividend.
        Rem "rem" Numeric Transcendental;
        Pow "pow" Floats Transcendental;
        Max "max" Any Elementwise;
        Min "min" Any Elementwise;
        Atan2 "atan2" Floats Transcendental;
        And "and" Bits Elementwise;
        Or "or" Bits Elementwise;
        Xor "xor" Bits Elementwise;
        ShiftLeft "shift_left" Integers Elementwise;
        ShiftRightLogical "shift_right_logical" Integers Elementwise;
        ShiftRightArithmetic "shift_right_arithmetic" Integers Elementwise;
    }
}

kinds! {
    /// A comparison of two operands of one dtype; the result is bool.
    Compare {
        Eq "eq" Any Elementwise;
        Ne "ne" Any Elementwise;
        Lt "lt" Any Elementwise;
        Le "le" Any Elementwise;
        Gt "gt" Any Elementwise;
        Ge "ge" Any Elementwise;
    }
}

/// `select_n which case_0 case_1 ..`: for each element, the case whose number `which` (bool or i32) gives. An index out of range is
/// clamped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SelectN;

/// `clamp min x max`, the maximum winning where the bounds cross.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Clamp;

impl Operation for IntegerPow {
    op! { "integer_pow" { y } }

    fn class(&self) -> Class {
        // Small powers are a few products.
        if self.y.unsigned_abs() <= 4 { Class::Elementwise } else { Class::Transcendental }
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let accepts = if self.y < 0 { Accepts::Floats } else { Accepts::Numeric };
        Ok(vec![elementwise(self.name(), ins, 1, accepts)?])
    }
}

impl Operation for SelectN {
    op! { "select_n" class Elementwise }

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
}

impl Operation for Clamp {
    op! { "clamp" class Elementwise }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(vec![elementwise(self.name(), ins, 3, Accepts::Any)?])
    }
}

impl Operation for Unary {
    op! { self }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let out = elementwise(self.name(), ins, 1, self.accepts())?;
        Ok(vec![if *self == Unary::IsFinite { out.with_dtype(DType::Bool) } else { out }])
    }
}

impl Operation for Binary {
    op! { self }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(vec![elementwise(self.name(), ins, 2, self.accepts())?])
    }
}

impl Operation for Compare {
    op! { self }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        Ok(vec![elementwise(self.name(), ins, 2, self.accepts())?.with_dtype(DType::Bool)])
    }
}
