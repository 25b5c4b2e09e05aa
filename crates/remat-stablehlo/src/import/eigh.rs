//! Eigenvalues and eigenvectors of symmetric matrices, by the method of Jacobi: rotations make the matrix diagonal.
//!
//! Source: Golub and Van Loan, "Matrix Computations", section 8.5. Small eigenvalues have errors of a few units in the last place of the largest one.

use remat_ir::{Atom, Aval, Binary, Builder, Compare, DType, Literal, Pad, ReduceKind, Result, Scan, Shape};

use super::Importer;
use super::build::{along, binary, compare, diagonal, float, folded, indices, part, rows_in_order, select, transposed};
use super::jacobi::{Scaled, epsilon, identities, like, moved, rotations, sorted, sweeps, turned};
use super::properties::Node;

impl<'a, 'm> Importer<'a, 'm> {
    /// `Eigh a`: the eigenvectors, as columns, and the eigenvalues from the smallest to the largest. Only the lower triangle of `a` is read, or the upper
    /// one if the configuration begins with 0. A matrix with an element that is not finite has NaNs; f16 and bf16 are computed in f32.
    pub(super) fn eigh(&mut self, node: Node<'a, 'm>, a: Atom) -> Result<Vec<Atom>> {
        let aval = self.matrices(node, a)?;
        let rank = aval.rank();
        if aval.shape[rank - 2] != aval.shape[rank - 1] {
            return Err(node.unsupported(format_args!("eigenvalues of {aval}, whose matrices are not square")));
        }
        let is_lower = !node.string("backend_config")?.starts_with(b"0");
        let of_values: Shape = aval.shape[..rank - 1].into();
        if aval.size() == 0 {
            return Ok(vec![a, self.reshape(a, of_values)?]);
        }
        let dtype = if aval.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let a = self.convert(a, dtype)?;
        let name = if is_lower { "eigh" } else { "eigh_upper" };
        let expand = |importer: &mut Self, a| eigenvalues(&mut importer.frames.top().builder, a, is_lower);
        let results = self.expansion(node, name, a, expand)?;
        results.into_iter().map(|result| self.convert(result, aval.dtype)).collect()
    }
}

fn eigenvalues(b: &mut Builder, a: Atom, is_lower: bool) -> Result<Vec<Atom>> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let (rank, n) = (shape.len(), shape[shape.len() - 1]);
    let [rows, columns] = indices(b, &shape)?;
    let is_read = compare(b, if is_lower { Compare::Ge } else { Compare::Le }, rows, columns)?;
    let mirrored = transposed(b, a)?;
    let a = select(b, is_read, a, mirrored)?;
    let scaled = Scaled::new(b, a)?;
    let mut a = scaled.matrices;
    if !n.is_multiple_of(2) {
        // A row and a column of zeros, which no rotation changes.
        let config = (0..rank).map(|d| (0, i64::from(d >= rank - 2), 0)).collect();
        a = b.emit1(Pad { config }.into(), &[a, float(dtype, 0.0)])?;
    }
    let even = b.shape(a);
    let half = even[rank - 1] / 2;
    let vectors = identities(b, dtype, &even)?;
    let pivots = pivots(b, &even)?;
    let results = sweeps(b, &[pivots], &[a, vectors], |b, consts, carried| {
        let mut body = like(b.loc);
        let avals: Vec<Aval> = [consts[0], carried[0], carried[1]].iter().map(|&atom| b.aval(atom)).collect();
        let [pivots, a, vectors] = [0, 1, 2].map(|i| body.input(avals[i].clone()));
        let outs = round(&mut body, pivots, a, vectors)?;
        let jaxpr = body.finish(outs.to_vec()).into();
        let scan = Scan { jaxpr, length: 2 * half - 1, num_consts: 1, num_carry: 2, reverse: false, unroll: 1 };
        let outs = b.emit(scan.into(), &[consts[0], carried[0], carried[1]])?;
        let (is_needed, a) = measured(b, outs[0])?;
        Ok((is_needed, vec![a, outs[1]]))
    })?;
    let values = diagonal(b, results[0], 0, 4 * half * half)?;
    let values = part(b, values, rank - 2, 0, n)?;
    let vectors = part(b, results[1], rank - 2, 0, n)?;
    let vectors = part(b, vectors, rank - 1, 0, n)?;
    let [values, order] = sorted(b, values)?;
    let vectors = rows_in_order(b, vectors, order)?;
    let vectors = transposed(b, vectors)?;
    let values = scaled.restored(b, values)?;
    Ok(vec![scaled.checked(b, vectors)?, scaled.checked(b, values)?])
}

