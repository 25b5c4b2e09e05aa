//! Samples of elementwise operations of several operands.

use remat_ir::{Array, Binary, Clamp, Compare, DType, SelectN};

use super::{Sample, Samples, sample};

impl Samples for Binary {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in Binary::ALL {
            for dtype in DType::ALL {
                let takes = match op {
                    Binary::And | Binary::Or | Binary::Xor => !dtype.is_float(),
                    Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => dtype.is_integer(),
                    Binary::Pow | Binary::Atan2 => dtype.is_float(),
                    Binary::Max | Binary::Min => true,
                    _ => dtype != DType::Bool,
                };
                if takes {
                    let [x, y] = operands(op, dtype, &[2, 3], &[2, 3]);
                    let sample = linear(Sample::new("dtypes", op, vec![x, y]), op);
                    samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
                }
            }
            let float = !matches!(op, Binary::And | Binary::Or | Binary::Xor) && !shift(op);
            let dtype = if float { DType::F64 } else { DType::I32 };
            let shapes: [(&str, &[usize], &[usize]); 5] = [
                ("scalars", &[], &[]),
                ("scalar on the left", &[], &[2, 3]),
                ("scalar on the right", &[4], &[]),
                ("empty", &[2, 0], &[2, 0]),
                ("scalar and empty", &[], &[0]),
            ];
            for (label, left, right) in shapes {
                let sample = linear(Sample::new(label, op, operands(op, dtype, left, right).into()), op);
                samples.push(if float { sample } else { sample.not_smooth() });
            }
            if float {
                let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0];
                let x = sample::array(DType::F64, &[36], &special.map(|x| [x; 6]).concat());
                let y = sample::array(DType::F64, &[36], &special);
                samples.push(Sample::new("special values", op, vec![x, y]).not_smooth());
            }
        }
        for op in [Binary::Max, Binary::Min] {
            let x = sample::array(DType::F64, &[3], &[1.0, 0.0, -1.0]);
            let zero = sample::array(DType::F64, &[], &[0.0]);
            samples.push(Sample::new("tie with a scalar", op, vec![x.clone(), zero.clone()]).not_smooth());
            samples.push(Sample::new("tie with a scalar", op, vec![zero, x]).not_smooth());
        }
        let x = sample::array(DType::F64, &[4], &[7.5, -7.5, 7.5, -7.5]);
        let y = sample::array(DType::F64, &[4], &[2.0, 2.0, -2.0, -2.0]);
        samples.push(Sample::new("signs", Binary::Rem, vec![x, y]));
        let x = sample::array(DType::F64, &[3], &[0.0, -2.0, -2.0]);
        let y = sample::array(DType::F64, &[3], &[2.0, 2.0, 3.0]);
        samples.push(Sample::new("not positive", Binary::Pow, vec![x, y]).not_smooth());
        let x = sample::array(DType::I32, &[4], &[7.0, -7.0, 7.0, -2147483648.0]);
        let y = sample::array(DType::I32, &[4], &[2.0, 2.0, 0.0, -1.0]);
        for op in [Binary::Div, Binary::Rem] {
            samples.push(Sample::new("by zero and overflow", op, vec![x.clone(), y.clone()]).not_smooth());
        }
        samples
    }
}

impl Samples for Compare {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge] {
            for dtype in DType::ALL {
                let x = sample::array(dtype, &[4], &[0.0, 1.0, 1.0, 3.0]);
                let y = sample::array(dtype, &[4], &[1.0, 0.0, 1.0, 3.0]);
                samples.push(Sample::new("dtypes", op, vec![x, y]).not_smooth());
            }
            let x = sample::array(DType::F32, &[5], &[f64::NAN, f64::INFINITY, -0.0, 0.0, 1.0]);
            let y = sample::array(DType::F32, &[5], &[f64::NAN, f64::NEG_INFINITY, 0.0, f64::NAN, 1.0]);
            let zero = sample::array(DType::F32, &[], &[0.0]);
            let none = sample::array(DType::F32, &[3, 0], &[]);
            for (label, x, y) in [
                ("special values", &x, &y),
                ("scalar on the left", &zero, &x),
                ("scalar on the right", &x, &zero),
                ("scalars", &zero, &zero),
                ("empty", &none, &none),
            ] {
                samples.push(Sample::new(label, op, vec![x.clone(), y.clone()]).not_smooth());
            }
        }
        samples
    }
}

