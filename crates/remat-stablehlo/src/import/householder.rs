//! The orthogonal factorisation of a matrix by Householder reflections, in LAPACK's form, as a scan over columns.
//!
//! Reflection `j` is `1 - tau v vᵀ`, where `v` is 0 above row `j` and 1 there. The factorisation has `R` in its upper triangle and the rest of each
//! `v` below it. Source: Golub and Van Loan, "Matrix Computations", section 5.2; LAPACK's `geqrf` and `orgqr`.

use remat_ir::{
    Atom, Aval, Binary, BroadcastInDim, Builder, Compare, DType, DotGeneral, Iota, Literal, Reduce, ReduceKind, Result,
    Scan, SelectN, Shape, Transpose, Unary,
};

use super::Importer;
use super::properties::Node;

/// A program for matrices of one shape.
struct Matrices {
    b: Builder,
    dtype: DType,
    /// Those of the batch, then rows and columns.
    shape: Shape,
}

impl Matrices {
    fn new(aval: &Aval, loc: remat_ir::Loc) -> Matrices {
        let mut b = Builder::new();
        b.loc = loc;
        Matrices { b, dtype: aval.dtype, shape: aval.shape.clone() }
    }

    fn float(&self, value: f64) -> Atom {
        Literal::from_f64(self.dtype, value).into()
    }

    fn emit(&mut self, op: impl Into<remat_ir::Op>, ins: &[Atom]) -> Result<Atom> {
        self.b.emit1(op.into(), ins)
    }

    fn select(&mut self, which: Atom, yes: Atom, no: Atom) -> Result<Atom> {
        self.emit(SelectN, &[which, no, yes])
    }

    /// The number of the row of each element, or of the column, of an array of the first `rank` dimensions.
    fn index(&mut self, rank: usize, axis: usize) -> Result<Atom> {
        let shape = self.shape[..rank].iter().copied().collect();
        self.emit(Iota { dtype: DType::I32, shape, axis }, &[])
    }

    /// One number of each matrix for each row.
    fn for_rows(&mut self, x: Atom) -> Result<Atom> {
        let rows = self.shape.len() - 1;
        let shape = self.shape[..rows].iter().copied().collect();
        self.emit(BroadcastInDim { shape, dims: (0..rows - 1).collect() }, &[x])
    }

    /// One number of each row for each column.
    fn for_columns(&mut self, x: Atom) -> Result<Atom> {
        let dims = (0..self.shape.len() - 1).collect();
        self.emit(BroadcastInDim { shape: self.shape.clone(), dims }, &[x])
    }

    /// The sum over the last dimension.
    fn sum(&mut self, x: Atom) -> Result<Atom> {
        let axis = self.b.shape(x).len() - 1;
        self.emit(Reduce { kind: ReduceKind::Sum, axes: [axis].into_iter().collect() }, &[x])
    }

    /// The largest magnitude among two parts of a column, or 1 if all numbers are 0.
    fn largest(&mut self, at: Atom, below: Atom) -> Result<Atom> {
        let axis = self.b.shape(at).len() - 1;
        let both = self.emit(Binary::Add, &[at, below])?;
        let magnitudes = self.emit(Unary::Abs, &[both])?;
        let largest = self.emit(Reduce { kind: ReduceKind::Max, axes: [axis].into_iter().collect() }, &[magnitudes])?;
        let is_zero = self.emit(Compare::Eq, &[largest, self.float(0.0)])?;
        self.select(is_zero, self.float(1.0), largest)
    }

    /// Column `j`.
    fn column(&mut self, a: Atom, j: Atom) -> Result<Atom> {
        let rank = self.shape.len();
        let columns = self.index(rank, rank - 1)?;
        let is_it = self.emit(Compare::Eq, &[columns, j])?;
        let alone = self.select(is_it, a, self.float(0.0))?;
        self.sum(alone)
    }

