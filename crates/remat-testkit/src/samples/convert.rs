//! Samples of conversions.

use remat_ir::{BitcastConvertType, ConvertElementType, DType, ReducePrecision};

use super::{Sample, Samples, sample};

impl Samples for ConvertElementType {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for from in DType::ALL {
            for dtype in DType::ALL {
                let op = ConvertElementType { dtype };
                let sample = Sample::new(format!("{from} to {dtype}"), op, vec![sample::any(from, &[2, 3])]);
                samples.push(if from.is_float() && dtype.is_float() {
                    let coarse = if from.bits().min(dtype.bits()) == 16 { 2e-2 } else { 1e-5 };
                    sample.linear_in(&[0]).within(coarse)
                } else {
                    sample.not_smooth()
                });
            }
        }
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e300, -3.9, 2.5, -1e10];
        for dtype in DType::ALL {
            let x = sample::array(DType::F64, &[special.len()], &special);
            samples.push(Sample::new("special values", ConvertElementType { dtype }, vec![x]).not_smooth());
        }
        let op = ConvertElementType { dtype: DType::F64 };
        samples.push(Sample::new("scalar", op, vec![sample::any(DType::F64, &[])]).linear_in(&[0]));
        samples.push(Sample::new("empty", op, vec![sample::any(DType::F64, &[0, 2])]).linear_in(&[0]));
        samples
    }
}

impl Samples for BitcastConvertType {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|&d| d != DType::Bool).collect();
        for &from in &dtypes {
            for &dtype in &dtypes {
                // To a wider dtype the last dimension holds the parts.
                let parts = dtype.size() / from.size();
                let shape = if parts > 1 { vec![3, 2, parts] } else { vec![3, 2] };
                let operand = sample::any(from, &shape);
                let label = format!("{from} to {dtype}");
                samples.push(Sample::new(label, BitcastConvertType { dtype }, vec![operand]).not_smooth());
            }
        }
        for (label, from, dtype, shape) in [
            ("scalar", DType::F32, DType::U32, &[][..]),
            ("scalar to parts", DType::F32, DType::U8, &[]),
            ("parts to scalar", DType::U16, DType::F64, &[4]),
            ("empty", DType::F64, DType::U64, &[0, 2]),
            ("empty to parts", DType::F64, DType::U16, &[0]),
        ] {
            let operand = sample::any(from, shape);
            samples.push(Sample::new(label, BitcastConvertType { dtype }, vec![operand]).not_smooth());
        }
        samples
    }
}

impl Samples for ReducePrecision {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dtype in DType::ALL {
            let Some((exponent_bits, mantissa_bits)) = dtype.float_format() else { continue };
            let same = ReducePrecision { exponent_bits, mantissa_bits };
            samples.push(Sample::new("same format", same, vec![sample::any(dtype, &[2, 3])]).linear_in(&[0]));
            let values = [0.1, -0.1, 1e-6, 65504.0, 1e30, -1e30, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];
            for (exponent_bits, mantissa_bits) in [(5, 10), (8, 7), (4, 3), (5, 2), (8, 0), (2, 1)] {
                let op = ReducePrecision { exponent_bits, mantissa_bits };
                let operand = sample::array(dtype, &[values.len()], &values);
                samples.push(Sample::new("narrower", op, vec![operand]).not_smooth().within(0.6));
            }
        }
        let op = ReducePrecision { exponent_bits: 11, mantissa_bits: 52 };
        samples.push(Sample::new("scalar", op, vec![sample::any(DType::F64, &[])]).linear_in(&[0]));
        samples.push(Sample::new("empty", op, vec![sample::any(DType::F64, &[3, 0])]).linear_in(&[0]));
        samples
    }
}
