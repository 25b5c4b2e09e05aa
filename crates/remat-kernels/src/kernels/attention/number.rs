//! The numbers of attention: those that operands hold, and those that are computed with.

use std::ops::{Add, Mul, Sub};

use remat_ir::{Element, bf16, f16};

use crate::base::number::Number;
use crate::base::product::Factor;
use crate::base::scratch::AnyBits;
use crate::number::math;

/// What everything is computed in: f32 or f64.
pub(super) trait Wide:
    Number<Wide = Self> + Factor + AnyBits + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;

    fn from_f64(x: f64) -> Self;

    /// `self * factor + term`, rounded once.
    fn fused(self, factor: Self, term: Self) -> Self;

    /// The exponential, by arithmetic that is vectorised.
    fn exp(self) -> Self;

    fn ln(self) -> Self;

    fn recip(self) -> Self;
}

macro_rules! wide {
    ($type:ident, $exp:path) => {
        impl Wide for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $type
            }

            #[inline(always)]
            fn fused(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }

            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }

            #[inline(always)]
            fn ln(self) -> Self {
                $type::ln(self)
            }

            #[inline(always)]
            fn recip(self) -> Self {
                $type::recip(self)
            }
        }
    };
}

wide!(f32, math::exp::exp);
wide!(f64, math::double::exp);

/// What operands hold: a float.
pub(super) trait Stored: Element + Number<Wide: Wide> {}

impl Stored for f16 {}
impl Stored for bf16 {}
impl Stored for f32 {}
impl Stored for f64 {}

/// Runs a block with `$stored` bound to the type of a float dtype.
macro_rules! with_stored {
    ($dtype:expr, $stored:ident => $body:expr) => {
        match $dtype {
            remat_ir::DType::F16 => {
                type $stored = remat_ir::f16;
                $body
            }
            remat_ir::DType::Bf16 => {
                type $stored = remat_ir::bf16;
                $body
            }
            remat_ir::DType::F64 => {
                type $stored = f64;
                $body
            }
            _ => {
                type $stored = f32;
                $body
            }
        }
    };
}

pub(super) use with_stored;