    /// `a - tau v vᵀ a`.
    fn reflected(&mut self, a: Atom, v: Atom, tau: Atom) -> Result<Atom> {
        let rank = self.shape.len();
        let (batch, rows): (Shape, Shape) = ((0..rank - 2).collect(), [rank - 2].into_iter().collect());
        let op = DotGeneral {
            lhs_contract: rows.clone(),
            rhs_contract: rows,
            lhs_batch: batch.clone(),
            rhs_batch: batch.clone(),
            preferred_element_type: self.dtype,
        };
        let products = self.emit(op, &[v, a])?;
        let (shape, dims) = (self.b.shape(products), batch.clone());
        let tau = self.emit(BroadcastInDim { shape, dims }, &[tau])?;
        let scaled = self.emit(Binary::Mul, &[products, tau])?;
        let dims = batch.into_iter().chain([rank - 1]).collect();
        let scaled = self.emit(BroadcastInDim { shape: self.shape.clone(), dims }, &[scaled])?;
        let v = self.for_columns(v)?;
        let change = self.emit(Binary::Mul, &[v, scaled])?;
        self.emit(Binary::Sub, &[a, change])
    }

    /// One step of the factorisation: the matrices after it, and the factors of the reflections.
    fn factor(&mut self, a: Atom, j: Atom) -> Result<[Atom; 2]> {
        let rank = self.shape.len();
        let (zero, one) = (self.float(0.0), self.float(1.0));
        let rows = self.index(rank - 1, rank - 2)?;
        let columns = self.index(rank, rank - 1)?;
        let column = self.column(a, j)?;
        let (is_at, is_below) = (self.emit(Compare::Eq, &[rows, j])?, self.emit(Compare::Gt, &[rows, j])?);
        let at = self.select(is_at, column, zero)?;
        let below = self.select(is_below, column, zero)?;
        // Squares of very small or very large numbers are 0 or infinite: the column is divided by its largest number first, which but for
        // rounding changes neither `v` nor `tau`. What is then too small for a square is too small to change the others.
        let largest = self.largest(at, below)?;
        let first = self.sum(at)?;
        let alpha = self.emit(Binary::Div, &[first, largest])?;
        let divisor = self.for_rows(largest)?;
        let below = self.emit(Binary::Div, &[below, divisor])?;
        let squares = self.emit(Binary::Mul, &[below, below])?;
        let sigma = self.sum(squares)?;
        let square = self.emit(Binary::Mul, &[alpha, alpha])?;
        let total = self.emit(Binary::Add, &[square, sigma])?;
        let norm = self.emit(Unary::Sqrt, &[total])?;
        let minus = self.emit(Unary::Neg, &[norm])?;
        let is_positive = self.emit(Compare::Ge, &[alpha, zero])?;
        // The sign that does not cancel.
        let mirrored = self.select(is_positive, minus, norm)?;
        // A column that is zero below stays as it is.
        let is_done = self.emit(Compare::Eq, &[sigma, zero])?;
        let beta = self.emit(Binary::Mul, &[mirrored, largest])?;
        let beta = self.select(is_done, first, beta)?;
        let distance = self.emit(Binary::Sub, &[mirrored, alpha])?;
        let tau = self.emit(Binary::Div, &[distance, mirrored])?;
        let tau = self.select(is_done, zero, tau)?;
        let minus = self.emit(Unary::Neg, &[distance])?;
        let scale = self.emit(Binary::Div, &[one, minus])?;
        let scale = self.select(is_done, zero, scale)?;
        let scale = self.for_rows(scale)?;
        let rest = self.emit(Binary::Mul, &[below, scale])?;
        let v = self.select(is_at, one, rest)?;
        let reflected = self.reflected(a, v, tau)?;
        let beta = self.for_rows(beta)?;
        let above = self.select(is_below, rest, column)?;
        let column = self.select(is_at, beta, above)?;
        let column = self.for_columns(column)?;
        let (is_it, is_later) = (self.emit(Compare::Eq, &[columns, j])?, self.emit(Compare::Gt, &[columns, j])?);
        let before = self.select(is_it, column, a)?;
        Ok([self.select(is_later, reflected, before)?, tau])
    }

