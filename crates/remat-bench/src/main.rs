//! Benchmarks of remat: the speed of its engine, and its memory.
//!
//! A measurement is a [`Case`](case::Case), runs in its own process, and gives a [`Record`](case::Record). Layers, each of which uses only
//! those above it in this list:
//!
//! 1. `measure`, `arguments`: a step of any model, values of arguments
//! 2. `models`: a GPT, ResNet-50 and a U-Net, written as a user would
//! 3. `case`: cases and their results
//! 4. `child`, `report`: a process for each case, tables
//! 5. `options`: the arguments of all commands
//! 6. `commands`: `step`, `resnet`, `unet`, `scaling`, `calls`, `device`, `generate`, `stablehlo`, `chart`, `accuracy`,
//!    `reads`, `plans`, `timeline`, `profile`, `algorithms`

mod arguments;
mod case;
mod child;
mod commands;
mod measure;
mod models;
mod options;
mod report;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use commands::{
    accuracy, algorithms, calls, chart, device, generate, plans, profile, reads, scaling, stablehlo, step, timeline,
    vision,
};
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
    /// The time spent besides computing: calls, and compiling a deep step
    Calls(calls::Args),
    /// Whether a device of XLA is there and computes: a scalar, products of matrices, as lines of JSON
    Device(device::Args),
    /// Tokens per second of a decoder with random weights
    Generate(generate::Args),
    /// The gradient of an array of which many parts are read: planned memory and time
    Reads(reads::Args),
    /// What a budget of memory costs, by the planner and the cost model
    Plans(plans::Args),
    /// A step as text for other programs that know StableHLO, with the numbers that it should give
    Stablehlo(stablehlo::Args),
    /// Draw the chart of the README from the table of docs/PERFORMANCE.md
    Chart(chart::Args),
    /// Draw the memory of a training step over its time
    Timeline(timeline::Args),
    /// What taking the time of each step of the engine costs, whether the times add up, and where the time goes
    Profile(profile::Args),
    /// The share of each algorithm in the time of a step of ResNet-50, the U-Net and a GPT
    Algorithms(algorithms::Args),
    /// The errors of sums of many terms
    Accuracy(accuracy::Args),
    /// One case, in this process: the other commands start it
    #[command(name = child::COMMAND, hide = true)]
    One {
        /// The case, as JSON
        case: String,
    },
}

/// Counts the bytes and allocations that the benchmarks report.
#[global_allocator]
static ALLOCATOR: remat_alloc::Counting = remat_alloc::Counting::new();

fn main() -> ExitCode {
    remat_command::command::run(run)
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
        Command::Device(args) => device::run(args, &mut out),
        Command::Generate(args) => generate::run(args, &mut out),
        Command::Reads(args) => reads::run(args, &mut out),
        Command::Plans(args) => plans::run(args, &mut out),
        Command::Stablehlo(args) => stablehlo::run(args, &mut out),
        Command::Chart(args) => chart::run(args, &mut out),
        Command::Timeline(args) => timeline::run(args, &mut out),
        Command::Profile(args) => profile::run(args, &mut out),
        Command::Algorithms(args) => algorithms::run(args, &mut out),
        Command::Accuracy(args) => accuracy::run(args, &mut out),
        Command::One { case } => child::run(case, &mut out),
    }?;
    Ok(out.flush()?)
}
