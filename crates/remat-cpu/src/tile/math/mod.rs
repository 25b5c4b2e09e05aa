//! Transcendental functions that LLVM vectorises.
//!
//! They have no branches, no tables and no calls: every element takes the same way, both sides of a condition are computed.
//! Their polynomials are minimax approximations found by Remez's exchange algorithm, with the coefficients rounded one after
//! the other and the rest fitted again. `mul_add` is part of the definition, so that all CPUs give the same bits.
//!
//! The functions of f32 that training spends its time in (`exp`, `log`, `tanh`, `sin`, `erf` and their like) are computed in
//! f32. The others are computed in f64 to some 35 bits and rounded once, which is simpler and nearly exact.

pub(super) mod double;
pub(super) mod error;
pub(super) mod exp;
pub(super) mod log;
pub(super) mod special;
pub(super) mod trigonometric;
pub(super) mod wide;

/// What the polynomials are evaluated in.
trait Fused: Copy {
    /// `self * factor + term`, rounded once.
    fn fused(self, factor: Self, term: Self) -> Self;
}

impl Fused for f32 {
    #[inline(always)]
    fn fused(self, factor: f32, term: f32) -> f32 {
        self.mul_add(factor, term)
    }
}

impl Fused for f64 {
    #[inline(always)]
    fn fused(self, factor: f64, term: f64) -> f64 {
        self.mul_add(factor, term)
    }
}

/// `c[0] + c[1] x + c[2] x^2 + ..`, by Horner's scheme.
#[inline(always)]
fn polynomial<T: Fused, const N: usize>(x: T, coefficients: [T; N]) -> T {
    let mut sum = coefficients[N - 1];
    for i in (0..N - 1).rev() {
        sum = sum.fused(x, coefficients[i]);
    }
    sum
}

/// `x` within the bounds; a NaN stays one.
#[inline(always)]
fn clamp<T: PartialOrd>(x: T, low: T, high: T) -> T {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}
