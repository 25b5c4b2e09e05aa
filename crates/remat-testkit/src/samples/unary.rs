//! Samples of elementwise operations of one operand.

use remat_ir::{DType, IntegerPow, Unary};

use super::{Sample, Samples, sample};

impl Samples for Unary {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for op in Unary::ALL {
            let (low, high) = domain(op);
            let sample = |label: &str, dtype, shape: &[usize], low, high| {
                let sample = Sample::new(label, op, vec![sample::spread(dtype, shape, low, high)]);
                if op == Unary::Neg { sample.linear_in(&[0]) } else { sample }
            };
            for dtype in DType::ALL {
                if !op.takes(dtype) {
                    continue;
                }
                if dtype.is_float() {
                    samples.push(sample("floats", dtype, &[3, 2], low, high));
                    continue;
                }
                samples.push(Sample::new("whole numbers", op, vec![sample::any(dtype, &[5])]).not_smooth());
            }
            if !matches!(op, Unary::Not | Unary::PopulationCount) {
                samples.push(sample("scalar", DType::F64, &[], low, high));
                samples.push(sample("empty", DType::F64, &[2, 0], low, high));
                let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e300, -1e-300];
                let array = sample::array(DType::F64, &[special.len()], &special);
                samples.push(Sample::new("special values", op, vec![array]).not_smooth());
            }
        }
        let below = sample::spread(DType::F64, &[4], -3.9, -3.1);
        samples.push(Sample::new("negative", Unary::Digamma, vec![below.clone()]).within(1e-5));
        samples.push(Sample::new("negative", Unary::Lgamma, vec![below]).within(1e-5));
        samples.push(Sample::new("negative", Unary::Cbrt, vec![sample::spread(DType::F64, &[4], -3.0, -0.5)]));
        samples.push(Sample::new("saturated", Unary::Tanh, vec![sample::array(DType::F32, &[2], &[40.0, -40.0])]));
        samples
    }
}

impl Samples for IntegerPow {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for y in [-3, -1, 0, 1, 2, 3, 8] {
            let x = sample::spread(DType::F64, &[4], -2.0, 2.0);
            let sample = Sample::new(format!("power {y}"), IntegerPow { y }, vec![x]);
            samples.push(if y == 1 { sample.linear_in(&[0]) } else { sample });
        }
        for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
            let sample = Sample::new("dtypes", IntegerPow { y: 3 }, vec![sample::any(dtype, &[3])]);
            samples.push(if dtype.is_float() { sample } else { sample.not_smooth() });
        }
        samples.push(Sample::new("scalar", IntegerPow { y: 2 }, vec![sample::array(DType::F64, &[], &[1.5])]));
        samples.push(Sample::new("empty", IntegerPow { y: 2 }, vec![sample::array(DType::F64, &[0, 3], &[])]));
        let zeros = sample::array(DType::F64, &[2], &[0.0, -0.0]);
        samples.push(Sample::new("at zero", IntegerPow { y: 2 }, vec![zeros.clone()]));
        samples.push(Sample::new("pole", IntegerPow { y: -2 }, vec![zeros]).not_smooth());
        samples
    }
}

/// An interval on which the function is smooth and not steep.
fn domain(op: Unary) -> (f64, f64) {
    match op {
        Unary::Log | Unary::Sqrt | Unary::Rsqrt | Unary::Cbrt => (0.5, 3.0),
        Unary::Log1p => (-0.5, 2.0),
        Unary::Asin | Unary::Acos | Unary::Atanh | Unary::ErfInv => (-0.8, 0.8),
        Unary::Acosh => (1.5, 3.0),
        Unary::Tan => (-1.2, 1.2),
        Unary::Lgamma | Unary::Digamma => (0.6, 12.0),
        // Away from the kinks and steps at whole and half numbers.
        Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => (1.1, 1.4),
        _ => (-2.0, 2.0),
    }
}
