//! Eigenvalues and eigenvectors of symmetric matrices, by the method of Jacobi: rotations make the matrix diagonal.
//!
//! Source: Golub and Van Loan, "Matrix Computations", section 8.5. Small eigenvalues have errors of a few units in the last place of the largest one.
//!
//! Elements below a threshold are left as they are, which falls with the sum of all squares beside the diagonal (Pope and Tompkins, "Maximizing functions
//! of rotations", J. ACM 4, 1957), but is never above what rounding makes of a zero. Else equal eigenvalues, whose elements are nothing but rounding, would be
//! rotated by large angles, which bring back what other rotations have made zero: of 64 eigenvalues that are 1 or -1, that takes more than 40 sweeps
//! instead of 18.

use remat_ir::{
    Atom, Binary, BroadcastInDim, Builder, Compare, DType, Literal, Pad, ReduceKind, Result, Scan, Shape, Unary,
};

use super::Importer;
use super::build::{
    along, binary, compare, diagonal, float, folded, indices, part, product, repeated, rows_in_order, select,
    transposed, unary,
};
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
    let Measured { is_needed, threshold } = measured(b, a)?;
    let results = sweeps(b, is_needed, &[pivots], &[threshold, a, vectors], |b, consts, carried| {
        let mut body = like(b.loc);
        let operands = [consts[0], carried[0], carried[1], carried[2]];
        let [pivots, threshold, a, vectors] = operands.map(|atom| body.input(b.aval(atom)));
        let outs = round(&mut body, pivots, threshold, a, vectors)?;
        let jaxpr = body.finish(outs.to_vec()).into();
        let scan = Scan { jaxpr, length: 2 * half - 1, num_consts: 2, num_carry: 2, reverse: false, unroll: 1 };
        let outs = b.emit(scan.into(), &operands)?;
        let a = symmetrised(b, outs[0])?;
        let Measured { is_needed, threshold } = measured(b, a)?;
        Ok((is_needed, vec![threshold, a, outs[1]]))
    })?;
    let vectors = part(b, results[2], rank - 2, 0, n)?;
    let vectors = part(b, vectors, rank - 1, 0, n)?;
    // The diagonal has the roundings of all rounds; Rayleigh's quotients have none of them.
    let images = product(b, vectors, 1, scaled.matrices, 0)?;
    let mut inner = |x, y| {
        let products = binary(b, Binary::Mul, x, y)?;
        folded(b, ReduceKind::Sum, products, 1)
    };
    let (above, below) = (inner(vectors, images)?, inner(vectors, vectors)?);
    let values = binary(b, Binary::Div, above, below)?;
    let [values, order] = sorted(b, values)?;
    let vectors = rows_in_order(b, vectors, order)?;
    let vectors = transposed(b, vectors)?;
    let values = scaled.restored(b, values)?;
    Ok(vec![scaled.checked(b, vectors)?, scaled.checked(b, values)?])
}

/// Where the elements that a round is about are after it.
fn pivots(b: &mut Builder, shape: &Shape) -> Result<Atom> {
    let (rank, half) = (shape.len(), shape[shape.len() - 1] / 2);
    let square: Shape = [2 * half, 2 * half].into_iter().collect();
    let [rows, columns] = indices(b, &square)?;
    let distance = binary(b, Binary::Sub, rows, columns)?;
    let distance = unary(b, Unary::Abs, distance)?;
    let mut is_pivot = compare(b, Compare::Eq, distance, Literal::from_i128(DType::I32, half as i128).into())?;
    for axis in 0..2 {
        let (first, second) = (part(b, is_pivot, axis, 0, half)?, part(b, is_pivot, axis, half, 2 * half)?);
        is_pivot = moved(b, first, second, axis)?;
    }
    let dims = [rank - 2, rank - 1].into_iter().collect();
    b.emit1(BroadcastInDim { shape: shape.clone(), dims }.into(), &[is_pivot])
}

/// One round: the matrices, and the eigenvectors so far as rows.
fn round(b: &mut Builder, pivots: Atom, threshold: Atom, a: Atom, vectors: Atom) -> Result<[Atom; 2]> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let (rank, half) = (shape.len(), shape[shape.len() - 1] / 2);
    let zero = float(dtype, 0.0);
    let values = diagonal(b, a, 0, 4 * half * half)?;
    let (p, q) = (part(b, values, rank - 2, 0, half)?, part(b, values, rank - 2, half, 2 * half)?);
    let r = diagonal(b, a, half, 2 * half * half)?;
    let magnitudes = unary(b, Unary::Abs, r)?;
    let most = repeated(b, threshold, &b.shape(r))?;
    let is_done = compare(b, Compare::Le, magnitudes, most)?;
    let by = rotations(b, p, q, r, is_done)?;
    let vectors = turned(b, vectors, rank - 2, &by)?;
    let a = turned(b, a, rank - 2, &by)?;
    let a = turned(b, a, rank - 1, &by)?;
    // What is known is not left to rounding.
    let change = binary(b, Binary::Mul, by.tangents, r)?;
    let (p, q) = (binary(b, Binary::Sub, p, change)?, binary(b, Binary::Add, q, change)?);
    let values = moved(b, p, q, rank - 2)?;
    let values = along(b, values, rank - 2, &shape)?;
    let r = select(b, is_done, r, zero)?;
    let others = moved(b, r, r, rank - 2)?;
    let others = along(b, others, rank - 2, &shape)?;
    let [rows, columns] = indices(b, &shape)?;
    let is_diagonal = compare(b, Compare::Eq, rows, columns)?;
    let a = select(b, pivots, others, a)?;
    Ok([select(b, is_diagonal, values, a)?, vectors])
}

/// The mean of matrices and their transposes.
fn symmetrised(b: &mut Builder, a: Atom) -> Result<Atom> {
    let mirrored = transposed(b, a)?;
    let sum = binary(b, Binary::Add, a, mirrored)?;
    binary(b, Binary::Mul, sum, float(b.dtype(a), 0.5))
}

/// How far matrices are from diagonal ones.
struct Measured {
    /// Whether one of them needs another sweep.
    is_needed: Atom,
    /// For each, the magnitude up to which the next sweep leaves elements as they are.
    threshold: Atom,
}

fn measured(b: &mut Builder, a: Atom) -> Result<Measured> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let (batch, n, unit) = (shape.len() - 2, shape[shape.len() - 1] as f64, epsilon(dtype));
    let squares = binary(b, Binary::Mul, a, a)?;
    let [rows, columns] = indices(b, &shape)?;
    let is_diagonal = compare(b, Compare::Eq, rows, columns)?;
    let others = select(b, is_diagonal, float(dtype, 0.0), squares)?;
    let mut norm = |squares| {
        let sum = folded(b, ReduceKind::Sum, squares, 2)?;
        unary(b, Unary::Sqrt, sum)
    };
    let (rest, all) = (norm(others)?, norm(squares)?);
    let most = binary(b, Binary::Mul, all, float(dtype, unit))?;
    let is_above = compare(b, Compare::Gt, rest, most)?;
    let is_needed = folded(b, ReduceKind::Or, is_above, batch)?;
    let falling = binary(b, Binary::Mul, rest, float(dtype, 0.1 / n))?;
    let of_rounding = binary(b, Binary::Mul, all, float(dtype, 4.0 * unit / n.sqrt()))?;
    Ok(Measured { is_needed, threshold: binary(b, Binary::Min, falling, of_rounding)? })
}
