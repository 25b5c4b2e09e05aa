//! Samples of cumulative operations.

use remat_ir::{Array, Cumulative, CumulativeKind, DType};

use super::{Sample, Samples, sample};

impl Samples for Cumulative {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for kind in [
            CumulativeKind::Sum,
            CumulativeKind::Prod,
            CumulativeKind::Max,
            CumulativeKind::Min,
            CumulativeKind::LogSumExp,
        ] {
            for reverse in [false, true] {
                let sample = |label: &str, axis, operand: Array| {
                    let is_float = operand.dtype().is_float();
                    let sample = Sample::new(label, Cumulative { kind, axis, reverse }, vec![operand]);
                    match kind {
                        _ if !is_float => sample.not_smooth(),
                        CumulativeKind::Sum => sample.linear_in(&[0]),
                        _ => sample,
                    }
                };
                for dtype in DType::ALL {
                    let takes = if kind == CumulativeKind::LogSumExp { dtype.is_float() } else { dtype != DType::Bool };
                    if takes {
                        samples.push(sample("dtypes", 1, sample::any(dtype, &[2, 3])));
                    }
                }
                for (label, axis, shape) in [
                    ("first dimension", 0, &[4, 2][..]),
                    ("inner dimension", 1, &[2, 7, 2]),
                    ("one element", 0, &[1]),
                    ("long", 0, &[21]),
                    ("of nothing", 1, &[2, 0]),
                    ("to nothing", 1, &[0, 3]),
                ] {
                    samples.push(sample(label, axis, sample::any(DType::F64, shape)));
                }
                let zeros = [2.0, 0.0, 3.0, 0.0, 5.0, -1.0, 4.0];
                let zeros = sample("zeros", 0, sample::array(DType::F64, &[7], &zeros));
                samples.push(if kind == CumulativeKind::Prod { zeros } else { zeros.not_smooth() });
                let large = sample("large", 0, sample::array(DType::F64, &[5], &[900.0, -900.0, 905.0, 903.0, 899.5]));
                samples.push(if kind == CumulativeKind::Prod { large.not_smooth() } else { large });
                for special in [
                    [f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, 2.0],
                    [1.0, f64::NAN, 3.0, 4.0],
                    [1.0, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY],
                    [2.0, 2.0, -0.0, 0.0],
                ] {
                    let operand = sample::array(DType::F64, &[4], &special);
                    samples.push(sample("special values and ties", 0, operand).not_smooth());
                }
            }
        }
        samples
    }
}
