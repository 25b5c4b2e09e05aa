//! Samples of reductions.

use remat_ir::{ArgKind, ArgReduce, DType, Reduce, ReduceKind};

use super::{Sample, Samples, sample};

impl Samples for Reduce {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in
            [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::And, ReduceKind::Or]
        {
            let logical = matches!(kind, ReduceKind::And | ReduceKind::Or);
            let sample = |label: &str, axes: &[usize], operand| {
                let sample = Sample::new(label, Reduce { kind, axes: axes.into() }, vec![operand]);
                match kind {
                    ReduceKind::Sum if sample.inputs[0].dtype().is_float() => sample.linear_in(&[0]),
                    ReduceKind::And | ReduceKind::Or => sample.not_smooth(),
                    _ => sample,
                }
            };
            for dtype in DType::ALL.into_iter().filter(|d| if logical { !d.is_float() } else { *d != DType::Bool }) {
                let sample = sample("dtypes", &[1], sample::any(dtype, &[2, 3]));
                samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
            }
            let dtype = if logical { DType::Bool } else { DType::F64 };
            for (label, axes, shape) in [
                ("first dimension", &[0][..], &[3, 2][..]),
                ("inner dimension", &[1], &[2, 3, 2]),
                ("several dimensions", &[0, 2], &[2, 3, 2]),
                ("all dimensions", &[0, 1], &[2, 3]),
                ("no dimensions", &[], &[2, 3]),
                ("scalar", &[], &[]),
                ("one element", &[0], &[1]),
                ("of nothing", &[1], &[2, 0]),
                ("to nothing", &[1], &[0, 2]),
            ] {
                samples.push(sample(label, axes, sample::any(dtype, shape)));
            }
            if !logical {
                let special = [f64::NAN, 1.0, f64::INFINITY, 2.0, f64::NEG_INFINITY, 0.0, -0.0, 0.0];
                samples.push(sample("special values", &[1], sample::array(DType::F64, &[4, 2], &special)).not_smooth());
                let coarse = sample::spread(DType::Bf16, &[300], 0.9, 1.1);
                samples.push(sample("many of a coarse dtype", &[0], coarse));
            }
        }
        let zeros = sample::array(DType::F64, &[3, 3], &[2.0, 0.0, 3.0, 0.0, 0.0, 5.0, 1.0, 2.0, 3.0]);
        let prod = Reduce { kind: ReduceKind::Prod, axes: [1].into_iter().collect() };
        samples.push(Sample::new("zeros", prod, vec![zeros]));
        for kind in [ReduceKind::Max, ReduceKind::Min] {
            let ties = sample::array(DType::F64, &[2, 3], &[2.0, 2.0, 1.0, 1.0, 1.0, 1.0]);
            samples
                .push(Sample::new("ties", Reduce { kind, axes: [1].into_iter().collect() }, vec![ties]).not_smooth());
        }
        samples
    }
}

impl Samples for ArgReduce {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [ArgKind::Max, ArgKind::Min] {
            for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
                let op = ArgReduce { kind, axis: 1, index_dtype: DType::I32 };
                samples.push(Sample::new("dtypes", op, vec![sample::any(dtype, &[2, 5])]));
            }
            for index_dtype in DType::ALL.into_iter().filter(|d| d.is_integer()) {
                let op = ArgReduce { kind, axis: 0, index_dtype };
                samples.push(Sample::new("index dtypes", op, vec![sample::any(DType::F64, &[5])]));
            }
            let op = |axis| ArgReduce { kind, axis, index_dtype: DType::I32 };
            let ties = sample::array(DType::F32, &[3, 3], &[1.0, 2.0, 2.0, 1.0, 1.0, 3.0, f64::NAN, 9.0, f64::NAN]);
            samples.push(Sample::new("ties and NaN", op(1), vec![ties]));
            samples.push(Sample::new("inner dimension", op(1), vec![sample::any(DType::F32, &[2, 3, 2])]));
            samples.push(Sample::new("empty", op(1), vec![sample::any(DType::F32, &[0, 3])]));
        }
        samples.into_iter().map(Sample::not_smooth).collect()
    }
}
