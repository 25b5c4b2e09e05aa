//! Matrix products.

use remat_ir::{DType, DotGeneral, Error, ErrorKind, Result, Shape};

use super::argument::Axes;
use super::elementwise::same_dtype;
use super::shape::permute;
use crate::Tensor;
use crate::trace::{bind1, deferred};

impl Tensor {
    /// The matrix product, like NumPy's `matmul`: of the last two dimensions, with the others broadcasting. A vector is a row on the left
    /// and a column on the right, and that dimension is absent from the result.
    ///
    /// # Errors
    /// If an operand is a scalar, the inner sizes differ, the other dimensions do not broadcast, or the dtypes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let w = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(w.matmul(&Tensor::new([1.0f32, 1.0])).to_vec::<f32>()?, [3.0, 7.0]);
    /// assert_eq!(w.matmul(&w).to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul(&self, rhs: &Tensor) -> Tensor {
        deferred(|| matmul(self, rhs))
    }

    /// NumPy's `dot`: the inner product of vectors, the matrix product of matrices, the product with a scalar. For more dimensions it is
    /// the sum over the last dimension of the left operand and the second to last of the right one, without broadcasting.
    ///
    /// # Errors
    /// If the inner sizes or the dtypes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let x = Tensor::new([1, 2, 3]);
    /// assert_eq!(x.dot(&x).item::<i32>()?, 14);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dot(&self, rhs: &Tensor) -> Tensor {
        deferred(|| {
            let (a, b) = (self.aval()?, rhs.aval()?);
            same_dtype("dot", a, b)?;
            if a.rank() == 0 || b.rank() == 0 {
                return Ok(self * rhs);
            }
            let (l, r) = (a.rank() - 1, b.rank().saturating_sub(2));
            if a.shape[l] != b.shape[r] {
                return Err(inner_sizes("dot", self, rhs, a.shape[l], b.shape[r])?);
            }
            Ok(contract(self, rhs, &[l], &[r], &[], &[], a.dtype))
        })
    }

    /// The general product: it sums over pairs of contracted axes, for each index along the pairs of batch axes. The result has the batch
    /// dimensions, then the free dimensions of the left operand, then those of the right one.
    ///
    /// # Errors
    /// If axes are out of range or given twice, their numbers or sizes differ, or the dtypes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let (x, y) = (Tensor::new([[1, 2], [3, 4]]), Tensor::new([[1, 1], [0, 1]]));
    /// let z = x.dot_general(&y, (1, 1), (0, 0));
    /// assert_eq!(z.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general(&self, rhs: &Tensor, contract: (impl Axes, impl Axes), batch: (impl Axes, impl Axes)) -> Tensor {
        deferred(|| dot_general(self, rhs, contract, batch, self.dtype()?))
    }

    /// As [`Tensor::dot_general`], summed and returned in `dtype`: a float for floats, an integer or a float for integers.
    ///
    /// # Errors
    /// As [`Tensor::dot_general`], or if products of this dtype cannot be summed in `dtype`.
    ///
    /// ```
    /// use remat::{DType, Tensor};
    /// let x = Tensor::new([100i8, 100]);
    /// assert_eq!(x.dot_general_in(&x, (0, 0), ((), ()), DType::I32).item::<i32>()?, 20000);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn dot_general_in(
        &self,
        rhs: &Tensor,
        contract: (impl Axes, impl Axes),
        batch: (impl Axes, impl Axes),
        dtype: DType,
    ) -> Tensor {
        deferred(|| dot_general(self, rhs, contract, batch, dtype))
    }

    /// The products of every element of this tensor with every element of the other, both flattened.
    ///
    /// # Errors
    /// If the dtypes differ.
    ///
    /// ```
    /// use remat::Tensor;
    /// let z = Tensor::new([1, 2]).outer(&Tensor::new([3, 4]));
    /// assert_eq!(z.to_vec::<i32>()?, [3, 4, 6, 8]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn outer(&self, rhs: &Tensor) -> Tensor {
        deferred(|| {
            same_dtype("outer", self.aval()?, rhs.aval()?)?;
            Ok(self.flatten().expand_dims(1).mul(rhs.flatten().expand_dims(0)))
        })
    }

    /// The sum of the main diagonal of the matrices in the first two dimensions.
    ///
    /// # Errors
    /// If there are fewer than two dimensions, or the dtype is bool.
    ///
    /// ```
    /// use remat::Tensor;
    /// assert_eq!(Tensor::new([[1, 2], [3, 4]]).trace().item::<i32>()?, 5);
    /// # Ok::<(), remat::Error>(())
    /// ```
    #[track_caller]
    pub fn trace(&self) -> Tensor {
        deferred(|| Ok(self.diagonal(0, 0, 1).sum(-1)))
    }
}

