//! The dynamic code: floats from -1 to 1, or from 0 to 1, in eight bits.
//!
//! Each of seven decades below 1 is cut into bins of equal width. In the signed code the decade up to `10^(i - 6)` has `2^i` bins, in the
//! unsigned one twice as many. So small numbers keep their order of magnitude, and large ones two digits. A number has the code of its bin,
//! which decodes to the middle of the bin; 0 and 1 have their own codes. These are the 256 values of Dettmers et al., "8-bit optimizers via
//! block-wise quantization", ICLR 2022, and of its library, bitsandbytes.
//!
//! As a function of the code, the values lie on a line in each decade. These lines meet at the ends of the decades and get steeper, so a
//! value is the largest of seven lines, and the bin of a number the smallest of the seven inverse lines. No table is searched.

use crate::{DType, Tensor};

const DECADES: i32 = 7;

/// The two codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// From -1 to 1: 127 is 0, and 255 is 1. There is no code for -1, which gets the code of the nearest bin.
    Signed,
    /// From 0 to 1: 255 is 1. Only 0 has code 0, since a second moment of zero would be a divisor.
    Unsigned,
}

impl Code {
    /// The code of zero.
    pub(super) fn zero(self) -> u8 {
        match self {
            Code::Signed => 127,
            Code::Unsigned => 0,
        }
    }

    /// The number of bins in a decade, and the number of the first bin.
    fn bins(self, decade: i32) -> (f64, f64) {
        match self {
            Code::Signed => (2f64.powi(decade), 0.0),
            Code::Unsigned => (2f64.powi(decade + 1), 1.0),
        }
    }

    /// The codes, as u8, of floats divided by a unit that is at least as large as each of them.
    pub(super) fn encode(self, x: &Tensor, unit: &Tensor) -> Tensor {
        let magnitude = if self == Code::Signed { x.abs() } else { x.clone() } / unit;
        let line = |decade: i32| {
            let (bins, first) = self.bins(decade);
            let slope = bins / 0.9;
            &magnitude * (slope / 10f64.powi(decade + 1 - DECADES)) + (0.8 * slope - first)
        };
        let bin = (1..DECADES).fold(line(0), |least, decade| least.minimum(line(decade))).floor();
        let top = f64::from(255 - self.zero());
        // Halfway between 1 and the last bin's middle. A number divided by itself is 1 and stays 1.
        let (bins, _) = self.bins(DECADES - 1);
        let bin = magnitude.ge(1.0 - 0.225 / bins).select(top, bin.minimum(top - 1.0));
        let code = match self {
            Code::Signed => x.sign() * bin.maximum(0) + f64::from(self.zero()),
            // A nonzero float whose quotient is rounded to 0 does not get the code of zero.
            Code::Unsigned => bin.maximum(x.sign()),
        };
        code.to_dtype(DType::U8)
    }

    /// The floats of u8 codes.
    pub(super) fn decode(self, codes: &Tensor, dtype: DType) -> Tensor {
        let offset = codes.to_dtype(dtype) - f64::from(self.zero());
        let bin = if self == Code::Signed { offset.abs() } else { offset.clone() };
        let line = |decade: i32| {
            let (bins, first) = self.bins(decade);
            let unit = 10f64.powi(decade + 1 - DECADES);
            &bin * (0.9 * unit / bins) + (0.9 * (first + 0.5) / bins - 0.8) * unit
        };
        let value = (1..DECADES).fold(line(0), |most, decade| most.maximum(line(decade))).clamp(0, 1);
        if self == Code::Signed { value * offset.sign() } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, DECADES};
    use crate::{DType, Tensor};

    /// The values of the codes, as `create_dynamic_map` of bitsandbytes computes them.
    fn table(code: Code) -> Vec<f64> {
        let mut values = vec![0.0, 1.0];
        for decade in 0..DECADES {
            let bins = if code == Code::Signed { 1 << decade } else { 2 << decade };
            for bin in 0..bins {
                let value = 10f64.powi(decade - 6) * (0.1 + 0.9 * (f64::from(bin) + 0.5) / f64::from(bins));
                values.extend(if code == Code::Signed { vec![value, -value] } else { vec![value] });
            }
        }
        values.sort_by(f64::total_cmp);
        values
    }

    fn codes(code: Code, x: &[f64], dtype: DType) -> Vec<u8> {
        let unit = Tensor::from(1.0f32).to_dtype(dtype);
        code.encode(&Tensor::from_slice(x, [x.len()]).to_dtype(dtype), &unit).to_vec().unwrap()
    }

    #[test]
    fn values_of_all_codes() {
        let all: Vec<u8> = (0..=255).collect();
        for code in [Code::Signed, Code::Unsigned] {
            let expected = table(code);
            assert_eq!((expected.len(), expected[usize::from(code.zero())]), (256, 0.0));
            for (dtype, tolerance) in [(DType::F64, 1e-15), (DType::F32, 2e-7)] {
                let values = code.decode(&Tensor::from_slice(&all, [256]), dtype);
                // A code decodes to a value that has this code again.
                assert_eq!(code.encode(&values, &Tensor::from(1.0f32).to_dtype(dtype)).to_vec::<u8>().unwrap(), all);
                let values: Vec<f64> = values.to_dtype(DType::F64).to_vec().unwrap();
                for (value, expected) in values.iter().zip(&expected) {
                    assert!((value - expected).abs() <= tolerance, "{value} and not {expected}");
                }
            }
        }
    }

    #[test]
    fn codes_of_numbers() {
        for dtype in [DType::F64, DType::F32] {
            assert_eq!(codes(Code::Signed, &[1.0, -1.0, 0.0, -0.0, 1e-9, -1e-9], dtype), [255, 0, 127, 127, 127, 127]);
            assert_eq!(codes(Code::Unsigned, &[1.0, 0.0, 1e-30, 1e-7, 0.9999, 0.99], dtype), [255, 0, 1, 1, 255, 253]);
            // The smallest numbers, divided by the largest, round to 0, but do not get the code of zero.
            let (x, unit) = (Tensor::new([1e-30f32, 1e30, 0.0]).to_dtype(dtype), Tensor::from(1e30f32).to_dtype(dtype));
            assert_eq!(Code::Unsigned.encode(&x, &unit).to_vec::<u8>().unwrap(), [1, 255, 0]);
            // A number is at most half a bin of its decade away from its value.
            let x: Vec<f64> = (0..4000).map(|i| 10f64.powf(-7.0 * f64::from(i) / 4000.0)).collect();
            for code in [Code::Signed, Code::Unsigned] {
                let coded = codes(code, &x, dtype);
                for (x, coded) in x.iter().zip(coded) {
                    let decade = x.log10().floor() as i32 + 7;
                    let (bins, _) = code.bins(decade.clamp(0, DECADES - 1));
                    let half = 0.45 * 10f64.powi(decade - 6) / bins;
                    let value = table(code)[usize::from(coded)];
                    assert!((value - x).abs() <= half * 1.001, "{x} is {value}");
                }
            }
        }
    }
}
