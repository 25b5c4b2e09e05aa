//! The arguments, and the parts one after the other.
//!
//! Layers, each using only those above it in this list:
//!
//! 1. `process`, `report`: commands under limits, the table
//! 2. `trace`, `work`: the calls of a process, what the parts share
//! 3. `formats`: valid files, and how they are read
//! 4. `sweep`, `damage`, `flags`: the parts

mod damage;
mod flags;
mod formats;
mod process;
mod report;
mod sweep;
mod trace;
mod work;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use remat::{Device, Tensor, jit};

use report::{Finding, Row};
use work::Work;

/// Puts remat under faults, and prints what it survived.
#[derive(Parser)]
#[command(name = "faults")]
struct Cli {
    /// The `remat` command
    #[arg(long, default_value = "remat")]
    remat: PathBuf,
    /// About how long to go on; every part does a little
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// The seed of orders and damages [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// One part alone
    #[arg(long)]
    only: Option<Part>,
    /// One case alone, as a failure names it, or all of one kind, such as `export` or `gz`; with --only
    #[arg(long, requires = "only")]
    case: Option<String>,
    /// A document whose table is replaced
    #[arg(long)]
    write: Option<PathBuf>,
    #[command(subcommand)]
    hidden: Option<Hidden>,
}

/// The parts, with their share of the time.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Faults at every call on a file
    Sweep,
    /// Damaged files
    Damage,
    /// Hostile flags and variables
    Flags,
}

/// What this program does for itself in other processes.
#[derive(Subcommand)]
enum Hidden {
    #[command(hide = true)]
    Start {
        #[arg(long)]
        traced: bool,
        memory: u64,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    #[command(hide = true)]
    Damage { format: String, first: u64, last: u64 },
    #[command(hide = true)]
    Tokenize { text: PathBuf, folder: PathBuf },
    #[command(hide = true)]
    Compile,
}

pub(crate) fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(cli: Cli) -> Result<ExitCode> {
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut work = Work { remat: cli.remat, seed, until: Instant::now() };
    match cli.hidden {
        None => {}
        Some(Hidden::Start { traced, memory, command }) => {
            process::start(traced, memory, &command)?;
        }
        Some(Hidden::Damage { format, first, last }) => {
            damage::child(&work, &format, first, last)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Hidden::Tokenize { text, folder }) => {
            println!("result {}", formats::tokens(&text, &folder)?);
            return Ok(ExitCode::SUCCESS);
        }
        Some(Hidden::Compile) => {
            println!("result {:?}", compiled()?);
            return Ok(ExitCode::SUCCESS);
        }
    }
    work.remat = work.remat.canonicalize().with_context(|| format!("no {}", work.remat.display()))?;
    println!("seed {seed}");
    let (mut rows, mut findings, mut left): (Vec<Row>, Vec<Finding>, _) = (Vec::new(), Vec::new(), 1.0f64);
    let end = Instant::now() + Duration::from_secs(cli.seconds);
    for (part, share) in [(Part::Damage, 0.3), (Part::Flags, 0.2), (Part::Sweep, 0.5)] {
        if cli.only.is_some_and(|only| only != part) {
            continue;
        }
        // What a part leaves of its time is for the others.
        let rest = end.saturating_duration_since(Instant::now());
        let share = if cli.only.is_some() { 1.0 } else { share / left };
        left -= if cli.only.is_some() { 0.0 } else { share * left };
        work.until = Instant::now() + rest.mul_f64(share.min(1.0));
        let tried = match part {
            Part::Sweep => sweep::run,
            Part::Damage => damage::run,
            Part::Flags => flags::run,
        };
        let (more, found) = tried(&work, cli.case.as_deref())?;
        rows.extend(more);
        findings.extend(found);
    }
    let table = report::table(&rows);
    println!("\n{table}");
    for Finding { what, problem } in &findings {
        println!("FAILED {what}\n    {problem}");
    }
    if let Some(document) = cli.write {
        report::write(&document, &table)?;
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result of a program that XLA compiles, which is then in the cache.
fn compiled() -> remat::Result<Vec<f32>> {
    let device = Device::xla_cpu(0)?;
    let x = Tensor::new([0.1f32, 0.2, 0.3]).to_device(&device);
    jit(|x: &Tensor| (x.sin() * x).cumsum(0)).call(x)?.to_vec()
}
