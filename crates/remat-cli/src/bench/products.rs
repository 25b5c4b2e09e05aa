//! `remat bench products`: matrix products relative to what this CPU's peak rate and memory allow.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use remat::{Cpu, DType, JitOptions, Tensor, jit_with};
use remat_command::arguments::{threads_or_all, up_to};
use remat_command::table::table;
use remat_kernels::{Threads, ceiling, read_rate};
use serde::Serialize;

/// The measured dtypes of operands.
const DTYPES: [DType; 6] = [DType::F32, DType::F64, DType::Bf16, DType::F16, DType::I8, DType::U8];

/// Measurements of a product: at least this many, and as many as take this long.
const MIN_RUNS: usize = 4;

/// Measurements of the peak rate before each product, and of reading memory.
const PEAKS: usize = 20;
const READS: usize = 5;

/// Arguments of `remat bench products`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Dtypes of the operands; results have the same dtype, those of bytes are i32
    #[arg(long, value_name = "DTYPE", value_delimiter = ',', default_value = "f32", value_parser = dtypes())]
    dtype: Vec<DType>,
    /// Threads of the engine; each product is also measured on one thread
    #[arg(long, value_parser = up_to(1 << 16))]
    threads: Option<usize>,
    /// Milliseconds to measure each product
    #[arg(long, default_value_t = 400, value_parser = up_to(1_000_000))]
    milliseconds: usize,
    /// Measure only products whose name or shape contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// Print a line of JSON for each product instead of a table
    #[arg(long)]
    json: bool,
}

/// A product of two matrices, or of a batch of them.
struct Product {
    name: &'static str,
    batch: usize,
    /// Rows and columns of the result, and the length of the contracted axis.
    size: [usize; 3],
    /// Whether each operand is stored with its last two axes exchanged.
    transposed: [bool; 2],
}

/// The products of the reference step (2048 positions, width 512, 2048 hidden features, a vocabulary of 8192), small ones, and
/// those of few rows, which read a matrix once.
const PRODUCTS: [Product; 22] = {
    const fn of(name: &'static str, batch: usize, size: [usize; 3], transposed: [bool; 2]) -> Product {
        Product { name, batch, size, transposed }
    }
    let [nn, nt, tn] = [[false, false], [false, true], [true, false]];
    [
        of("projection", 1, [2048, 512, 512], nn),
        of("gradient of its input", 1, [2048, 512, 512], nt),
        of("gradient of its weights", 1, [512, 512, 2048], tn),
        of("up", 1, [2048, 2048, 512], nn),
        of("gradient of its input", 1, [2048, 512, 2048], nt),
        of("gradient of its weights", 1, [512, 2048, 2048], tn),
        of("down", 1, [2048, 512, 2048], nn),
        of("gradient of its input", 1, [2048, 2048, 512], nt),
        of("gradient of its weights", 1, [2048, 512, 2048], tn),
        of("logits", 1, [2048, 8192, 512], nt),
        of("gradient of their input", 1, [2048, 512, 8192], nn),
        of("gradient of the embedding", 1, [8192, 512, 2048], tn),
        of("scores of 32 heads", 32, [512, 512, 64], nt),
        of("values of 32 heads", 32, [512, 64, 512], nn),
        of("gradients of keys of 32 heads", 32, [512, 64, 512], tn),
        of("both transposed", 1, [512, 2048, 512], [true, true]),
        of("small", 1, [64, 64, 64], nn),
        of("a thousand small ones", 1024, [16, 16, 16], nn),
        of("a row by a matrix", 1, [1, 4096, 4096], nn),
        of("a row by a transposed matrix", 1, [1, 4096, 4096], nt),
        of("a matrix by a column", 1, [4096, 1, 4096], nn),
        of("eight rows by a transposed matrix", 1, [8, 4096, 4096], nt),
    ]
};

/// The measurement of a product. The scripts for other frameworks print lines with the same names.
#[derive(Serialize)]
struct Record {
    framework: &'static str,
    name: &'static str,
    product: String,
    dtype: &'static str,
    threads: usize,
    seconds: f64,
    /// For integers, integer operations.
    gflops: f64,
    /// What the peak rate of this many threads ([`ceiling`]) and their rate of reading operands ([`read_rate`]) allow, and the share of
    /// it that the product reaches.
    ceiling: f64,
    share: f64,
}

/// The parser of one of [`DTYPES`].
fn dtypes() -> impl TypedValueParser<Value = DType> {
    let named = |name: &str| DTYPES.into_iter().find(|dtype| dtype.name() == name);
    PossibleValuesParser::new(DTYPES.map(DType::name)).try_map(move |name| named(&name).ok_or("there is no such dtype"))
}

