//! The `remat` command: trains small language models, and shows what each checkpoint policy saves.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `policy`, `machine`, `page`, `records`, `data`, `model`: the policies of tables, the memory of this machine, pages with charts, the
//!    measurements of a run, the text, the language model
//! 2. `sample`, `memory`, `config`, `run`: text out of a model, the bytes that each policy saves, the configuration of a run and its folder
//! 3. `source`: a trained model, wherever it was saved
//! 4. `train`, `bench`, `generate`, `export`, `show`, `fit`, `plugin`, `cache`, `launch`: the commands
//! 5. `main`: their arguments

mod bench;
mod cache;
mod config;
mod data;
mod export;
mod fit;
mod generate;
mod launch;
mod machine;
mod memory;
mod model;
mod page;
mod plugin;
mod policy;
mod records;
mod run;
mod sample;
mod show;
mod source;
mod train;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use remat_cli::output::Output;

/// Train small language models, and see what every checkpoint policy costs.
#[derive(Parser)]
#[command(name = "remat", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a language model on text, show what each checkpoint policy saves, and save the run.
    Train(train::Args),
    /// Write text with a trained model.
    Generate(generate::Generate),
    /// Print the loss of a trained model on a text.
    Eval(generate::Eval),
    /// Write the model of a run as a Hugging Face folder, which `transformers` loads.
    Export(export::Args),
    /// Print what one transformer block saves under a policy, and its forward and backward programs side by side.
    Show(show::Args),
    /// Measure the training of a configuration.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Report the memory and the least time of a training step under each policy on an accelerator you do not have: compiled for it, not run.
    Fit(fit::Args),
    /// Install and list the plugins with which XLA compiles and runs programs.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Show or delete cached files: programs that XLA has compiled, and tokenized texts.
    #[command(subcommand)]
    Cache(cache::Command),
    /// Run a command as the processes of a cluster on this machine: each gets its rank, and all end when one fails.
    Launch(launch::Args),
    /// End the processes of `launch` if it is killed, which starts this
    #[cfg(unix)]
    #[command(name = launch::GUARD, hide = true)]
    LaunchGuard,
}

fn main() -> ExitCode {
    // A copy of the command that compiles ahead of time for another does that and ends here.
    remat_xla::serve_ahead();
    remat_cli::command::run(|cli: &Cli| run(&cli.command))
}

fn run(command: &Command) -> Result<()> {
    // Commands that only print end with the reader of their output; those whose work has a result go on without it.
    let (mut printed, mut out) = (anstream::stdout(), Output::new(anstream::stdout()));
    match command {
        Command::Generate(args) => generate::generate(args, &mut printed),
        Command::Eval(args) => generate::eval(args, &mut printed),
        Command::Show(args) => show::run(args, &mut printed),
        Command::Train(args) => train::run(args, &mut out),
        Command::Export(args) => export::run(args, &mut out),
        Command::Bench(command) => bench::run(command, &mut out),
        Command::Fit(args) => fit::run(args, &mut out),
        Command::Plugin(command) => plugin::run(command, &mut out),
        Command::Cache(command) => cache::run(command, &mut out),
        Command::Launch(args) => launch::run(args, &mut out),
        #[cfg(unix)]
        Command::LaunchGuard => {
            launch::guard();
            Ok(())
        }
    }?;
    out.finish()?;
    Ok(printed.flush()?)
}
