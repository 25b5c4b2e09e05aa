//! `remat-bench scaling`.

use std::io::Write;

use anyhow::Result;

use super::step::describe;
use crate::arguments::{POLICY_HELP, policies};
use crate::case::{Case, Record, Work, label};
use crate::models::gpt::{Attention, LayersAs, Sizes};
use crate::options::{Options, json};
use crate::{child, report};

/// Arguments of `remat-bench scaling`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The size to vary: measured at a quarter, a half and all of its value; threads at powers of two
    #[arg(long, value_delimiter = ',', default_value = "layers,sequence,batch,threads")]
    by: Vec<Quantity>,
    #[arg(long, default_value = "none", help = POLICY_HELP)]
    policy: String,
    /// How the blocks are laid out
    #[arg(long, default_value = "unroll")]
    layers_as: LayersAs,
    /// How the attention is written
    #[arg(long, default_value = "fused")]
    attention: Attention,
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    options: Options,
}

/// The quantity against which step time is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Quantity {
    Layers,
    Sequence,
    Batch,
    Threads,
}

/// Measures the reference step at several sizes, each alone.
///
/// # Errors
/// In one line, what is wrong with the arguments or with a configuration.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    args.sizes.check()?;
    if !args.options.json {
        writeln!(out, "step time of {}, one process each", describe(&args.sizes))?;
    }
    for &quantity in &args.by {
        let (values, cases) = cases(args, quantity)?;
        if args.options.json {
            child::measure_all(&cases, |record| Ok(writeln!(out, "{}", json(record)?)?))?;
            continue;
        }
        let records = child::measure_all(&cases, |_| Ok(()))?;
        writeln!(out, "\nby {}\n\n{}\n", label(&quantity), report::report(&records))?;
        // The records of each dtype are consecutive.
        for records in records.chunks(values.len()) {
            writeln!(out, "{}", growth(quantity, &values, records))?;
        }
    }
    Ok(())
}

/// The values of the quantity, and their cases, dtype after dtype.
fn cases(args: &Args, quantity: Quantity) -> Result<(Vec<usize>, Vec<Case>)> {
    let Args { layers_as, attention, sizes, .. } = *args;
    let whole = match quantity {
        Quantity::Layers => sizes.layers,
        Quantity::Sequence => sizes.sequence,
        Quantity::Batch => sizes.batch,
        Quantity::Threads => args.options.threads(),
    };
    let mut values: Vec<usize> = match quantity {
        Quantity::Threads => std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < whole).collect(),
        Quantity::Layers | Quantity::Sequence | Quantity::Batch => vec![(whole / 4).max(1), (whole / 2).max(1)],
    };
    values.push(whole);
    values.dedup();
    let work = |value: usize| {
        let sizes = match quantity {
            Quantity::Layers => Sizes { layers: value, ..sizes },
            Quantity::Sequence => Sizes { sequence: value, ..sizes },
            Quantity::Batch => Sizes { batch: value, ..sizes },
            Quantity::Threads => sizes,
        };
        Work::Step { sizes, layers_as, attention }
    };
    let works: Vec<Work> = values.iter().map(|&value| work(value)).collect();
    let mut cases = args.options.cases(&works, &policies(&args.policy)?);
    if quantity == Quantity::Threads {
        for (case, &threads) in cases.iter_mut().zip(values.iter().cycle()) {
            case.threads = threads;
        }
    }
    Ok((values, cases))
}

/// How the step time grows with the quantity, in a sentence.
fn growth(quantity: Quantity, values: &[usize], records: &[Record]) -> String {
    let name = label(&quantity);
    let points = |y: fn(&Record) -> f64| -> Vec<(f64, f64)> {
        values.iter().zip(records).map(|(&value, record)| (value as f64, y(record))).collect()
    };
    let (first, last) = (&records[0], &records[records.len() - 1]);
    if values.len() < 2 {
        return format!("there is one number of {name} only");
    }
    match quantity {
        Quantity::Threads => {
            let times = first.step_s / last.step_s;
            format!("{} threads are {times:.2} times as fast as {}", last.case.threads, first.case.threads)
        }
        Quantity::Layers | Quantity::Sequence | Quantity::Batch => {
            let time = exponent(&points(|record| record.step_s));
            let useful = exponent(&points(|record| record.step_s * record.gflops));
            let memory = exponent(&points(|record| record.temporaries as f64));
            format!(
                "time grows as {name}^{time:.2}, useful operations as {name}^{useful:.2}, temporaries as {name}^{memory:.2}"
            )
        }
    }
}

/// The exponent of `y` as a power of `x`: the slope of the least-squares line through the logarithms.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|p| p.0.ln()), mean(|p| p.1.ln()));
    let products = points.iter().map(|(x, y)| (x.ln() - x_mean) * (y.ln() - y_mean)).sum::<f64>();
    products / points.iter().map(|(x, _)| (x.ln() - x_mean).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_is_that_of_the_power() {
        let points = |power: f64| [1.0, 2.0, 4.0, 7.0].map(|x: f64| (x, 3.0 * x.powf(power)));
        for power in [0.0, 1.0, 1.5, 2.0] {
            assert!((exponent(&points(power)) - power).abs() < 1e-12);
        }
    }
}
