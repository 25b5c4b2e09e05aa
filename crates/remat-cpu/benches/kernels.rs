//! How fast the kernels that move elements are, beside a copy of the same bytes: `cargo bench -p remat-cpu --bench kernels`.
//!
//! A row has the least of several times, the bytes read and written per second, and the ratio to the time that
//! `copy_from_slice` on as many threads takes for as many bytes, measured in turn with it.

#![allow(dead_code, unused_imports, unused_macros, missing_docs, unsafe_code)]

// The kernels are private to the crate; they are compiled once more as a part of this program.
#[path = "../src/kernels/mod.rs"]
mod kernels;
#[path = "../src/simd.rs"]
mod simd;
#[path = "../src/threads.rs"]
mod threads;
#[path = "../src/tile/mod.rs"]
mod tile;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernels::{Kernel, Layout, Source, Target};
use remat_ir::{Aval, DType};
use threads::Threads;

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(cores).build().expect("threads");
    let bench = Bench { filter, threads: Threads::of(Arc::new(pool)) };
    println!("{:44} {:>9} {:>9} {:>9}", format!("{cores} threads"), "us", "GB/s", "x copy");
    copies(&bench);
}

fn copies(bench: &Bench) {
    for (shape, permutation) in [
        (&[4096, 1024][..], &[0, 1][..]),
        (&[2048, 2048], &[1, 0]),
        (&[2000, 2100], &[1, 0]),
        (&[128, 128], &[1, 0]),
        (&[136, 136], &[1, 0]),
        (&[240, 240], &[1, 0]),
        (&[480, 480], &[1, 0]),
        (&[8000, 8000], &[1, 0]),
        (&[8, 512, 8, 128], &[0, 2, 1, 3]),
        (&[8, 8, 512, 128], &[0, 1, 3, 2]),
        (&[16, 64, 56, 56], &[0, 2, 3, 1]),
        (&[16, 56, 56, 64], &[0, 3, 1, 2]),
        (&[1 << 20, 4], &[1, 0]),
        (&[4, 1 << 20], &[1, 0]),
        (&[128, 256, 128], &[2, 1, 0]),
    ] {
        for dtype in [DType::U8, DType::Bf16, DType::F32, DType::F64] {
            let x = Aval::new(dtype, shape.iter().copied());
            let layout = Layout::from(&x).permuted(permutation);
            let out = x.with_shape(layout.shape.iter().copied());
            let name = format!("transpose {x} by {permutation:?}");
            bench.row(&name, 2 * out.bytes(), &*kernels::copy::kernel(dtype, &layout), &[zeros(x)], &[out]);
        }
    }
}

struct Bench {
    filter: String,
    threads: Threads,
}

/// Bytes aligned as the arena's are.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(len: usize) -> Bytes {
        Bytes(vec![0; len + 64])
    }

    fn bytes(&mut self, len: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(64);
        &mut self.0[start..start + len]
    }
}

fn zeros(aval: Aval) -> (Aval, Vec<u8>) {
    let bytes = vec![1; aval.bytes()];
    (aval, bytes)
}

impl Bench {
    /// Measures a kernel that reads and writes so many bytes, on operands with these bytes.
    fn row(&self, name: &str, bytes: usize, kernel: &dyn Kernel, ins: &[(Aval, Vec<u8>)], outs: &[Aval]) {
        if !name.contains(&self.filter) {
            return;
        }
        let mut inputs: Vec<Bytes> = ins
            .iter()
            .map(|(_, x)| {
                let mut buffer = Bytes::new(x.len());
                buffer.bytes(x.len()).copy_from_slice(x);
                buffer
            })
            .collect();
        let sources: Vec<Source> = inputs
            .iter_mut()
            .zip(ins)
            // SAFETY: the bytes are those of valid elements.
            .map(|(buffer, (aval, x))| unsafe { Source::new(aval.dtype, buffer.bytes(x.len())) })
            .collect();
        let mut outputs: Vec<Bytes> = outs.iter().map(|aval| Bytes::new(aval.bytes())).collect();
        let mut targets: Vec<Target> = outputs
            .iter_mut()
            .zip(outs)
            // SAFETY: zeros are valid elements of every dtype.
            .map(|(buffer, aval)| unsafe { Target::new(aval.dtype, buffer.bytes(aval.bytes())) })
            .collect();
        let needed = kernel.scratch(self.threads.count());
        let mut scratch = Bytes::new(needed);
        let (from, mut to) = (vec![1u8; bytes / 2], vec![0u8; bytes / 2]);
        let (mut times, mut copies) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        while times.len() < 5 || (begin.elapsed() < Duration::from_millis(400) && times.len() < 1000) {
            times.push(time(|| kernel.run(&sources, &mut targets, scratch.bytes(needed), &self.threads)));
            copies.push(time(|| {
                self.threads.for_each_chunk(&mut to, 1 << 18, |i, to| {
                    to.copy_from_slice(&from[i << 18..][..to.len()]);
                })
            }));
        }
        let (t, copy) = (least(&times), least(&copies));
        println!("{name:44} {:9.1} {:9.2} {:9.2}", t * 1e6, bytes as f64 / t / 1e9, t / copy);
    }
}

fn time(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}
