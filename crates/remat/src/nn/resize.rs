//! Resizing of pictures and other arrays.

use std::f64::consts::PI;

use remat_ir::{Aval, Error, ErrorKind, Result, counted};

use super::reserved::reserved;
use crate::Tensor;
use crate::argument::Dims;
use crate::layer::deferred;

/// How [`resize`] computes values between those of an array: a kernel, whose weights are those of the elements around a position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interpolation {
    /// The nearest element, and the later one of two; the only one for dtypes that are not floats.
    Nearest,
    /// A triangle of two elements on each axis: bilinear for pictures.
    Linear,
    /// A cubic polynomial of four elements on each axis. Source: Keys, "Cubic convolution interpolation for digital image processing",
    /// 1981.
    Cubic,
    /// A windowed sinc function of six elements on each axis. Source: Duchon, "Lanczos filtering in one and two dimensions", 1979.
    Lanczos3,
    /// The same of ten elements.
    Lanczos5,
}

/// The options of [`resize`]. An [`Interpolation`] converts into them.
///
/// ```
/// use remat::nn::{Interpolation, ResizeConfig};
/// // As PyTorch's `interpolate` in the mode "bilinear".
/// let config = ResizeConfig { interpolation: Interpolation::Linear, antialias: false };
/// # assert_ne!(config, Interpolation::Linear.into());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ResizeConfig {
    /// The kernel.
    pub interpolation: Interpolation,
    /// Whether the kernel is as wide as an element of the result where that is wider than one of the operand, so that every element
    /// counts; `true` if converted from an [`Interpolation`]. The nearest element has no kernel.
    pub antialias: bool,
}

impl From<Interpolation> for ResizeConfig {
    fn from(interpolation: Interpolation) -> ResizeConfig {
        ResizeConfig { interpolation, antialias: true }
    }
}

const NAME: &str = "nn::resize";

/// `x` with another shape of as many dimensions: each axis whose size differs is resampled, and the others, such as those of batch and
/// channels, stay as they are.
///
/// Elements are cells, as pixels are: number *j* of *n* has its centre at `(j + 0.5) size / n - 0.5` in the operand. Weights beyond the
/// border are shared by the elements inside. `x` is a float, or of any dtype for [`Interpolation::Nearest`]; the result has its dtype.
/// f16 and bf16 are computed in f32 and rounded once. Each axis is a matrix product with constant weights, or for the nearest element a
/// gathering. This is `jax.image.resize`, except that of two elements that are as near JAX takes the one that its rounding favours.
///
/// # Errors
/// If the shape has another number of dimensions, or an empty axis would get elements; if `x` is not a float, unless the nearest element is
/// taken; if there is no memory for the weights or indices of an axis.
///
/// ```
/// use remat::{DType, Tensor, nn, nn::Interpolation};
/// let x = Tensor::new([[0.0f32, 4.0]]);
/// let y = nn::resize(&x, [1, 4], Interpolation::Linear);
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
///
/// let pictures = Tensor::zeros([8, 3, 32, 32], DType::F32);
/// assert_eq!(nn::resize(&pictures, [8, 3, 20, 20], Interpolation::Cubic).shape()?, [8, 3, 20, 20]);
/// # Ok::<(), remat::Error>(())
/// ```
#[doc(alias = "interpolate")]
#[doc(alias = "upsample")]
#[track_caller]
pub fn resize(x: &Tensor, shape: impl Dims, config: impl Into<ResizeConfig>) -> Tensor {
    let config = config.into();
    deferred(|| {
        let aval = x.aval()?;
        let axes = changed(aval, &shape.to_shape(NAME)?)?;
        let Some(kernel) = config.interpolation.kernel() else {
            return axes.iter().try_fold(x.clone(), |x, axis| nearest(&x, axis));
        };
        if !aval.dtype.is_float() {
            let message = format!("interpolates floats, not {aval}; convert it with .to_dtype(DType::F32)");
            return Err(Error::new(ErrorKind::DType, NAME, message));
        }
        x.in_wide(NAME, |x| {
            axes.iter().try_fold(x.clone(), |x, axis| interpolated(&x, axis, &kernel, config.antialias))
        })
    })
}

/// An axis whose size changes.
struct Resampled {
    axis: usize,
    from: usize,
    to: usize,
}

impl Resampled {
    /// An empty list with memory for this many numbers, which the error calls by their name.
    ///
    /// # Errors
    /// If there is no memory for them.
    fn list<T>(&self, numbers: &str, count: Option<usize>) -> Result<Vec<T>> {
        let Resampled { axis, from, to } = self;
        reserved(NAME, || format!("the {numbers} of axis {axis} from size {from} to {to}"), count)
    }
}

