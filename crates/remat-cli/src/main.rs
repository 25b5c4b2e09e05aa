//! The `remat` command: trains a small GPT, shows what each checkpoint policy saves of it, and measures the engine.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `arguments`, `policy`, `data`, `model`, `table`: values of arguments, policies by name, the text, the GPT, tables of
//!    text
//! 2. `sample`, `memory`: text out of a model, the bytes that each policy saves
//! 3. `train`, `show`, `bench`: the commands
//! 4. `main`: their arguments

mod arguments;
mod bench;
mod data;
mod memory;
mod model;
mod policy;
mod sample;
mod show;
mod table;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What goes wrong in a command: one line for the user.
type Result<T, E = String> = std::result::Result<T, E>;

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
    /// Measure how fast the engine is, and in how much memory.
    #[command(subcommand)]
    Bench(bench::Command),
}

/// Counts what the benchmarks report.
#[global_allocator]
static ALLOCATOR: remat_alloc::Counting = remat_alloc::Counting::new();

fn main() -> ExitCode {
    leave_when_nobody_reads();
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Bench(command) => bench::run(&command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The line of an error for someone who uses the command and did not write the program: no source location.
fn line(error: remat::Error) -> String {
    format!("{}: {}", error.operation(), error.message())
}

/// Ends the program quietly when what reads its output has ended, as `head` in `remat show | head`: to `println!` that
/// is a panic.
fn leave_when_nobody_reads() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>();
        if message.is_some_and(|message| message.starts_with("failed printing to stdout")) {
            std::process::exit(0);
        }
        report(panic);
    }));
}
