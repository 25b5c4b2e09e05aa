//! Singular values and vectors, by the one-sided method of Jacobi: rotations make the rows of a matrix orthogonal.
//!
//! A matrix is factorised first, its longest columns in front. The rotations are those of the triangular matrix, which is smaller, and takes at most half as
//! many sweeps where singular values differ much. Sources: Hestenes, "Inversion of matrices by biorthogonalization and related results", J. SIAM 6
//! (1958); Drmač and Veselić, "New fast and accurate Jacobi SVD algorithm", SIAM J. Matrix Anal. Appl. 29 (2008).

use remat_ir::{Atom, Aval, Binary, Builder, Compare, DType, Literal, Pad, ReduceKind, Result, Scan, Shape, Unary};

use super::Importer;
use super::build::{
    along, binary, compare, concatenated, diagonal, float, folded, indices, part, product, rows_in_order, select,
    transposed, unary,
};
use super::jacobi::{Scaled, epsilon, identities, like, rotations, sorted, sweeps, turned};
use super::properties::Node;

/// What is asked for beside the singular values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vectors {
    None,
    /// As many as there are singular values.
    Some,
    /// A basis of each side.
    All,
}

impl<'a, 'm> Importer<'a, 'm> {
    /// `Svd a`: the singular values from the largest to the smallest; with three results also the left vectors as columns and the right ones as rows,
    /// as many as the results have. A matrix with an element that is not finite has NaNs; f16 and bf16 are computed in f32.
    pub(super) fn svd(&mut self, node: Node<'a, 'm>, a: Atom) -> Result<Vec<Atom>> {
        let aval = self.matrices(node, a)?;
        let rank = aval.rank();
        let (rows, columns) = (aval.shape[rank - 2], aval.shape[rank - 1]);
        let vectors = match &node.result_avals()?[..] {
            [_] => Vectors::None,
            [_, left, right]
                if left.shape.last() == Some(&rows) && right.shape.iter().nth_back(1) == Some(&columns) =>
            {
                Vectors::All
            }
            _ => Vectors::Some,
        };
        self.expansion(node, "svd", a, |importer, a| importer.decomposed(node, a, vectors))
    }

    fn decomposed(&mut self, node: Node<'a, 'm>, a: Atom, vectors: Vectors) -> Result<Vec<Atom>> {
        let aval = self.aval(a);
        let rank = aval.rank();
        let (rows, columns) = (aval.shape[rank - 2], aval.shape[rank - 1]);
        let dtype = if aval.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut a = self.convert(a, dtype)?;
        if rows < columns {
            a = self.transposed(a)?;
        }
        let mut results =
            if rows.min(columns) == 0 { self.of_nothing(a, vectors)? } else { self.singular_values(node, a, vectors)? };
        if let (true, [_, left, right]) = (rows < columns, &mut results[..]) {
            (*left, *right) = (self.transposed(*right)?, self.transposed(*left)?);
        }
        results.into_iter().map(|result| self.convert(result, aval.dtype)).collect()
    }

    /// The results for matrices without columns: no singular values, and an identity as the basis.
    fn of_nothing(&mut self, a: Atom, vectors: Vectors) -> Result<Vec<Atom>> {
        let aval = self.aval(a);
        let rank = aval.rank();
        let sized = |last: &[usize]| -> Shape { aval.shape[..rank - 2].iter().chain(last).copied().collect() };
        let rows = aval.shape[rank - 2];
        let values = self.reshape(a, sized(&[0]))?;
        if vectors == Vectors::None {
            return Ok(vec![values]);
        }
        let right = self.reshape(a, sized(&[0, 0]))?;
        let b = &mut self.frames.top().builder;
        let left = if vectors == Vectors::All { identities(b, aval.dtype, &sized(&[rows, rows]))? } else { a };
        Ok(vec![values, left, right])
    }

