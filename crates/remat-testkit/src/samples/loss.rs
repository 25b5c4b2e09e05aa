//! Samples of the derivative of cross entropy.

use remat_ir::{Array, CrossEntropyTangent, DType};

use super::sample::{any, array};
use super::{Sample, Samples};

impl Samples for CrossEntropyTangent {
    fn samples() -> Vec<Sample> {
        let sample = |label: &str, dtype: DType, shape: &[usize], labels: Array| {
            let positions = labels.shape().to_vec();
            let shift = array(dtype.wide(), &positions, &[1.5, 1.25, 2.0]);
            let logarithm = array(dtype.wide(), &positions, &[1.0, 0.5, 0.75]);
            let inputs = vec![any(dtype, shape), labels, shift, logarithm, any(dtype, shape)];
            Sample::new(label, CrossEntropyTangent, inputs).linear_in(&[4])
        };
        let labels = |shape: &[usize]| array(DType::I32, shape, &[1.0, 0.0, 2.0, 7.0, -1.0]);
        let mut samples = vec![
            sample("one position", DType::F64, &[4], labels(&[])),
            sample("positions", DType::F64, &[5, 3], labels(&[5])),
            sample("positions in two dimensions", DType::F64, &[2, 3, 4], labels(&[2, 3])),
            sample("wide labels", DType::F64, &[2, 3], array(DType::I64, &[2], &[2.0, 1.0])),
            sample("no positions", DType::F64, &[0, 3], labels(&[0])),
            sample("no classes", DType::F64, &[2, 0], labels(&[2])),
        ];
        samples.extend([DType::F16, DType::Bf16, DType::F32].map(|d| sample(d.name(), d, &[5, 3], labels(&[5]))));
        samples
    }
}