/// Measures products on one thread and on all.
///
/// # Errors
/// If the system cannot start threads; an error of the engine, which is a defect.
pub(super) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let all = threads_or_all(args.threads);
    let mut counts = vec![1, all];
    counts.dedup();
    for &dtype in &args.dtype {
        let mut rows = Vec::new();
        for product in PRODUCTS.iter().filter(|product| product.contains(&args.only)) {
            let mut row = vec![product.name.to_string(), product.to_string()];
            for &threads in &counts {
                let record = product.measure(dtype, threads, args.milliseconds)?;
                row.extend([format!("{:.1}", record.gflops), format!("{:.0}%", 100.0 * record.share)]);
                if args.json {
                    writeln!(out, "{}", serde_json::to_string(&record)?)?;
                }
            }
            rows.push(row);
        }
        if args.json {
            continue;
        }
        let unit = if dtype.is_float() { "GFLOP/s" } else { "Gop/s" };
        let mut header = vec!["".to_string(), dtype.to_string()];
        for threads in &counts {
            header.extend([format!("{unit}, threads {threads}"), "of ceiling".to_string()]);
        }
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        writeln!(out, "{}\n", table(&header, &rows))?;
    }
    Ok(())
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [m, n, k] = self.size;
        if self.batch > 1 {
            write!(f, "{} x ", self.batch)?;
        }
        let letter = |transposed: bool| if transposed { "ᵀ" } else { "" };
        write!(f, "[{m},{k}]{} [{k},{n}]{}", letter(self.transposed[0]), letter(self.transposed[1]))
    }
}

impl Product {
    fn contains(&self, text: &str) -> bool {
        self.name.contains(text) || self.to_string().contains(text)
    }

    fn flops(&self) -> f64 {
        let [m, n, k] = self.size;
        2.0 * (self.batch * m * n * k) as f64
    }

    /// Measures the product: the shortest time of a call, after one to warm up.
    fn measure(&self, dtype: DType, threads: usize, milliseconds: usize) -> Result<Record> {
        let [m, n, k] = self.size;
        let operand = |rows: usize, columns: usize, transposed: bool| {
            let [rows, columns] = if transposed { [columns, rows] } else { [rows, columns] };
            let count = self.batch * rows * columns;
            // Between -1 and 1, or 100 times that for bytes, with no pattern in rows or columns.
            let most = if dtype.is_float() { 1.0 } else { 100.0 };
            let values = ((Tensor::arange(0.0..count as f64) * 0.7).sin() * most).to_dtype(dtype);
            values.reshape([self.batch, rows, columns])
        };
        let [left, right] = self.transposed;
        let (x, y) = (operand(m, k, left), operand(k, n, right));
        let options = JitOptions { device: Some(Cpu::with_threads(threads)?.into()), ..JitOptions::default() };
        let contracted = (if left { 1 } else { 2 }, if right { 2 } else { 1 });
        let sums = if dtype.is_float() { dtype } else { DType::I32 };
        let multiply = jit_with(&options, |(x, y): &(Tensor, Tensor)| x.dot_general_in(y, contracted, (0, 0), sums));
        let compiled = multiply.trace(&(x.clone(), y.clone()))?.lower()?.compile()?;
        let operands = vec![x, y];
        drop(compiled.call(operands.clone())?);
        let ceiling = self.ceiling(dtype, threads)?;
        let (begin, mut runs, mut seconds) = (Instant::now(), 0, f64::INFINITY);
        while runs < MIN_RUNS || begin.elapsed() < Duration::from_millis(milliseconds as u64) {
            let started = Instant::now();
            let product = compiled.call(operands.clone())?;
            seconds = seconds.min(started.elapsed().as_secs_f64());
            drop(product);
            runs += 1;
        }
        let gflops = self.flops() / seconds / 1e9;
        Ok(Record {
            framework: concat!("remat ", env!("CARGO_PKG_VERSION")),
            name: self.name,
            product: self.to_string(),
            dtype: dtype.name(),
            threads,
            seconds,
            gflops,
            ceiling,
            share: gflops / ceiling,
        })
    }

    /// The highest rate in GFLOP/s that this many threads can reach: their peak rate, or what reading both operands once allows.
    fn ceiling(&self, dtype: DType, threads: usize) -> Result<f64> {
        let [m, n, k] = self.size;
        let peak = (0..PEAKS).map(|_| ceiling(dtype)).fold(0.0, f64::max) * threads as f64;
        let bytes = self.batch * (m * k + k * n) * dtype.size();
        // An array of the engine has large pages, as the operands do.
        let words = Tensor::arange(0..bytes.div_ceil(size_of::<u64>()) as u64);
        let words = words.array()?.as_slice::<u64>().context("the words are of the CPU")?;
        let pool = Threads::new(threads)?;
        let read = (0..READS).map(|_| read_rate(words, &pool)).fold(0.0, f64::max);
        Ok(peak.min(self.flops() / bytes as f64 * read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_named_by_their_shapes() {
        assert_eq!(PRODUCTS[1].to_string(), "[2048,512] [512,512]ᵀ");
        assert_eq!(PRODUCTS[12].to_string(), "32 x [512,64] [64,512]ᵀ");
        assert!(PRODUCTS[0].contains("proj") && PRODUCTS[0].contains("[512,512]") && !PRODUCTS[0].contains("up"));
    }

    #[test]
    fn a_product_is_measured_in_every_dtype() {
        for dtype in DTYPES {
            let record = PRODUCTS[16].measure(dtype, 1, 0).unwrap();
            assert!(record.seconds > 0.0 && record.gflops > 0.0 && record.ceiling > 0.0 && record.share > 0.0);
            assert_eq!((record.name, record.product.as_str(), record.threads), ("small", "[64,64] [64,64]", 1));
            assert_eq!(record.dtype, dtype.name());
        }
    }
}
