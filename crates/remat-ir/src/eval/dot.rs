//! The matrix product.

use std::borrow::Cow;

use super::accumulate::{Accumulator, with_accumulator};
use super::walk::{Strides, Walk, pick, row_major};
use crate::{Array, DotGeneral, Result, Shape};

pub(super) fn dot_general(op: &DotGeneral, ins: &[Array]) -> Result<Array> {
    let out = super::result_aval(op, ins)?;
    let (lhs, rhs) = (&ins[0], &ins[1]);
    let data =
        with_accumulator!(lhs.dtype(), out.dtype, A => A::rounded(products::<A>(op, lhs, rhs, out.size())?, out.dtype));
    Array::new(out, data)
}

/// The products, summed in `A`.
fn products<A: Accumulator>(op: &DotGeneral, lhs: &Array, rhs: &Array, size: usize) -> Result<Vec<A>> {
    let mut out = vec![A::default(); size];
    // The contracted dimensions may be in any order; the memory order of the left operand most likely needs no copy.
    let mut contract: Vec<(usize, usize)> =
        op.lhs_contract.iter().copied().zip(op.rhs_contract.iter().copied()).collect();
    contract.sort_unstable();
    let lhs = Side::new(lhs, &op.lhs_batch, contract.iter().map(|c| c.0).collect())?;
    let rhs = Side::new(rhs, &op.rhs_batch, contract.iter().map(|c| c.1).collect())?;
    let (m, k, n) = (lhs.free.0, lhs.contract.0, rhs.free.0);
    if out.is_empty() || k == 0 {
        return Ok(out);
    }
    let mut blocks = out.chunks_exact_mut(m * n);
    let mut result = Ok(());
    Walk::new(&lhs.batch, [&lhs.batch_strides, &rhs.batch_strides]).elements([0, 0], |[l, r]| {
        if let (Some(block), true) = (blocks.next(), result.is_ok()) {
            let a = (&lhs.data[l..], lhs.free.1, lhs.contract.1);
            let b = (&rhs.data[r..], rhs.contract.1, rhs.free.1);
            result = A::matmul(m, k, n, a, b, block);
        }
    });
    result.map(|()| out)
}

/// An operand as a batch of matrices.
struct Side<'a, A: Accumulator> {
    data: Cow<'a, [A]>,
    batch: Shape,
    batch_strides: Strides,
    /// Size and stride of all free dimensions together.
    free: (usize, usize),
    /// Size and stride of all contracting dimensions together.
    contract: (usize, usize),
}

impl<'a, A: Accumulator> Side<'a, A> {
    fn new(array: &'a Array, batch: &[usize], contract: Shape) -> Result<Side<'a, A>> {
        let data = A::elements(array)?;
        let shape = array.shape();
        let strides = row_major(shape);
        let free: Shape = (0..shape.len()).filter(|d| !batch.contains(d) && !contract.contains(d)).collect();
        let sizes = |dims: &[usize]| dims.iter().map(|&d| shape[d]).collect::<Shape>();
        let steps = |dims: &[usize]| dims.iter().map(|&d| strides[d]).collect::<Strides>();
        let merged = |dims: &[usize]| merge(&sizes(dims), &steps(dims));
        if let (Some(free), Some(contract)) = (merged(&free), merged(&contract)) {
            return Ok(Side { data, batch: sizes(batch), batch_strides: steps(batch), free, contract });
        }
        // Some of the dimensions are apart in memory: one copy brings them together.
        let order: Shape = batch.iter().chain(&free).chain(&contract).copied().collect();
        let packed = sizes(&order);
        let data = Cow::Owned(pick(&data, 0, &steps(&order), &packed));
        let (free, contract): (usize, usize) = (sizes(&free).iter().product(), sizes(&contract).iter().product());
        let batch_strides = row_major(&packed)[..batch.len()].into();
        Ok(Side { data, batch: sizes(batch), batch_strides, free: (free, contract), contract: (contract, 1) })
    }
}

/// Size and stride of the single dimension into which these dimensions merge, if they do.
fn merge(sizes: &[usize], strides: &[isize]) -> Option<(usize, usize)> {
    let (mut size, mut stride) = (1, 1);
    for (&n, &s) in sizes.iter().zip(strides).rev() {
        if size == 1 {
            (size, stride) = (n, s as usize);
        } else if n != 1 {
            if s as usize != size * stride {
                return None;
            }
            size *= n;
        }
    }
    Some((size, stride))
}
