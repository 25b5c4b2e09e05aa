//! Convolution by im2col: the input is unfolded into a matrix of windows for a matrix product.

use super::accumulate::{Accumulator, with_accumulator};
use super::walk::{Strides, Walk, pick, row_major};
use super::window::{Slide, each_position};
use crate::{Array, Conv, ConvDims, Result, Shape};

pub(super) fn conv(op: &Conv, ins: &[Array]) -> Result<Array> {
    let out = super::result_aval(op, ins)?;
    let (input, kernel) = (&ins[0], &ins[1]);
    let data = with_accumulator!(input.dtype(), out.dtype, A => {
        A::rounded(convolved::<A>(op, input, kernel, &out.shape)?, out.dtype)
    });
    Array::new(out, data)
}

/// The convolution, summed in `A`.
fn convolved<A: Accumulator>(op: &Conv, input: &Array, kernel: &Array, out: &[usize]) -> Result<Vec<A>> {
    let (lhs_shape, lhs) = ordered::<A>(input, &op.lhs_dims)?;
    let (rhs_shape, rhs) = ordered::<A>(kernel, &op.rhs_dims)?;
    let out_order = order(&op.out_dims);
    let out_shape: Shape = out_order.iter().map(|&d| out[d]).collect();

    // Everything below is on [batch, feature, spatial..] and on a kernel [output feature, input feature, spatial..].
    let (windows, taps): (usize, usize) = (out_shape[2..].iter().product(), rhs_shape[2..].iter().product());
    let (out_batch, out_features, group_features) = (out_shape[0], out_shape[1], rhs_shape[1]);
    let groups = op.feature_group_count.max(op.batch_group_count);
    let out_group = out_features / groups;
    let plane: usize = lhs_shape[2..].iter().product();
    let depth = group_features * taps;
    let mut sums = vec![A::default(); out_batch * out_features * windows];
    if sums.is_empty() || depth == 0 {
        return Ok(sums);
    }
    let mut offsets = Vec::with_capacity(windows * taps);
    each_position(&slides(op, &lhs_shape, &rhs_shape), &out_shape[2..], &mut |window| {
        offsets.extend_from_slice(window)
    });

    let mut unfolded = vec![A::default(); windows * depth];
    for batch in 0..out_batch {
        for group in 0..groups {
            // Each group has its own features of the input, or its own part of the batch.
            let (batch_at, feature_at) =
                if op.batch_group_count > 1 { (group * out_batch + batch, 0) } else { (batch, group * group_features) };
            let features = &lhs[(batch_at * lhs_shape[1] + feature_at) * plane..][..group_features * plane];
            for (row, window) in unfolded.chunks_exact_mut(depth).zip(offsets.chunks_exact(taps)) {
                for (f, columns) in row.chunks_exact_mut(taps).enumerate() {
                    for (column, &offset) in columns.iter_mut().zip(window) {
                        *column = if offset < 0 { A::default() } else { features[f * plane + offset as usize] };
                    }
                }
            }
            let first = group * out_group;
            let block = &mut sums[(batch * out_features + first) * windows..][..out_group * windows];
            A::matmul(out_group, depth, windows, (&rhs[first * depth..], depth, 1), (&unfolded, 1, depth), block)?;
        }
    }

    let strides = row_major(out);
    let strides: Strides = out_order.iter().map(|&d| strides[d]).collect();
    let mut result = vec![A::default(); sums.len()];
    Walk::new(&out_shape, [&row_major(&out_shape), &strides]).copy(&sums, 0, &mut result, 0);
    Ok(result)
}

/// The dimensions of an operand in the order first, second, spatial.
fn order(dims: &ConvDims) -> Shape {
    [dims.first, dims.second].into_iter().chain(dims.spatial.iter().copied()).collect()
}

/// Shape and elements of an operand with its dimensions in the order first, second, spatial.
fn ordered<A: Accumulator>(array: &Array, dims: &ConvDims) -> Result<(Shape, Vec<A>)> {
    let strides = row_major(array.shape());
    let order = order(dims);
    let shape: Shape = order.iter().map(|&d| array.shape()[d]).collect();
    let strides: Strides = order.iter().map(|&d| strides[d]).collect();
    let elements = pick(&A::elements(array)?, 0, &strides, &shape);
    Ok((shape, elements))
}

fn slides(op: &Conv, lhs_shape: &[usize], rhs_shape: &[usize]) -> Vec<Slide> {
    let element_strides = row_major(lhs_shape);
    (0..op.strides.len())
        .map(|i| Slide {
            size: lhs_shape[i + 2],
            element_stride: element_strides[i + 2],
            window: rhs_shape[i + 2],
            stride: op.strides[i],
            low: op.padding[i].0,
            base_dilation: op.lhs_dilation[i],
            window_dilation: op.rhs_dilation[i],
        })
        .collect()
}
