//! Rules of elementwise operations of one operand.
//!
//! The factor of a tangent is computed from the result where that is as good: the result is what is kept anyway.

use std::f64::consts::{LN_2, PI};

use remat_ir::{Atom, Builder, Compare, DType, IntegerPow, Result, Unary};

use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear, sample};

impl Rules for Unary {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let (x, out) = (ins[0], outs[0]);
        let one = b.literal(x, 1.0);
        let tangent = match self {
            Unary::Neg => b.neg(t)?,
            Unary::Abs => {
                let sign = b.unary(Unary::Sign, x)?;
                b.mul(t, sign)?
            }
            Unary::Exp => b.mul(t, out)?,
            Unary::Exp2 => {
                let scaled = b.mul(t, out)?;
                b.scale(scaled, LN_2)?
            }
            Unary::Expm1 => {
                let factor = b.add(out, one)?;
                b.mul(t, factor)?
            }
            Unary::Log => b.div(t, x)?,
            Unary::Log1p => {
                let divisor = b.add(x, one)?;
                b.div(t, divisor)?
            }
            Unary::Sqrt => {
                let half = b.literal(x, 0.5);
                let factor = b.div(half, out)?;
                b.mul(t, factor)?
            }
            Unary::Rsqrt => {
                let cube = b.integer_pow(out, 3)?;
                let factor = b.scale(cube, -0.5)?;
                b.mul(t, factor)?
            }
            Unary::Cbrt => {
                let square = b.integer_pow(out, -2)?;
                let factor = b.scale(square, 1.0 / 3.0)?;
                b.mul(t, factor)?
            }
            Unary::Logistic => {
                let rest = b.sub(one, out)?;
                let factor = b.mul(out, rest)?;
                b.mul(t, factor)?
            }
            Unary::Sin => {
                let cos = b.unary(Unary::Cos, x)?;
                b.mul(t, cos)?
            }
            Unary::Cos => {
                let sin = b.unary(Unary::Sin, x)?;
                let product = b.mul(t, sin)?;
                b.neg(product)?
            }
            Unary::Tan => {
                let square = b.mul(out, out)?;
                let factor = b.add(square, one)?;
                b.mul(t, factor)?
            }
            Unary::Asin => {
                let factor = rsqrt_one_minus_square(b, x)?;
                b.mul(t, factor)?
            }
            Unary::Acos => {
                let factor = rsqrt_one_minus_square(b, x)?;
                let product = b.mul(t, factor)?;
                b.neg(product)?
            }
            Unary::Atan => {
                let square = b.mul(x, x)?;
                let divisor = b.add(square, one)?;
                b.div(t, divisor)?
            }
            Unary::Sinh => {
                let cosh = b.unary(Unary::Cosh, x)?;
                b.mul(t, cosh)?
            }
            Unary::Cosh => {
                let sinh = b.unary(Unary::Sinh, x)?;
                b.mul(t, sinh)?
            }
            Unary::Tanh => {
                let square = b.mul(out, out)?;
                let factor = b.sub(one, square)?;
                b.mul(t, factor)?
            }
            Unary::Asinh => {
                let square = b.mul(x, x)?;
                let sum = b.add(square, one)?;
                let factor = b.unary(Unary::Rsqrt, sum)?;
                b.mul(t, factor)?
            }
            Unary::Acosh => {
                // The product of the differences keeps its digits near 1, where the difference of squares loses them.
                let (below, above) = (b.sub(x, one)?, b.add(x, one)?);
                let product = b.mul(below, above)?;
                let factor = b.unary(Unary::Rsqrt, product)?;
                b.mul(t, factor)?
            }
            Unary::Atanh => {
                let divisor = one_minus_square(b, x)?;
                b.div(t, divisor)?
            }
            Unary::Erf => erf_tangent(b, x, t, 2.0 / PI.sqrt())?,
            Unary::Erfc => erf_tangent(b, x, t, -2.0 / PI.sqrt())?,
            Unary::ErfInv => {
                let square = b.mul(out, out)?;
                let exp = b.unary(Unary::Exp, square)?;
                let product = b.mul(t, exp)?;
                b.scale(product, PI.sqrt() / 2.0)?
            }
            Unary::Lgamma => {
                let factor = b.unary(Unary::Digamma, x)?;
                b.mul(t, factor)?
            }
            Unary::Digamma => {
                let factor = trigamma(b, x)?;
                b.mul(t, factor)?
            }
            Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round => return Ok(vec![None]),
            Unary::IsFinite | Unary::Not | Unary::PopulationCount => return Ok(vec![None]),
        };
        Ok(vec![Some(tangent)])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        match (self, cotangents[0]) {
            (Unary::Neg, Some(ct)) => Ok(vec![Some(b.neg(ct)?)]),
            (Unary::Neg, None) => Ok(vec![None]),
            _ => Err(not_linear(self)),
        }
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        Ok(vec![Batched { atom: b.unary(*self, ins[0].atom)?, axis: ins[0].axis }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in Unary::ALL {
            let (low, high) = domain(op);
            let sample = |label: &str, dtype, shape: &[usize], low, high| {
                let sample = Sample::new(label, op, vec![sample::spread(dtype, shape, low, high)]);
                if op == Unary::Neg { sample.linear_in(&[0]) } else { sample }
            };
            for dtype in DType::ALL {
                let takes = match op {
                    Unary::Not => !dtype.is_float(),
                    Unary::PopulationCount => dtype.is_integer(),
                    Unary::Neg => dtype.is_signed(),
                    Unary::Sign | Unary::Abs => dtype != DType::Bool,
                    _ => dtype.is_float(),
                };
                if !takes {
                    continue;
                }
                if dtype.is_float() {
                    samples.push(sample("floats", dtype, &[3, 2], low, high));
                    continue;
                }
                samples.push(Sample::new("whole numbers", op, vec![sample::any(dtype, &[5])]).not_smooth());
            }
            if !matches!(op, Unary::Not | Unary::PopulationCount) {
                samples.push(sample("scalar", DType::F64, &[], low, high));
                samples.push(sample("empty", DType::F64, &[2, 0], low, high));
                let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e300, -1e-300];
                let array = sample::array(DType::F64, &[special.len()], &special);
                samples.push(Sample::new("special values", op, vec![array]).not_smooth());
            }
        }
        let below = sample::spread(DType::F64, &[4], -3.9, -3.1);
        samples.push(Sample::new("negative", Unary::Digamma, vec![below.clone()]).within(1e-5));
        samples.push(Sample::new("negative", Unary::Lgamma, vec![below]).within(1e-5));
        samples.push(Sample::new("negative", Unary::Cbrt, vec![sample::spread(DType::F64, &[4], -3.0, -0.5)]));
        samples.push(Sample::new("saturated", Unary::Tanh, vec![sample::array(DType::F32, &[2], &[40.0, -40.0])]));
        samples
    }
}

