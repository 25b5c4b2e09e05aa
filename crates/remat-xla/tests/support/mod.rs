//! The engine for tests, where its plugin is installed.

use remat_testkit::installed;
use remat_xla::Xla;

/// The environment variable with another device than XLA on the CPU, such as `cuda:0`, for the tests that run on any.
const DEVICE: &str = "REMAT_TEST_DEVICE";

/// XLA on the tested device, by default the CPU, where the plugin is installed.
pub(crate) fn xla() -> Option<Xla> {
    let name = std::env::var(DEVICE).unwrap_or_else(|_| "xla-cpu".to_string());
    let there = Xla::named(&name);
    installed(
        "XLA",
        there.map(|xla| xla.unwrap_or_else(|| panic!("{DEVICE} is `{name}`, which is not a device of XLA"))),
    )
}
