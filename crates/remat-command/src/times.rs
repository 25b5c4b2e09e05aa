//! Statistics of repeated timings.

use remat::report::Profile;

/// The median of some numbers, which are sorted; NaN if there are none.
///
/// ```
/// use remat_command::times::median;
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

/// The profile of the run with the median time; `None` if there are none.
///
/// ```
/// use std::time::Duration;
/// use remat_command::times::median_profile;
/// use remat::report::Profile;
/// let of = |seconds| Profile { total: Duration::from_secs(seconds), ..Profile::default() };
/// assert_eq!(median_profile(vec![of(3), of(1), of(2)]).map(|profile| profile.total.as_secs()), Some(2));
/// assert!(median_profile(Vec::new()).is_none());
/// ```
pub fn median_profile(mut profiles: Vec<Profile>) -> Option<Profile> {
    profiles.sort_by_key(|profile| profile.total);
    let half = profiles.len() / 2;
    profiles.into_iter().nth(half)
}
