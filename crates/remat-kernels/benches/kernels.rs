//! How fast the kernels that move elements are, beside a copy of the same bytes: `cargo bench -p remat-kernels --bench kernels`.
//!
//! A row has the least of several times, the bytes read and written per second, and the ratio to the time that
//! `copy_from_slice` on as many threads takes for as many bytes, measured in turn with it.

#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use remat_ir::{
    ArgKind, ArgReduce, ArgReduceWindow, Aval, Concatenate, Cumulative, CumulativeKind, DType, DynamicSlice,
    DynamicUpdateSlice, Gather, IndexMode, Iota, Literal, Operation, Pad, Prim, ReduceWindow, Scatter, ScatterKind,
    Shape, Sort, Threefry2x32, TopK, Window, WindowKind,
};
use remat_kernels::{Kernel, Layout, Source, Target, Threads};

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let bench = Bench { filter, threads: Threads::new(cores).expect("threads start") };
    println!("{:44} {:>9} {:>9} {:>9}", format!("{cores} threads"), "us", "GB/s", "x copy");
    copies(&bench);
    moves(&bench);
    indexed(&bench);
    searches(&bench);
    lanes(&bench);
    windows(&bench);
    bits(&bench);
    plain_loops(&bench);
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
            bench.row(&name, 2 * out.bytes(), &*remat_kernels::copy(dtype, &layout), &[zeros(x)], &[out]);
        }
    }
}

fn moves(bench: &Bench) {
    let x = Aval::new(DType::F32, [16, 56, 56, 64]);
    let zero = Aval::scalar(DType::F32);
    let config = vec![(0, 0, 0), (1, 1, 0), (1, 1, 0), (0, 0, 0)];
    bench.op("pad NHWC by 1", Pad { config }, vec![zeros(x), zeros(zero.clone())]);
    let x = Aval::new(DType::F32, [16, 64, 56, 56]);
    let config = vec![(0, 0, 0), (0, 0, 0), (1, 1, 0), (1, 1, 0)];
    bench.op("pad NCHW by 1", Pad { config }, vec![zeros(x.clone()), zeros(zero.clone())]);
    let config = vec![(0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1)];
    bench.op("pad NCHW between elements", Pad { config }, vec![zeros(x), zeros(zero)]);
    let x = Aval::new(DType::F32, [2048, 512]);
    bench.op("concatenate rows", Concatenate { axis: 0 }, vec![zeros(x.clone()), zeros(x.clone())]);
    bench.op("concatenate columns", Concatenate { axis: 1 }, vec![zeros(x.clone()), zeros(x.clone())]);
    let narrow = Aval::new(DType::F32, [1 << 20, 2]);
    bench.op("concatenate pairs", Concatenate { axis: 1 }, vec![zeros(narrow.clone()), zeros(narrow)]);
    bench.op("iota", Iota { dtype: DType::F32, shape: (&[1 << 22][..]).into(), axis: 0 }, vec![]);
    let starts = [integers(&[], &[3]), integers(&[], &[1])];
    let [i, j] = starts.clone();
    bench.op("dynamic_slice", DynamicSlice { sizes: (&[2000, 500][..]).into() }, vec![zeros(x.clone()), i, j]);
    let [i, j] = starts;
    let update = Aval::new(DType::F32, [2000, 500]);
    bench.op("dynamic_update_slice in place", DynamicUpdateSlice, vec![zeros(x), zeros(update), i, j]);
}

