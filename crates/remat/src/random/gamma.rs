//! The gamma distribution, and those that are made of it.

use remat_ir::{Error, ErrorKind, Result};

use super::Key;
use super::float::{exponential, normal, uniform};
use super::gamma_slope::slope;
use super::ops::{expect_float, parameter, shape, size};
use crate::api::{custom_jvp, vmap, while_loop};
use crate::argument::{Dims, Operand};
use crate::tensor::Argument;
use crate::trace::deferred;
use crate::{DType, Tensor};

/// Numbers of the gamma distribution, with density proportional to `x^(concentration - 1) exp(-x)` for `x >= 0`: JAX's `gamma`. Divide them
/// by a rate, or multiply by a scale.
///
/// The concentration is converted to `dtype` and broadcast to the shape. Zero gives zero, infinity infinity, and a negative number NaN. A
/// number below the smallest of the dtype, as small concentrations draw, is zero; [`log_gamma`] gives its logarithm. A dtype that is not a
/// float gives a failed tensor.
///
/// The derivative by the concentration is that of the draw at a fixed quantile (implicit reparameterization), as in JAX; it has no further
/// derivative, which is an error. Sources: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; Figurnov et al.,
/// "Implicit reparameterization gradients", 2018.
///
/// ```
/// use remat::{DType, random};
/// let x = random::gamma(random::key(0), [1000], DType::F32, 3.0);
/// assert!((x.mean(..).item::<f32>()? - 3.0).abs() < 0.2);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn gamma(key: Key, shape: impl Dims, dtype: DType, concentration: impl Operand) -> Tensor {
    const NAME: &str = "random::gamma";
    deferred(|| draw(&key, NAME, &self::shape(NAME, shape)?, dtype, concentration.argument(), Space::Linear))
}

/// The logarithms of the numbers that [`gamma`] draws from the same key, also of those that are too small for the dtype: JAX's `loggamma`.
///
/// A concentration of zero gives minus infinity. Otherwise as [`gamma`]; the derivative is exact for small concentrations too.
///
/// ```
/// use remat::{DType, random};
/// let x = random::log_gamma(random::key(0), [3], DType::F32, 0.001);
/// assert!(x.is_finite().all(..).item::<bool>()?);
/// assert!(random::gamma(random::key(0), [3], DType::F32, 0.001).eq(0.0).any(..).item::<bool>()?);
/// # Ok::<(), remat::Error>(())
/// ```
#[doc(alias = "loggamma")]
#[track_caller]
pub fn log_gamma(key: Key, shape: impl Dims, dtype: DType, concentration: impl Operand) -> Tensor {
    const NAME: &str = "random::log_gamma";
    deferred(|| draw(&key, NAME, &self::shape(NAME, shape)?, dtype, concentration.argument(), Space::Log))
}

/// Numbers of the beta distribution, with density proportional to `x^(a - 1) (1 - x)^(b - 1)` for `x` from 0 to 1: JAX's `beta`.
///
/// The concentrations `a` and `b` are converted to `dtype` and broadcast to the shape. If one is zero, the number is 0 or 1; if both are
/// zero, or one is negative, it is NaN. A dtype that is not a float gives a failed tensor. Derivatives are as for [`gamma`].
///
/// ```
/// use remat::{DType, random};
/// let x = random::beta(random::key(0), [1000], DType::F32, 2.0, 6.0);
/// assert!((x.mean(..).item::<f32>()? - 0.25).abs() < 0.02);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn beta(key: Key, shape: impl Dims, dtype: DType, a: impl Operand, b: impl Operand) -> Tensor {
    const NAME: &str = "random::beta";
    deferred(|| {
        let shape = self::shape(NAME, shape)?;
        // An error of the key in the name of the distribution.
        key.blocks(NAME, &[])?;
        let [for_a, for_b] = key.split();
        let a = draw(&for_a, NAME, &shape, dtype, a.argument(), Space::Log)?;
        let b = draw(&for_b, NAME, &shape, dtype, b.argument(), Space::Log)?;
        // Relative to the larger one, which neither overflows nor loses digits.
        let largest = a.maximum(&b);
        let [a, b] = [a, b].map(|x| (x - &largest).exp());
        Ok(&a / (&a + b))
    })
}