/// The axes whose sizes change, first those that shrink, so that the rest has less to do.
///
/// # Errors
/// If the shape does not fit.
fn changed(aval: &Aval, shape: &[usize]) -> Result<Vec<Resampled>> {
    if shape.len() != aval.rank() {
        let message = format!("takes {} for {aval}, not {shape:?}", counted(aval.rank(), "size"));
        return Err(Error::new(ErrorKind::Shape, NAME, message));
    }
    let too_large = || Error::new(ErrorKind::Shape, NAME, format!("the shape {shape:?} is too large"));
    shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size.max(1))).ok_or_else(too_large)?;
    let sizes = aval.shape.iter().zip(shape).enumerate();
    let mut axes: Vec<Resampled> =
        sizes.map(|(axis, (&from, &to))| Resampled { axis, from, to }).filter(|axis| axis.from != axis.to).collect();
    if let Some(axis) = axes.iter().find(|axis| axis.from == 0) {
        let message = format!("axis {} of {aval} is empty and cannot have the size {}", axis.axis, axis.to);
        return Err(Error::new(ErrorKind::Shape, NAME, message));
    }
    axes.sort_by(|a, b| (a.to as f64 / a.from as f64).total_cmp(&(b.to as f64 / b.from as f64)));
    Ok(axes)
}

/// The elements whose cells contain the centres of the new ones.
///
/// # Errors
/// If there is no memory for their indices, or these are no i32.
fn nearest(x: &Tensor, resampled: &Resampled) -> Result<Tensor> {
    let &Resampled { axis, from, to } = resampled;
    if to.is_multiple_of(from) && to > 0 {
        return Ok(x.repeat(to / from, axis));
    }
    // (j + 0.5) from / to, in integers.
    let index = |j: usize| (2 * j as u128 + 1) * from as u128 / (2 * to as u128);
    let aval = x.aval()?;
    let too_long = |_| Error::new(ErrorKind::Shape, NAME, format!("axis {axis} of {aval} is too long for i32 indices"));
    let mut indices = resampled.list("indices", Some(to))?;
    for j in 0..to {
        indices.push(i32::try_from(index(j)).map_err(too_long)?);
    }
    Ok(x.take_clipped(&Tensor::from_vec(indices, [to]), axis))
}

/// A product with the weights of all elements along an axis.
fn interpolated(x: &Tensor, resampled: &Resampled, kernel: &Kernel, antialias: bool) -> Result<Tensor> {
    let &Resampled { axis, from, to } = resampled;
    let weights = Tensor::from_vec(weights(resampled, kernel, antialias)?, [from, to]).to_dtype(x.dtype()?);
    Ok(x.dot_general(&weights, (axis, 0), ((), ())).move_axis(-1, axis))
}

/// The matrix `[from, to]` of the weight of each element for each new one; those of a new one sum to 1.
///
/// # Errors
/// If there is no memory for it.
fn weights(resampled: &Resampled, kernel: &Kernel, antialias: bool) -> Result<Vec<f64>> {
    let &Resampled { from, to, .. } = resampled;
    let mut weights = resampled.list("weights", from.checked_mul(to))?;
    weights.resize(from * to, 0.0);
    let step = from as f64 / to as f64;
    let width = if antialias { step.max(1.0) } else { 1.0 };
    for j in 0..to {
        let centre = (j as f64 + 0.5) * step - 0.5;
        let reach = kernel.radius * width;
        // A conversion to integers saturates at 0.
        let near = (centre - reach).ceil() as usize..=((centre + reach).floor() as usize).min(from - 1);
        let weight = |i: usize| (kernel.weight)((centre - i as f64).abs() / width);
        let sum: f64 = near.clone().map(weight).sum();
        for i in near {
            weights[i * to + j] = weight(i) / sum;
        }
    }
    Ok(weights)
}

/// The weight of an element by its distance, which is zero from the radius on.
struct Kernel {
    radius: f64,
    weight: fn(f64) -> f64,
}

impl Interpolation {
    fn kernel(self) -> Option<Kernel> {
        let (radius, weight): (_, fn(f64) -> f64) = match self {
            Interpolation::Nearest => return None,
            Interpolation::Linear => (1.0, |x| (1.0 - x).max(0.0)),
            Interpolation::Cubic => (2.0, cubic),
            Interpolation::Lanczos3 => (3.0, |x| lanczos(3.0, x)),
            Interpolation::Lanczos5 => (5.0, |x| lanczos(5.0, x)),
        };
        Some(Kernel { radius, weight })
    }
}

fn cubic(x: f64) -> f64 {
    if x >= 2.0 {
        0.0
    } else if x >= 1.0 {
        ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    } else {
        ((1.5 * x - 2.5) * x) * x + 1.0
    }
}

fn lanczos(radius: f64, x: f64) -> f64 {
    if x > radius {
        0.0
    } else if x > 1e-3 {
        // As JAX, which takes 1 for smaller distances.
        radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * x).powi(2)
    } else {
        1.0
    }
}
