//! How the weights of layers are drawn.

use remat_ir::{Error, ErrorKind};

use super::linear::{expect_float_weights, normal};
use crate::layer::deferred;
use crate::random::{self, Key};
use crate::{DType, Tensor, TriangularConfig};

/// How weights are drawn, for a layer whose `init` draws others: replace its weights.
///
/// The variance is 1 or 2 divided by a number of elements, so that the size of values stays the same from layer to layer: that of the
/// *inputs* of a unit, or the mean of its inputs and outputs. Normal weights are truncated at two standard deviations, as those of
/// `jax.nn.initializers`, and their variance is that after the truncation.
///
/// ```
/// use remat::{DType, Tensor, nn::{Initializer, Linear}, random};
/// let [layer, weight] = random::key(0).split();
/// let hidden = Linear {
///     weight: Initializer::HeNormal.linear(weight, 200, 300, DType::F32),
///     ..Linear::new(layer, 200, 300)
/// };
/// let deviation = hidden.weight.std(..).item::<f32>()?;
/// assert!((deviation / (2f32 / 200.0).sqrt() - 1.0).abs() < 0.02);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Initializer {
    /// Normal weights of variance `1 / inputs`. Source: LeCun et al., "Efficient backprop", 1998.
    LecunNormal,
    /// Uniform weights of variance `1 / inputs`.
    LecunUniform,
    /// Normal weights of variance `2 / inputs`, for layers before a ReLU. Source: He et al., "Delving deep into rectifiers", 2015.
    #[doc(alias = "Kaiming")]
    HeNormal,
    /// Uniform weights of variance `2 / inputs`.
    #[doc(alias = "Kaiming")]
    HeUniform,
    /// Normal weights of variance `2 / (inputs + outputs)`. Source: Glorot and Bengio, "Understanding the difficulty of training deep
    /// feedforward neural networks", 2010.
    #[doc(alias = "Xavier")]
    GlorotNormal,
    /// Uniform weights of variance `2 / (inputs + outputs)`.
    #[doc(alias = "Xavier")]
    GlorotUniform,
    /// Orthonormal columns, or rows if there are fewer rows, of a matrix that is uniformly distributed among these. A kernel is the
    /// matrix of its outputs by all other axes. The matrix is drawn in f32 for f16 and bf16, and computed in f64. Source: Saxe et al., "Exact
    /// solutions to the nonlinear dynamics of learning in deep linear neural networks", 2014.
    Orthogonal,
}

impl Initializer {
    /// The weights of a linear map, `dtype[inputs, outputs]`, as [`Linear`](super::Linear) has them. Equal to those of
    /// `jax.nn.initializers` from the same key, up to rounding.
    ///
    /// # Errors
    /// If the dtype is not a float: the weights are failed tensors.
    #[track_caller]
    pub fn linear(self, key: Key, inputs: usize, outputs: usize, dtype: DType) -> Tensor {
        deferred(|| {
            expect_float_weights(dtype)?;
            Ok(match self.variance(inputs, outputs) {
                Some(variance) => self.scaled(key, &[inputs, outputs], variance, dtype),
                None => orthogonal(key, outputs, inputs, dtype).t(),
            })
        })
    }

    /// The kernel of a convolution, `dtype[outputs, inputs, window..]`, as [`Conv`](super::Conv) has it. A unit has the inputs of its
    /// window, and an input the outputs of as many units.
    ///
    /// # Errors
    /// If the dtype is not a float, or the product of all sizes but zeros is more than a `usize` can count: the kernel is a failed tensor.
    ///
    /// ```
    /// use remat::{DType, nn::Initializer, random};
    /// let kernel = Initializer::GlorotUniform.conv(random::key(0), 3, 8, [5, 5], DType::F32);
    /// assert_eq!(kernel.shape()?, [8, 3, 5, 5]);
    /// let largest = (6f32 / (75.0 + 200.0)).sqrt();
    /// assert!(kernel.to_vec::<f32>()?.iter().all(|x| x.abs() <= largest));
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn conv(self, key: Key, inputs: usize, outputs: usize, window: impl AsRef<[usize]>, dtype: DType) -> Tensor {
        let window = window.as_ref();
        deferred(|| {
            let shape = [&[outputs, inputs], window].concat();
            // Sizes of a kernel without elements are limited too, as those of all tensors.
            if shape.iter().try_fold(1usize, |size, &n| size.checked_mul(n.max(1))).is_none() {
                let message = format!("a kernel of {shape:?} has too many elements");
                return Err(Error::new(ErrorKind::Shape, "nn::Initializer::conv", message));
            }
            let size: usize = window.iter().product();
            expect_float_weights(dtype)?;
            Ok(match self.variance(inputs * size, outputs * size) {
                Some(variance) => self.scaled(key, &shape, variance, dtype),
                None => orthogonal(key, outputs, inputs * size, dtype).reshape(&shape[..]),
            })
        })
    }

