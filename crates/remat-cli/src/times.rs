//! Statistics of repeated timings.

/// The median of some numbers, which are sorted; NaN if there are none.
///
/// ```
/// use remat_cli::times::median;
/// assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
/// assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
/// assert!(median(&mut []).is_nan());
/// ```
pub fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => (numbers[half - 1] + numbers[half]) / 2.0,
        _ => numbers[half],
    }
}
