//! Rules of elementwise operations with one operand.
//!
//! The factor of a tangent is computed from the result if that is as accurate, since the result is usually kept anyway.

use std::f64::consts::{LN_2, PI};

use remat_ir::{Compare, DType, IntegerPow, Result, Unary};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear};

impl Rules for Unary {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let (x, out) = (ins[0], outs[0]);
        Ok(vec![Some(match self {
            Unary::Neg => -t,
            // As in JAX, zero counts as positive.
            Unary::Abs => x.compare(Compare::Ge, 0.0).select(t, -t),
            Unary::Exp => t * out,
            Unary::Exp2 => t * out * LN_2,
            Unary::Expm1 => t * (out + 1.0),
            Unary::Log => t / x,
            Unary::Log1p => t / (x + 1.0),
            Unary::Sqrt => t * (0.5 / out),
            Unary::Rsqrt => t * (out.powi(3) * -0.5),
            Unary::Cbrt => t * (out.powi(-2) * (1.0 / 3.0)),
            Unary::Logistic => t * (out * (1.0 - out)),
            Unary::Sin => t * x.cos(),
            Unary::Cos => -(t * x.sin()),
            Unary::Tan => t * (out.square() + 1.0),
            Unary::Asin => t * one_minus_square(x).rsqrt(),
            Unary::Acos => -(t * one_minus_square(x).rsqrt()),
            Unary::Atan => t / (x.square() + 1.0),
            Unary::Sinh => t * x.cosh(),
            Unary::Cosh => t * x.sinh(),
            Unary::Tanh => t * (1.0 - out.square()),
            Unary::Asinh => t * (x.square() + 1.0).rsqrt(),
            // The product of the differences is accurate near 1, where the difference of squares is not.
            Unary::Acosh => t * ((x - 1.0) * (x + 1.0)).rsqrt(),
            Unary::Atanh => t / one_minus_square(x),
            Unary::Erf => t * (-x.square()).exp() * (2.0 / PI.sqrt()),
            Unary::Erfc => t * (-x.square()).exp() * (-2.0 / PI.sqrt()),
            Unary::Erfcx => t * slope_of_erfcx(x, out)?,
            Unary::ErfInv => t * out.square().exp() * (PI.sqrt() / 2.0),
            Unary::Lgamma => t * x.digamma(),
            Unary::Digamma => t * trigamma(x)?,
            Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round => return Ok(vec![None]),
            Unary::IsFinite | Unary::Not | Unary::PopulationCount => return Ok(vec![None]),
        })])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], _ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        match self {
            Unary::Neg => Ok(vec![cotangents[0].map(|ct| -ct)]),
            _ => Err(not_linear(self)),
        }
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(*self))])
    }
}

impl Rules for IntegerPow {
    fn jvp<'w>(&self, ins: &[Expr<'w>], _outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let power = match self.y {
            0 => return Ok(vec![None]),
            1 => return Ok(vec![Some(t)]),
            2 => ins[0],
            y => ins[0].powi(y - 1),
        };
        Ok(vec![Some(t * (f64::from(self.y) * power))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], _ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        if self.y == 1 { Ok(vec![cotangents[0]]) } else { Err(not_linear(self)) }
    }

    fn vmap<'w>(&self, _w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        Ok(vec![ins[0].map(|x| x.apply(*self))])
    }
}

/// `(1 - x) (1 + x)`, which is accurate near 1 and -1.
fn one_minus_square(x: Expr<'_>) -> Expr<'_> {
    (1.0 - x) * (1.0 + x)
}

/// The derivative of digamma: ten steps of the recurrence, then the asymptotic series; below 1/2 by reflection. Source:
/// NIST Digital Library of Mathematical Functions, 5.15.
fn trigamma(x: Expr<'_>) -> Result<Expr<'_>> {
    let dtype = x.dtype()?;
    // Many terms in a 16-bit format would lose its few digits.
    let x = if dtype.bits() == 16 { x.convert(DType::F32) } else { x };
    let reflect = x.lt(0.5);
    let mut z = reflect.select(1.0 - x, x);
    let mut sum = x.literal(0.0);
    for _ in 0..10 {
        sum = z.powi(-2) + sum;
        z = z + 1.0;
    }
    // 1/z + 1/(2 z^2) + sum of B_2k / z^(2k+1), by Horner's rule in 1/z^2.
    let inverse = 1.0 / z;
    let square = inverse.square();
    let mut series = x.literal(7.0 / 6.0);
    for bernoulli in [-691.0 / 2730.0, 5.0 / 66.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 1.0 / 6.0] {
        series = series * square + bernoulli;
    }
    let direct = sum + ((series * inverse + 0.5) * square + inverse);
    // The sine of the distance to the nearest integer is exact at the poles. Without reflection the argument is a constant, so that no
    // infinite derivative of this branch meets a zero.
    let distance = reflect.select(x - x.round(), 0.5);
    let reflected = (distance * PI).sin().powi(-2) * (PI * PI) - direct;
    Ok(reflect.select(reflected, direct).convert(dtype))
}

/// The derivative of `erfcx`, `2 x erfcx(x) - 2 / sqrt(pi)`. For large arguments this difference loses all digits, so from one half on it
/// is a polynomial of `(x - 4) / (x + 4)` over `(1 + 2 x)^2`, as `special::erfcx` is one over `1 + 2 x`.
fn slope_of_erfcx<'w>(x: Expr<'w>, out: Expr<'w>) -> Result<Expr<'w>> {
    let dtype = x.dtype()?;
    // Many terms in a 16-bit format would lose its few digits.
    let wide = |x: Expr<'w>| if dtype.bits() == 16 { x.convert(DType::F32) } else { x };
    let (x, out) = (wide(x), wide(out));
    // Each branch gets its own arguments, so that no infinite derivative of the other meets a zero.
    let is_small = x.lt(0.5);
    let (small, large) = (is_small.select(x, 0.0), is_small.select(0.5, x));
    let direct = small * is_small.select(out, 0.0) * 2.0 - 2.0 / PI.sqrt();
    let t = 1.0 - 8.0 / (large + 4.0);
    let mut series = x.literal(ERFCX_SLOPE[25]);
    for &coefficient in ERFCX_SLOPE[..25].iter().rev() {
        series = series * t + coefficient;
    }
    let root = 1.0 / (large * 2.0 + 1.0);
    let far = -(series * root * root);
    Ok(is_small.select(direct, far).convert(dtype))
}

/// Minus `(1 + 2 x)^2` times the derivative of `erfcx` as a polynomial of `(x - 4) / (x + 4)`, from the Chebyshev series computed
/// with 60 digits.
const ERFCX_SLOPE: [f64; 26] = [
    2.623063993696738,
    -0.3487517301221602,
    -0.3135469050884947,
    0.6688570875433886,
    -0.6516096275581609,
    0.39872495184845963,
    -0.11476931203441053,
    -0.06307663069161257,
    0.11191139983460588,
    -0.08347331695894591,
    0.038682589404417926,
    -0.009610374829375427,
    -0.0008079166806257127,
    0.0016301631353940645,
    -0.0004355620033018712,
    -0.00010988099644782601,
    9.238956142796022e-5,
    -2.6479139806832756e-6,
    -1.4020871650586678e-5,
    2.4369616690437563e-6,
    1.9412539877993594e-6,
    -5.519709758803899e-7,
    -2.3718865799502468e-7,
    8.468790672897519e-8,
    1.8317393956844414e-8,
    -7.1455632395992e-9,
];
