//! `remat cache`.

use std::io::Write;

use anyhow::Result;
use remat::report::readable_bytes;
use remat_xla::{ExecutableCache, Usage};

/// Commands of `remat cache`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Say where compiled programs are, and what they take.
    Show,
    /// Delete them: each is compiled again when it is next used.
    Clear,
}

/// Runs a command.
///
/// # Errors
/// If `REMAT_CACHE_SIZE` is not a size, or a file cannot be deleted; if the output cannot be written.
pub(crate) fn run(command: &Command, out: &mut impl Write) -> Result<()> {
    let Some(cache) = ExecutableCache::of_user()? else {
        return Ok(writeln!(out, "compiled programs are not kept: there is no home folder")?);
    };
    let folder = cache.folder().display();
    let limit = match cache.limit() {
        0 => "(turned off by REMAT_CACHE_SIZE)".to_string(),
        limit => {
            format!("of {} at most (REMAT_CACHE_SIZE)", readable_bytes(usize::try_from(limit).unwrap_or(usize::MAX)))
        }
    };
    match command {
        Command::Show => writeln!(out, "{} in {folder}, {limit}", taken(cache.usage()))?,
        Command::Clear => writeln!(out, "deleted {} in {folder}", taken(cache.clear()?))?,
    }
    Ok(())
}

fn taken(Usage { entries, bytes }: Usage) -> String {
    let bytes = readable_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    let programs = if entries == 1 { "program" } else { "programs" };
    format!("{entries} compiled {programs}, {bytes},")
}
