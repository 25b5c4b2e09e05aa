//! The dynamic code: floats from -1 to 1, or from 0 to 1, in eight bits.
//!
//! Each of seven decades below 1 is cut into bins of one width: in the signed code the decade up to `10^(i - 6)` into `2^i`, in the
//! unsigned one into twice as many. So small numbers keep an order of magnitude, and large ones two digits. A number has the code of
//! its bin, which stands for the middle of the bin; 0 and 1 have codes of their own. These are the 256 values of Dettmers et al.,
//! "8-bit optimizers via block-wise quantization", ICLR 2022, and of its library, bitsandbytes.
//!
//! From code to value the middles lie on a line in each decade, these lines meet where decades do, and they get steeper: the value is
//! the largest of seven lines, and the bin of a number the smallest of the seven inverse ones. No table is searched.

use crate::{DType, Tensor};

const DECADES: i32 = 7;

/// One of both codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// From -1 to 1: 127 is 0, and 255 is 1. There is no code for -1, which has that of the bin next to it.
    Signed,
    /// From 0 to 1: 255 is 1. No number but 0 has code 0: a second moment that were taken for 0 would be divided by.
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

    /// Of how many bins the lowest decade consists, and where it starts.
    fn bins(self, decade: i32) -> (f64, f64) {
        match self {
            Code::Signed => (2f64.powi(decade), 0.0),
            Code::Unsigned => (2f64.powi(decade + 1), 1.0),
        }
    }

    /// The codes of floats divided by a unit that none of them is beyond, as u8.
    pub(super) fn encode(self, x: &Tensor, unit: &Tensor) -> Tensor {
        let magnitude = if self == Code::Signed { x.abs() } else { x.clone() } / unit;
        let line = |decade: i32| {
            let (bins, first) = self.bins(decade);
            let slope = bins / 0.9;
            &magnitude * (slope / 10f64.powi(decade + 1 - DECADES)) + (0.8 * slope - first)
        };
        let bin = (1..DECADES).fold(line(0), |least, decade| least.minimum(line(decade))).floor();
        let top = f64::from(255 - self.zero());
        // The middle between 1 and the last bin's middle: a number that divides itself is 1, and stays so.
        let (bins, _) = self.bins(DECADES - 1);
        let bin = magnitude.ge(1.0 - 0.225 / bins).select(top, bin.minimum(top - 1.0));
        let code = match self {
            Code::Signed => x.sign() * bin.maximum(0) + f64::from(self.zero()),
            // A float whose quotient is rounded to 0 is none of the zeros.
            Code::Unsigned => bin.maximum(x.sign()),
        };
        code.to_dtype(DType::U8)
    }

    /// The floats that u8 codes stand for.
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

    /// The values of codes, as `create_dynamic_map` of bitsandbytes builds them.
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
                // A code decodes to a value that has this code.
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
            // The least numbers, divided by the largest, are 0, and yet none of the zeros.
            let (x, unit) = (Tensor::new([1e-30f32, 1e30, 0.0]).to_dtype(dtype), Tensor::from(1e30f32).to_dtype(dtype));
            assert_eq!(Code::Unsigned.encode(&x, &unit).to_vec::<u8>().unwrap(), [1, 255, 0]);
            // No number is further from its value than half a bin of its decade.
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