    /// Reflection `j` of a factorisation, applied to other matrices.
    fn apply(&mut self, a: Atom, q: Atom, tau: Atom, j: Atom) -> Result<Atom> {
        let rank = self.shape.len();
        let rows = self.index(rank - 1, rank - 2)?;
        let column = self.column(a, j)?;
        let (is_at, is_below) = (self.emit(Compare::Eq, &[rows, j])?, self.emit(Compare::Gt, &[rows, j])?);
        let below = self.select(is_below, column, self.float(0.0))?;
        let v = self.select(is_at, self.float(1.0), below)?;
        self.reflected(q, v, tau)
    }
}

impl<'a, 'm> Importer<'a, 'm> {
    /// The factorisation of matrices, and the factor of each reflection.
    pub(super) fn householder(&mut self, node: Node<'a, 'm>, a: Atom) -> Result<[Atom; 2]> {
        let aval = self.matrices(node, a)?;
        let rank = aval.rank();
        let length = aval.shape[rank - 2].min(aval.shape[rank - 1]);
        let mut body = Matrices::new(&aval, self.frames.top().builder.loc);
        let j = body.b.input(Aval::scalar(DType::I32));
        let carried = body.b.input(aval);
        let [after, tau] = body.factor(carried, j)?;
        let next = body.emit(Binary::Add, &[j, Literal::from_i128(DType::I32, 1).into()])?;
        let jaxpr = body.b.finish(vec![next, after, tau]).into();
        let scan = Scan { jaxpr, length, num_consts: 0, num_carry: 2, reverse: false, unroll: 1 };
        let results = self.emit_all(scan, &[Literal::from_i128(DType::I32, 0).into(), a])?;
        // The factors of one matrix lie in one row.
        let permutation = (1..rank - 1).chain([0]).collect();
        let taus = self.emit(Transpose { permutation }, &[results[2]])?;
        Ok([results[1], taus])
    }

    /// The product of the reflections of a factorisation: its first columns.
    pub(super) fn reflections(&mut self, node: Node<'a, 'm>, a: Atom, taus: Atom) -> Result<Atom> {
        let (aval, of_taus) = (self.matrices(node, a)?, self.aval(taus));
        let rank = aval.rank();
        let length = of_taus.shape.last().copied().unwrap_or_default();
        if of_taus.rank() + 1 != rank
            || length > aval.shape[rank - 1].min(aval.shape[rank - 2])
            || of_taus.dtype != aval.dtype
        {
            return Err(node.malformed(format_args!("{of_taus} are no factors of the reflections of {aval}")));
        }
        let permutation = [rank - 2].into_iter().chain(0..rank - 2).collect();
        let stacked = self.emit(Transpose { permutation }, &[taus])?;
        let index = |axis| Iota { dtype: DType::I32, shape: aval.shape.clone(), axis };
        let (rows, columns) = (self.emit(index(rank - 2), &[])?, self.emit(index(rank - 1), &[])?);
        let is_diagonal = self.emit(Compare::Eq, &[rows, columns])?;
        let identity = self.convert(is_diagonal, aval.dtype)?;
        let mut body = Matrices::new(&aval, self.frames.top().builder.loc);
        let factors = body.b.input(aval.clone());
        let j = body.b.input(Aval::scalar(DType::I32));
        let q = body.b.input(aval.clone());
        let tau = body.b.input(aval.with_shape(aval.shape[..rank - 2].iter().copied()));
        let after = body.apply(factors, q, tau, j)?;
        let next = body.emit(Binary::Sub, &[j, Literal::from_i128(DType::I32, 1).into()])?;
        let jaxpr = body.b.finish(vec![next, after]).into();
        let scan = Scan { jaxpr, length, num_consts: 1, num_carry: 2, reverse: true, unroll: 1 };
        let last = Literal::from_i128(DType::I32, length as i128 - 1).into();
        let results = self.emit_all(scan, &[a, last, identity, stacked])?;
        Ok(results[1])
    }

    /// The aval of matrices of floats.
    pub(super) fn matrices(&mut self, node: Node<'a, 'm>, a: Atom) -> Result<Aval> {
        let aval = self.aval(a);
        if aval.rank() < 2 || !aval.dtype.is_float() {
            return Err(node.unsupported(format_args!("a factorisation of {aval}")));
        }
        Ok(aval)
    }
}
