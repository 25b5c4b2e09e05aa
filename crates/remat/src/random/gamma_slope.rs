//! The derivative of a number of the gamma distribution by its concentration `a`, at a fixed quantile.
//!
//! With the cumulative distribution `P` and the density `p` it is `-(dP/da) / p`. Three formulas cover all numbers: the series of `P`, the
//! continued fraction of `1 - P`, each with its derivative, and for large concentrations an asymptotic expansion. The first two are those
//! of JAX's `random_gamma_grad`. The third one is ours, since the errors of the others grow with the root of the concentration, and so is
//! the use of the logarithm of the number, which may be too small for the dtype.
//!
//! Sources: the Cephes library, `igam.c`; Temme, "The asymptotic expansion of the incomplete gamma functions", 1979.

use remat_ir::Result;

use super::gamma::Space;
use crate::api::{vmap, while_loop, without_derivative};
use crate::{DType, Tensor};

/// The derivatives of numbers, or logarithms of numbers, `[n]`, by their concentrations, `[n]`.
pub(super) fn slope(concentration: &Tensor, x: &Tensor, space: Space) -> Result<Tensor> {
    let slopes = |pairs: &(Tensor, Tensor)| vmap(|(a, x): &(Tensor, Tensor)| one(a, x, space))(pairs);
    // The loops stop when their sums are accurate, which their derivatives need not be.
    let name = "the derivative of a random number by its concentration";
    without_derivative(name, slopes, &(concentration.clone(), x.clone()))
}

/// One derivative, computed in f32 for f16 and bf16.
fn one(concentration: &Tensor, x: &Tensor, space: Space) -> Result<Tensor> {
    let dtype = concentration.dtype()?;
    let [a, x] = [concentration, x].map(|x| x.to_dtype(dtype.wide()));
    let (x, log_x) = match space {
        // The logarithm of zero is not needed, and infinite.
        Space::Linear => (x.clone(), x.eq(0.0).select(1.0, &x).log()),
        Space::Log => (x.exp(), x),
    };
    let slope = slope_of_log(&a, &x, &log_x)?;
    let slope = match space {
        Space::Linear => x.eq(0.0).select(0.0, slope * &x),
        Space::Log => slope,
    };
    Ok(a.gt(0.0).select(slope, f64::NAN).to_dtype(dtype))
}

/// The derivative of the logarithm of `x`. A formula that is not chosen gets operands for which it is finite.
fn slope_of_log(a: &Tensor, x: &Tensor, log_x: &Tensor) -> Result<Tensor> {
    // From here on the expansion, with an error of about 0.02 / a^2, is the more accurate one.
    let is_large = a.gt(if a.dtype()? == DType::F64 { 1e5 } else { 200.0 });
    let is_fraction = x.gt(1.0) & x.gt(a);
    let by_series = series(a, x, log_x, &!(&is_large | &is_fraction))?;
    let by_fraction = fraction(a, x, log_x, &(&is_fraction & !&is_large))?;
    Ok(is_large.select(expansion(a, x, &is_large), is_fraction.select(by_fraction, by_series)))
}

/// For numbers that are at most 1 or at most their concentration: `P` is `x^a exp(-x) / gamma(a + 1)` times a sum of terms, each the one
/// before times `x / (a + n)`.
fn series(a: &Tensor, x: &Tensor, log_x: &Tensor, enabled: &Tensor) -> Result<Tensor> {
    let epsilon = epsilon(a.dtype()?);
    let (zero, one) = (a * 0.0, a * 0.0 + 1.0);
    // The last divisor, term and sum, and the derivatives of the two.
    let first = [a.clone(), one.clone(), one, zero.clone(), zero];
    let step = |(_, [divisor, term, sum, slope, slopes]): &(Tensor, [Tensor; 5])| {
        let divisor = divisor + 1.0;
        let ratio = x / &divisor;
        let slope = slope * &ratio - term * x / (&divisor * &divisor);
        let slopes = slopes + &slope;
        let term = term * ratio;
        let sum = sum + &term;
        (slope.abs().gt(slopes.abs() * epsilon), [divisor, term, sum, slope, slopes])
    };
    let goes_on = |(goes_on, _): &(Tensor, [Tensor; 5])| goes_on.clone();
    let (_, [.., sum, _, slopes]) = while_loop(goes_on, step, &(enabled.clone(), first))?;
    Ok(-(slopes + sum * (log_x - (a + 1.0).digamma())) / a)
}

