//! The listings of the guide (`guide/src`), each a program: `cargo run -p remat-guide -- start` runs one.
//!
//! What stands between `// ANCHOR: part` and `// ANCHOR_END: part` is shown in the guide, as in mdBook. A line `== part` that a
//! listing prints begins the output of that part. `tests/guide.rs` compares the guide with both.

mod listings;

use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, run)) = listings::ALL.iter().find(|(listing, _)| *listing == name) else {
        let known: Vec<&str> = listings::ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown listing `{name}`; there are {}", known.join(", "));
        return ExitCode::FAILURE;
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