/// Where the elements that a round makes 0 are after it.
fn pivots(b: &mut Builder, shape: &Shape) -> Result<Atom> {
    let (rank, half) = (shape.len(), shape[shape.len() - 1] / 2);
    let square: Shape = [2 * half, 2 * half].into_iter().collect();
    let [rows, columns] = indices(b, &square)?;
    let distance = binary(b, Binary::Sub, rows, columns)?;
    let distance = b.emit1(remat_ir::Unary::Abs.into(), &[distance])?;
    let mut is_pivot = compare(b, Compare::Eq, distance, Literal::from_i128(DType::I32, half as i128).into())?;
    for axis in 0..2 {
        let (first, second) = (part(b, is_pivot, axis, 0, half)?, part(b, is_pivot, axis, half, 2 * half)?);
        is_pivot = moved(b, first, second, axis)?;
    }
    let dims = [rank - 2, rank - 1].into_iter().collect();
    b.emit1(remat_ir::BroadcastInDim { shape: shape.clone(), dims }.into(), &[is_pivot])
}

/// One round: the matrices, and the eigenvectors so far as rows.
fn round(b: &mut Builder, pivots: Atom, a: Atom, vectors: Atom) -> Result<[Atom; 2]> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let (rank, half) = (shape.len(), shape[shape.len() - 1] / 2);
    let zero = float(dtype, 0.0);
    let values = diagonal(b, a, 0, 4 * half * half)?;
    let (p, q) = (part(b, values, rank - 2, 0, half)?, part(b, values, rank - 2, half, 2 * half)?);
    let r = diagonal(b, a, half, 2 * half * half)?;
    let is_done = compare(b, Compare::Eq, r, zero)?;
    let by = rotations(b, p, q, r, is_done)?;
    let vectors = turned(b, vectors, rank - 2, &by)?;
    let a = turned(b, a, rank - 2, &by)?;
    let a = turned(b, a, rank - 1, &by)?;
    // What is known is not left to rounding, without which equal eigenvalues would never be done.
    let change = binary(b, Binary::Mul, by.tangents, r)?;
    let (p, q) = (binary(b, Binary::Sub, p, change)?, binary(b, Binary::Add, q, change)?);
    let values = moved(b, p, q, rank - 2)?;
    let values = along(b, values, rank - 2, &shape)?;
    let [rows, columns] = indices(b, &shape)?;
    let is_diagonal = compare(b, Compare::Eq, rows, columns)?;
    let a = select(b, pivots, zero, a)?;
    Ok([select(b, is_diagonal, values, a)?, vectors])
}

/// Whether a matrix is not diagonal yet, and the matrices, made symmetric again.
fn measured(b: &mut Builder, a: Atom) -> Result<(Atom, Atom)> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let mirrored = transposed(b, a)?;
    let sum = binary(b, Binary::Add, a, mirrored)?;
    let a = binary(b, Binary::Mul, sum, float(dtype, 0.5))?;
    let squares = binary(b, Binary::Mul, a, a)?;
    let [rows, columns] = indices(b, &shape)?;
    let is_diagonal = compare(b, Compare::Eq, rows, columns)?;
    let others = select(b, is_diagonal, float(dtype, 0.0), squares)?;
    let (rest, all) = (folded(b, ReduceKind::Sum, others, 2)?, folded(b, ReduceKind::Sum, squares, 2)?);
    let most = binary(b, Binary::Mul, all, float(dtype, epsilon(dtype) * epsilon(dtype)))?;
    let is_above = compare(b, Compare::Gt, rest, most)?;
    let batch = shape.len() - 2;
    Ok((folded(b, ReduceKind::Or, is_above, batch)?, a))
}
