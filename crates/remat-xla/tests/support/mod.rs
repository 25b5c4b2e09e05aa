//! The engine for tests, where its plugin is installed.

use std::io::Write;

use remat_xla::Xla;

/// XLA on the CPU; nothing, and a loud word about it, where the plugin is not installed. Where `REMAT_REQUIRE_PLUGINS` is set that is
/// a failure: so a script that has installed it cannot pass without it.
pub(crate) fn xla() -> Option<Xla> {
    match Xla::cpu() {
        Ok(xla) => Some(xla),
        Err(error) if std::env::var_os("REMAT_REQUIRE_PLUGINS").is_some() => panic!("{error}"),
        Err(error) => {
            // Not by a macro: what those print is shown for failing tests alone.
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED on XLA: {error}\n");
            None
        }
    }
}