impl Rules for IntegerPow {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let Some(t) = tangents[0] else { return Ok(vec![None]) };
        let power = match self.y {
            0 => return Ok(vec![None]),
            1 => return Ok(vec![Some(t)]),
            2 => ins[0],
            y => b.integer_pow(ins[0], y - 1)?,
        };
        let y = b.literal(power, self.y.into());
        let factor = b.mul(y, power)?;
        Ok(vec![Some(b.mul(t, factor)?)])
    }

    fn transpose(&self, _b: &mut Builder, cotangents: &[Option<Atom>], _ins: &[Operand]) -> Result<Linear> {
        if self.y == 1 { Ok(vec![cotangents[0]]) } else { Err(not_linear(self)) }
    }

    fn vmap(&self, b: &mut Builder, _size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        Ok(vec![Batched { atom: b.apply(*self, &[ins[0].atom])?, axis: ins[0].axis }])
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for y in [-3, -1, 0, 1, 2, 3, 8] {
            let x = sample::spread(DType::F64, &[4], -2.0, 2.0);
            let sample = Sample::new(format!("power {y}"), IntegerPow { y }, vec![x]);
            samples.push(if y == 1 { sample.linear_in(&[0]) } else { sample });
        }
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            let sample = Sample::new("dtypes", IntegerPow { y: 3 }, vec![sample::any(dtype, &[3])]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        samples.push(Sample::new("scalar", IntegerPow { y: 2 }, vec![sample::array(DType::F64, &[], &[1.5])]));
        samples.push(Sample::new("empty", IntegerPow { y: 2 }, vec![sample::array(DType::F64, &[0, 3], &[])]));
        let zeros = sample::array(DType::F64, &[2], &[0.0, -0.0]);
        samples.push(Sample::new("at zero", IntegerPow { y: 2 }, vec![zeros.clone()]));
        samples.push(Sample::new("pole", IntegerPow { y: -2 }, vec![zeros]).not_smooth());
        samples
    }
}

