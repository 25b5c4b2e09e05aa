//! The engine for tests, where its plugin is installed.

use std::io::Write;

use remat_xla::Xla;

/// The environment variable with another device than XLA on the CPU, such as `cuda:0`, for the tests that run on any.
const DEVICE: &str = "REMAT_TEST_DEVICE";

/// XLA on the tested device, by default the CPU; nothing, and a loud word about it, where the plugin is not installed. Where
/// `REMAT_REQUIRE_PLUGINS` is set that is a failure: so a script that has installed it cannot pass without it.
pub(crate) fn xla() -> Option<Xla> {
    let name = std::env::var(DEVICE).unwrap_or_else(|_| "xla-cpu".to_string());
    match Xla::named(&name) {
        Ok(Some(xla)) => Some(xla),
        Ok(None) => panic!("{DEVICE} is `{name}`, which is no device of XLA"),
        Err(error) if std::env::var_os("REMAT_REQUIRE_PLUGINS").is_some() => panic!("{error}"),
        Err(error) => {
            not_tested(&error.to_string());
            None
        }
    }
}

/// Says loudly that a test is left out, and why.
pub(crate) fn not_tested(why: &str) {
    // Not by a macro: what those print is shown for failing tests alone.
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED on XLA: {why}\n");
}