/// One product. The dimensions are those of the operation, whose shape rule checks them.
#[track_caller]
pub(crate) fn contract(
    lhs: &Tensor,
    rhs: &Tensor,
    lhs_contract: &[usize],
    rhs_contract: &[usize],
    lhs_batch: &[usize],
    rhs_batch: &[usize],
    preferred_element_type: DType,
) -> Tensor {
    let op = DotGeneral {
        lhs_contract: lhs_contract.into(),
        rhs_contract: rhs_contract.into(),
        lhs_batch: lhs_batch.into(),
        rhs_batch: rhs_batch.into(),
        preferred_element_type,
    };
    bind1(op, &[lhs, rhs])
}

fn dot_general(
    lhs: &Tensor,
    rhs: &Tensor,
    contracting: (impl Axes, impl Axes),
    batch: (impl Axes, impl Axes),
    dtype: DType,
) -> Result<Tensor> {
    let name = "dot_general";
    let (a, b) = (lhs.aval()?, rhs.aval()?);
    let (l, r) = (contracting.0.resolve(name, a)?, contracting.1.resolve(name, b)?);
    let (lb, rb) = (batch.0.resolve(name, a)?, batch.1.resolve(name, b)?);
    for (aval, contracting, batch) in [(a, &l, &lb), (b, &r, &rb)] {
        if let Some(axis) = contracting.iter().find(|axis| batch.contains(axis)) {
            let message = format!("axis {axis} of {aval} is given both as contracted and as batch axis");
            return Err(Error::new(ErrorKind::Axis, name, message));
        }
    }
    Ok(contract(lhs, rhs, &l, &r, &lb, &rb, dtype))
}

/// One `dot_general`. A batch dimension that only one operand has, or that has size 1 in the other, is a free dimension of that operand. So
/// nothing is repeated, and nothing is transposed unless the free dimensions come out of order.
fn matmul(lhs: &Tensor, rhs: &Tensor) -> Result<Tensor> {
    let (a, b) = (lhs.aval()?, rhs.aval()?);
    if let Some(scalar) = [a, b].into_iter().find(|aval| aval.rank() == 0) {
        let message = format!("takes vectors and matrices, not the scalar {scalar}; multiply by it with `*`");
        return Err(Error::new(ErrorKind::Shape, "matmul", message));
    }
    same_dtype("matmul", a, b)?;
    let (a_matrix, b_matrix) = (a.rank() > 1, b.rank() > 1);
    let (inner_l, inner_r) = (a.rank() - 1, if b_matrix { b.rank() - 2 } else { 0 });
    if a.shape[inner_l] != b.shape[inner_r] {
        return Err(inner_sizes("matmul", lhs, rhs, a.shape[inner_l], b.shape[inner_r])?);
    }
    let (a_batch, b_batch) = (a.rank().saturating_sub(2), b.rank().saturating_sub(2));
    let batch = a_batch.max(b_batch);
    // The positions of the dimensions that both operands have, without superfluous ones, and for each dimension of the product its axis in
    // the result.
    let (mut l_batch, mut r_batch) = (Shape::new(), Shape::new());
    let (mut l_ones, mut r_ones) = (Shape::new(), Shape::new());
    let (mut both, mut left, mut right) = (Shape::new(), Shape::new(), Shape::new());
    for axis in 0..batch {
        let l = (axis + a_batch).checked_sub(batch);
        let r = (axis + b_batch).checked_sub(batch);
        match (l, r) {
            (Some(l), Some(r)) if a.shape[l] == b.shape[r] => {
                l_batch.push(l - l_ones.len());
                r_batch.push(r - r_ones.len());
                both.push(axis);
            }
            (Some(l), Some(_)) if a.shape[l] == 1 => {
                l_ones.push(l);
                right.push(axis);
            }
            (Some(_), Some(r)) if b.shape[r] == 1 => {
                r_ones.push(r);
                left.push(axis);
            }
            (Some(l), Some(r)) => {
                let message = format!("{a} and {b} do not broadcast: {} and {} matrices", a.shape[l], b.shape[r]);
                return Err(Error::new(ErrorKind::Shape, "matmul", message));
            }
            (Some(_), None) => left.push(axis),
            (None, _) => right.push(axis),
        }
    }
    if a_matrix {
        left.push(batch);
    }
    if b_matrix {
        right.push(batch + usize::from(a_matrix));
    }
    let (inner_l, inner_r) = (inner_l - l_ones.len(), inner_r - r_ones.len());
    let (dtype, x, y) = (a.dtype, lhs.squeeze_dims(l_ones), rhs.squeeze_dims(r_ones));
    let out = contract(&x, &y, &[inner_l], &[inner_r], &l_batch, &r_batch, dtype);
    let axes: Shape = both.into_iter().chain(left).chain(right).collect();
    let mut order: Shape = (0..axes.len()).collect();
    order.sort_by_key(|&d| axes[d]);
    Ok(permute(&out, order))
}

fn inner_sizes(name: &str, lhs: &Tensor, rhs: &Tensor, l: usize, r: usize) -> Result<Error> {
    let (a, b) = (lhs.aval()?, rhs.aval()?);
    Ok(Error::new(ErrorKind::Shape, name, format!("the inner sizes of {a} and {b} differ: {l} and {r}")))
}
