//! Samples of sorting.

use remat_ir::{DType, Sort, TopK};

use super::{Sample, Samples, sample};

impl Samples for Sort {
    fn samples() -> Vec<Sample> {
        let sort = |axis, num_keys| Sort { axis, num_keys, is_stable: true };
        let f64s = |shape: &[usize]| sample::any(DType::F64, shape);
        let mut samples = Vec::new();
        for dtype in DType::ALL {
            let sample = Sample::new("dtypes", sort(1, 1), vec![sample::any(dtype, &[2, 5])]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        samples.push(Sample::new("first dimension", sort(0, 1), vec![f64s(&[4, 2])]));
        samples.push(Sample::new("inner dimension", sort(1, 1), vec![f64s(&[2, 3, 2])]));
        samples.push(Sample::new("empty", sort(0, 1), vec![f64s(&[0])]));
        samples.push(Sample::new("of nothing", sort(0, 1), vec![f64s(&[0, 3])]));
        samples.push(Sample::new("unstable", Sort { is_stable: false, ..sort(0, 1) }, vec![f64s(&[5])]));
        let payload = sample::spread(DType::F64, &[2, 4], 5.0, 6.0);
        let keys = sample::array(DType::F64, &[2, 4], &[3.0, 1.0, 1.0, -2.0]);
        samples.push(Sample::new("key and payload", sort(1, 1), vec![f64s(&[2, 4]), payload.clone()]));
        samples.push(Sample::new("equal keys", sort(1, 1), vec![keys.clone(), payload.clone()]).not_smooth());
        samples.push(Sample::new("two keys", sort(1, 2), vec![keys, payload.clone()]).not_smooth());
        let whole = sample::array(DType::I32, &[2, 4], &[2.0, 1.0, 1.0, 0.0]);
        let label = "payload by whole keys";
        samples.push(Sample::new(label, sort(0, 1), vec![whole.clone(), payload.clone()]).not_smooth());
        samples.push(Sample::new(label, sort(1, 1), vec![whole, payload.clone(), f64s(&[2, 4])]).not_smooth());
        let special = [f64::NAN, 1.0, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY, -f64::NAN, -1.0];
        let special = sample::array(DType::F64, &[2, 4], &special);
        samples.push(Sample::new("special values", sort(1, 1), vec![special, payload]).not_smooth());
        samples
    }
}

impl Samples for TopK {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            let sample = Sample::new("dtypes", TopK { k: 2 }, vec![sample::any(dtype, &[2, 5])]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        for (label, k, shape) in [
            ("one dimension", 3, &[7][..]),
            ("all", 4, &[4]),
            ("none", 0, &[4]),
            ("three dimensions", 1, &[2, 2, 3]),
            ("empty", 2, &[0, 3]),
        ] {
            samples.push(Sample::new(label, TopK { k }, vec![sample::any(DType::F64, shape)]));
        }
        let ties = sample::array(DType::F32, &[2, 4], &[1.0, 2.0, 2.0, 1.0, f64::NAN, 9.0, f64::INFINITY, f64::NAN]);
        samples.push(Sample::new("ties and NaN", TopK { k: 3 }, vec![ties]).not_smooth());
        samples
    }
}
