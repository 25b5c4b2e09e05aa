//! Rules of convolution.
//!
//! A convolution is bilinear, and its transposes are convolutions of the cotangent: with the reversed kernel for the
//! input, and with the input for the kernel, where batch and features change places. Strides become dilations and
//! dilations strides. Groups of features and groups of batches turn into each other. A batch of examples is folded into
//! the batch, the features or the groups. Source: JAX, `jax/_src/lax/convolution.py`.

use remat_ir::{Aval, Conv, ConvDims, Operation, Result, Rev, Shape};

use super::dot::same_dtype;
use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear, sum_of, unbatched};

impl Rules for Conv {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let conv = |x, y| outs[0].writer().apply(self.clone(), &[x, y]);
        Ok(vec![sum_of(tangents[0].map(|t| conv(t, ins[1])), tangents[1].map(|t| conv(ins[0], t)))])
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None, None]) };
        let (linear, known) = match (&ins[0], &ins[1]) {
            (Operand::Linear(x), &Operand::Known(k)) | (&Operand::Known(k), Operand::Linear(x)) => (x, k),
            (Operand::Known(_), Operand::Known(_)) | (Operand::Linear(_), Operand::Linear(_)) => {
                return Err(not_linear(self));
            }
        };
        // If nothing is summed, the cotangent is zero and the formulas for the padding of windows do not hold.
        if ct.aval()?.size() == 0 || known.aval()?.size() == 0 || linear.size() == 0 {
            return Ok(vec![None, None]);
        }
        let (ct, known) = same_dtype(ct, known)?;
        if ins[0].is_linear() {
            Ok(vec![Some(transpose_input(self, ct, linear, known)?), None])
        } else {
            Ok(vec![None, Some(transpose_kernel(self, ct, known, linear)?)])
        }
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (input, kernel) = (ins[0], ins[1]);
        if input.axis.is_none() && kernel.axis.is_none() {
            return unbatched(w, self, ins);
        }
        if size == 0 {
            // Without examples there are no groups.
            let example = |x: Batched<Expr<'w>>| -> Result<Aval> {
                let mut aval = x.atom.aval()?;
                x.axis.map(|axis| aval.shape.remove(axis));
                Ok(aval)
            };
            let mut aval = self.infer(&[example(input)?, example(kernel)?])?.remove(0);
            aval.shape.insert(0, 0);
            return Ok(vec![Batched::front(w.zeros(&aval))]);
        }
        let mut op = self.clone();
        let groups = self.feature_group_count.max(self.batch_group_count);
        let (batch, features) = (self.out_dims.first, self.out_dims.second);
        let (out, axis) = match (input.axis, kernel.axis) {
            (Some(i), Some(k)) => {
                // Each example is a group, or a group of groups.
                let input = if self.batch_group_count > 1 {
                    op.batch_group_count *= size;
                    merge_axis(input.atom, i, self.lhs_dims.first)?
                } else {
                    op.feature_group_count *= size;
                    merge_axis(input.atom, i, self.lhs_dims.second)?
                };
                let kernel = merge_axis(kernel.atom, k, self.rhs_dims.first)?;
                (split_axis(w.apply(op, &[input, kernel]), features, size)?, features)
            }
            (Some(i), None) => {
                // Examples are batch elements; groups of batches stay outside of them.
                let input = merge_inside(input.atom, i, self.lhs_dims.first, self.batch_group_count)?;
                (split_axis(w.apply(op, &[input, kernel.atom]), batch, size)?, batch)
            }
            (None, Some(k)) => {
                // Examples are output features; groups stay outside of them.
                let kernel = merge_inside(kernel.atom, k, self.rhs_dims.first, groups)?;
                let out = w.apply(op, &[input.atom, kernel]);
                if groups == 1 {
                    (split_axis(out, features, size)?, features)
                } else {
                    let out = split_axis(split_axis(out, features, groups)?, features + 1, size)?;
                    (merge_axis(out, features, features + 1)?, features)
                }
            }
            (None, None) => return unbatched(w, self, ins),
        };
        Ok(vec![Batched::at(out, axis)])
    }
}

