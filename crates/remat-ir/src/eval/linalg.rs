//! Linear systems and factorisations of matrices, by the loops that define them.

use num_traits::Float;

use super::number::{FloatElement, Real, with_float};
use super::{elements, internal, result_aval};
use crate::{Array, Cholesky, Element, Operation, Result, TriangularSolve};

/// Substitutes forwards, or backwards.
pub(super) fn triangular_solve(op: &TriangularSolve, ins: &[Array]) -> Result<Array> {
    let aval = result_aval(op, ins)?;
    with_float!(aval.dtype, T => {
        let (a, b) = (elements::<T>(&ins[0])?, elements::<T>(&ins[1])?);
        let n = aval.shape[aval.rank() - if op.left_side { 2 } else { 1 }];
        let columns = aval.shape[aval.rank() - if op.left_side { 1 } else { 2 }];
        let mut x: Vec<_> = b.iter().map(|&b| b.widen()).collect();
        if !x.is_empty() {
            for (a, x) in a.chunks(n * n).zip(x.chunks_mut(n * columns)) {
                substitute(op, n, columns, a, x);
            }
        }
        Array::new(aval, T::wrap(x.into_iter().map(T::narrow).collect()))
    }, else internal(op.name(), &ins[1]))
}

/// Solves the systems of one matrix. Each system is a column of `x` if the matrix is on the left, else a row.
fn substitute<T: FloatElement>(op: &TriangularSolve, n: usize, columns: usize, a: &[T], x: &mut [T::Wide]) {
    // `x a = b` is solved as `aᵀ xᵀ = bᵀ`.
    let is_transposed = op.transpose_a == op.left_side;
    let (row, column) = if is_transposed { (1, n) } else { (n, 1) };
    let (unknown, system) = if op.left_side { (columns, 1) } else { (1, n) };
    let position = |step: usize| if op.lower != is_transposed { step } else { n - 1 - step };
    for first in (0..columns).map(|j| j * system) {
        for step in 0..n {
            let i = position(step);
            let mut sum = x[first + i * unknown];
            for k in (0..step).map(position) {
                sum = sum - a[i * row + k * column].widen() * x[first + k * unknown];
            }
            x[first + i * unknown] = if op.unit_diagonal { sum } else { sum / a[i * (n + 1)].widen() };
        }
    }
}

/// Factors each matrix.
pub(super) fn cholesky(op: &Cholesky, ins: &[Array]) -> Result<Array> {
    let aval = result_aval(op, ins)?;
    let n = aval.shape.last().copied().unwrap_or(1);
    with_float!(aval.dtype, T => {
        let a = elements::<T>(&ins[0])?;
        let factors = if a.is_empty() { Vec::new() } else { a.chunks(n * n).flat_map(|a| factor(n, a)).collect() };
        Array::new(aval, T::wrap(factors))
    }, else internal(op.name(), &ins[0]))
}

/// The factor of one matrix, column by column.
fn factor<T: FloatElement>(n: usize, a: &[T]) -> Vec<T> {
    let mut l = vec![T::Wide::ZERO; n * n];
    for j in 0..n {
        for i in j..n {
            let products = (0..j).map(|k| l[i * n + k] * l[j * n + k]);
            let rest = products.fold(a[i * n + j].widen(), |rest, product| rest - product);
            if i > j {
                l[i * n + j] = rest / l[j * n + j];
            } else if rest > T::Wide::ZERO {
                l[j * n + j] = rest.sqrt();
            } else {
                // A pivot that is not positive, or NaN.
                let nan = T::Wide::nan();
                let fill = |at: usize| if at % n <= at / n { nan } else { T::Wide::ZERO };
                return (0..n * n).map(|at| T::narrow(fill(at))).collect();
            }
        }
    }
    l.into_iter().map(T::narrow).collect()
}
