//! Arithmetic on element types, and the types in which products are accumulated.

use half::{bf16, f16};
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar, ShapeBuilder, ShapeError};
use std::borrow::Cow;

use super::convert::converted;
use super::internal;
use super::number::Ordered;
use crate::{Array, DType, Data, Error, ErrorKind, Result};

/// An element type with arithmetic: integers wrap; on bools a sum is `or` and a product `and`.
pub(super) trait Number: Ordered {
    /// The type in which sums and products are accumulated: f32 for f16 and bf16, else the type itself.
    type Wide: Number;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;

    /// Whether this value comes before `best` in a search for the greatest. A NaN does, the first one of several.
    fn is_above(self, best: Self) -> bool {
        self > best || (self.is_unordered() && !best.is_unordered())
    }

    /// Whether this value comes before `best` in a search for the least.
    fn is_below(self, best: Self) -> bool {
        self < best || (self.is_unordered() && !best.is_unordered())
    }
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        impl Number for $t {
            type Wide = $t;
            fn widen(self) -> $t { self }
            fn narrow(wide: $t) -> $t { wide }
            fn plus(self, other: $t) -> $t { self.wrapping_add(other) }
            fn times(self, other: $t) -> $t { self.wrapping_mul(other) }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($t:ident)*) => {$(
        impl Number for $t {
            type Wide = $t;
            fn widen(self) -> $t { self }
            fn narrow(wide: $t) -> $t { wide }
            fn plus(self, other: $t) -> $t { self + other }
            fn times(self, other: $t) -> $t { self * other }
        }
    )*};
}

floats!(f32 f64);

macro_rules! halves {
    ($($t:ident)*) => {$(
        impl Number for $t {
            type Wide = f32;
            fn widen(self) -> f32 { $t::to_f32(self) }
            fn narrow(wide: f32) -> $t { $t::from_f32(wide) }
            fn plus(self, other: $t) -> $t { $t::from_f32(self.widen() + other.widen()) }
            fn times(self, other: $t) -> $t { $t::from_f32(self.widen() * other.widen()) }
        }
    )*};
}

halves!(f16 bf16);

impl Number for bool {
    type Wide = bool;
    fn widen(self) -> bool {
        self
    }
    fn narrow(wide: bool) -> bool {
        wide
    }
    fn plus(self, other: bool) -> bool {
        self | other
    }
    fn times(self, other: bool) -> bool {
        self & other
    }
}

/// A matrix as a slice that starts at its first element, and the distances between its rows and between its columns.
pub(super) type Matrix<'a, A> = (&'a [A], usize, usize);

/// A type in which matrix products are computed.
pub(super) trait Accumulator: Number {
    /// `out = a b` for `a` of `m` by `k`, `b` of `k` by `n` and a dense `out`, none of which is empty.
    fn matmul(m: usize, k: usize, n: usize, a: Matrix<Self>, b: Matrix<Self>, out: &mut [Self]) -> Result<()>;

    /// The elements of an array, without a copy where this type is their own.
    fn elements(array: &Array) -> Result<Cow<'_, [Self]>> {
        match array.as_slice::<Self>() {
            Some(slice) => Ok(Cow::Borrowed(slice)),
            None => match Self::into_vec(converted(array.data(), Self::DTYPE)) {
                Some(vec) => Ok(Cow::Owned(vec)),
                None => internal(Self::DTYPE.name(), array),
            },
        }
    }

    /// The data of a dtype that these elements are rounded to.
    fn rounded(elements: Vec<Self>, dtype: DType) -> Data {
        if dtype == Self::DTYPE { Self::wrap(elements) } else { converted(&Self::wrap(elements), dtype) }
    }
}

impl Accumulator for f32 {
    fn matmul(m: usize, k: usize, n: usize, a: Matrix<f32>, b: Matrix<f32>, out: &mut [f32]) -> Result<()> {
        gemm(m, k, n, a, b, out)
    }
}

impl Accumulator for f64 {
    fn matmul(m: usize, k: usize, n: usize, a: Matrix<f64>, b: Matrix<f64>, out: &mut [f64]) -> Result<()> {
        gemm(m, k, n, a, b, out)
    }
}

/// Integers of every width agree with their products modulo 2^64.
impl Accumulator for i64 {
    fn matmul(m: usize, k: usize, n: usize, a: Matrix<i64>, b: Matrix<i64>, out: &mut [i64]) -> Result<()> {
        for (i, row) in out.chunks_exact_mut(n).enumerate().take(m) {
            row.fill(0);
            for l in 0..k {
                let x = a.0[i * a.1 + l * a.2];
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(x.wrapping_mul(b.0[l * b.1 + j * b.2]));
                }
            }
        }
        Ok(())
    }
}

fn gemm<A>(m: usize, k: usize, n: usize, a: Matrix<A>, b: Matrix<A>, out: &mut [A]) -> Result<()>
where
    A: LinalgScalar,
{
    let failed = |e: ShapeError| Error::new(ErrorKind::Internal, "matmul", e.to_string());
    let a = ArrayView2::from_shape((m, k).strides((a.1, a.2)), a.0).map_err(failed)?;
    let b = ArrayView2::from_shape((k, n).strides((b.1, b.2)), b.0).map_err(failed)?;
    let mut out = ArrayViewMut2::from_shape((m, n), out).map_err(failed)?;
    general_mat_mul(A::one(), &a, &b, A::zero(), &mut out);
    Ok(())
}

/// Runs a block with `$a` bound to the type in which products of `$from` are summed for a result of `$to`.
macro_rules! with_accumulator {
    ($from:expr, $to:expr, $a:ident => $body:expr) => {{
        let (from, to): (crate::DType, crate::DType) = ($from, $to);
        if !to.is_float() {
            type $a = i64;
            $body
        } else if !from.is_float() || from.size() == 8 || to.size() == 8 {
            // Only f64 holds counts and 32-bit integers exactly.
            type $a = f64;
            $body
        } else {
            type $a = f32;
            $body
        }
    }};
}

pub(super) use with_accumulator;
