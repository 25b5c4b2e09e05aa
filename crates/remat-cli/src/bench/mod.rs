//! `remat bench`: what is measured on this machine.

mod policies;
mod products;

use std::io::Write;

use anyhow::Result;
use remat_cli::child;

/// The hidden command that measures one policy.
const ONE_POLICY: &str = "one-policy";

/// What is measured.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Time a training step under each policy, each in a process of its own, with its memory, planned and measured
    Policies(policies::Args),
    /// Time matrix products, beside what this CPU does with operands in its registers or its first-level cache
    Products(products::Args),
    /// One policy, in this process: the other command starts it
    #[command(name = ONE_POLICY, hide = true)]
    OnePolicy {
        /// The case, as JSON
        case: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Those of the measurement that is asked for.
pub(crate) fn run(command: &Command, out: &mut impl Write) -> Result<()> {
    match command {
        Command::Policies(args) => policies::run(args, out),
        Command::Products(args) => products::run(args, out),
        Command::OnePolicy { case } => child::answer(case, out, policies::one),
    }
}
