//! How much the tests do that could go on for as long as one likes.

/// `thorough` if the environment variable `REMAT_TEST_THOROUGH` is set and not 0, as `.ci/run` sets it for a second
/// run, and `quick` otherwise: the number of random cases, or the size of a program whose plans are searched. A quick test still tests the
/// same property.
///
/// ```
/// let layers = remat_testkit::sized(4, 8);
/// assert!([4, 8].contains(&layers));
/// ```
pub fn sized<T>(quick: T, thorough: T) -> T {
    let is_thorough = std::env::var_os("REMAT_TEST_THOROUGH").is_some_and(|v| !v.is_empty() && v != "0");
    if is_thorough { thorough } else { quick }
}
