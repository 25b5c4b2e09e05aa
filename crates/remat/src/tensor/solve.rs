//! Linear systems and factorisations.

use remat_ir::{Cholesky, Operation, Result, TriangularSolve};

use super::shape::permute;
use crate::Tensor;
use crate::trace::{bind1, deferred};

/// Options of [`Tensor::solve_triangular`]. The default is `a x = b` with the lower triangle of `a`; JAX's `lax.linalg.triangular_solve`
/// defaults to the matrix on the right and the upper triangle.
///
/// ```
/// use remat::TriangularConfig;
/// let config = TriangularConfig { lower: false, ..TriangularConfig::default() };
/// assert!(config.left_side && !config.transpose_a && !config.unit_diagonal);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TriangularConfig {
    /// Whether to solve `op(a) x = b`; otherwise `x op(a) = b`.
    pub left_side: bool,
    /// Whether the lower triangle of `a` is read; otherwise the upper one.
    pub lower: bool,
    /// Whether `op(a)` is the transpose of `a`; otherwise `a` itself.
    pub transpose_a: bool,
    /// Whether the diagonal of `a` is taken as 1 and not read.
    pub unit_diagonal: bool,
}

impl Default for TriangularConfig {
    fn default() -> TriangularConfig {
        TriangularConfig { left_side: true, lower: true, transpose_a: false, unit_diagonal: false }
    }
}

impl Tensor {
    /// Solves systems whose matrix is a triangle of this tensor, `[.., n, n]`. Each column of `b`, `[.., n, k]`, is the right-hand side of
    /// a system, or each row of `b`, `[.., k, n]`, if the matrix is on the right. `b` may also be one vector for each matrix, `[.., n]`.
    /// The other dimensions are batch dimensions, the same in both. Floats only; f16 and bf16 are computed in f32.
    ///
    /// A zero on the diagonal gives infinities and NaN. Only the triangle that is read has a derivative.
    ///
    /// # Errors
    /// If the matrices are not square, the sizes or the batch dimensions do not fit, or the dtypes differ or are not floats.
    ///
    /// ```
    /// use remat::{Tensor, TriangularConfig};
    /// let a = Tensor::new([[2.0f32, 0.0], [1.0, 4.0]]);
    /// let x = a.solve_triangular(&Tensor::new([2.0f32, 9.0]), TriangularConfig::default());
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[doc(alias = "triangular_solve")]
    #[track_caller]
    pub fn solve_triangular(&self, b: &Tensor, config: TriangularConfig) -> Tensor {
        deferred(|| {
            let TriangularConfig { left_side, lower, transpose_a, unit_diagonal } = config;
            let op = TriangularSolve { left_side, lower, transpose_a, unit_diagonal };
            let rank = b.aval()?.rank();
            if rank == 0 || rank + 1 != self.aval()?.rank() {
                return Ok(bind1(op, &[self, b]));
            }
            let axis = if left_side { rank } else { rank - 1 };
            Ok(bind1(op, &[self, &b.expand_dims(axis)]).squeeze(axis))
        })
    }

    /// The lower triangular `l`, `[.., n, n]`, with `l lᵀ = a`. The symmetric positive definite `a` is the mean of this tensor and its
    /// transpose, as by default in JAX (`symmetrize_input`). Elements above the diagonal are zero. Where `a` is not positive definite, the
    /// lower triangle is NaN. Floats only; f16 and bf16 are computed in f32.
    ///
    /// # Errors
    /// If the matrices are not square, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let l = Tensor::new([[4.0f32, 2.0], [2.0, 10.0]]).cholesky();
    /// assert_eq!(l.to_vec::<f32>()?, [2.0, 0.0, 1.0, 3.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky(&self) -> Tensor {
        deferred(|| {
            Cholesky.infer(std::slice::from_ref(self.aval()?))?;
            Ok(((self + transposed(self)?) * 0.5).cholesky_of_lower())
        })
    }

    /// As [`Tensor::cholesky`], for symmetric matrices given by their lower triangles. Elements above the diagonal are not read, and have
    /// zero derivative. (JAX without `symmetrize_input` differentiates as if both triangles were read.)
    ///
    /// # Errors
    /// If the matrices are not square, or the dtype is not a float.
    ///
    /// ```
    /// use remat::Tensor;
    /// let l = Tensor::new([[4.0f32, f32::NAN], [2.0, 10.0]]).cholesky_of_lower();
    /// assert_eq!(l.to_vec::<f32>()?, [2.0, 0.0, 1.0, 3.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn cholesky_of_lower(&self) -> Tensor {
        deferred(|| Ok(bind1(Cholesky, &[self])))
    }
}

/// The tensor with its last two dimensions swapped; it has at least two.
fn transposed(x: &Tensor) -> Result<Tensor> {
    let rank = x.aval()?.rank();
    let mut permutation: remat_ir::Shape = (0..rank).collect();
    permutation.swap(rank - 2, rank - 1);
    Ok(permute(x, permutation))
}
