//! The Poisson distribution.

use remat_ir::{Error, ErrorKind, Literal, Result};

use super::Key;
use super::float::unit;
use super::ops::{parameter, shape, size};
use crate::api::while_loop;
use crate::argument::{Dims, Operand};
use crate::trace::deferred;
use crate::{DType, Tensor};

/// Integers of the Poisson distribution, with the probability `rate^k exp(-rate) / k!` of `k`: JAX's `poisson`.
///
/// The rate is converted to f32, in which numbers are drawn, and broadcast to the shape. Numbers that do not fit `dtype` are clipped. A rate
/// of zero gives zero. Negative rates and NaN give -1, or the largest value of a dtype without signs. A dtype that is not an integer gives a
/// failed tensor. There is no derivative by the rate.
///
/// Sources: Knuth, "The art of computer programming", volume 2, for rates below 10; Hörmann, "The transformed rejection method for generating
/// Poisson random variables", 1993, for the others.
///
/// ```
/// use remat::{DType, random};
/// let x = random::poisson(random::key(0), [1000], DType::I32, 4.0);
/// assert!((x.to_dtype(DType::F32).mean(..).item::<f32>()? - 4.0).abs() < 0.3);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn poisson(key: Key, shape: impl Dims, dtype: DType, rate: impl Operand) -> Tensor {
    deferred(|| {
        if !dtype.is_integer() {
            let message = format!("draws integers, not {dtype}; convert them with .to_dtype(DType::{dtype:?})");
            return Err(Error::new(ErrorKind::DType, NAME, message));
        }
        let shape = self::shape(NAME, shape)?;
        let rate = parameter(NAME, rate.argument(), DType::F32, &shape)?.broadcast_to(&shape[..]).stop_gradient();
        if size(&shape) == 0 {
            return Ok(Tensor::zeros(shape, dtype));
        }
        // An error of the key in the name of the distribution.
        key.blocks(NAME, &[])?;
        let is_large = rate.ge(LARGE);
        let small = counted(&key, &shape, &is_large.select(0.0, &rate))?;
        let large = rejected(&key, &shape, &is_large.select(&rate, 1e5))?;
        let x = is_large.select(large, small);
        let x = rate.eq(f64::INFINITY).select(f64::INFINITY, x).to_dtype(dtype);
        // A negative float is clipped to zero, and not wrapped, in a dtype without signs.
        Ok(rate.ge(0.0).select(x, Tensor::literal(Literal::from_i128(dtype, -1))))
    })
}

const NAME: &str = "random::poisson";

/// From this rate on numbers are drawn by rejection.
const LARGE: f64 = 10.0;

/// The number of uniform numbers whose product stays above `exp(-rate)`.
fn counted(key: &Key, shape: &[usize], rate: &Tensor) -> Result<Tensor> {
    type State = (Key, Tensor, Tensor);
    let floor = -rate;
    let count = |(key, count, log_product): &State| -> Result<State> {
        let [next, now] = key.reuse().split();
        let count = log_product.gt(&floor).select(count + 1.0, count);
        Ok((next, count, log_product + unit(&now, NAME, shape, DType::F32)?.log()))
    };
    let zero = Tensor::zeros(shape, DType::F32);
    let first = (key.reuse(), zero.clone(), zero);
    let (_, count, _) = while_loop(|(.., log_product): &State| log_product.gt(&floor).any(..), count, &first)?;
    // The number that went below is counted too.
    Ok((count - 1.0).maximum(0.0))
}

/// Proposals until one is accepted for each element.
fn rejected(key: &Key, shape: &[usize], rate: &Tensor) -> Result<Tensor> {
    type State = (Key, Tensor, Tensor);
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * &b;
    let inverse = 1.1239 + 1.1328 / (&b - 3.4);
    let sure = 0.9277 - 3.6224 / (&b - 2.0);
    let propose = |(key, drawn, is_done): &State| -> Result<State> {
        let [next, for_u, for_v] = key.reuse().split();
        let u = unit(&for_u, NAME, shape, DType::F32)? - 0.5;
        let v = unit(&for_v, NAME, shape, DType::F32)?;
        let distance = 0.5 - u.abs();
        let k = ((2.0 * &a / &distance + &b) * u + rate + 0.43).floor();
        let is_sure = distance.ge(0.07) & v.le(&sure);
        let is_out = k.lt(0.0) | (distance.lt(0.013) & v.gt(&distance));
        let bound = (v * &inverse / (&a / (&distance * &distance) + &b)).log();
        let accepted = is_sure | (!is_out & bound.le(log_probability(&k, rate)));
        Ok((next, accepted.select(k, drawn), is_done | accepted))
    };
    let zero = Tensor::zeros(shape, DType::F32);
    let first = (key.reuse(), &zero - 1.0, Tensor::zeros(shape, DType::Bool));
    let (_, drawn, _) = while_loop(|(.., is_done): &State| (!is_done).any(..), propose, &first)?;
    Ok(drawn)
}

/// The logarithm of the probability of `k`. JAX has the first formula for all rates, whose terms grow with the rate while their sum does
/// not: at a rate of a million its error is about 1, which distorts the distribution. The second one is Stirling's.
fn log_probability(k: &Tensor, rate: &Tensor) -> Tensor {
    let by_terms = -rate + k * rate.log() - (k + 1.0).lgamma();
    // Small numbers have no chance at such rates, and are kept from the logarithm of zero.
    let k = k.maximum(1.0);
    let e = (&k - rate) / rate;
    // (1 + e) log(1 + e) - e, by its power series where that cancels.
    let powers = (((&e * -0.05 + 1.0 / 12.0) * &e - 1.0 / 6.0) * &e + 0.5) * &e * &e;
    let divergence = e.abs().lt(0.02).select(powers, (&e + 1.0) * e.log1p() - &e);
    let by_stirling = -(rate * divergence) - 0.5 * (std::f64::consts::TAU * &k).log() - 1.0 / (12.0 * k);
    rate.lt(1000.0).select(by_terms, by_stirling)
}
