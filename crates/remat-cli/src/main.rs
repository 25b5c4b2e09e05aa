//! The `remat` command: trains a small GPT, and shows what each checkpoint policy saves of it.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `arguments`, `policy`, `machine`, `data`, `model`, `table`: values of arguments, policies, the memory of this machine,
//!    the text, the GPT, numbers and tables as text
//! 2. `sample`, `memory`: text out of a model, the bytes that each policy saves
//! 3. `train`, `show`: the commands
//! 4. `main`: their arguments

mod arguments;
mod data;
mod machine;
mod memory;
mod model;
mod policy;
mod sample;
mod show;
mod table;
mod train;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Error, Result};
use clap::{Parser, Subcommand};

/// Program transformation for Rust, built around rematerialization.
#[derive(Parser)]
#[command(name = "remat", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a byte-level GPT on text, and show what each checkpoint policy saves.
    Train(train::Args),
    /// Print what the model's block saves under a policy, and its forward and backward programs side by side.
    Show(show::Args),
}

fn main() -> ExitCode {
    let ended = match Cli::try_parse() {
        Ok(cli) => run(&cli.command),
        // Help and version come as errors too.
        Err(usage) => match usage.print() {
            Ok(()) => return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(1)),
            Err(error) => Err(error.into()),
        },
    };
    let Some(message) = ended.err().and_then(|error| message(&error)) else { return ExitCode::SUCCESS };
    // Where even this cannot be written, the exit code still says it.
    let _ = writeln!(io::stderr(), "error: {message}");
    ExitCode::FAILURE
}

fn run(command: &Command) -> Result<()> {
    let mut out = anstream::stdout();
    match command {
        Command::Train(args) => train::run(args, &mut out),
        Command::Show(args) => show::run(args, &mut out),
    }?;
    Ok(out.flush()?)
}

/// What the user is told of an error, in one line without a source location: whoever runs the command did not write the
/// program. `None` where the reader of the output has ended, as `head` in `remat show | head`: that is not an error.
fn message(error: &Error) -> Option<String> {
    match (error.downcast_ref::<io::Error>(), error.downcast_ref::<remat::Error>()) {
        (Some(output), _) if output.kind() == io::ErrorKind::BrokenPipe => None,
        // Errors of files have been given their path: this one is of the standard output.
        (Some(output), _) => Some(format!("cannot write to the standard output: {output}")),
        (_, Some(error)) => Some(format!("{}: {}", error.operation(), error.message())),
        (None, None) => Some(error.to_string()),
    }
}
