//! Operators for every mix of tensors, references and scalars.
//!
//! On the left of an operator a number is `f64` or `i32`, the default types of literals. With more types there, `(1.0 - &x).exp()` would
//! not compile, since the type of the literal, and so that of the difference, would be ambiguous. Write a number in a variable of another
//! type on the right, or convert it: `&x * rate`, `f64::from(rate) * &x`. On the right any number type is allowed.

use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign, Mul, MulAssign,
    Neg, Not, Rem, RemAssign, Shl, Shr, Sub, SubAssign,
};

use remat_ir::{Binary, bf16, f16};

use super::argument::{Argument, Operand};
use super::elementwise::binary;
use crate::Tensor;

macro_rules! operators {
    ($($trait:ident $method:ident $assign_trait:ident $assign:ident $op:ident;)*) => {
        $(
            impl<R: Operand> $trait<R> for Tensor {
                type Output = Tensor;

                #[track_caller]
                fn $method(self, other: R) -> Tensor {
                    binary(Binary::$op, Argument::Tensor(&self), other.argument())
                }
            }

            impl<R: Operand> $trait<R> for &Tensor {
                type Output = Tensor;

                #[track_caller]
                fn $method(self, other: R) -> Tensor {
                    binary(Binary::$op, Argument::Tensor(self), other.argument())
                }
            }

            impl<R: Operand> $assign_trait<R> for Tensor {
                #[track_caller]
                fn $assign(&mut self, other: R) {
                    *self = binary(Binary::$op, Argument::Tensor(self), other.argument());
                }
            }

            operators! { @left $trait $method $op: f64 i32 bool f16 bf16 }
        )*
    };
    (@left $trait:ident $method:ident $op:ident: $($scalar:ty)*) => {
        $(
            impl $trait<Tensor> for $scalar {
                type Output = Tensor;

                #[track_caller]
                fn $method(self, other: Tensor) -> Tensor {
                    binary(Binary::$op, self.argument(), Argument::Tensor(&other))
                }
            }

            impl $trait<&Tensor> for $scalar {
                type Output = Tensor;

                #[track_caller]
                fn $method(self, other: &Tensor) -> Tensor {
                    binary(Binary::$op, self.argument(), Argument::Tensor(other))
                }
            }
        )*
    };
}

operators! {
    Add add AddAssign add_assign Add;
    Sub sub SubAssign sub_assign Sub;
    Mul mul MulAssign mul_assign Mul;
    Div div DivAssign div_assign Div;
    Rem rem RemAssign rem_assign Rem;
    BitAnd bitand BitAndAssign bitand_assign And;
    BitOr bitor BitOrAssign bitor_assign Or;
    BitXor bitxor BitXorAssign bitxor_assign Xor;
}

macro_rules! unary_operators {
    ($($trait:ident $method:ident;)*) => {
        $(
            impl $trait for Tensor {
                type Output = Tensor;

                #[track_caller]
                fn $method(self) -> Tensor {
                    Tensor::$method(&self)
                }
            }

            impl $trait for &Tensor {
                type Output = Tensor;

                #[track_caller]
                fn $method(self) -> Tensor {
                    Tensor::$method(self)
                }
            }
        )*
    };
}

unary_operators! {
    Neg neg;
    Not not;
}

macro_rules! shifts {
    ($($type:ty),*) => {
        $(
            impl<R: Operand> Shl<R> for $type {
                type Output = Tensor;

                #[track_caller]
                fn shl(self, other: R) -> Tensor {
                    self.shift_left(other)
                }
            }

            impl<R: Operand> Shr<R> for $type {
                type Output = Tensor;

                /// Shifts in the sign for signed integers and zeros for unsigned ones, like Rust's integers.
                #[track_caller]
                fn shr(self, other: R) -> Tensor {
                    let signed = self.dtype().is_ok_and(|dtype| dtype.is_signed());
                    if signed { self.shift_right_arithmetic(other) } else { self.shift_right_logical(other) }
                }
            }
        )*
    };
}

shifts!(Tensor, &Tensor);
