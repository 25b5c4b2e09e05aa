//! The options of every measurement.

use std::io::Write;

use anyhow::Result;
use remat_command::arguments::{threads_or_all, up_to};

use crate::case::{Case, Float, Record, Work, label};
use crate::{child, report};

/// Arguments of every measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The dtype of weights and activations
    #[arg(long, value_delimiter = ',', default_value = "f32")]
    dtype: Vec<Float>,
    /// The device that steps run on: cpu (the native engine), xla-cpu, cuda:0, tpu
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads of the native engine; by default as many as there are cores
    #[arg(long, value_parser = up_to(1 << 16))]
    threads: Option<usize>,
    /// Timed steps, after one warm-up step
    #[arg(long, default_value_t = 4, value_parser = up_to(1_000_000))]
    repeat: usize,
    /// Print a line of JSON for each configuration instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        threads_or_all(self.threads)
    }

    /// The works under every policy and dtype.
    pub(crate) fn cases(&self, works: &[Work], policies: &[String]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &dtype in &self.dtype {
            for work in works {
                for policy in policies {
                    let (work, policy) = (work.clone(), policy.clone());
                    let (device, threads) = (self.device.clone(), self.threads());
                    cases.push(Case { work, policy, dtype, device, threads, repeat: self.repeat });
                }
            }
        }
        cases
    }

    /// Measures the cases and prints the results: a line of JSON for each at once, or a table at the end. The table has the measured cases
    /// even if one fails.
    ///
    /// # Errors
    /// The first error of a case.
    pub(crate) fn run(&self, title: &str, cases: &[Case], out: &mut impl Write) -> Result<()> {
        if self.json {
            return child::measure_all(cases, |record| Ok(writeln!(out, "{}", json(record)?)?)).map(drop);
        }
        let dtypes: Vec<String> = self.dtype.iter().map(label).collect();
        writeln!(out, "{title}")?;
        writeln!(
            out,
            "{}, {}, threads {}, median of {} steps, one process each\n",
            self.device,
            dtypes.join(", "),
            self.threads(),
            self.repeat
        )?;
        let mut records: Vec<Record> = Vec::new();
        let ended = child::measure_all(cases, |record| {
            records.push(record.clone());
            Ok(())
        });
        if !records.is_empty() {
            writeln!(out, "{}", report::report(&records))?;
        }
        ended?;
        writeln!(out, "\n{}\n{}", report::agreement(&records), report::exactness(&records))?;
        Ok(())
    }
}

/// A record as a line of JSON.
///
/// # Errors
/// If it cannot be written as JSON, which is a defect.
pub(crate) fn json(record: &Record) -> Result<String> {
    Ok(serde_json::to_string(record)?)
}
