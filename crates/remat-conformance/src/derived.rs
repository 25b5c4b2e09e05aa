//! Every operation's samples under the transformations: derivatives, their transposes, batches of several examples or none, and batches
//! with many dimensions.

use remat::transform::{self, Vmapped};
use remat_ir::{Array, DType, Jaxpr, Literal, eval};
use remat_testkit::{Sample, all_samples};

use crate::arrays::{build, convert, literals, vector};
use crate::cases::Cases;
use crate::closeness::Closeness;
use crate::conform::Check;
use crate::samples::{name, program, unique_indices};

/// Formulas of derivatives round several times.
const CLOSENESS: Closeness = Closeness::Sums(64);

pub(crate) fn derivatives_agree(cases: &mut Cases<'_>) {
    for_each_float(cases, |sample, jaxpr, inputs| {
        let (derivative, args, _) = derivative(sample, jaxpr, inputs)?;
        Ok(vec![Check::new(derivative, args, CLOSENESS)])
    });
}

pub(crate) fn transposed_derivatives_agree(cases: &mut Cases<'_>) {
    for_each_float(cases, |sample, jaxpr, inputs| {
        let (derivative, args, num_outs) = derivative(sample, jaxpr, inputs)?;
        let linear: Vec<bool> = (0..args.len()).map(|i| i >= inputs.len()).collect();
        let with_cotangent: Vec<bool> = (0..derivative.outs.len()).map(|i| i >= num_outs).collect();
        let backward = transform::transpose(&derivative, &linear, &with_cotangent, true).map_err(text)?.jaxpr;
        let cotangents = derivative.out_avals().split_off(num_outs).into_iter().enumerate();
        let args: Vec<Array> =
            inputs.iter().cloned().chain(cotangents.map(|(i, aval)| vector(&aval, 11 + i))).collect();
        Ok(vec![Check::new(backward, args, CLOSENESS)])
    });
}

pub(crate) fn batches_agree(cases: &mut Cases<'_>) {
    for_each_sample(cases, &[None, Some(DType::F32)], &|sample, jaxpr, inputs| {
        let mut checks = Vec::new();
        let count = inputs.len();
        let each = (0..count).map(|k| (0..count).map(|i| i == k).collect::<Vec<bool>>());
        for mask in each.chain([vec![true; count]]) {
            for size in [0, 3] {
                let (batch, args) = batched(jaxpr, inputs, size, &mask, unique_indices(sample))?;
                checks.push(Check::new(batch, args, CLOSENESS));
            }
        }
        Ok(checks)
    });
}

pub(crate) fn batches_of_batches_agree(cases: &mut Cases<'_>) {
    for_each_sample(cases, &[None], &|sample, jaxpr, inputs| {
        let mut program = jaxpr.clone();
        let mut args = inputs.to_vec();
        for size in [2, 1, 1, 2, 1, 3] {
            let all = vec![true; args.len()];
            (program, args) = batched(&program, &args, size, &all, unique_indices(sample))?;
        }
        Ok(vec![Check::new(program, args, CLOSENESS)])
    });
}

/// A program with its derivative in all differentiable operands, its operands, and the number of results before the tangents.
fn derivative(sample: &Sample, jaxpr: &Jaxpr, inputs: &[Array]) -> Result<(Jaxpr, Vec<Array>, usize), String> {
    let has_tangent = |(i, x): (usize, &Array)| x.dtype().is_float() && !sample.without_derivative.contains(&i);
    let nonzero: Vec<bool> = inputs.iter().enumerate().map(has_tangent).collect();
    let derivative = transform::jvp(jaxpr, &nonzero, &vec![false; jaxpr.outs.len()]).map_err(text)?;
    let mut args = inputs.to_vec();
    let tangents = inputs.iter().zip(&nonzero).filter(|(_, nonzero)| **nonzero);
    args.extend(tangents.enumerate().map(|(i, (x, _))| vector(x.aval(), 2 + 3 * i)));
    Ok((derivative.jaxpr, args, jaxpr.outs.len()))
}

/// A batch of this size. In the chosen operands each example is the operand or a permutation of it; in the `kept` one it is the operand.
fn batched(
    jaxpr: &Jaxpr,
    inputs: &[Array],
    size: usize,
    mask: &[bool],
    kept: Option<usize>,
) -> Result<(Jaxpr, Vec<Array>), String> {
    let Vmapped { jaxpr, .. } = transform::vmap(jaxpr, size, mask, &vec![true; jaxpr.outs.len()]).map_err(text)?;
    let args = inputs.iter().zip(mask).enumerate().map(|(i, (x, &is_batched))| match is_batched {
        true => batch(x, size, kept != Some(i)),
        false => x.clone(),
    });
    Ok((jaxpr, args.collect()))
}

/// `size` arrays with the same elements, each in another order if they are `rotated`.
fn batch(x: &Array, size: usize, rotated: bool) -> Array {
    let elements = literals(x);
    let example = |i: usize| {
        let mut example = elements.clone();
        if rotated {
            example.rotate_left(i % elements.len().max(1));
        }
        example
    };
    let shape = [&[size], x.shape()].concat();
    let like = Array::full(Literal::from_f64(x.dtype(), 0.0), shape).in_memory(x.aval().memory);
    build(x.dtype(), &like, (0..size).flat_map(example).collect())
}

/// A property of a sample, given its program and its inputs.
type Property<'a> = &'a dyn Fn(&Sample, &Jaxpr, &[Array]) -> Result<Vec<Check>, String>;

/// Runs a property over every sample that has floats, in every float dtype.
fn for_each_float(cases: &mut Cases<'_>, property: impl Fn(&Sample, &Jaxpr, &[Array]) -> Result<Vec<Check>, String>) {
    let dtypes = [DType::F64, DType::F32, DType::F16, DType::Bf16].map(Some);
    for_each_sample(cases, &dtypes, &|sample, jaxpr, inputs| {
        if inputs.iter().all(|x| !x.dtype().is_float()) { Ok(vec![]) } else { property(sample, jaxpr, inputs) }
    });
}

/// Runs a property over every sample, with its floats converted to each of these dtypes, or as it is.
fn for_each_sample(cases: &mut Cases<'_>, dtypes: &[Option<DType>], property: Property<'_>) {
    for sample in all_samples() {
        for dtype in dtypes {
            let change = |x: &Array| match dtype {
                Some(dtype) if x.dtype().is_float() => convert(x, *dtype),
                _ => x.clone(),
            };
            let inputs: Vec<Array> = sample.inputs.iter().map(change).collect();
            let Some(jaxpr) = program(&sample, &inputs) else { continue };
            // A sample that depends on the dtype may be invalid in this one.
            if eval(&jaxpr, inputs.clone()).is_err() {
                continue;
            }
            cases.programs(name(&sample, &inputs), || property(&sample, &jaxpr, &inputs));
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
