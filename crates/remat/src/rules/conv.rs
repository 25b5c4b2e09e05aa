//! Rules of convolution.
//!
//! A convolution is bilinear, and its transposes are convolutions of the cotangent: with the reversed kernel for the
//! input, and with the input for the kernel, where batch and features change places. Strides become dilations and
//! dilations strides. Groups of features and groups of batches turn into each other. A batch of examples is folded into
//! the batch, the features or the groups. Source: JAX, `jax/_src/lax/convolution.py`.

use remat_ir::{Atom, Aval, Builder, Conv, ConvDims, DType, Operation, Result, Rev, Shape};

use super::dot::same_dtype;
use super::sample::{any, floats};
use super::shape::unbatched;
use super::{Batched, Emit, Linear, Operand, Rules, Sample, not_linear};

impl Rules for Conv {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let lhs = tangents[0].map(|t| b.apply(self.clone(), &[t, ins[1]])).transpose()?;
        let rhs = tangents[1].map(|t| b.apply(self.clone(), &[ins[0], t])).transpose()?;
        Ok(vec![b.add_any(lhs, rhs)?])
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let Some(ct) = cotangents[0] else { return Ok(vec![None, None]) };
        let (linear, known) = match (&ins[0], &ins[1]) {
            (Operand::Linear(x), &Operand::Known(k)) | (&Operand::Known(k), Operand::Linear(x)) => (x, k),
            (Operand::Known(_), Operand::Known(_)) | (Operand::Linear(_), Operand::Linear(_)) => {
                return Err(not_linear(self));
            }
        };
        // Where nothing is summed the cotangent is zero, and the formulas for the padding of windows do not hold.
        if b.aval(ct).size() == 0 || b.aval(known).size() == 0 || linear.size() == 0 {
            return Ok(vec![None, None]);
        }
        let (ct, known) = same_dtype(b, ct, known)?;
        if ins[0].is_linear() {
            Ok(vec![Some(transpose_input(b, self, ct, linear, known)?), None])
        } else {
            Ok(vec![None, Some(transpose_kernel(b, self, ct, known, linear)?)])
        }
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (input, kernel) = (ins[0], ins[1]);
        if input.axis.is_none() && kernel.axis.is_none() {
            return unbatched(b, self, ins);
        }
        if size == 0 {
            // There is no group to make of no example.
            let example = |b: &Builder, x: Batched| {
                let mut aval = b.aval(x.atom);
                if let Some(axis) = x.axis {
                    aval.shape.remove(axis);
                }
                aval
            };
            let mut aval = self.infer(&[example(b, input), example(b, kernel)])?.remove(0);
            aval.shape.insert(0, 0);
            return Ok(vec![Batched::front(b.zeros(&aval)?)]);
        }
        let mut op = self.clone();
        let groups = self.feature_group_count.max(self.batch_group_count);
        let (batch, features) = (self.out_dims.first, self.out_dims.second);
        match (input.axis, kernel.axis) {
            (Some(i), Some(k)) => {
                // Each example is a group, or a group of groups.
                let input = if self.batch_group_count > 1 {
                    op.batch_group_count *= size;
                    merge_axis(b, input.atom, i, self.lhs_dims.first)?
                } else {
                    op.feature_group_count *= size;
                    merge_axis(b, input.atom, i, self.lhs_dims.second)?
                };
                let kernel = merge_axis(b, kernel.atom, k, self.rhs_dims.first)?;
                let out = b.apply(op, &[input, kernel])?;
                Ok(vec![Batched { atom: split_axis(b, out, features, size)?, axis: Some(features) }])
            }
            (Some(i), None) => {
                // Examples are batch elements; groups of batches stay outside of them.
                let input = merge_inside(b, input.atom, i, self.lhs_dims.first, self.batch_group_count)?;
                let out = b.apply(op, &[input, kernel.atom])?;
                Ok(vec![Batched { atom: split_axis(b, out, batch, size)?, axis: Some(batch) }])
            }
            (None, Some(k)) => {
                // Examples are output features; groups stay outside of them.
                let kernel = merge_inside(b, kernel.atom, k, self.rhs_dims.first, groups)?;
                let out = b.apply(op, &[input.atom, kernel])?;
                if groups == 1 {
                    return Ok(vec![Batched { atom: split_axis(b, out, features, size)?, axis: Some(features) }]);
                }
                let out = split_axis(b, out, features, groups)?;
                let out = split_axis(b, out, features + 1, size)?;
                Ok(vec![Batched { atom: merge_axis(b, out, features, features + 1)?, axis: Some(features) }])
            }
            (None, None) => unbatched(b, self, ins),
        }
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (label, input, kernel, op) in geometries() {
            let inputs = vec![floats(input), floats(kernel)];
            samples.push(Sample::new(label, op, inputs).linear_in(&[0]).linear_in(&[1]));
        }
        let (_, input, kernel, op) = geometries().remove(0);
        let typed = |from, to| {
            let op = Conv { preferred_element_type: to, ..op.clone() };
            Sample::new(format!("{from} with a result in {to}"), op, vec![any(from, input), any(from, kernel)])
                .linear_in(&[0])
                .linear_in(&[1])
        };
        samples.extend(DType::ALL.map(|d| typed(d, d)));
        let pairs =
            [(DType::Bf16, DType::F32), (DType::F16, DType::F32), (DType::F32, DType::F16), (DType::I8, DType::I32)];
        samples.extend(pairs.map(|(from, to)| typed(from, to)));
        samples
    }
}