/// Probabilities of the Dirichlet distribution, which sum to 1 along the last axis: JAX's `dirichlet`.
///
/// `concentrations` are floats `[.., n]`, and the result has their dtype and the shape `draws` followed by theirs; `()` draws once for each
/// of them. A concentration of zero gives a probability of zero; a negative one, or all of zero, gives NaN. Derivatives are as for
/// [`gamma`].
///
/// ```
/// use remat::{Tensor, random};
/// let x = random::dirichlet(random::key(0), [100], &Tensor::new([1.0f32, 2.0, 7.0]));
/// assert_eq!(x.shape()?, [100, 3]);
/// assert!(x.sum(-1).allclose(&Tensor::ones([100], x.dtype()?), 1e-5, 0.0)?);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the concentrations are not floats or a scalar: a failed tensor.
#[track_caller]
pub fn dirichlet(key: Key, draws: impl Dims, concentrations: &Tensor) -> Tensor {
    const NAME: &str = "random::dirichlet";
    deferred(|| {
        let aval = concentrations.aval()?;
        expect_float(NAME, aval.dtype)?;
        if aval.rank() == 0 {
            let message = format!("the concentrations {aval} have no axis of probabilities");
            return Err(Error::new(ErrorKind::Shape, NAME, message));
        }
        let all: Vec<usize> = draws.to_shape(NAME)?.iter().chain(&aval.shape).copied().collect();
        let shape = self::shape(NAME, all)?;
        Ok(draw(&key, NAME, &shape, aval.dtype, Argument::Tensor(concentrations), Space::Log)?.softmax(-1))
    })
}

/// Whether numbers are drawn or their logarithms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Linear,
    Log,
}

/// One number for each element of the shape, each from a key of its own.
///
/// # Errors
/// If `dtype` is not a float; if the concentration does not broadcast to the shape; if the key is not one.
fn draw(
    key: &Key,
    operation: &str,
    shape: &[usize],
    dtype: DType,
    concentration: Argument<'_>,
    space: Space,
) -> Result<Tensor> {
    expect_float(operation, dtype)?;
    let concentration = parameter(operation, concentration, dtype, shape)?.broadcast_to(shape);
    let size = size(shape);
    if size == 0 {
        return Ok(Tensor::zeros(shape, dtype));
    }
    let keys = key.blocks(operation, &[size])?;
    let keys = Key::from_data(Tensor::stack(&keys, 1));
    let sample = |keys: &Key, concentration: &Tensor| {
        vmap(|(key, a): &(Key, Tensor)| one(key, a, space))(&(keys.reuse(), concentration.clone()))
    };
    let draw = custom_jvp(
        |(keys, a): &(Key, Tensor)| sample(keys, a),
        |(keys, a): &(Key, Tensor), (_, tangent): &(Key, Tensor)| {
            let x = sample(keys, a)?;
            let tangent = tangent * slope(a, &x, space)?;
            Ok::<_, Error>((x, tangent))
        },
    );
    Ok(draw(&(keys, concentration.reshape([size])))?.reshape(shape))
}

/// One number, or its logarithm. All is rounded as JAX rounds it, so that the same proposals are accepted.
fn one(key: &Key, concentration: &Tensor, space: Space) -> Result<Tensor> {
    let dtype = concentration.dtype()?;
    let constant = |x: f64| Tensor::scalar(dtype, x);
    // A concentration below 1 is increased by 1, and the number then multiplied by a power of a uniform one.
    let is_large = concentration.ge(1.0);
    let d = is_large.select(concentration, concentration + 1.0) - constant(1.0 / 3.0);
    let c = constant(1.0 / 3.0) / d.sqrt();

    // The state: a key, the square of a normal number, the cube of 1 + c times it, and a uniform number. The first one is rejected.
    type State = (Key, Tensor, Tensor, Tensor);
    let rejected = |(_, x, v, u): &State| {
        let squeeze = u.ge(1.0 - constant(0.0331) * (x * x));
        squeeze & u.log().ge(x * 0.5 + &d * (1.0 - v + v.log()))
    };
    let propose = |(key, ..): &State| -> Result<State> {
        let [next, for_x, for_u] = key.reuse().split();
        let first = (for_x, constant(0.0), constant(-1.0));
        let (_, x, v) = while_loop(
            |(_, _, v): &(Key, Tensor, Tensor)| v.le(0.0),
            |(key, ..): &(Key, Tensor, Tensor)| {
                let [next, now] = key.reuse().split();
                let x = normal(now, (), dtype);
                let v = 1.0 + &x * &c;
                (next, x, v)
            },
            &first,
        )?;
        Ok((next, &x * &x, &v * &v * &v, uniform(for_u, (), dtype, 0..1)))
    };
    let [next, for_power] = key.reuse().split();
    let (_, _, v, _) = while_loop(rejected, propose, &(next, constant(0.0), constant(1.0), constant(2.0)))?;

    let inverse = 1.0 / concentration;
    let (x, of_zero) = match space {
        Space::Linear => {
            let power = (1.0 - uniform(for_power, (), dtype, 0..1)).pow(inverse);
            (d * v * is_large.select(1.0, power), 0.0)
        }
        Space::Log => {
            let power = -exponential(for_power, (), dtype);
            let is_one = is_large | power.eq(0.0);
            (d.log() + v.log() + is_one.select(0.0, power * inverse), f64::NEG_INFINITY)
        }
    };
    let x = concentration.lt(0.0).select(f64::NAN, x);
    Ok(concentration.eq(0.0).select(of_zero, x))
}
