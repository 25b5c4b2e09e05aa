//! What a machine may lack, such as XLA's plugin.

use std::fmt::Display;
use std::io::Write;

use crate::sized::is_set;

/// What a test needs of this machine, if it is there. Otherwise [`not_tested`] says why it is not; where the environment variable
/// `REMAT_TEST_REQUIRE_PLUGINS` is set, that is a failure, so that a script that has installed everything cannot pass without it.
///
/// ```
/// use remat_testkit::installed;
/// assert_eq!(installed("a number", "12".parse::<i32>()), Some(12));
/// ```
///
/// # Panics
/// If it is not there and has to be.
#[track_caller]
pub fn installed<T, E: Display>(what: &str, there: Result<T, E>) -> Option<T> {
    match there {
        Ok(there) => Some(there),
        Err(error) if is_set("REMAT_TEST_REQUIRE_PLUGINS") => panic!("{what}: {error}"),
        Err(error) => {
            not_tested(what, &error);
            None
        }
    }
}

/// Says loudly that a test, or a part of it, does not run here, and why.
pub fn not_tested(what: &str, why: &dyn Display) {
    // Not by a macro: the test harness keeps what those print to itself if a test passes.
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED: {what}: {why}\n");
}