impl Samples for SelectN {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let mask = sample::any(DType::Bool, &[2, 3]);
        for dtype in DType::ALL {
            let cases = [sample::any(dtype, &[2, 3]), sample::array(dtype, &[2, 3], &[0.0, 1.0])];
            let sample = Sample::new("mask", SelectN, vec![mask.clone(), cases[0].clone(), cases[1].clone()]);
            samples.push(if dtype.is_float() { sample.linear_in(&[1, 2]) } else { sample.not_smooth() });
        }
        let f64s = |shape: &[usize], start: f64| sample::spread(DType::F64, shape, start, start + 1.0);
        let scalar = sample::array(DType::Bool, &[], &[1.0]);
        let whole = sample::array(DType::I32, &[4], &[0.0, 2.0, 1.0, 5.0]);
        let below = sample::array(DType::I32, &[], &[-3.0]);
        let none = sample::array(DType::Bool, &[0], &[]);
        let few = [f64s(&[4], 0.0), f64s(&[4], 1.0), f64s(&[4], 2.0)];
        for (label, operands) in [
            ("scalar mask", vec![scalar.clone(), f64s(&[2, 3], 0.0), f64s(&[2, 3], 1.0)]),
            ("scalar mask and case", vec![scalar.clone(), f64s(&[2, 3], 0.0), f64s(&[], 1.0)]),
            ("scalar cases", vec![mask.clone(), f64s(&[], 0.0), f64s(&[], 1.0)]),
            ("a scalar case", vec![mask, f64s(&[], 0.0), f64s(&[2, 3], 1.0)]),
            ("scalars", vec![scalar, f64s(&[], 0.0), f64s(&[], 1.0)]),
            ("empty", vec![none, f64s(&[0], 0.0), f64s(&[0], 1.0)]),
            ("numbered, out of range", vec![whole, few[0].clone(), few[1].clone(), few[2].clone()]),
            ("one number, out of range", vec![below.clone(), few[0].clone(), few[1].clone(), few[2].clone()]),
            ("one case", vec![below, few[0].clone()]),
        ] {
            let cases: Vec<usize> = (1..operands.len()).collect();
            samples.push(Sample::new(label, SelectN, operands).linear_in(&cases));
        }
        samples
    }
}

impl Samples for Clamp {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            let scalar = |value| sample::array(dtype, &[], &[value]);
            let x = sample::any(dtype, &[5]);
            let sample = Sample::new("scalar bounds", Clamp, vec![scalar(0.875), x, scalar(1.75)]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        let f64s = |shape: &[usize], values: &[f64]| sample::array(DType::F64, shape, values);
        let x = f64s(&[3], &[-1.0, 0.5, 3.0]);
        let low = f64s(&[3], &[0.0, 0.25, 5.0]);
        let high = f64s(&[3], &[1.0, 2.0, 2.0]);
        let scalar = f64s(&[], &[0.4]);
        let empty = f64s(&[0], &[]);
        for (label, operands) in [
            ("bounds of each element, crossing", [&low, &x, &high]),
            ("low of each element", [&low, &x, &scalar]),
            ("high of each element", [&scalar, &x, &high]),
            ("scalars", [&scalar, &f64s(&[], &[0.1]), &f64s(&[], &[0.9])]),
            ("empty", [&scalar, &empty, &scalar]),
        ] {
            samples.push(Sample::new(label, Clamp, operands.map(Clone::clone).into()));
        }
        let edges = f64s(&[4], &[0.0, 1.0, f64::NAN, f64::INFINITY]);
        samples
            .push(Sample::new("on the bounds", Clamp, vec![f64s(&[], &[0.0]), edges, f64s(&[], &[1.0])]).not_smooth());
        samples
    }
}

fn shift(op: Binary) -> bool {
    matches!(op, Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic)
}

/// Operands at which the operation is smooth, where it ever is.
fn operands(op: Binary, dtype: DType, left: &[usize], right: &[usize]) -> [Array; 2] {
    match op {
        Binary::Pow | Binary::Atan2 => [sample::spread(dtype, left, 0.5, 2.0), sample::spread(dtype, right, 0.6, 3.0)],
        Binary::Div => [sample::any(dtype, left), sample::spread(dtype, right, 1.0, 5.0)],
        // Quotients near 2.5, far from the steps at whole numbers.
        Binary::Rem => [sample::spread(dtype, left, 4.9, 5.1), sample::spread(dtype, right, 1.95, 2.05)],
        Binary::Max | Binary::Min => [sample::any(dtype, left), sample::spread(dtype, right, -1.5, 1.9)],
        _ if shift(op) => [sample::any(dtype, left), sample::array(dtype, right, &[0.0, 1.0, 5.0, 7.0, 64.0])],
        _ => [sample::any(dtype, left), sample::any(dtype, right)],
    }
}

/// Says in which operands a sample of `op` on floats is linear.
fn linear(sample: Sample, op: Binary) -> Sample {
    if !sample.inputs[0].dtype().is_float() {
        return sample;
    }
    match op {
        Binary::Add | Binary::AddAny | Binary::Sub => sample.linear_in(&[0, 1]).linear_in(&[0]).linear_in(&[1]),
        Binary::Mul => sample.linear_in(&[0]).linear_in(&[1]),
        Binary::Div => sample.linear_in(&[0]),
        _ => sample,
    }
}
