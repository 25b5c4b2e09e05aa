//! The listings of the guide (`guide/src`), each a program: `cargo run -p remat-guide -- start` runs one.
//!
//! What stands between `// ANCHOR: part` and `// ANCHOR_END: part` is shown in the guide, as in mdBook. A line `== part` that a
//! listing prints begins the output of that part. `tests/guide.rs` compares the guide with both.
//!
//! `remat-guide mdbook` is the preprocessor of the book (`guide/book.toml`).

mod book;
mod listings;

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let ended = match name.as_str() {
        // mdBook asks first which renderers it is for: all.
        "mdbook" if std::env::args().nth(2).is_some() => Ok(()),
        "mdbook" => book::preprocess(std::io::stdin(), std::io::stdout()),
        _ => listing(&name),
    };
    if let Err(error) = ended {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn listing(name: &str) -> Result<(), Box<dyn Error>> {
    let Some((_, run)) = listings::ALL.iter().find(|(listing, _)| *listing == name) else {
        let known: Vec<&str> = listings::ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("unknown listing `{name}`; there are {}", known.join(", ")).into());
    };
    run()
}