    /// The results for matrices with at least as many rows as columns, and with columns.
    fn singular_values(&mut self, node: Node<'a, 'm>, a: Atom, vectors: Vectors) -> Result<Vec<Atom>> {
        let aval = self.aval(a);
        let rank = aval.rank();
        let n = aval.shape[rank - 1];
        let b = &mut self.frames.top().builder;
        let scaled = Scaled::new(b, a)?;
        let (a, order) = longest_first(b, scaled.matrices)?;
        let [factors, taus] = self.householder(node, a)?;
        let b = &mut self.frames.top().builder;
        let triangular = upper(b, factors)?;
        let [values, orthogonal, turns] = orthogonalised(b, triangular, vectors != Vectors::None)?;
        let restored = scaled.restored(b, values)?;
        let values = scaled.checked(b, restored)?;
        if vectors == Vectors::None {
            return Ok(vec![values]);
        }
        let left = self.left_vectors(node, factors, taus, turns, vectors)?;
        let left = scaled.checked(&mut self.frames.top().builder, left)?;
        // The orthogonal rows by their lengths, where they have one that counts, and a basis with them elsewhere.
        let columns = self.transposed(orthogonal)?;
        let [factors, taus] = self.householder(node, columns)?;
        let basis = self.reflections(node, factors, taus)?;
        let b = &mut self.frames.top().builder;
        let signs = diagonal(b, factors, 0, n * n)?;
        let is_negative = compare(b, Compare::Lt, signs, float(aval.dtype, 0.0))?;
        let is_negative = along(b, is_negative, rank - 1, &b.shape(basis))?;
        let minus = unary(b, Unary::Neg, basis)?;
        let basis = select(b, is_negative, minus, basis)?;
        // Its rows belong to the columns of the matrix, which were sorted.
        let [_, places] = sorted(b, order)?;
        let basis = rows_in_order(b, basis, places)?;
        let right = transposed(b, basis)?;
        Ok(vec![values, left, scaled.checked(b, right)?])
    }

    /// The product of the orthogonal matrix of a factorisation and the transpose of `turns`, and the columns that complete it to a basis if they are asked
    /// for.
    fn left_vectors(
        &mut self,
        node: Node<'a, 'm>,
        factors: Atom,
        taus: Atom,
        turns: Atom,
        vectors: Vectors,
    ) -> Result<Atom> {
        let aval = self.aval(factors);
        let rank = aval.rank();
        let (rows, n) = (aval.shape[rank - 2], aval.shape[rank - 1]);
        let has_rest = vectors == Vectors::All && rows > n;
        let mut factors = factors;
        if has_rest {
            let config = (0..rank).map(|d| (0, if d == rank - 1 { (rows - n) as i64 } else { 0 }, 0)).collect();
            factors = self.emit(Pad { config }, &[factors, float(aval.dtype, 0.0)])?;
        }
        let q = self.reflections(node, factors, taus)?;
        let b = &mut self.frames.top().builder;
        let first = part(b, q, rank - 1, 0, n)?;
        let first = product(b, first, 1, turns, 1)?;
        if !has_rest {
            return Ok(first);
        }
        let rest = part(b, q, rank - 1, n, rows)?;
        concatenated(b, rank - 1, &[first, rest])
    }
}

/// The columns of matrices from the longest to the shortest, and their order: the rows of the triangular factor then become shorter, too.
fn longest_first(b: &mut Builder, a: Atom) -> Result<(Atom, Atom)> {
    let columns = transposed(b, a)?;
    let squares = binary(b, Binary::Mul, columns, columns)?;
    let lengths = folded(b, ReduceKind::Sum, squares, 1)?;
    let keys = unary(b, Unary::Neg, lengths)?;
    let [_, order] = sorted(b, keys)?;
    let columns = rows_in_order(b, columns, order)?;
    Ok((transposed(b, columns)?, order))
}

/// The first rows of factorised matrices, with zeros below the diagonal.
fn upper(b: &mut Builder, factors: Atom) -> Result<Atom> {
    let shape = b.shape(factors);
    let rank = shape.len();
    let square = part(b, factors, rank - 2, 0, shape[rank - 1])?;
    let [rows, columns] = indices(b, &b.shape(square))?;
    let is_above = compare(b, Compare::Le, rows, columns)?;
    select(b, is_above, square, float(b.dtype(factors), 0.0))
}