/// The cotangent of the input: the cotangent, dilated by the strides, convolved with the reversed kernel.
fn transpose_input(b: &mut Builder, op: &Conv, ct: Atom, input: &Aval, kernel: Atom) -> Result<Atom> {
    let sizes = Sizes::new(op, input, &b.aval(kernel), &b.aval(ct));
    let groups = op.feature_group_count.max(op.batch_group_count);
    // Within a group the features of the output are summed and those of the input made.
    let mut kernel = kernel;
    if groups > 1 {
        kernel = split_axis(b, kernel, op.rhs_dims.first, groups)?;
        kernel = merge_axis(b, kernel, op.rhs_dims.first, op.rhs_dims.second)?;
    }
    let kernel = b.apply(Rev { axes: sorted(&op.rhs_dims.spatial) }, &[kernel])?;
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
    let out = b.apply(product, &[ct, kernel])?;
    if op.batch_group_count == 1 {
        return Ok(out);
    }
    let out = split_axis(b, out, op.lhs_dims.second, groups)?;
    merge_axis(b, out, op.lhs_dims.second, op.lhs_dims.first)
}

/// The cotangent of the kernel: the input convolved with the cotangent, dilated by the strides, summing over the batch.
fn transpose_kernel(b: &mut Builder, op: &Conv, ct: Atom, input: Atom, kernel: &Aval) -> Result<Atom> {
    let sizes = Sizes::new(op, &b.aval(input), kernel, &b.aval(ct));
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
    b.apply(product, &[input, ct])
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
fn split_axis(b: &mut Builder, x: Atom, axis: usize, outer: usize) -> Result<Atom> {
    let mut shape = b.shape(x);
    shape[axis] /= outer;
    shape.insert(axis, outer);
    b.reshape(x, &shape)
}

/// Dimension `from` becomes the outer part of dimension `to` of those that remain.
fn merge_axis(b: &mut Builder, x: Atom, from: usize, to: usize) -> Result<Atom> {
    let x = b.move_axis(x, from, to)?;
    let mut shape = b.shape(x);
    let outer = shape.remove(to);
    shape[to] *= outer;
    b.reshape(x, &shape)
}

/// Dimension `from` becomes a part of dimension `to` of those that remain, inside of `groups` of it.
fn merge_inside(b: &mut Builder, x: Atom, from: usize, to: usize, groups: usize) -> Result<Atom> {
    if groups == 1 {
        return merge_axis(b, x, from, to);
    }
    let x = b.move_axis(x, from, to)?;
    let x = split_axis(b, x, to + 1, groups)?;
    let x = b.move_axis(x, to, to + 1)?;
    let mut shape = b.shape(x);
    let size: usize = shape.drain(to..to + 2).product();
    shape[to] *= size;
    b.reshape(x, &shape)
}

fn geometries() -> Vec<(&'static str, &'static [usize], &'static [usize], Conv)> {
    let dims = |first, second, spatial: &[usize]| ConvDims { first, second, spatial: spatial.into() };
    let in_order = |n: usize| {
        let spatial: Shape = (2..2 + n).collect();
        ConvDims { first: 0, second: 1, spatial }
    };
    let plain = |n: usize| Conv {
        strides: Shape::from_elem(1, n),
        padding: vec![(0, 0); n],
        lhs_dilation: Shape::from_elem(1, n),
        rhs_dilation: Shape::from_elem(1, n),
        lhs_dims: in_order(n),
        rhs_dims: in_order(n),
        out_dims: in_order(n),
        feature_group_count: 1,
        batch_group_count: 1,
        preferred_element_type: DType::F64,
    };
    let ones = |sizes: &[usize]| -> Shape { sizes.into() };
    vec![
        ("one dimension", &[1, 2, 5], &[2, 2, 3], Conv { padding: vec![(1, 1)], ..plain(1) }),
        ("no spatial dimension", &[3, 2], &[4, 2], plain(0)),
        ("strides", &[2, 1, 7], &[2, 1, 2], Conv { strides: ones(&[3]), ..plain(1) }),
        (
            "strides that leave a rest",
            &[1, 1, 8],
            &[1, 1, 3],
            Conv { strides: ones(&[2]), padding: vec![(2, 0)], ..plain(1) },
        ),
        ("dilated input", &[1, 2, 4], &[1, 2, 3], Conv { lhs_dilation: ones(&[3]), padding: vec![(1, 2)], ..plain(1) }),
        (
            "dilated kernel",
            &[1, 1, 7],
            &[2, 1, 3],
            Conv { rhs_dilation: ones(&[2]), padding: vec![(0, 3)], ..plain(1) },
        ),
        ("negative padding", &[1, 1, 7], &[1, 1, 2], Conv { padding: vec![(-2, -1)], ..plain(1) }),
        ("negative and more than everything", &[1, 1, 2], &[1, 1, 2], Conv { padding: vec![(-3, 6)], ..plain(1) }),
        (
            "everything at once",
            &[2, 4, 5, 4],
            &[6, 2, 2, 3],
            Conv {
                strides: ones(&[2, 1]),
                padding: vec![(1, -1), (-1, 2)],
                lhs_dilation: ones(&[1, 2]),
                rhs_dilation: ones(&[2, 1]),
                feature_group_count: 2,
                ..plain(2)
            },
        ),
        (
            "features last",
            &[2, 4, 3, 2],
            &[2, 2, 2, 3],
            Conv {
                lhs_dims: dims(0, 3, &[1, 2]),
                rhs_dims: dims(3, 2, &[0, 1]),
                out_dims: dims(0, 3, &[1, 2]),
                ..plain(2)
            },
        ),
        (
            "odd orders",
            &[3, 2, 4, 2],
            &[2, 2, 2, 3],
            Conv {
                lhs_dims: dims(1, 3, &[2, 0]),
                rhs_dims: dims(3, 0, &[1, 2]),
                out_dims: dims(2, 0, &[3, 1]),
                padding: vec![(1, 0), (0, 1)],
                strides: ones(&[2, 1]),
                ..plain(2)
            },
        ),
        ("feature groups", &[2, 4, 4], &[6, 2, 2], Conv { feature_group_count: 2, ..plain(1) }),
        ("depthwise", &[1, 3, 4], &[3, 1, 2], Conv { feature_group_count: 3, ..plain(1) }),
        (
            "feature groups, features last",
            &[2, 4, 4],
            &[2, 2, 4],
            Conv {
                lhs_dims: dims(0, 2, &[1]),
                rhs_dims: dims(2, 1, &[0]),
                out_dims: dims(0, 2, &[1]),
                feature_group_count: 2,
                strides: ones(&[2]),
                ..plain(1)
            },
        ),
        ("batch groups", &[4, 2, 4], &[6, 2, 2], Conv { batch_group_count: 2, ..plain(1) }),
        (
            "batch groups, odd orders",
            &[4, 2, 6],
            &[2, 3, 3],
            Conv {
                lhs_dims: dims(2, 1, &[0]),
                rhs_dims: dims(1, 0, &[2]),
                out_dims: dims(1, 2, &[0]),
                batch_group_count: 3,
                padding: vec![(1, 0)],
                lhs_dilation: ones(&[2]),
                ..plain(1)
            },
        ),
        (
            "three dimensions",
            &[1, 1, 2, 3, 2],
            &[1, 1, 2, 2, 1],
            Conv { strides: ones(&[1, 2, 1]), padding: vec![(0, 1), (1, 0), (0, 0)], ..plain(3) },
        ),
        ("four dimensions", &[1, 1, 2, 1, 2, 2], &[1, 1, 1, 1, 2, 2], plain(4)),
        ("no batch", &[0, 2, 3], &[1, 2, 2], plain(1)),
        ("no input feature", &[1, 0, 3], &[2, 0, 2], plain(1)),
        ("no output feature", &[1, 2, 3], &[0, 2, 2], plain(1)),
        ("no place in the input", &[1, 1, 0], &[1, 1, 2], Conv { padding: vec![(2, 1)], ..plain(1) }),
        ("kernel larger than the input", &[1, 1, 2], &[1, 1, 4], plain(1)),
    ]
}
