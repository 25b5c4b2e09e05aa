//! The options that every measurement has.

use std::num::NonZero;
use std::thread::available_parallelism;

use super::case::{Case, Float, Record, Work, label};
use super::{child, report};
use crate::arguments::positive;
use crate::{Result, policy};

/// What `--policy` means here, for the help.
pub(crate) const POLICY_HELP: &str = "What the checkpoint around each block saves: none (no checkpoint), everything, \
     dots, dots-no-batch, nothing, names:A";

/// Arguments of every measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The dtype of weights and activations
    #[arg(long, value_delimiter = ',', default_value = "f32")]
    dtype: Vec<Float>,
    /// Threads of the engine; by default as many as there are cores
    #[arg(long, value_parser = positive)]
    threads: Option<usize>,
    /// Steps that are timed, after one that is not
    #[arg(long, default_value_t = 4, value_parser = positive)]
    repeat: usize,
    /// Print a line of JSON for each configuration instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get))
    }

    /// The works under every policy and dtype.
    ///
    /// # Errors
    /// If there is no such policy.
    pub(crate) fn cases(&self, works: &[Work], policies: &[String]) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for &dtype in &self.dtype {
            for work in works {
                for policy in policies {
                    // As it is written in JAX.
                    let policy = policy.replace('_', "-");
                    policy::parse(&policy)?;
                    let threads = self.threads();
                    cases.push(Case { work: work.clone(), policy, dtype, threads, repeat: self.repeat });
                }
            }
        }
        Ok(cases)
    }

    /// Measures the cases and prints what comes of them: a line of JSON for each as it is done, or a table at the end. The
    /// table has what was done even if a case fails.
    ///
    /// # Errors
    /// The first error of a case.
    pub(crate) fn run(&self, title: &str, cases: &[Case]) -> Result<()> {
        if self.json {
            return child::measure_all(cases, |record| println!("{}", json(record))).map(drop);
        }
        let dtypes: Vec<String> = self.dtype.iter().map(label).collect();
        println!("{title}");
        println!(
            "{}, threads {}, median of {} steps, one process each\n",
            dtypes.join(", "),
            self.threads(),
            self.repeat
        );
        let mut records: Vec<Record> = Vec::new();
        let ended = child::measure_all(cases, |record| records.push(record.clone()));
        if !records.is_empty() {
            println!("{}", report::report(&records));
        }
        ended?;
        println!("\n{}\n{}", report::agreement(&records), report::exactness(&records));
        Ok(())
    }
}

/// A record as a line of JSON.
pub(crate) fn json(record: &Record) -> String {
    // Nothing in a record cannot be written.
    serde_json::to_string(record).unwrap_or_default()
}
