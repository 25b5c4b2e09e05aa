//! `remat cache`.

use std::io::Write;

use anyhow::Result;
use remat::ir::counted;
use remat::report::readable_bytes;
use remat_data::TokenCache;
use remat_xla::ExecutableCache;

use crate::data::token_folder;

/// Commands of `remat cache`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show where compiled programs and tokenized texts are stored, and their sizes.
    Show,
    /// Delete them: each program is compiled again at its next use, and each text tokenized again.
    Clear,
}

/// Runs a command.
///
/// # Errors
/// If `REMAT_CACHE_SIZE` is not a size, or a file cannot be deleted; if the output cannot be written.
pub(crate) fn run(command: &Command, out: &mut impl Write) -> Result<()> {
    let (Some(programs), Some(texts)) = (ExecutableCache::of_user()?, token_folder()?.map(TokenCache::new)) else {
        return Ok(writeln!(out, "compiled programs and tokens are not kept: neither HOME nor XDG_CACHE_HOME is set")?);
    };
    let limit = match programs.limit() {
        0 => "(turned off by REMAT_CACHE_SIZE)".to_string(),
        limit => format!("of {} at most (REMAT_CACHE_SIZE)", bytes(limit)),
    };
    let (folder, of_tokens) = (programs.folder().display(), texts.folder().display());
    match command {
        Command::Show => {
            let (programs, texts) = (programs.usage(), texts.usage());
            writeln!(out, "{} in {folder}, {limit}", taken(programs.entries, "compiled program", programs.bytes))?;
            writeln!(out, "{} in {of_tokens}", taken(texts.texts, "tokenized text", texts.bytes))?;
        }
        Command::Clear => {
            let programs = programs.clear()?;
            writeln!(out, "deleted {} in {folder}", taken(programs.entries, "compiled program", programs.bytes))?;
            let (deleted, left) = (texts.clear()?, texts.usage().bytes);
            writeln!(out, "deleted {} in {of_tokens}", taken(deleted.texts, "tokenized text", deleted.bytes))?;
            if left > 0 {
                writeln!(out, "kept {}, which another process is writing", bytes(left))?;
            }
        }
    }
    Ok(())
}

fn taken(count: usize, what: &str, size: u64) -> String {
    format!("{}, {},", counted(count, what), bytes(size))
}

fn bytes(bytes: u64) -> String {
    readable_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}
