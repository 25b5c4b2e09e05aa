//! Runs a command and reports its errors.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Error, Result};
use clap::Parser;

use crate::text;

/// Parses the arguments of this process, runs the command, and returns the exit code: 0 for success, 2 for invalid arguments, 1 for errors,
/// which print one line on standard error, and the code of an [`Exit`]. The line is [a message for a terminal](text::message), whatever names
/// of files it contains.
///
/// An [`io::Error`] without a context counts as an error of standard output; errors of files and processes get their path as
/// [context](anyhow::Context). If the reader of the output has ended, like `head` in `remat show | head`, the command ends, and that is not an
/// error; a command whose work has a result writes to an [`Output`](crate::output::Output), and goes on.
///
/// ```no_run
/// use std::io::Write;
///
/// #[derive(clap::Parser)]
/// struct Args {
///     name: String,
/// }
///
/// fn main() -> std::process::ExitCode {
///     remat_command::command::run(|args: &Args| Ok(writeln!(std::io::stdout(), "hello {}", args.name)?))
/// }
/// ```
pub fn run<A: Parser>(command: impl FnOnce(&A) -> Result<()>) -> ExitCode {
    let ended = match A::try_parse() {
        Ok(arguments) => command(&arguments),
        // Help and version come as errors too.
        Err(usage) => match usage.print() {
            Ok(()) => return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(1)),
            Err(error) => Err(error.into()),
        },
    };
    let Err(error) = ended else { return ExitCode::SUCCESS };
    if let Some(&Exit(code)) = error.downcast_ref() {
        return ExitCode::from(code);
    }
    let Some(message) = message(&error) else { return ExitCode::SUCCESS };
    // If even this cannot be written, the exit code still reports the failure.
    let _ = writeln!(io::stderr(), "error: {message}");
    ExitCode::FAILURE
}

/// The error of a command that has already reported what is wrong. It ends with this exit code.
///
/// ```
/// let error = anyhow::Error::from(remat_command::command::Exit(7));
/// assert_eq!(error.to_string(), "exit code 7");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exit(pub u8);

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// The message of an error: its contexts, then the error, without a source location, since the user of a command did not write the program.
/// `None` if the reader of the output has ended.
fn message(error: &Error) -> Option<String> {
    let mut parts = Vec::new();
    for (depth, cause) in error.chain().enumerate() {
        match (cause.downcast_ref::<io::Error>(), cause.downcast_ref::<remat::Error>()) {
            (Some(output), _) if depth == 0 && output.kind() == io::ErrorKind::BrokenPipe => return None,
            (Some(output), _) if depth == 0 => return Some(format!("cannot write to the standard output: {output}")),
            (_, Some(error)) => parts.push(format!("{}: {}", error.operation(), error.message())),
            _ => parts.push(cause.to_string()),
        }
    }
    Some(text::message(&parts.join(": ")))
}

/// Writes a note for the user, [for a terminal](text::message).
///
/// ```
/// let mut out = Vec::new();
/// remat_command::command::note(&mut out, "`a\u{7}` is not read")?;
/// assert_eq!(out, "note: `a\u{fffd}` is not read\n".as_bytes());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If the output cannot be written.
pub fn note(out: &mut impl Write, note: &str) -> io::Result<()> {
    writeln!(out, "note: {}", text::message(note))
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    fn io_error(kind: io::ErrorKind) -> Result<()> {
        Err(io::Error::new(kind, "it failed").into())
    }

    #[test]
    fn errors_without_a_context_are_of_the_output() {
        let of = |error: Result<()>| message(&error.unwrap_err());
        let expected = "cannot write to the standard output: it failed";
        assert_eq!(of(io_error(io::ErrorKind::StorageFull)).as_deref(), Some(expected));
        assert_eq!(of(io_error(io::ErrorKind::BrokenPipe)), None);
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::BrokenPipe] {
            assert_eq!(of(io_error(kind).context("case 1")).as_deref(), Some("case 1: it failed"));
        }
    }

    #[test]
    fn names_of_files_are_not_obeyed_by_the_terminal() {
        let error = anyhow!("`m.safetensors` has no tensor `\u{1b}]0;pwned\u{7}`");
        assert_eq!(message(&error).unwrap(), "`m.safetensors` has no tensor `\u{fffd}]0;pwned\u{fffd}`");
        let long = message(&anyhow!("tensor `{}` is f32", "x".repeat(1 << 20))).unwrap();
        assert!(long.len() < 2100 && long.starts_with("tensor `x") && long.ends_with("x` is f32"), "{long}");
    }

    #[test]
    fn the_location_of_an_error_is_left_out() {
        let error = remat::Tensor::from(1.0f32).reshape([2]).shape().unwrap_err();
        let expected = format!("{}: {}", error.operation(), error.message());
        assert_eq!(message(&error.clone().into()), Some(expected.clone()));
        assert_eq!(message(&Error::from(error).context("case 1")), Some(format!("case 1: {expected}")));
        assert_eq!(message(&anyhow!("no text")).as_deref(), Some("no text"));
    }
}