/// The lengths of the rows of `turns a`, from the largest to the smallest, these rows, which are orthogonal, and `turns`, an orthogonal matrix; the
/// last one is without meaning unless it is asked for.
fn orthogonalised(b: &mut Builder, a: Atom, has_turns: bool) -> Result<[Atom; 3]> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let (rank, n) = (shape.len(), shape[shape.len() - 1]);
    let mut rows = a;
    if has_turns {
        let turns = identities(b, dtype, &shape)?;
        rows = concatenated(b, rank - 1, &[a, turns])?;
    }
    if !n.is_multiple_of(2) {
        // A row of zeros, which no rotation changes.
        let config = (0..rank).map(|d| (0, i64::from(d == rank - 2), 0)).collect();
        rows = b.emit1(Pad { config }.into(), &[rows, float(dtype, 0.0)])?;
    }
    let length = n.next_multiple_of(2) - 1;
    let is_needed = Literal::from_bool(true).into();
    let results = sweeps(b, is_needed, &[], &[rows], |b, _, carried| {
        let mut body = like(b.loc);
        let is_needed = body.input(Aval::scalar(DType::Bool));
        let rows = body.input(b.aval(carried[0]));
        let (more, rows) = round(&mut body, rows, n)?;
        let is_needed = binary(&mut body, Binary::Or, is_needed, more)?;
        let jaxpr = body.finish(vec![is_needed, rows]).into();
        let scan = Scan { jaxpr, length, num_consts: 0, num_carry: 2, reverse: false, unroll: 1 };
        let outs = b.emit(scan.into(), &[Literal::from_bool(false).into(), carried[0]])?;
        Ok((outs[0], vec![outs[1]]))
    })?;
    let rows = part(b, results[0], rank - 2, 0, n)?;
    let orthogonal = part(b, rows, rank - 1, 0, n)?;
    let squares = binary(b, Binary::Mul, orthogonal, orthogonal)?;
    let squares = folded(b, ReduceKind::Sum, squares, 1)?;
    let lengths = unary(b, Unary::Sqrt, squares)?;
    let keys = unary(b, Unary::Neg, lengths)?;
    let [keys, order] = sorted(b, keys)?;
    let values = unary(b, Unary::Abs, keys)?;
    let rows = rows_in_order(b, rows, order)?;
    let orthogonal = part(b, rows, rank - 1, 0, n)?;
    let turns = if has_turns { part(b, rows, rank - 1, n, 2 * n)? } else { orthogonal };
    Ok([values, orthogonal, turns])
}

/// One round: whether two rows were not orthogonal yet, and the rows. The first `n` columns decide, and the others are rotated with them.
fn round(b: &mut Builder, rows: Atom, n: usize) -> Result<(Atom, Atom)> {
    let (shape, dtype) = (b.shape(rows), b.dtype(rows));
    let (rank, half) = (shape.len(), shape[shape.len() - 2] / 2);
    let deciding = part(b, rows, rank - 1, 0, n)?;
    let (first, second) = (part(b, deciding, rank - 2, 0, half)?, part(b, deciding, rank - 2, half, 2 * half)?);
    let mut inner = |x, y| {
        let products = binary(b, Binary::Mul, x, y)?;
        folded(b, ReduceKind::Sum, products, 1)
    };
    let (p, q, r) = (inner(first, first)?, inner(second, second)?, inner(first, second)?);
    // Rows below the square of a unit in the last place of the largest one are as good as zero.
    let unit = epsilon(dtype);
    let smaller = binary(b, Binary::Min, p, q)?;
    let counts = compare(b, Compare::Gt, smaller, float(dtype, unit.powi(4)))?;
    let (of_p, of_q) = (unary(b, Unary::Sqrt, p)?, unary(b, Unary::Sqrt, q)?);
    let lengths = binary(b, Binary::Mul, of_p, of_q)?;
    let most = binary(b, Binary::Mul, lengths, float(dtype, unit * (n as f64).sqrt()))?;
    let magnitude = unary(b, Unary::Abs, r)?;
    let is_oblique = compare(b, Compare::Gt, magnitude, most)?;
    let is_needed = binary(b, Binary::And, counts, is_oblique)?;
    let is_done = unary(b, Unary::Not, is_needed)?;
    let by = rotations(b, p, q, r, is_done)?;
    let rows = turned(b, rows, rank - 2, &by)?;
    Ok((folded(b, ReduceKind::Or, is_needed, rank - 1)?, rows))
}