fn indexed(bench: &Bench) {
    for dtype in [DType::F32, DType::Bf16] {
        let (table, rows) = (Aval::new(dtype, [8192, 512]), Aval::new(dtype, [2048, 512]));
        let indices = integers(&[2048, 1], &random(2048, 8192));
        let gather = Gather {
            offset_dims: (&[1][..]).into(),
            collapsed_slice_dims: (&[0][..]).into(),
            start_index_map: (&[0][..]).into(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: (&[1, 512][..]).into(),
            mode: IndexMode::Clip,
            fill_value: Literal::from_f64(dtype, 0.0),
        };
        bench.op(&format!("gather {rows} from {table}"), gather, vec![zeros(table.clone()), indices.clone()]);
        let scatter = Scatter {
            kind: ScatterKind::Add,
            update_window_dims: (&[1][..]).into(),
            inserted_window_dims: (&[0][..]).into(),
            scatter_dims_to_operand_dims: (&[0][..]).into(),
            operand_batching_dims: Shape::new(),
            scatter_indices_batching_dims: Shape::new(),
            mode: IndexMode::Clip,
            unique_indices: false,
        };
        let ins = vec![zeros(table.clone()), indices, zeros(rows.clone())];
        bench.op(&format!("scatter_add {rows} to {table}"), scatter, ins);
        let (x, n) = (Aval::new(dtype, [1 << 21]), 1 << 20);
        let indices = integers(&[n, 1], &random(n, 1 << 21));
        let gather = Gather {
            offset_dims: Shape::new(),
            collapsed_slice_dims: (&[0][..]).into(),
            start_index_map: (&[0][..]).into(),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: (&[1][..]).into(),
            mode: IndexMode::FillOrDrop,
            fill_value: Literal::from_f64(dtype, 0.0),
        };
        bench.op(&format!("gather {n} elements of {x}"), gather, vec![zeros(x.clone()), indices.clone()]);
        let scatter = Scatter {
            kind: ScatterKind::Add,
            update_window_dims: Shape::new(),
            inserted_window_dims: (&[0][..]).into(),
            scatter_dims_to_operand_dims: (&[0][..]).into(),
            operand_batching_dims: Shape::new(),
            scatter_indices_batching_dims: Shape::new(),
            mode: IndexMode::FillOrDrop,
            unique_indices: false,
        };
        let ins = vec![zeros(x.clone()), indices, zeros(Aval::new(dtype, [n]))];
        bench.op(&format!("scatter_add {n} elements to {x}"), scatter, ins);
    }
}

fn searches(bench: &Bench) {
    let sort = |axis| Sort { axis, num_keys: 1, is_stable: true };
    let x = Aval::new(DType::F32, [1 << 20]);
    bench.op(&format!("sort {x}"), sort(0), vec![noise(x.clone())]);
    let positions = Aval::new(DType::I32, [1 << 20]);
    bench.op(&format!("sort {x} with positions"), sort(0), vec![noise(x), zeros(positions)]);
    let x = Aval::new(DType::F32, [1024, 1024]);
    bench.op(&format!("sort {x} along rows"), sort(1), vec![noise(x.clone())]);
    bench.op(&format!("sort {x} along columns"), sort(0), vec![noise(x.clone())]);
    let x = Aval::new(DType::F64, [1024, 1024]);
    bench.op(&format!("sort {x} along rows"), sort(1), vec![noise(x.clone())]);
    for k in [1, 50, 1000] {
        let x = Aval::new(DType::F32, [64, 50257]);
        bench.op(&format!("top_k {k} of {x}"), TopK { k }, vec![noise(x)]);
    }
    for dtype in [DType::F32, DType::Bf16] {
        for axis in [0, 1] {
            let x = Aval::new(dtype, [2048, 8192]);
            let op = ArgReduce { kind: ArgKind::Max, axis, index_dtype: DType::I32 };
            bench.op(&format!("argmax of {x} along {axis}"), op, vec![noise(x)]);
        }
    }
}

fn lanes(bench: &Bench) {
    for dtype in [DType::F32, DType::Bf16, DType::I32] {
        for (shape, axis) in [(&[2048, 2048][..], 0), (&[2048, 2048], 1), (&[1 << 22], 0), (&[64, 64, 1024], 1)] {
            for kind in [CumulativeKind::Sum, CumulativeKind::Max] {
                let x = Aval::new(dtype, shape.iter().copied());
                let op = Cumulative { kind, axis, reverse: false };
                let name = format!("{} of {x} along {axis}", Prim::from(op).name());
                bench.op(&name, op, vec![noise(x)]);
            }
        }
    }
    let x = Aval::new(DType::F32, [1024, 1024]);
    let op = Cumulative { kind: CumulativeKind::LogSumExp, axis: 1, reverse: false };
    bench.op(&format!("cumlogsumexp of {x} along 1"), op, vec![noise(x)]);
}

fn windows(bench: &Bench) {
    for dtype in [DType::F32, DType::Bf16] {
        for (name, shape, dimensions, strides) in [
            ("NCHW", [16, 64, 112, 112], [1, 1, 3, 3], [1, 1, 2, 2]),
            ("NHWC", [16, 112, 112, 64], [1, 3, 3, 1], [1, 2, 2, 1]),
            ("NCHW", [16, 64, 56, 56], [1, 1, 3, 3], [1, 1, 1, 1]),
            ("NHWC", [16, 56, 56, 64], [1, 3, 3, 1], [1, 1, 1, 1]),
            ("NCHW", [16, 512, 7, 7], [1, 1, 7, 7], [1, 1, 1, 1]),
            ("NHWC", [16, 7, 7, 512], [1, 7, 7, 1], [1, 1, 1, 1]),
        ] {
            let x = Aval::new(dtype, shape);
            let padding = dimensions.map(|d: usize| if d == 3 { (1, 1) } else { (0, 0) }).to_vec();
            let ones = Shape::from_elem(1, 4);
            let window = Window {
                dimensions: dimensions[..].into(),
                strides: strides[..].into(),
                padding,
                base_dilation: ones.clone(),
                window_dilation: ones,
            };
            let bytes = x.bytes();
            for kind in [WindowKind::Max, WindowKind::Sum] {
                let op = ReduceWindow { kind, window: window.clone() };
                let name = format!("{} {name} of {x}", Prim::from(op.clone()).name());
                bench.op_of_bytes(&name, bytes, op, vec![noise(x.clone())]);
            }
            let op = ArgReduceWindow { kind: ArgKind::Max, window, index_dtype: DType::I32 };
            bench.op_of_bytes(&format!("argmax_window {name} of {x}"), bytes, op, vec![noise(x)]);
        }
    }
}

fn bits(bench: &Bench) {
    let (key, counters) = (Aval::scalar(DType::U32), Aval::new(DType::U32, [1 << 21]));
    let ins = vec![zeros(key.clone()), zeros(key), zeros(counters.clone()), zeros(counters.clone())];
    bench.op_of_bytes("threefry2x32", 4 * counters.bytes(), Threefry2x32, ins);
}

/// What the standard library and a loop on one thread take for the same, beside which the rows above can be read.
fn plain_loops(bench: &Bench) {
    let numbers = |n: usize| random(n, 1 << 16).into_iter().map(|i| i as f32).collect::<Vec<f32>>();
    let (x, mut out) = (numbers(1 << 20), vec![0.0; 1 << 20]);
    bench.plain("plain sort_unstable of f32[1048576]", || {
        out.copy_from_slice(&x);
        out.sort_unstable_by(f32::total_cmp);
    });
    let (x, mut out) = (numbers(1 << 22), vec![0.0; 1 << 22]);
    bench.plain("plain cumsum of f32[4194304]", || {
        let mut sum = 0.0;
        for (out, x) in out.iter_mut().zip(&x) {
            sum += x;
            *out = sum;
        }
    });
    bench.plain("plain cummax of f32[4194304]", || {
        let mut largest = f32::NEG_INFINITY;
        for (out, x) in out.iter_mut().zip(&x) {
            largest = largest.max(*x);
            *out = largest;
        }
    });
    let (images, n) = (16 * 64, 112);
    let (x, mut out) = (numbers(images * n * n), vec![0.0; images * n * n / 4]);
    bench.plain("plain reduce_window_max NCHW of f32[16,64,112,112]", || {
        for (image, out) in x.chunks(n * n).zip(out.chunks_mut(n * n / 4)) {
            for (i, out) in out.iter_mut().enumerate() {
                let (row, column) = (i / (n / 2) * 2, i % (n / 2) * 2);
                let rows = row.saturating_sub(1)..row + 2;
                let columns = column.saturating_sub(1)..column + 2;
                *out = rows
                    .flat_map(|row| &image[row * n..][columns.clone()])
                    .fold(f32::NEG_INFINITY, |largest, x| largest.max(*x));
            }
        }
    });
}

/// An operand of small numbers in no order, or any bits.
fn noise(aval: Aval) -> (Aval, Vec<u8>) {
    let numbers = random(aval.size(), 1 << 16);
    let bytes = numbers.iter().flat_map(|&i| match aval.dtype {
        DType::F32 => (i as f32).to_ne_bytes().to_vec(),
        DType::F64 => f64::from(i).to_ne_bytes().to_vec(),
        DType::Bf16 => (i as f32).to_ne_bytes()[2..].to_vec(),
        _ => i.to_ne_bytes()[..aval.dtype.size()].to_vec(),
    });
    let bytes = bytes.collect();
    (aval, bytes)
}

/// An operand of these integers.
fn integers(shape: &[usize], values: &[i32]) -> (Aval, Vec<u8>) {
    (Aval::new(DType::I32, shape.iter().copied()), values.iter().flat_map(|i| i.to_ne_bytes()).collect())
}

/// Numbers below `bound` in no order.
fn random(n: usize, bound: usize) -> Vec<i32> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize % bound) as i32
    };
    (0..n).map(|_| next()).collect()
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
    /// Measures the kernel of an operation, in place where it can be. What it reads and writes are its results twice, or,
    /// where it works in place, the other operands and what they replace.
    fn op(&self, name: &str, op: impl Into<Prim>, ins: Vec<(Aval, Vec<u8>)>) {
        let op = op.into();
        let avals: Vec<Aval> = ins.iter().map(|(aval, _)| aval.clone()).collect();
        let outs = op.infer(&avals).expect("an operation");
        let others = avals.iter().skip(1).map(Aval::bytes).max();
        let bytes = match (&op, others) {
            (Prim::Scatter(_) | Prim::DynamicUpdateSlice(_), Some(others)) => 3 * others,
            (Prim::ArgReduce(_) | Prim::TopK(_), _) => avals[0].bytes(),
            _ => 2 * outs.iter().map(Aval::bytes).sum::<usize>(),
        };
        self.op_of_bytes(name, bytes, op, ins);
    }

    /// Measures the kernel of an operation that reads and writes so many bytes, in place where it can be.
    fn op_of_bytes(&self, name: &str, bytes: usize, op: impl Into<Prim>, ins: Vec<(Aval, Vec<u8>)>) {
        let op = op.into();
        let avals: Vec<Aval> = ins.iter().map(|(aval, _)| aval.clone()).collect();
        let outs = op.infer(&avals).expect("an operation");
        let layouts: Vec<Layout> = avals.iter().map(Layout::from).collect();
        let operands: Vec<(DType, &Layout)> = avals.iter().map(|x| x.dtype).zip(&layouts).collect();
        let kernel = remat_kernels::kernel(&op, &operands, &outs).expect("a kernel");
        self.row(name, bytes, &*kernel, &ins, &outs);
    }

    /// Measures anything else.
    fn plain(&self, name: &str, mut f: impl FnMut()) {
        if name.contains(&self.filter) {
            let times: Vec<f64> = (0..10).map(|_| time(&mut f)).collect();
            println!("{name:50} {:9.1}", least(&times) * 1e6);
        }
    }

    /// Measures a kernel that reads and writes `bytes` bytes, on operands with these bytes.
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
        let mut sources: Vec<Source> = inputs
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
        if let Some(&(operand, output)) = kernel.in_place().first() {
            sources[operand] = Source::in_place(ins[operand].0.dtype, targets[output].as_ptr());
        }
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
