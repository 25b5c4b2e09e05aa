//! Measures kernels whose work is counted in operations.

use std::time::{Duration, Instant};

use remat_ir::{Aval, DType, Element, Literal, Operation, Prim, with_dtype};
use remat_kernels::{Kernel, Layout, Source, Target, Threads};

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
        println!("ceiling of one thread: f32 {:.1}, f64 {:.1} GFLOP/s", ceiling(DType::F32), ceiling(DType::F64));
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
            peak = peak.max(fma(accumulator(ins[0].dtype), 20_000));
            runs += 1;
        }
        let rate = times.map(|t| operations / t / 1e9);
        let (part, kib) = (rate[0] / peak * 100.0, kernel.scratch(all.count()) / 1024);
        println!("{name:64} {:10.1} {part:7.1}% {:10.1} {kib:6} KiB {:10.2} us", rate[0], rate[1], times[0] * 1e6);
    }
}

/// The seconds that this thread has computed for. Other programs do not count.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is written to a place for one.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn accumulator(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
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

/// The most operations per second of one thread, of many tries.
fn ceiling(dtype: DType) -> f64 {
    (0..200).map(|_| fma(dtype, 20_000)).fold(0.0, f64::max)
}

/// Operations per second, in 10^9, of fused multiplications and additions on registers.
fn fma(dtype: DType, steps: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has AVX-512.
        return unsafe { x86::avx512(dtype, steps) };
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has AVX2 and FMA.
        return unsafe { x86::avx2(dtype, steps) };
    }
    let _ = (dtype, steps);
    f64::NAN
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use remat_ir::DType;

    macro_rules! ceiling {
        ($name:ident $features:literal $sums:literal, $f32:ident $f32_fma:ident, $f64:ident $f64_fma:ident) => {
            /// # Safety
            /// The CPU has these instructions.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(dtype: DType, steps: usize) -> f64 {
                let (x, y) = ($f32(black_box(0.999)), $f32(black_box(0.001)));
                let (p, q) = ($f64(black_box(0.999)), $f64(black_box(0.001)));
                let (mut a, mut b) = ([x; $sums], [p; $sums]);
                let start = super::processor_time();
                let lanes = if dtype == DType::F64 {
                    for _ in 0..steps {
                        b.iter_mut().for_each(|b| *b = $f64_fma(*b, p, q));
                    }
                    size_of_val(&p) / 8
                } else {
                    for _ in 0..steps {
                        a.iter_mut().for_each(|a| *a = $f32_fma(*a, x, y));
                    }
                    size_of_val(&x) / 4
                };
                let seconds = super::processor_time() - start;
                black_box((a, b));
                (steps * $sums * lanes * 2) as f64 / seconds / 1e9
            }
        };
    }

    ceiling! { avx512 "avx512f" 24, _mm512_set1_ps _mm512_fmadd_ps, _mm512_set1_pd _mm512_fmadd_pd }
    ceiling! { avx2 "avx2,fma" 12, _mm256_set1_ps _mm256_fmadd_ps, _mm256_set1_pd _mm256_fmadd_pd }
}
