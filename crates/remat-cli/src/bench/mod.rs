//! `remat bench`: measurements on this machine.

mod policies;
mod products;

use std::io::Write;

use anyhow::Result;
use remat_command::child;

/// The hidden command that measures one policy.
const ONE_POLICY: &str = "one-policy";

/// The kind of measurement.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Time a training step under each policy, each in a separate process, with its planned and measured memory
    Policies(policies::Args),
    /// Time matrix products, as shares of what this CPU can do: by its peak rate on operands in registers, and by its memory
    Products(products::Args),
    /// Measure one policy in this process; the `policies` command starts it
    #[command(name = ONE_POLICY, hide = true)]
    OnePolicy {
        /// The case, as JSON
        case: String,
    },
}

/// Runs the command.
///
/// # Errors
/// The error of the requested measurement.
pub(crate) fn run(command: &Command, out: &mut impl Write) -> Result<()> {
    match command {
        Command::Policies(args) => policies::run(args, out),
        Command::Products(args) => products::run(args, out),
        Command::OnePolicy { case } => child::answer(case, out, policies::one),
    }
}
