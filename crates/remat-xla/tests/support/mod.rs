//! The engine for tests, where its plugin is installed.

use std::io::Write;

use remat_xla::{Platform, Xla};

/// The environment variable with another device than XLA on the CPU, such as `cuda:0`, for the tests that run on any.
const DEVICE: &str = "REMAT_TEST_DEVICE";

/// The platform and the ordinal in the environment variable.
fn of_variable() -> (Platform, usize) {
    let name = std::env::var(DEVICE).unwrap_or_else(|_| "xla-cpu".to_string());
    let Some(platform) = Platform::of_device(&name) else { panic!("{DEVICE} is `{name}`, which is no device of XLA") };
    let ordinal = name.split_once(':').map_or(Some(0), |(_, ordinal)| ordinal.parse().ok());
    (platform, ordinal.unwrap_or_else(|| panic!("{DEVICE} is `{name}`, whose ordinal is no number")))
}

/// XLA on the tested device, by default the CPU; nothing, and a loud word about it, where the plugin is not installed. Where
/// `REMAT_REQUIRE_PLUGINS` is set that is a failure: so a script that has installed it cannot pass without it.
pub(crate) fn xla() -> Option<Xla> {
    let (platform, ordinal) = of_variable();
    match Xla::device(platform, ordinal) {
        Ok(xla) => Some(xla),
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