/// For numbers that are more than 1 and more than their concentration: `1 - P` is `x^a exp(-x) / gamma(a)` times a continued fraction, whose
/// numerators and denominators follow a recurrence over two of them.
fn fraction(a: &Tensor, x: &Tensor, log_x: &Tensor, enabled: &Tensor) -> Result<Tensor> {
    /// A numerator and a denominator, and the derivatives of the two.
    type Pair = [Tensor; 4];
    type State = (Tensor, Tensor, Pair, Pair, Tensor, Tensor);
    let epsilon = epsilon(a.dtype()?);
    let x = &enabled.select(x, a + 2.0);
    let (zero, one) = (x * 0.0, x * 0.0 + 1.0);
    let before = [one, x.clone(), zero.clone(), zero.clone()];
    let z = x - a + 2.0;
    let last = [x + 1.0, &z * x, zero.clone(), -x];
    let value = &last[0] / &last[1];
    let slope = -(&value * &last[3]) / &last[1];
    let tiny = &zero + epsilon;
    let step = |(_, n, before, last, value, slope): &State| {
        let n = n + 1.0;
        let factor = &z + 2.0 * &n;
        let other = (1.0 - a + &n) * &n;
        let follow = |i: usize| &last[i] * &factor - &before[i] * &other;
        let slope_of = |i: usize| follow(i + 2) - &last[i] + &before[i] * &n;
        let next = [follow(0), follow(1), slope_of(0), slope_of(1)];
        let is_zero = next[1].eq(0.0);
        let value = is_zero.select(value, &next[0] / &next[1]);
        let new = is_zero.select(slope, (&next[2] - &value * &next[3]) / &next[1]);
        let goes_on = is_zero | (&new - slope).abs().gt(new.abs() * epsilon);
        // The pairs are scaled together, before they overflow.
        let scale = next[0].abs().gt(1.0 / epsilon).select(&tiny, 1.0);
        let [before, last] = [last, &next].map(|pair| pair.each_ref().map(|x| x * &scale));
        (goes_on & n.lt(2000.0), n, before, last, value, new)
    };
    let first = (enabled.clone(), zero.clone(), before, last, value, slope);
    let (.., value, slope) = while_loop(|(goes_on, ..): &State| goes_on.clone(), step, &first)?;
    Ok(slope + value * (log_x - a.digamma()))
}

/// For large concentrations: with `m = x / a - 1` the quantile is that of a normal distribution at `sqrt(2 a (m - log(1 + m)))`, and a
/// term with `1 / a` corrects it. The powers of `m` suffice for all numbers that are drawn, whose `m` is below 1/2.
fn expansion(a: &Tensor, x: &Tensor, enabled: &Tensor) -> Tensor {
    let m = enabled.select(x / a - 1.0, 0.0);
    let sign = |j: usize| if j.is_multiple_of(2) { 1.0 } else { -1.0 };
    // log(1 + m) / m, and 2 (m - log(1 + m)) / m^2, from which the coefficients of the correction follow.
    let logarithm = |j: usize| sign(j) / (j + 1) as f64;
    let exponent = |j: usize| sign(j) * 2.0 / (j + 2) as f64;
    let sum = |coefficient: &dyn Fn(usize) -> f64| (0..POWERS).rev().fold(&m * 0.0, |sum, j| sum * &m + coefficient(j));
    let correction = sum(&|j| (exponent(j) + exponent(j + 1)) / 2.0);
    (sum(&logarithm) + correction / a) / a
}

/// The number of powers in [`expansion`].
const POWERS: usize = 24;

/// The distance from 1 to the next float.
fn epsilon(dtype: DType) -> f64 {
    let (_, mantissa) = dtype.float_format().unwrap_or_default();
    (-f64::from(mantissa)).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests/data/random/slopes.py` wrote the numbers.
    #[test]
    fn derivatives_are_accurate() -> Result<()> {
        let text = include_str!("../../tests/data/random/slopes.txt");
        let rows: Vec<Vec<f64>> = text
            .lines()
            .map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect())
            .filter(|row: &Vec<f64>| row.len() == 4)
            .collect();
        assert_eq!(rows.len(), 60);
        for (dtype, tolerance) in [(DType::F64, 4e-12), (DType::F32, 6e-6), (DType::F16, 3e-3), (DType::Bf16, 3e-2)] {
            for space in [Space::Log, Space::Linear] {
                let column = |f: &dyn Fn(&[f64]) -> f64| {
                    let numbers: Vec<f64> = rows.iter().map(|row| f(row)).collect();
                    Tensor::from_vec(numbers, [rows.len()]).to_dtype(dtype)
                };
                let (a, log_x) = (column(&|row| row[0]), column(&|row| row[2]));
                let x = if space == Space::Log { log_x.clone() } else { column(&|row| row[2].exp()) };
                let slopes: Vec<f64> = slope(&a, &x, space)?.to_dtype(DType::F64).to_vec()?;
                // Without those that f16 does not have.
                let fits: Vec<bool> = (a.is_finite() & log_x.is_finite()).to_vec()?;
                for ((row, slope), _) in rows.iter().zip(slopes).zip(fits).filter(|(_, fits)| *fits) {
                    let expected = if space == Space::Log { row[3] } else { row[3] * row[2].exp() };
                    // And a number that is zero in the dtype.
                    let rounded = Tensor::scalar(dtype, expected).to_dtype(DType::F64).item::<f64>()?;
                    let is_close = (slope - expected).abs() <= tolerance * expected || slope == rounded;
                    assert!(is_close, "{dtype}, {row:?}: {slope} and {expected}");
                }
            }
        }
        Ok(())
    }
}
