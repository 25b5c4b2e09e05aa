//! Samples of markers.

use std::sync::Arc;

use remat_ir::{
    Builder, DType, DebugPrint, DevicePut, Jit, MemorySpace, Name, Op, OptimizationBarrier, Shape, StopGradient,
};

use super::{Sample, Samples, sample};

impl Samples for Name {
    fn samples() -> Vec<Sample> {
        identity_samples(&Name::new("attention"), true)
    }
}

impl Samples for StopGradient {
    fn samples() -> Vec<Sample> {
        identity_samples(&StopGradient, false).into_iter().map(Sample::not_smooth).collect()
    }
}

impl Samples for OptimizationBarrier {
    fn samples() -> Vec<Sample> {
        let mut samples = identity_samples(&OptimizationBarrier, true);
        let operands = vec![
            sample::any(DType::F64, &[2, 3]),
            sample::any(DType::F64, &[]),
            sample::any(DType::F64, &[0]),
            sample::any(DType::F64, &[4]),
        ];
        let several = Sample::new("several operands", OptimizationBarrier, operands);
        samples.push(several.linear_in(&[0, 1, 2, 3]));
        let mixed = vec![sample::any(DType::F32, &[2]), sample::any(DType::I32, &[2]), sample::any(DType::Bool, &[])];
        samples.push(Sample::new("several dtypes", OptimizationBarrier, mixed).not_smooth());
        samples
    }
}

impl Samples for DevicePut {
    fn samples() -> Vec<Sample> {
        let mut samples = identity_samples(&DevicePut { memory: MemorySpace::Host }, true);
        let mut back = identity_samples(&DevicePut { memory: MemorySpace::Device }, true);
        for sample in &mut back {
            sample.label += " from the host";
            sample.inputs = sample.inputs.iter().map(|x| x.in_memory(MemorySpace::Host)).collect();
        }
        samples.append(&mut back);
        samples
    }
}

impl Samples for DebugPrint {
    /// Programs that print and return their operands. They are of no examples, so that tests stay silent; what is printed is tested on its own.
    fn samples() -> Vec<Sample> {
        let program = |label: &str, sizes: &[&[usize]], dtype: DType| {
            let inputs: Vec<_> = sizes.iter().map(|sizes| sample::any(dtype, sizes)).collect();
            let axes = |x: &&[usize]| if x.starts_with(&[0]) { Shape::from_slice(&[0]) } else { Shape::new() };
            let template = vec!["{:?}"; sizes.len()].join(" ");
            let op = DebugPrint {
                batch: Shape::from_slice(&[0]),
                axes: sizes.iter().map(axes).collect(),
                ..DebugPrint::new(template)
            };
            let mut b = Builder::new();
            let ins = b.inputs(inputs.iter().map(|x| x.aval().clone()));
            b.emit(op.into(), &ins).expect("the operation takes the operands");
            let sample = Sample::new(label, Jit { name: "print".into(), jaxpr: Arc::new(b.finish(ins)) }, inputs);
            if dtype.is_float() { sample.linear_in(&(0..sizes.len()).collect::<Vec<_>>()) } else { sample.not_smooth() }
        };
        let mut samples: Vec<Sample> = DType::ALL.map(|dtype| program("dtypes", &[&[0, 2], &[3]], dtype)).into();
        samples.push(program("scalars", &[&[], &[0]], DType::F64));
        samples.push(program("nothing", &[], DType::F64));
        samples
    }
}

/// Samples of an identity of one operand.
fn identity_samples(op: &(impl Clone + Into<Op>), linear: bool) -> Vec<Sample> {
    let mut samples = Vec::new();
    for dtype in DType::ALL {
        let sample = Sample::new("dtypes", op.clone(), vec![sample::any(dtype, &[2, 3])]);
        samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
    }
    samples.push(Sample::new("scalar", op.clone(), vec![sample::any(DType::F64, &[])]));
    samples.push(Sample::new("empty", op.clone(), vec![sample::any(DType::F64, &[2, 0])]));
    if linear {
        let is_float = |sample: &Sample| sample.inputs[0].dtype().is_float();
        samples = samples.into_iter().map(|s| if is_float(&s) { s.linear_in(&[0]) } else { s }).collect();
    }
    samples
}