/// An interval on which the function is smooth and not steep.
fn domain(op: Unary) -> (f64, f64) {
    match op {
        Unary::Log | Unary::Sqrt | Unary::Rsqrt | Unary::Cbrt => (0.5, 3.0),
        Unary::Log1p => (-0.5, 2.0),
        Unary::Asin | Unary::Acos | Unary::Atanh | Unary::ErfInv => (-0.8, 0.8),
        Unary::Acosh => (1.5, 3.0),
        Unary::Tan => (-1.2, 1.2),
        Unary::Lgamma | Unary::Digamma => (0.6, 12.0),
        // Away from the kinks and steps at whole and half numbers.
        Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => (1.1, 1.4),
        _ => (-2.0, 2.0),
    }
}

/// `(1 - x) (1 + x)`, which keeps its digits near 1 and -1.
fn one_minus_square(b: &mut Builder, x: Atom) -> Result<Atom> {
    let one = b.literal(x, 1.0);
    let (below, above) = (b.sub(one, x)?, b.add(one, x)?);
    b.mul(below, above)
}

fn rsqrt_one_minus_square(b: &mut Builder, x: Atom) -> Result<Atom> {
    let product = one_minus_square(b, x)?;
    b.unary(Unary::Rsqrt, product)
}

/// `t exp(-x^2) scale`
fn erf_tangent(b: &mut Builder, x: Atom, t: Atom, scale: f64) -> Result<Atom> {
    let square = b.mul(x, x)?;
    let negative = b.neg(square)?;
    let exp = b.unary(Unary::Exp, negative)?;
    let product = b.mul(t, exp)?;
    b.scale(product, scale)
}

/// The derivative of digamma: ten steps of the recurrence, then the asymptotic series; below 1/2 by reflection. Source:
/// NIST Digital Library of Mathematical Functions, 5.15.
fn trigamma(b: &mut Builder, x: Atom) -> Result<Atom> {
    let dtype = b.dtype(x);
    // Many terms of a 16-bit format would lose its few digits.
    let x = if dtype.bits() == 16 { b.convert(x, DType::F32)? } else { x };
    let (zero, half, one) = (b.literal(x, 0.0), b.literal(x, 0.5), b.literal(x, 1.0));
    let reflect = b.compare(Compare::Lt, x, half)?;
    let mirrored = b.sub(one, x)?;
    let mut z = b.select(reflect, mirrored, x)?;
    let mut sum = zero;
    for _ in 0..10 {
        let term = b.integer_pow(z, -2)?;
        sum = b.add(term, sum)?;
        z = b.add(z, one)?;
    }
    // 1/z + 1/(2 z^2) + sum of B_2k / z^(2k+1), by Horner's rule in 1/z^2.
    let inverse = b.div(one, z)?;
    let square = b.mul(inverse, inverse)?;
    let mut series = b.literal(x, 7.0 / 6.0);
    for bernoulli in [-691.0 / 2730.0, 5.0 / 66.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 1.0 / 6.0] {
        series = b.mul(series, square)?;
        let coefficient = b.literal(x, bernoulli);
        series = b.add(series, coefficient)?;
    }
    series = b.mul(series, inverse)?;
    series = b.add(series, half)?;
    series = b.mul(series, square)?;
    series = b.add(series, inverse)?;
    let direct = b.add(sum, series)?;
    // The sine of the distance to the nearest whole number is exact at the poles. Where nothing is reflected the argument
    // is a constant, so that no infinite derivative of this branch meets a zero.
    let nearest = b.unary(Unary::Round, x)?;
    let distance = b.sub(x, nearest)?;
    let distance = b.select(reflect, distance, half)?;
    let angle = b.scale(distance, PI)?;
    let sin = b.unary(Unary::Sin, angle)?;
    let inverse_square = b.integer_pow(sin, -2)?;
    let reflection = b.scale(inverse_square, PI * PI)?;
    let reflected = b.sub(reflection, direct)?;
    let result = b.select(reflect, reflected, direct)?;
    b.convert(result, dtype)
}
