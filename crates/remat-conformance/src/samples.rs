//! Every operation's samples, in every dtype that the operation takes, also with numbers that are easy to get wrong.

use remat_ir::{Array, Builder, DType, Jaxpr, Prim};
use remat_testkit::{Sample, all_samples};

use crate::arrays::{convert, with_special_numbers};
use crate::cases::Cases;
use crate::closeness::Closeness;
use crate::conform::Check;

pub(crate) fn samples_agree_in_every_dtype(cases: &mut Cases<'_>) {
    for_each_dtype(cases, |_, inputs, _| inputs);
}

pub(crate) fn samples_of_special_numbers_agree_in_every_dtype(cases: &mut Cases<'_>) {
    let subnormal = !cases.engine.flushes_subnormals;
    for_each_dtype(cases, |sample, inputs, closeness| {
        // Sums of huge numbers depend on the order, and CPU units for products of bf16 replace subnormal numbers by zeros.
        let are_summed = matches!(closeness, Closeness::Sums(_) | Closeness::Sparse(_));
        let change = |(i, x): (usize, &Array)| match unique_indices(sample) {
            Some(indices) if i == indices => x.clone(),
            _ => with_special_numbers(x, !are_summed, subnormal && !(are_summed && x.dtype() == DType::Bf16)),
        };
        inputs.iter().enumerate().map(change).collect()
    });
}

/// The operand of a sample whose index vectors have to stay different from each other, as its operation says that they are.
pub(crate) fn unique_indices(sample: &Sample) -> Option<usize> {
    matches!(sample.op.prim(), Some(Prim::Scatter(op)) if op.unique_indices).then_some(1)
}

/// Every sample in each dtype: all operands of one dtype are converted to another. `change` modifies the converted operands.
fn for_each_dtype(cases: &mut Cases<'_>, change: impl Fn(&Sample, Vec<Array>, Closeness) -> Vec<Array>) {
    for sample in all_samples() {
        let mut dtypes: Vec<DType> = sample.inputs.iter().map(Array::dtype).collect();
        dtypes.sort();
        dtypes.dedup();
        // A sample without operands runs as it is.
        let changes = dtypes.iter().flat_map(|&from| DType::ALL.map(|to| (from, to)));
        let changes = changes.chain(dtypes.is_empty().then_some((DType::F32, DType::F32)));
        for (from, to) in changes {
            let in_dtype = |x: &Array| if x.dtype() == from { convert(x, to) } else { x.clone() };
            let inputs: Vec<Array> = sample.inputs.iter().map(in_dtype).collect();
            let Some(jaxpr) = program(&sample, &inputs) else { continue };
            let closeness = cases.engine.closeness(&sample.op);
            cases.programs(name(&sample, &inputs), || {
                Ok(vec![Check::new(jaxpr, change(&sample, inputs, closeness), closeness)])
            });
        }
    }
}

/// The operation of a sample as a program, if it takes these operands.
pub(crate) fn program(sample: &Sample, inputs: &[Array]) -> Option<Jaxpr> {
    let mut b = Builder::new();
    let ins = b.inputs(inputs.iter().map(|x| x.aval().clone()));
    let outs = b.emit(sample.op.clone(), &ins).ok()?;
    Some(b.finish(outs.into_vec()))
}

/// The name of a sample with these operands: `add (scalars) of f32[] f32[]`.
pub(crate) fn name(sample: &Sample, inputs: &[Array]) -> String {
    let avals: Vec<String> = inputs.iter().map(|x| x.aval().to_string()).collect();
    format!("{} ({}) of {}", sample.subject().name(), sample.label, avals.join(" "))
}
