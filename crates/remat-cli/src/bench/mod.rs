//! `remat bench`: how fast the engine is, and in how much memory.
//!
//! A measurement is a [`Case`](case::Case), made in a process of its own, and gives a [`Record`](case::Record). Layers,
//! each using only those above it in this list:
//!
//! 1. `measure`, `count`, `region`: a step of any model, its useful operations, a part of it under a policy
//! 2. `gpt`, `resnet`, `unet`: the models
//! 3. `case`: what is measured, and what comes of it
//! 4. `child`, `report`: a process for each case, tables
//! 5. `options`: the arguments that all commands have
//! 6. `step`, `vision`, `scaling`, `calls`: the commands

mod calls;
mod case;
mod child;
mod count;
mod gpt;
mod measure;
mod options;
mod region;
mod report;
mod resnet;
mod scaling;
mod step;
mod unet;
mod vision;

use clap::Subcommand;

use crate::Result;

/// What is measured.
#[derive(Subcommand)]
pub(crate) enum Command {
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

/// Measures, and prints what came of it.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Step(args) => step::run(args),
        Command::Resnet(args) => vision::resnet(args),
        Command::Unet(args) => vision::unet(args),
        Command::Scaling(args) => scaling::run(args),
        Command::Calls(args) => calls::run(args),
        Command::One { case } => {
            let case: case::Case = serde_json::from_str(case).map_err(|error| error.to_string())?;
            println!("{}", options::json(&case.measure()?));
            Ok(())
        }
    }
}
