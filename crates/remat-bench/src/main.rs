//! Benchmarks of remat: how fast its engine is, and in how much memory.
//!
//! A measurement is a [`Case`](case::Case), made in a process of its own, and gives a [`Record`](case::Record). Layers,
//! each using only those above it in this list:
//!
//! 1. `measure`, `count`, `table`, `arguments`: a step of any model, its useful operations, tables of text, values of arguments
//! 2. `models`: a GPT, ResNet-50 and a U-Net, written as a user would
//! 3. `case`: what is measured, and what comes of it
//! 4. `child`, `report`: a process for each case, tables
//! 5. `options`: the arguments that all commands have
//! 6. `commands`: `step`, `resnet`, `unet`, `scaling`, `calls`

mod arguments;
mod case;
mod child;
mod commands;
mod measure;
mod models;
mod options;
mod report;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Error, Result};
use clap::Parser;

use commands::{calls, scaling, step, vision};
use models::{resnet, unet};

/// Measures how fast remat's engine is, and in how much memory.
#[derive(Parser)]
#[command(name = "remat-bench", version)]
enum Command {
    /// The reference step: loss and gradient of a GPT, under each policy, layers unrolled and scanned
    Step(step::Args),
    /// A step of ResNet-50, each block under each policy
    Resnet(vision::Args<resnet::Sizes>),
    /// A step of a U-Net, each level under each policy
    Unet(vision::Args<unet::Sizes>),
    /// The step time against layers, sequence, batch and threads
    Scaling(scaling::Args),
    /// What is spent besides computing: calls, and compiling a deep step
    Calls(calls::Args),
    /// One case, in this process: what the other commands start
    #[command(name = child::COMMAND, hide = true)]
    One {
        /// The case, as JSON
        case: String,
    },
}

/// Counts what the benchmarks report.
#[global_allocator]
static ALLOCATOR: remat_alloc::Counting = remat_alloc::Counting::new();

fn main() -> ExitCode {
    let ended = match Command::try_parse() {
        Ok(command) => run(&command),
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

/// Measures, and prints the results.
fn run(command: &Command) -> Result<()> {
    let mut out = io::stdout();
    match command {
        Command::Step(args) => step::run(args, &mut out),
        Command::Resnet(args) => vision::resnet(args, &mut out),
        Command::Unet(args) => vision::unet(args, &mut out),
        Command::Scaling(args) => scaling::run(args, &mut out),
        Command::Calls(args) => calls::run(args, &mut out),
        Command::One { case } => child::run(case, &mut out),
    }?;
    Ok(out.flush()?)
}

/// What the user is told of an error, in one line without a source location. `None` where the reader of the output has
/// ended: that is not an error.
fn message(error: &Error) -> Option<String> {
    match (error.downcast_ref::<io::Error>(), error.downcast_ref::<remat::Error>()) {
        (Some(output), _) if output.kind() == io::ErrorKind::BrokenPipe => None,
        (Some(output), _) => Some(format!("cannot write to the standard output: {output}")),
        (_, Some(error)) => Some(format!("{}: {}", error.operation(), error.message())),
        (None, None) => Some(error.to_string()),
    }
}
