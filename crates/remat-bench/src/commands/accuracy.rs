//! `remat-bench accuracy`: the errors of sums of many terms, of equal numbers, whose roundings have one sign, and of uniform ones.

use std::io::Write;

use anyhow::Result;
use remat::{DType, Device, JitOptions, PoolConfig, Tensor, grad, jit_with, nn};
use remat_command::arguments::up_to;
use remat_command::table::table;
use remat_command::times::median;
use serde::Serialize;

use crate::case::{Float, label};
use crate::measure::timed;

/// Arguments of `remat-bench accuracy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The dtype of the numbers and of the results
    #[arg(long, default_value = "f32")]
    dtype: Float,
    /// The device that sums: cpu (the native engine), xla-cpu, cuda:0, tpu
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Timed runs, after one to warm up
    #[arg(long, default_value_t = 5, value_parser = up_to(1_000_000))]
    repeat: usize,
    /// Print lines of JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A reduction, with the name that bench/peers/sums.py gives it, and its operand.
struct Sum {
    name: &'static str,
    f: fn(&Tensor) -> Tensor,
    shape: &'static [usize],
    /// What is added to the numbers, which are between 0 and 1.
    offset: f64,
}

const SUMS: &[Sum] = &[
    Sum { name: "sum of [10000000]", f: |x| x.sum(..), shape: &[10_000_000], offset: 0.0 },
    Sum { name: "sum of [64,100000] along 1", f: |x| x.sum(1), shape: &[64, 100_000], offset: 0.0 },
    Sum { name: "sum of [16384,1024] along 0", f: |x| x.sum(0), shape: &[16_384, 1024], offset: 0.0 },
    Sum { name: "sum of [32,4096,128] along 1", f: |x| x.sum(1), shape: &[32, 4096, 128], offset: 0.0 },
    Sum { name: "sum of [32,56,56,64] along 0, 1, 2", f: |x| x.sum([0, 1, 2]), shape: &[32, 56, 56, 64], offset: 0.0 },
    Sum { name: "sum of [32,56,56,64] along 1, 2", f: |x| x.sum([1, 2]), shape: &[32, 56, 56, 64], offset: 0.0 },
    Sum { name: "logsumexp of [8,128000] along 1", f: |x| x.logsumexp(1), shape: &[8, 128_000], offset: 0.0 },
    Sum { name: "cumsum of [10000000]", f: |x| x.cumsum(0), shape: &[10_000_000], offset: 0.0 },
    Sum { name: "cumsum of [2048,2048] along 1", f: |x| x.cumsum(1), shape: &[2048, 2048], offset: 0.0 },
    Sum { name: "cumsum of [2048,2048] along 0", f: |x| x.cumsum(0), shape: &[2048, 2048], offset: 0.0 },
    Sum { name: "cumlogsumexp of [100000]", f: |x| x.cumlogsumexp(0), shape: &[100_000], offset: 0.0 },
    Sum { name: "means of windows of 28 by 28", f: |x| windows(x, 28), shape: &[1, 16, 112, 112], offset: 0.0 },
    Sum { name: "mean of a window of 112 by 112", f: |x| windows(x, 112), shape: &[1, 16, 112, 112], offset: 0.0 },
    Sum { name: "gradient of cross entropy near 0", f: of_loss, shape: &[64, 1000], offset: 0.0 },
    Sum { name: "gradient of cross entropy near 10000", f: of_loss, shape: &[64, 1000], offset: 1e4 },
];

fn windows(x: &Tensor, size: usize) -> Tensor {
    x.avg_pool(&PoolConfig::new([size, size]))
}

/// The gradient of the cross entropies of all rows, whose targets are their numbers.
fn of_loss(x: &Tensor) -> Tensor {
    let loss = |x: &Tensor| nn::cross_entropy(x, &Tensor::arange(0..64)) * 64.0;
    grad(loss)(x).expect("the loss is a scalar")
}

/// The results of one reduction.
#[derive(Serialize)]
struct Record {
    sum: &'static str,
    /// The largest error for equal and for uniform numbers, relative to the largest element of the result.
    equal: f64,
    uniform: f64,
    /// The median time for uniform numbers.
    seconds: f64,
}

/// Computes each reduction in a dtype and in f64, and prints the errors.
///
/// # Errors
/// If there is no such device, or a program cannot be run.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let device = Device::named(&args.device)?;
    let mut rows = Vec::new();
    for sum in SUMS {
        let record = sum.measure(&device, args)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&record)?)?;
        } else {
            let errors = [record.equal, record.uniform].map(|error| format!("{error:.1e}"));
            rows.push(
                [vec![sum.name.to_string()], errors.to_vec(), vec![format!("{:.2}", 1e3 * record.seconds)]].concat(),
            );
        }
    }
    if !args.json {
        let title =
            format!("errors of sums of {} on {}, relative to the largest element", label(&args.dtype), args.device);
        writeln!(out, "{title}\n\n{}", table(&["", "equal numbers", "uniform numbers", "ms"], &rows))?;
    }
    Ok(())
}

impl Sum {
    fn measure(&self, device: &Device, args: &Args) -> Result<Record> {
        let dtype = args.dtype.dtype();
        let options = |device: &Device| JitOptions { device: Some(device.clone()), ..JitOptions::default() };
        let sum = jit_with(&options(device), self.f);
        let exact = jit_with(&options(&Device::cpu()), self.f);
        let error = |x: &Tensor| -> remat::Result<f64> {
            let got = sum.call(x.clone())?.to_device(&Device::cpu()).to_dtype(DType::F64);
            let expected = exact.call(x.to_dtype(DType::F64))?;
            ((got - &expected).abs().max(..) / expected.abs().max(..)).item()
        };
        let size: usize = self.shape.iter().product();
        let tensor = |number: &dyn Fn(usize) -> f64| {
            let numbers: Vec<f64> = (0..size).map(|i| self.offset + number(i)).collect();
            Tensor::from_vec(numbers, self.shape.to_vec()).to_dtype(dtype)
        };
        let equal = error(&tensor(&|_| 0.1))?;
        // Multiples of the golden ratio modulo 1 are spread evenly.
        let x = tensor(&|i| (i as f64 * 0.618_033_988_749_894_9).fract());
        let uniform = error(&x)?;
        let x = x.to_device(device);
        let mut times = Vec::new();
        for _ in 0..args.repeat {
            times.push(timed(|| sum.call(x.clone())?.wait())?.1);
        }
        Ok(Record { sum: self.name, equal, uniform, seconds: median(&mut times) })
    }
}
