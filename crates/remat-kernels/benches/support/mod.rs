//! Measures kernels whose work is counted in operations.

use std::time::{Duration, Instant};

use remat_ir::{Aval, DType, Element, Literal, Operation, Prim, with_dtype};
use remat_kernels::{Kernel, Layout, Source, Target, Threads, ceiling};

pub(crate) struct Bench {
    filter: String,
    threads: [Threads; 2],
}

/// Bytes aligned as the arena's are.
struct Bytes(Vec<u8>, usize);

impl Bytes {
    fn new(len: usize) -> Bytes {
        Bytes(vec![0; len + 64], len)
    }

    fn get(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(64);
        &mut self.0[start..start + self.1]
    }
}

impl Bench {
    /// Measures the ceiling and prints the head of the table. The argument of the program chooses rows by a part of their
    /// names.
    pub(crate) fn new() -> Bench {
        let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        println!("ceiling of one thread: f32 {:.1}, f64 {:.1} GFLOP/s", most(DType::F32), most(DType::F64));
        println!(
            "{:64} {:>10} {:>8} {:>10} {:>10}",
            format!("{cores} threads"),
            "GFLOP/s 1",
            "ceiling",
            "GFLOP/s",
            "scratch"
        );
        Bench { filter, threads: [Threads::SERIAL, Threads::new(cores).expect("threads start")] }
    }

    /// Measures the kernel of an operation, which does `operations` floating-point operations, and gives the avals of its results.
    pub(crate) fn operation(&self, name: &str, operations: f64, op: &Prim, ins: &[Aval]) -> Vec<Aval> {
        let outs = op.infer(ins).expect("the operation takes them");
        let layouts: Vec<Layout> = ins.iter().map(Layout::from).collect();
        let operands: Vec<(DType, &Layout)> = ins.iter().map(|x| x.dtype).zip(&layouts).collect();
        let kernel = remat_kernels::kernel(op, &operands, &outs).expect("the operation has a kernel");
        // Factors and systems are those of matrices with a large diagonal, whose results are finite.
        let is_of_diagonal = matches!(op, Prim::Cholesky(_) | Prim::TriangularSolve(_));
        self.row(name, operations, &*kernel, ins, &outs, is_of_diagonal);
        outs
    }

    /// Measures a kernel.
    fn row(&self, name: &str, operations: f64, kernel: &dyn Kernel, ins: &[Aval], outs: &[Aval], diagonal: bool) {
        if !name.contains(&self.filter) {
            return;
        }
        let mut inputs: Vec<Bytes> = ins.iter().map(|aval| values(aval, diagonal)).collect();
        let sources: Vec<Source> = inputs
            .iter_mut()
            .zip(ins)
            // SAFETY: the bytes are those of valid elements.
            .map(|(buffer, aval)| unsafe { Source::new(aval.dtype, buffer.get()) })
            .collect();
        let mut outputs: Vec<Bytes> = outs.iter().map(|aval| Bytes::new(aval.bytes())).collect();
        let mut targets: Vec<Target> = outputs
            .iter_mut()
            .zip(outs)
            // SAFETY: zeros are valid elements of every dtype.
            .map(|(buffer, aval)| unsafe { Target::new(aval.dtype, buffer.get()) })
            .collect();
        let [one, all] = &self.threads;
        let mut scratch = [one, all].map(|threads| Bytes::new(kernel.scratch(threads.count())));
        let (mut times, mut peak) = ([f64::INFINITY; 2], 0.0f64);
        let begin = Instant::now();
        let mut runs = 0;
        while runs < 4 || (begin.elapsed() < Duration::from_millis(700) && runs < 1000) {
            for (i, threads) in [one, all].into_iter().enumerate() {
                let (start, used) = (Instant::now(), processor_time());
                kernel.run(&sources, &mut targets, scratch[i].get(), threads);
                let (elapsed, used) = (start.elapsed().as_secs_f64(), processor_time() - used);
                times[i] = times[i].min(if i == 0 { used } else { elapsed });
            }
            peak = peak.max(ceiling(ins[0].dtype));
            runs += 1;
        }
        let rate = times.map(|t| operations / t / 1e9);
        let kib = kernel.scratch(all.count()) / 1024;
        let part = format!("{:.1}%", rate[0] / peak * 100.0);
        println!("{name:64} {:10.1} {part:>8} {:10.1} {kib:6} KiB {:10.2} us", rate[0], rate[1], times[0] * 1e6);
    }
}

/// The seconds that this thread has computed for. Other programs do not count.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is written to a place for one.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Elements from -1 to 1; with `diagonal`, the size of the matrices is added to their diagonals.
fn values(aval: &Aval, diagonal: bool) -> Bytes {
    let n = aval.shape.last().copied().unwrap_or(1);
    let mut bytes = Bytes::new(aval.bytes());
    let mut state = 1u32;
    with_dtype!(aval.dtype, T => {
        // SAFETY: zeros are valid elements of every dtype.
        let mut target = unsafe { Target::new(aval.dtype, bytes.get()) };
        for (at, x) in target.slice_mut::<T>().iter_mut().enumerate() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = f64::from(state >> 8) / f64::from(1u32 << 23) - 1.0;
            let value = if diagonal && at / n % n == at % n { noise + n as f64 } else { noise };
            *x = T::from_literal(Literal::from_f64(aval.dtype, value)).expect("the dtype");
        }
    });
    bytes
}

/// The most operations per second of one thread, in 10^9, of many tries.
fn most(dtype: DType) -> f64 {
    (0..200).map(|_| ceiling(dtype)).fold(0.0, f64::max)
}
