//! Short forms of operations, for the programs that stand for one operation of the file. Matrices are the last two dimensions.

use remat_ir::{
    Atom, Binary, BroadcastInDim, Builder, Compare, Concatenate, DType, DotGeneral, Gather, IndexMode, Iota, Literal,
    Reduce, ReduceKind, Reshape, Result, SelectN, Shape, Slice, Transpose, Unary,
};

/// A number as a scalar.
pub(super) fn float(dtype: DType, value: f64) -> Atom {
    Literal::from_f64(dtype, value).into()
}

pub(super) fn unary(b: &mut Builder, op: Unary, x: Atom) -> Result<Atom> {
    b.emit1(op.into(), &[x])
}

pub(super) fn binary(b: &mut Builder, op: Binary, x: Atom, y: Atom) -> Result<Atom> {
    b.emit1(op.into(), &[x, y])
}

pub(super) fn compare(b: &mut Builder, op: Compare, x: Atom, y: Atom) -> Result<Atom> {
    b.emit1(op.into(), &[x, y])
}

/// `yes` where `which` is true, and `no` elsewhere.
pub(super) fn select(b: &mut Builder, which: Atom, yes: Atom, no: Atom) -> Result<Atom> {
    b.emit1(SelectN.into(), &[which, no, yes])
}

/// The part from `start` to before `limit` of one axis.
pub(super) fn part(b: &mut Builder, x: Atom, axis: usize, start: usize, limit: usize) -> Result<Atom> {
    let mut limits = b.shape(x);
    if (start, limit) == (0, limits[axis]) {
        return Ok(x);
    }
    let (mut starts, strides): (Shape, Shape) = limits.iter().map(|_| (0, 1)).unzip();
    (starts[axis], limits[axis]) = (start, limit);
    b.emit1(Slice { start: starts, limit: limits, strides }.into(), &[x])
}

pub(super) fn concatenated(b: &mut Builder, axis: usize, parts: &[Atom]) -> Result<Atom> {
    b.emit1(Concatenate { axis }.into(), parts)
}

pub(super) fn reshaped(b: &mut Builder, x: Atom, shape: Shape) -> Result<Atom> {
    b.emit1(Reshape { shape }.into(), &[x])
}

/// Each matrix transposed.
pub(super) fn transposed(b: &mut Builder, x: Atom) -> Result<Atom> {
    let rank = b.shape(x).len();
    let permutation = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    b.emit1(Transpose { permutation }.into(), &[x])
}

/// Folds the last `count` dimensions.
pub(super) fn folded(b: &mut Builder, kind: ReduceKind, x: Atom, count: usize) -> Result<Atom> {
    let rank = b.shape(x).len();
    if count == 0 {
        return Ok(x);
    }
    b.emit1(Reduce { kind, axes: (rank - count..rank).collect() }.into(), &[x])
}

/// An array whose dimensions are the first ones of `shape`, for each index of the other ones.
pub(super) fn repeated(b: &mut Builder, x: Atom, shape: &Shape) -> Result<Atom> {
    let dims = (0..b.shape(x).len()).collect();
    b.emit1(BroadcastInDim { shape: shape.clone(), dims }.into(), &[x])
}

/// One number for each row, or for each column, for every element of matrices: the last dimension of `x` is that axis of `shape`.
pub(super) fn along(b: &mut Builder, x: Atom, axis: usize, shape: &Shape) -> Result<Atom> {
    let dims = (0..shape.len() - 2).chain([axis]).collect();
    b.emit1(BroadcastInDim { shape: shape.clone(), dims }.into(), &[x])
}

/// The number of the row of each element of matrices, and of its column.
pub(super) fn indices(b: &mut Builder, shape: &Shape) -> Result<[Atom; 2]> {
    let mut index = |axis| b.emit1(Iota { dtype: DType::I32, shape: shape.clone(), axis }.into(), &[]);
    Ok([index(shape.len() - 2)?, index(shape.len() - 1)?])
}

/// Elements of square matrices of size `n` from `start` in steps of `n + 1`, before `limit`, all counted in rows: a part of a diagonal.
pub(super) fn diagonal(b: &mut Builder, x: Atom, start: usize, limit: usize) -> Result<Atom> {
    let shape = b.shape(x);
    let (batch, n) = (shape.len() - 2, shape[shape.len() - 1]);
    let flat = shape[..batch].iter().copied().chain([n * n]).collect();
    let flat = reshaped(b, x, flat)?;
    let (mut starts, mut limits): (Shape, Shape) = (shape[..batch].iter().map(|_| 0).collect(), shape[..batch].into());
    let mut strides: Shape = starts.iter().map(|_| 1).collect();
    starts.push(start);
    limits.push(limit);
    strides.push(n + 1);
    b.emit1(Slice { start: starts, limit: limits, strides }.into(), &[flat])
}

/// The rows of matrices in another order, which `order` (i32) gives for each matrix.
pub(super) fn rows_in_order(b: &mut Builder, x: Atom, order: Atom) -> Result<Atom> {
    let (shape, dtype) = (b.shape(x), b.dtype(x));
    let batch = shape.len() - 2;
    let vectors = b.shape(order).into_iter().chain([1]).collect();
    let vectors = reshaped(b, order, vectors)?;
    let row: Shape = [batch].into_iter().collect();
    let op = Gather {
        offset_dims: [batch + 1].into_iter().collect(),
        collapsed_slice_dims: row.clone(),
        start_index_map: row,
        operand_batching_dims: (0..batch).collect(),
        start_indices_batching_dims: (0..batch).collect(),
        slice_sizes: shape[..batch].iter().map(|&size| size.min(1)).chain([1, shape[batch + 1]]).collect(),
        mode: IndexMode::Clip,
        fill_value: Literal::from_f64(dtype, 0.0),
    };
    b.emit1(op.into(), &[x, vectors])
}

/// The products of matrices, over axis `of_x` of one and `of_y` of the other, 0 for rows and 1 for columns.
pub(super) fn product(b: &mut Builder, x: Atom, of_x: usize, y: Atom, of_y: usize) -> Result<Atom> {
    let batch: Shape = (0..b.shape(x).len() - 2).collect();
    let op = DotGeneral {
        lhs_contract: [batch.len() + of_x].into_iter().collect(),
        rhs_contract: [batch.len() + of_y].into_iter().collect(),
        lhs_batch: batch.clone(),
        rhs_batch: batch,
        preferred_element_type: b.dtype(x),
    };
    b.emit1(op.into(), &[x, y])
}
