//! How much the tests do that could go on for as long as one likes.

/// `thorough` if the environment variable `REMAT_TEST_THOROUGH` is set and not 0, as `.ci/run` sets it for a second run, and
/// `quick` otherwise: the number of cases, the size of a program whose plans are searched, or how long a test watches. A quick test still
/// tests the same property.
///
/// ```
/// let layers = remat_testkit::sized(4, 8);
/// assert!([4, 8].contains(&layers));
/// ```
pub fn sized<T>(quick: T, thorough: T) -> T {
    if is_set("REMAT_TEST_THOROUGH") { thorough } else { quick }
}

/// Whether an environment variable is set to something other than 0.
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}
