//! Sums of equal numbers.
//!
//! The roundings of random numbers have random signs and cancel, so that their sum is accurate in any order. Those of equal numbers have
//! one sign: added one after the other, their error is in proportion to the number of terms. So results are compared with what they are,
//! not with the evaluator's, and may be wrong by a rounding for each doubling of the number of terms. Products are not among them, since
//! each of their factors adds a rounding in any order.

use remat::{DType, PoolConfig, Tensor, grad, make_jaxpr, nn};
use remat_ir::{Array, Literal};

use crate::arrays::literals;
use crate::cases::Cases;
use crate::conform::keep_promises;
use crate::difference::{epsilon, half_epsilon};
use crate::engine::Engine;

struct Case {
    name: &'static str,
    f: fn(&Tensor) -> Tensor,
    shape: &'static [usize],
    /// The element of the operand, before it is rounded to the dtype.
    value: f64,
    /// The number of terms of a result, by its position among all.
    terms: fn(usize) -> usize,
    /// A result, from the element and the number of terms.
    expected: fn(f64, f64) -> f64,
}

fn sum(x: f64, n: f64) -> f64 {
    x * n
}

fn mean(x: f64, _: f64) -> f64 {
    x
}

fn logarithm(x: f64, n: f64) -> f64 {
    x + n.ln()
}

fn case(
    name: &'static str,
    f: fn(&Tensor) -> Tensor,
    shape: &'static [usize],
    terms: fn(usize) -> usize,
    expected: fn(f64, f64) -> f64,
) -> Case {
    Case { name, f, shape, value: 0.1, terms, expected }
}

fn cases() -> Vec<Case> {
    vec![
        case("sum of all", |x| x.sum(..), &[50_000], |_| 50_000, sum),
        case("sum along the last axis", |x| x.sum(-1), &[3, 9000], |_| 9000, sum),
        case("sum along the first axis", |x| x.sum(0), &[1000, 130], |_| 1000, sum),
        case("sum along the middle axis", |x| x.sum(1), &[33, 300, 130], |_| 300, sum),
        case("sum along the first axis of few columns", |x| x.sum(0), &[9000, 3], |_| 9000, sum),
        case("sum along the middle axis of few columns", |x| x.sum(1), &[33, 3000, 2], |_| 3000, sum),
        case("sum of images", |x| x.sum([0, 1, 2]), &[8, 20, 20, 40], |_| 3200, sum),
        case("sum of channels", |x| x.sum([0, 2, 3]), &[4, 33, 30, 30], |_| 3600, sum),
        case("sum of a computed array", |x| (x * 2.0).sum(0), &[1000, 130], |_| 1000, |x, n| 2.0 * x * n),
        case("mean of rows and columns", |x| x.mean([0, 1]), &[100, 30, 2], |_| 3000, mean),
        case("logsumexp along the first axis", |x| x.logsumexp(0), &[2000, 5], |_| 2000, logarithm),
        case("logsumexp along the last axis", |x| x.logsumexp(-1), &[5, 2000], |_| 2000, logarithm),
        case("cumsum", |x| x.cumsum(0), &[50_000], |i| i + 1, sum),
        case("cumsum of rows", |x| x.cumsum(1), &[9, 3000], |i| i % 3000 + 1, sum),
        case("cumsum of columns", |x| x.cumsum(0), &[1000, 70], |i| i / 70 + 1, sum),
        case("reversed cumsum", |x| x.flip(0).cumsum(0).flip(0), &[3000], |i| 3000 - i, sum),
        case("mean of a window", |x| x.avg_pool(&PoolConfig::new([60, 60])), &[1, 2, 60, 60], |_| 3600, mean),
        case("means of windows", |x| x.avg_pool(&PoolConfig::new([300])), &[1, 1, 1200], |_| 300, mean),
    ]
}

/// The cases whose numbers are not 0.1.
fn others() -> Vec<Case> {
    // The gradient at each class but the target is its probability.
    let gradient = |x: &Tensor| {
        let gradient = grad(|x: &Tensor| nn::cross_entropy(x, &Tensor::new([1000])));
        gradient(x).expect("the loss is a scalar").index((.., ..1000))
    };
    vec![Case {
        value: 10_000.0,
        ..case("gradient of a cross entropy", gradient, &[1, 1001], |_| 1001, |_, n| 1.0 / n)
    }]
}

pub(crate) fn sums_of_equal_numbers_are_accurate(cases: &mut Cases<'_>) {
    for case in self::cases().into_iter().chain(others()) {
        for dtype in [DType::F16, DType::Bf16, DType::F32, DType::F64] {
            cases.case(format!("{} in {dtype}", case.name), |engine| case.check(engine, dtype));
        }
    }
}

impl Case {
    fn check(&self, engine: &Engine, dtype: DType) -> Result<(), String> {
        let element = Literal::from_f64(dtype, self.value);
        let x = Array::full(element, self.shape.iter().copied());
        let program = make_jaxpr(self.f)(&Tensor::zeros(self.shape.to_vec(), dtype)).map_err(|e| e.to_string())?;
        let args: Vec<Array> = program.consts.into_iter().chain([x]).collect();
        keep_promises(engine, &program.jaxpr, &args, |got| {
            let got = got.map_err(|e| e.to_string())?;
            for (i, got) in got.iter().flat_map(literals).enumerate() {
                let (terms, got) = ((self.terms)(i), got.as_f64());
                let expected = (self.expected)(element.as_f64(), terms as f64);
                // A sum of half precision is rounded, and what is computed of it too.
                let allowed = epsilon(dtype) * (terms as f64).log2().max(1.0) + half_epsilon(dtype);
                let error = (got / expected - 1.0).abs();
                if error.is_nan() || error > allowed {
                    return Err(format!(
                        "result {i} of {terms} terms is {got} and not {expected}: the error is {error:.1e}, and may be {allowed:.1e}"
                    ));
                }
            }
            Ok(Some(got))
        })
        .map(|_| ())
        .map_err(|e| format!("{}: {e}\n{}", engine.device.name(), program.jaxpr))
    }
}
