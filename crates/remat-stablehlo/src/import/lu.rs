//! Triangular factorisation of matrices with row exchanges, as a scan over columns.
//!
//! Source: Golub and Van Loan, "Matrix Computations", section 3.4: outer products, the largest element of a column as its pivot, the first one of equals.

use remat_ir::{
    ArgKind, ArgReduce, Atom, Aval, Binary, Builder, Compare, DType, Iota, Literal, Reduce, ReduceKind, Result, Scan,
    Shape, Transpose, Unary,
};

use super::Importer;
use super::build::{along, binary, compare, float, folded, indices, repeated, select, unary};
use super::jacobi::like;
use super::properties::Node;

impl<'a, 'm> Importer<'a, 'm> {
    /// `LuDecomposition a`: both factors in one matrix, where the lower one has a diagonal of ones that is not stored; for each column the row that it was
    /// exchanged with (i32); and the order of the rows of `a` in the product (i32).
    pub(super) fn lu(&mut self, node: Node<'a, 'm>, a: Atom) -> Result<Vec<Atom>> {
        self.matrices(node, a)?;
        self.expansion(node, "lu", a, |importer, a| factorised(&mut importer.frames.top().builder, a))
    }
}

fn factorised(b: &mut Builder, a: Atom) -> Result<Vec<Atom>> {
    let aval = b.aval(a);
    let rank = aval.rank();
    let of_rows: Shape = aval.shape[..rank - 1].into();
    let length = aval.shape[rank - 2].min(aval.shape[rank - 1]);
    let mut index = |shape| b.emit1(Iota { dtype: DType::I32, shape, axis: rank - 2 }.into(), &[]);
    let order = index(of_rows)?;
    if length == 0 {
        let of_pivots = aval.shape[..rank - 2].iter().copied().chain([0]).collect();
        return Ok(vec![a, index(of_pivots)?, order]);
    }
    let mut body = like(b.loc);
    let [j, carried, rows] = [Aval::scalar(DType::I32), aval.clone(), b.aval(order)].map(|aval| body.input(aval));
    let outs = eliminate(&mut body, j, carried, rows)?;
    let jaxpr = body.finish(outs.to_vec()).into();
    let scan = Scan { jaxpr, length, num_consts: 0, num_carry: 3, reverse: false, unroll: 1 };
    let results = b.emit(scan.into(), &[Literal::from_i128(DType::I32, 0).into(), a, order])?;
    // The pivots of one matrix lie in one row.
    let permutation = (1..rank - 1).chain([0]).collect();
    let pivots = b.emit1(Transpose { permutation }.into(), &[results[3]])?;
    Ok(vec![results[1], pivots, results[2]])
}

/// One step: the next column, the matrices after column `j`, the order of their rows, and the row of the pivot.
fn eliminate(b: &mut Builder, j: Atom, a: Atom, order: Atom) -> Result<[Atom; 4]> {
    let (shape, dtype) = (b.shape(a), b.dtype(a));
    let rank = shape.len();
    let of_rows: Shape = shape[..rank - 1].into();
    let (zero, none) = (float(dtype, 0.0), Literal::from_i128(DType::I32, 0).into());
    let [rows, columns] = indices(b, &shape)?;
    let row = b.emit1(Iota { dtype: DType::I32, shape: of_rows.clone(), axis: rank - 2 }.into(), &[])?;
    let is_column = compare(b, Compare::Eq, columns, j)?;
    let column = select(b, is_column, a, zero)?;
    let column = folded(b, ReduceKind::Sum, column, 1)?;
    let magnitude = unary(b, Unary::Abs, column)?;
    let is_left = compare(b, Compare::Ge, row, j)?;
    let magnitude = select(b, is_left, magnitude, float(dtype, -1.0))?;
    let largest = ArgReduce { kind: ArgKind::Max, axis: rank - 2, index_dtype: DType::I32 };
    let pivot = b.emit1(largest.into(), &[magnitude])?;
    // The rows `j` and `pivot` change places.
    let pivots = repeated(b, pivot, &shape)?;
    let (is_first, is_pivot) = (compare(b, Compare::Eq, rows, j)?, compare(b, Compare::Eq, rows, pivots)?);
    let mut row_where = |which| {
        let alone = select(b, which, a, zero)?;
        let sum = Reduce { kind: ReduceKind::Sum, axes: [rank - 2].into_iter().collect() };
        let values = b.emit1(sum.into(), &[alone])?;
        Ok::<_, remat_ir::Error>((values, along(b, values, rank - 1, &shape)?))
    };
    let ((_, first), (values, upper)) = (row_where(is_first)?, row_where(is_pivot)?);
    let exchanged = select(b, is_pivot, first, a)?;
    let exchanged = select(b, is_first, upper, exchanged)?;
    let pivots = repeated(b, pivot, &of_rows)?;
    let (is_first, is_pivot) = (compare(b, Compare::Eq, row, j)?, compare(b, Compare::Eq, row, pivots)?);
    let mut exchange = |x, nothing| {
        let mut value_where = |which| {
            let alone = select(b, which, x, nothing)?;
            let value = folded(b, ReduceKind::Sum, alone, 1)?;
            repeated(b, value, &of_rows)
        };
        let (first, other) = (value_where(is_first)?, value_where(is_pivot)?);
        let exchanged = select(b, is_pivot, first, x)?;
        select(b, is_first, other, exchanged)
    };
    let (order, column) = (exchange(order, none)?, exchange(column, zero)?);
    // The rows below lose a multiple of row `j`; nothing of a column of zeros.
    let of_columns = b.shape(values);
    let index = b.emit1(Iota { dtype: DType::I32, shape: of_columns, axis: rank - 2 }.into(), &[])?;
    let is_diagonal = compare(b, Compare::Eq, index, j)?;
    let diagonal = select(b, is_diagonal, values, zero)?;
    let diagonal = folded(b, ReduceKind::Sum, diagonal, 1)?;
    let diagonal = repeated(b, diagonal, &of_rows)?;
    let quotient = binary(b, Binary::Div, column, diagonal)?;
    let is_zero = compare(b, Compare::Eq, diagonal, zero)?;
    let factors = select(b, is_zero, column, quotient)?;
    let factors = along(b, factors, rank - 2, &shape)?;
    let product = binary(b, Binary::Mul, factors, upper)?;
    let difference = binary(b, Binary::Sub, exchanged, product)?;
    let (is_below, is_right) = (compare(b, Compare::Gt, rows, j)?, compare(b, Compare::Gt, columns, j)?);
    let rest = select(b, is_right, difference, exchanged)?;
    let rest = select(b, is_column, factors, rest)?;
    let a = select(b, is_below, rest, exchanged)?;
    let next = binary(b, Binary::Add, j, Literal::from_i128(DType::I32, 1).into())?;
    Ok([next, a, order, pivot])
}
