//! Samples of random bits.

use remat_ir::{DType, Threefry2x32};

use super::{Sample, Samples, sample};

impl Samples for Threefry2x32 {
    fn samples() -> Vec<Sample> {
        let u32s = |shape: &[usize], values: &[f64]| sample::array(DType::U32, shape, values);
        let (key, counter) = (u32s(&[], &[3238085648.0]), u32s(&[5], &[0.0, 1.0, 4294967295.0, 7.0, 99.0]));
        let keys = u32s(&[5], &[0.0, 4294967295.0, 320440878.0, 5.0, 6.0]);
        let empty = u32s(&[0, 2], &[]);
        [
            ("scalar keys", [&key, &key, &counter, &keys]),
            ("keys of each element", [&keys, &counter, &counter, &keys]),
            ("one scalar key", [&key, &keys, &counter, &keys]),
            ("scalars", [&key, &key, &key, &key]),
            ("empty", [&key, &key, &empty, &empty]),
        ]
        .into_iter()
        .map(|(label, operands)| Sample::new(label, Threefry2x32, operands.map(Clone::clone).into()).not_smooth())
        .collect()
    }
}