    /// The variance of independent weights of a unit with this many inputs and an input with this many outputs.
    fn variance(self, inputs: usize, outputs: usize) -> Option<f64> {
        use Initializer::*;
        let (inputs, outputs) = (inputs as f64, outputs as f64);
        match self {
            LecunNormal | LecunUniform => Some(1.0 / inputs.max(1.0)),
            HeNormal | HeUniform => Some(2.0 / inputs.max(1.0)),
            GlorotNormal | GlorotUniform => Some(2.0 / (inputs + outputs).max(1.0)),
            Orthogonal => None,
        }
    }

    /// Independent weights of this variance.
    fn scaled(self, key: Key, shape: &[usize], variance: f64, dtype: DType) -> Tensor {
        use Initializer::*;
        if matches!(self, LecunUniform | HeUniform | GlorotUniform) {
            return random::uniform(key, shape, dtype, -1.0..1.0) * (3.0 * variance).sqrt();
        }
        normal(key, shape, dtype, variance.sqrt() / TRUNCATED_DEVIATION)
    }
}

/// An orthogonal matrix `[rows, columns]`: the factor Q of the QR decomposition with a positive diagonal in R of normal numbers.
fn orthogonal(key: Key, rows: usize, columns: usize, dtype: DType) -> Tensor {
    let (long, short) = (rows.max(columns), rows.min(columns));
    if short == 0 {
        return Tensor::zeros([rows, columns], dtype);
    }
    // Rows of few numbers of few bits are often equal.
    let drawn = random::normal(key, [long, short], dtype.wide()).to_dtype(DType::F64);
    let q = orthonormal(&drawn, [long, short]);
    if rows < columns { q.t() } else { q }.to_dtype(dtype)
}

/// The factor Q of a matrix `f64[long, short]`. If its columns depend on each other up to rounding, there is no such factor, and the result is
/// the identity.
///
/// R is the transpose of the Cholesky factor of the Gram matrix, so that Q is found without a decomposition of its own. The first of three
/// passes adds a little to the diagonal, since the Gram matrix of badly conditioned columns has no Cholesky factor in f64; the others remove
/// what this leaves of the condition. Source: Fukaya et al., "Shifted Cholesky QR for computing the QR factorization of ill-conditioned
/// matrices", 2020, in which the trace is the norm of the matrix; it is at least as large.
fn orthonormal(drawn: &Tensor, [long, short]: [usize; 2]) -> Tensor {
    let gram = |q: &Tensor| q.t().matmul(q);
    let (eye, counts) = (Tensor::eye(short, DType::F64), (long as f64 + short as f64 + 1.0) * short as f64);
    let mut q = drawn.clone();
    for pass in 0..3 {
        let mut gram = gram(&q);
        if pass == 0 {
            gram = &gram + &eye * gram.trace() * (11.0 * counts * f64::EPSILON / 2.0);
        }
        let config = TriangularConfig { left_side: false, transpose_a: true, ..TriangularConfig::default() };
        q = gram.cholesky().solve_triangular(&q, config);
    }
    let is_found = (gram(&q) - eye).abs().le(1e-8).all(..);
    is_found.select(q, Tensor::eye_offset(long, short, 0, DType::F64))
}

/// The standard deviation of a standard normal number that is truncated at -2 and 2.
const TRUNCATED_DEVIATION: f64 = 0.879_625_661_034_239_8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependent_columns_become_orthonormal() {
        let ramp = |n: usize| Tensor::arange(1..n as i64 + 1).to_dtype(DType::F64);
        let equal_rows = Tensor::new([[0.5, -1.25], [0.5, -1.25]]);
        let of_rank_one = |long, short| ramp(long).expand_dims(1) * ramp(short);
        let nearly = |by: f64| Tensor::new([[1.0, 1.0], [1.0, 1.0 + by]]);
        let cases = [
            (equal_rows, [2, 2]),
            (Tensor::zeros([1, 1], DType::F64), [1, 1]),
            (of_rank_one(8, 8), [8, 8]),
            (of_rank_one(30, 7), [30, 7]),
            (nearly(1e-15), [2, 2]),
            (nearly(1e-12), [2, 2]),
            (nearly(1e-9), [2, 2]),
        ];
        for (drawn, shape) in cases {
            let q = orthonormal(&drawn, shape);
            let eye = Tensor::eye(shape[1], DType::F64);
            assert!(q.t().matmul(&q).allclose(&eye, 0.0, 1e-13).unwrap(), "{drawn:?} {q:?}");
        }
        // What has a condition of 1e12 has the columns of its decomposition.
        let (q, root) = (orthonormal(&nearly(1e-12), [2, 2]), 0.5f64.sqrt());
        assert!(q.allclose(&Tensor::new([[root, -root], [root, root]]), 0.0, 1e-3).unwrap(), "{q:?}");
    }
}
