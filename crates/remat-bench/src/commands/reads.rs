//! `remat-bench reads`: the gradient of an array of which many parts are read, in planned memory and time.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use remat::{DType, Tensor, checkpoint, grad, jit, random};
use remat_command::arguments::{policy, up_to};
use remat_command::table::table;
use remat_command::times::median;
use serde::Serialize;

/// Arguments of `remat-bench reads`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What is read [default: each]
    #[arg(long, value_enum, value_delimiter = ',')]
    read: Vec<Read>,
    /// How many parts are read
    #[arg(long, value_delimiter = ',', default_values_t = [12, 24, 48, 96], value_parser = up_to(10_000))]
    count: Vec<usize>,
    #[arg(long, default_value = "none", help = crate::arguments::POLICY_HELP)]
    policy: String,
    /// Gradients that are timed, after one that is not
    #[arg(long, default_value_t = 20, value_parser = up_to(1_000_000))]
    repeat: usize,
    /// Print lines of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What is read, a part in each step.
#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Read {
    /// Two weights of 128 x 128 for each step, stacked
    Weights,
    /// As many weights, each an array
    Apart,
    /// A sequence, whose steps have 64 KiB
    Steps,
    /// 64 rows of a table of 1 MiB in each step
    Embeddings,
    /// One weight of 1 MiB in each step
    Shared,
    /// Columns of 64 KiB
    Columns,
}

/// The measurements: bytes, and the median time in seconds.
#[derive(Serialize)]
struct Record {
    framework: &'static str,
    read: Read,
    count: usize,
    policy: String,
    planned_peak: usize,
    step_s: f64,
    compile_s: f64,
}

/// What comes before the first step, the arrays that are read, and the rows to look up in each step.
type Operands = (Tensor, Vec<Tensor>, Tensor);

impl Read {
    fn operands(self, count: usize) -> Operands {
        let (first, shape): (&[usize], &[usize]) = match self {
            Read::Weights => (&[64, 128], &[count, 2, 128, 128]),
            Read::Apart => (&[64, 128], &[2, 128, 128]),
            Read::Steps => (&[64, 256], &[count, 64, 256]),
            Read::Embeddings => (&[64, 128], &[2048, 128]),
            Read::Shared => (&[64, 512], &[512, 512]),
            Read::Columns => (&[16384], &[16384, count]),
        };
        let arrays = if matches!(self, Read::Apart) { count } else { 1 };
        let draw = |key| random::normal(key, shape, DType::F32) * 0.05;
        let arrays = random::key(1).split_vec(arrays).into_iter().map(draw).collect();
        let ids = random::randint(random::key(2), [count, 64], DType::I32, 0..2048);
        (random::normal(random::key(0), first, DType::F32), arrays, ids)
    }

    /// One step, which reads its part.
    fn step(self, x: &Tensor, arrays: &[Tensor], ids: &Tensor, step: usize) -> Tensor {
        let layer = |w: &Tensor| x.matmul(&w.index(0)).tanh().matmul(&w.index(1)).tanh();
        match self {
            Read::Weights => layer(&arrays[0].index(step)),
            Read::Apart => layer(&arrays[step]),
            Read::Steps => (x * 0.5 + arrays[0].index(step)).tanh(),
            Read::Embeddings => (x * 0.5 + arrays[0].take(&ids.index(step), 0)).tanh(),
            Read::Shared => x.matmul(&arrays[0]).tanh(),
            Read::Columns => (x * 0.5 + arrays[0].index((.., step))).tanh(),
        }
    }
}

/// Measures, and prints the results.
///
/// # Errors
/// If the policy is unknown, or a program cannot be compiled or run, which is a defect.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let reads = if args.read.is_empty() { Read::value_variants() } else { &args.read };
    let mut records = Vec::new();
    for (read, &count) in reads.iter().flat_map(|&read| args.count.iter().map(move |count| (read, count))) {
        let record = measure(args, read, count)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&record)?)?;
            out.flush()?;
        }
        records.push(record);
    }
    if args.json {
        return Ok(());
    }
    let rows: Vec<_> = records
        .iter()
        .map(|r| {
            let mib = format!("{:.1}", r.planned_peak as f64 / f64::from(1 << 20));
            let [step, compile] = [r.step_s, r.compile_s].map(|seconds| format!("{:.2}", 1e3 * seconds));
            vec![crate::case::label(&r.read), r.count.to_string(), mib, step, compile]
        })
        .collect();
    Ok(writeln!(out, "{}", table(&["read", "times", "planned peak MiB", "step ms", "compile ms"], &rows))?)
}

fn measure(args: &Args, read: Read, count: usize) -> Result<Record> {
    let policy = policy(&args.policy)?;
    let operands = read.operands(count);
    let gradient = jit(|(first, arrays, ids): &Operands| {
        grad(|arrays: &Vec<Tensor>| {
            let step = |x: Tensor, step: usize| {
                let apply = |(x, arrays): &(Tensor, Vec<Tensor>)| read.step(x, arrays, ids, step);
                match &policy {
                    None => apply(&(x, arrays.clone())),
                    Some(policy) => checkpoint(policy.clone(), apply)(&(x, arrays.clone())),
                }
            };
            (0..count).fold(first.clone(), step).sum(..)
        })(arrays)
    });
    let started = Instant::now();
    let planned_peak = gradient.memory(&operands)?.peak;
    let compile_s = started.elapsed().as_secs_f64();
    black_box(gradient.call(operands.clone())?);
    let mut times = Vec::with_capacity(args.repeat);
    for _ in 0..args.repeat {
        let started = Instant::now();
        black_box(gradient.call(operands.clone())?);
        times.push(started.elapsed().as_secs_f64());
    }
    let (policy, step_s) = (args.policy.clone(), median(&mut times));
    Ok(Record { framework: "remat", read, count, policy, planned_peak, step_s, compile_s })
}