/// The cotangent of the input: the cotangent, dilated by the strides, convolved with the reversed kernel.
fn transpose_input<'w>(op: &Conv, ct: Expr<'w>, input: &Aval, kernel: Expr<'w>) -> Result<Expr<'w>> {
    let sizes = Sizes::new(op, input, &kernel.aval()?, &ct.aval()?);
    let groups = op.feature_group_count.max(op.batch_group_count);
    // Within a group, the features of the output are summed, and those of the input are produced.
    let mut kernel = kernel;
    if groups > 1 {
        kernel = split_axis(kernel, op.rhs_dims.first, groups)?;
        kernel = merge_axis(kernel, op.rhs_dims.first, op.rhs_dims.second)?;
    }
    let kernel = kernel.apply(Rev { axes: sorted(&op.rhs_dims.spatial) });
    let padding = (0..op.strides.len())
        .map(|i| {
            let low = sizes.kernel[i] - 1 - op.padding[i].0;
            (low, sizes.input[i] + sizes.kernel[i] - 1 - sizes.out[i] - low)
        })
        .collect();
    let product = Conv {
        strides: op.lhs_dilation.clone(),
        padding,
        lhs_dilation: op.strides.clone(),
        rhs_dilation: op.rhs_dilation.clone(),
        lhs_dims: op.out_dims.clone(),
        rhs_dims: swapped(&op.rhs_dims),
        out_dims: op.lhs_dims.clone(),
        feature_group_count: groups,
        batch_group_count: 1,
        preferred_element_type: input.dtype,
    };
    let out = ct.writer().apply(product, &[ct, kernel]);
    if op.batch_group_count == 1 {
        return Ok(out);
    }
    merge_axis(split_axis(out, op.lhs_dims.second, groups)?, op.lhs_dims.second, op.lhs_dims.first)
}

/// The cotangent of the kernel: the input convolved with the cotangent, dilated by the strides, summing over the batch.
fn transpose_kernel<'w>(op: &Conv, ct: Expr<'w>, input: Expr<'w>, kernel: &Aval) -> Result<Expr<'w>> {
    let sizes = Sizes::new(op, &input.aval()?, kernel, &ct.aval()?);
    let padding = (0..op.strides.len())
        .map(|i| {
            let low = op.padding[i].0;
            (low, sizes.out[i] - sizes.input[i] + sizes.kernel[i] - 1 - low)
        })
        .collect();
    let product = Conv {
        strides: op.rhs_dilation.clone(),
        padding,
        lhs_dilation: op.lhs_dilation.clone(),
        rhs_dilation: op.strides.clone(),
        lhs_dims: swapped(&op.lhs_dims),
        rhs_dims: swapped(&op.out_dims),
        out_dims: swapped(&op.rhs_dims),
        feature_group_count: op.batch_group_count,
        batch_group_count: op.feature_group_count,
        preferred_element_type: kernel.dtype,
    };
    Ok(ct.writer().apply(product, &[input, ct]))
}

/// The spatial sizes of a convolution that is not empty, dilated: the result by the strides.
struct Sizes {
    input: Vec<i64>,
    kernel: Vec<i64>,
    out: Vec<i64>,
}

impl Sizes {
    fn new(op: &Conv, input: &Aval, kernel: &Aval, out: &Aval) -> Sizes {
        let dilated = |aval: &Aval, dims: &ConvDims, dilation: &Shape| -> Vec<i64> {
            dims.spatial.iter().zip(dilation).map(|(&d, &by)| ((aval.shape[d] - 1) * by + 1) as i64).collect()
        };
        Sizes {
            input: dilated(input, &op.lhs_dims, &op.lhs_dilation),
            kernel: dilated(kernel, &op.rhs_dims, &op.rhs_dilation),
            out: dilated(out, &op.out_dims, &op.strides),
        }
    }
}

fn swapped(dims: &ConvDims) -> ConvDims {
    ConvDims { first: dims.second, second: dims.first, spatial: dims.spatial.clone() }
}

fn sorted(axes: &Shape) -> Shape {
    let mut axes = axes.clone();
    axes.sort_unstable();
    axes
}

/// Dimension `axis` becomes two, the outer one of size `outer`.
fn split_axis(x: Expr<'_>, axis: usize, outer: usize) -> Result<Expr<'_>> {
    let mut shape = x.shape()?;
    shape[axis] /= outer;
    shape.insert(axis, outer);
    Ok(x.reshape(&shape))
}

/// Dimension `from` becomes the outer part of dimension `to` of those that remain.
fn merge_axis(x: Expr<'_>, from: usize, to: usize) -> Result<Expr<'_>> {
    let x = x.move_axis(from, to);
    let mut shape = x.shape()?;
    let outer = shape.remove(to);
    shape[to] *= outer;
    Ok(x.reshape(&shape))
}

/// Dimension `from` becomes a part of dimension `to` of those that remain, inside of `groups` of it.
fn merge_inside(x: Expr<'_>, from: usize, to: usize, groups: usize) -> Result<Expr<'_>> {
    if groups == 1 {
        return merge_axis(x, from, to);
    }
    let x = split_axis(x.move_axis(from, to), to + 1, groups)?.move_axis(to, to + 1);
    let mut shape = x.shape()?;
    let size: usize = shape.drain(to..to + 2).product();
    shape[to] *= size;
    Ok(x.reshape(&shape))
}
