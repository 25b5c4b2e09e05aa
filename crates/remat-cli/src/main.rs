//! The `remat` command: trains small language models, and shows what each checkpoint policy saves.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `policy`, `lock`, `machine`, `page`, `data`, `records`, `model`: the policies of tables, files of plans, the memory of this machine,
//!    pages with charts, the text, the measurements of a run, the language model
//! 2. `sample`, `memory`, `sequences`, `config`: text out of a model, the bytes that each policy saves, the tokens of an evaluation, the
//!    configuration of a run
//! 3. `step`: a training step
//! 4. `run`: the folder of a run
//! 5. `source`: a trained model, wherever it was saved
//! 6. `train`, `bench`, `generate`, `export`, `show`, `fit`, `plan`, `profile`, `plugin`, `cache`, `launch`: the commands
//! 7. `main`: their arguments

mod bench;
mod cache;
mod config;
mod data;
mod export;
mod fit;
mod generate;
mod launch;
mod lock;
mod machine;
mod memory;
mod model;
mod page;
mod plan;
mod plugin;
mod policy;
mod profile;
mod records;
mod run;
mod sample;
mod sequences;
mod show;
mod source;
mod step;
mod train;

use std::io::Write;
use std::process::ExitCode;
use std::thread;

use anyhow::Result;
use clap::{Parser, Subcommand};
use remat_command::output::Output;

/// Train small language models, and see what every checkpoint policy costs.
#[derive(Parser)]
#[command(name = "remat", version, after_help = CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The exit codes of all commands, for their help.
const CODES: &str = "Exit codes: 0 for success, 1 for an error, 2 for invalid arguments. It is not an error if the reader of the output goes away, such as `head`.";

#[derive(Subcommand)]
enum Command {
    /// Train a language model on text, show what each checkpoint policy saves, and save the run.
    #[command(
        after_help = "Exit codes: 0 if the run has done its steps, whether its output was read or not; 1 for an error, and for a run that was \
                            stopped by Ctrl-C or SIGTERM, which is saved; 2 for invalid arguments."
    )]
    Train(train::Args),
    /// Write text with a trained model.
    Generate(generate::Generate),
    /// Print the loss of a trained model on a text.
    Eval(generate::Eval),
    /// Write the model of a run as a Hugging Face folder, which `transformers` loads.
    Export(export::Args),
    /// Print what one transformer block saves under a policy, and its forward and backward programs side by side.
    Show(show::Args),
    /// Measure training steps under each policy, or matrix products, on this machine.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Report the memory and a lower bound of the time of a training step under each policy on an accelerator you do not have: the step is
    /// compiled for it, not run.
    #[command(
        after_help = "Exit codes: 0 for a table with an answer, also if nothing fits; 1 for an error, and if no row has an answer; 2 for \
                            invalid arguments; 130 and 143 after Ctrl-C and SIGTERM, with the rows that were done."
    )]
    Fit(fit::Args),
    /// Plan the training step of a model, programs in files, or graphs of steps for memory budgets: what is computed again, what it costs,
    /// and for graphs when each step runs and where each result is in memory.
    #[command(after_help = plan::HELP)]
    Plan(plan::Args),
    /// Run training steps of a model, and print where their time goes: by operation, by line, and by forward pass, recomputation and derivative.
    Profile(profile::Args),
    /// Install and list the plugins with which XLA compiles and runs programs.
    #[command(subcommand)]
    Plugin(plugin::Command),
    /// Show or delete cached files: programs that XLA has compiled, and tokenized texts.
    #[command(subcommand)]
    Cache(cache::Command),
    /// Run a command as the processes of a cluster on this machine: each gets its rank, and all end when one fails.
    #[command(
        after_help = "Exit codes: 0 if all processes end with 0; that of the first process that fails, or 128 and its signal; 1 for an \
                            error; 2 for invalid arguments; 128 and the signal after Ctrl-C, SIGTERM and SIGHUP, which are passed on."
    )]
    Launch(launch::Args),
    /// Run the step of one policy in this process; `fit --run` starts it
    #[command(name = fit::ONE_POLICY, hide = true)]
    FitOnePolicy {
        /// The case, as JSON
        case: String,
    },
    /// End the processes of `launch` if it is killed, which starts this
    #[cfg(unix)]
    #[command(name = launch::GUARD, hide = true)]
    LaunchGuard,
}

/// The stack of a command, in bytes, whatever the limit of the first thread, which has a mebibyte on some systems: a training step is
/// traced with functions inside functions.
const STACK: usize = 16 << 20;

fn main() -> ExitCode {
    // A copy of the command that compiles ahead of time for another does that and ends here.
    remat_xla::serve_ahead();
    // A file that would be larger than the limit of the process is an error, not its end.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
    let command = thread::Builder::new().name("main".to_string()).stack_size(STACK);
    match command.spawn(|| remat_command::command::run(|cli: &Cli| run(&cli.command))).map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic is told already.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: cannot start a thread: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    // Commands that only print end with the reader of their output; those whose work has a result go on without it.
    let (mut printed, mut out) = (anstream::stdout(), Output::new(anstream::stdout()));
    match command {
        Command::Generate(args) => generate::generate(args, &mut printed),
        Command::Eval(args) => generate::eval(args, &mut printed),
        Command::Show(args) => show::run(args, &mut printed),
        Command::Plan(args) => plan::run(args, &mut printed),
        Command::Train(args) => train::run(args, &mut out),
        Command::Export(args) => export::run(args, &mut out),
        Command::Bench(command) => bench::run(command, &mut out),
        Command::Fit(args) => fit::run(args, &mut out),
        Command::Profile(args) => profile::run(args, &mut out),
        Command::FitOnePolicy { case } => fit::one_policy(case, &mut out),
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
