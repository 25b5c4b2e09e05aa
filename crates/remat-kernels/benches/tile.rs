//! How fast the functions of tiles are: `cargo bench -p remat-kernels --bench tile [-- FILTER]`.
//!
//! A row of an elementwise function has the nanoseconds per element of a tile of 1024 elements: at each level of this CPU with an output of
//! its own, and at the best level in place of an operand (where their sizes allow it) and for a tile of 1000 elements, which is not whole
//! blocks. Each is the least of many times.

#![allow(dead_code, unused_imports, unused_macros, missing_docs, unreachable_pub, unsafe_code)]

// The functions are private to the crate; they are compiled once more as a part of this program.
#[path = "../src/isa.rs"]
mod isa;
#[path = "../src/number/mod.rs"]
mod number;
#[path = "../src/simd.rs"]
mod simd;
#[path = "../src/tile/mod.rs"]
mod tile;

use std::time::Instant;

use remat_ir::{
    Aval, Binary, BitcastConvertType, Clamp, Compare, ConvertElementType, DType, IntegerPow, Operation, Prim,
    ReduceKind, ReducePrecision, SelectN, Unary,
};
use simd::Level;

const N: usize = 1024;

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let bench = Bench { filter };
    let levels: String = Level::all().map(|level| format!("{:>9}", format!("{:?}", level.instructions()))).collect();
    println!("{:36}{levels} {:>9} {:>9}", "ns per element", "in place", "1000");
    elementwise(&bench);
    reductions(&bench);
    moves(&bench);
    chains(&bench);
}

fn elementwise(bench: &Bench) {
    use DType::*;
    for dtype in [F32, F64, Bf16, F16, I32, U8, I64, Bool] {
        Binary::ALL.into_iter().for_each(|op| bench.op(op, &[dtype; 2]));
        Compare::ALL.into_iter().take(3).for_each(|op| bench.op(op, &[dtype; 2]));
        bench.op(Clamp, &[dtype; 3]);
        bench.op(SelectN, &[Bool, dtype, dtype]);
        bench.op(SelectN, &[I32, dtype, dtype, dtype]);
        Unary::ALL.into_iter().for_each(|op| bench.op(op, &[dtype]));
        [2, 3, 4, -1, 20].into_iter().for_each(|y| bench.op(IntegerPow { y }, &[dtype]));
        bench.op(ReducePrecision { exponent_bits: 5, mantissa_bits: 10 }, &[dtype]);
    }
    for from in [F32, F64, Bf16, F16, I32, U8, I64, Bool] {
        DType::ALL.into_iter().for_each(|dtype| bench.op(ConvertElementType { dtype }, &[from]));
    }
    bench.op(BitcastConvertType { dtype: U16 }, &[Bf16]);
}

fn reductions(bench: &Bench) {
    for dtype in [DType::F32, DType::F64, DType::Bf16, DType::I32, DType::U8] {
        for kind in [ReduceKind::Sum, ReduceKind::Max] {
            for columns in [1, 4, 16, 48, 64, 128, 1024] {
                let Some(f) = tile::reduce_rows(kind, dtype) else { continue };
                let (x, mut out) = (ones(dtype), vec![0u64; N]);
                let name = format!("reduce {kind:?} {dtype} rows of {columns}");
                // SAFETY: there are `N` elements to read and at most `N` to write.
                bench.row(&name, || unsafe { f(N / columns, columns, out.as_mut_ptr().cast(), x.as_ptr().cast()) });
            }
            let Some(f) = tile::accumulate(kind, dtype) else { continue };
            let (x, mut sums) = (ones(dtype), ones(dtype));
            let sums = sums.as_mut_ptr().cast::<u8>();
            let name = format!("accumulate {kind:?} {dtype}");
            // SAFETY: there are `N` elements of each.
            bench.row(&name, || unsafe { f(N, sums, &[sums, x.as_ptr().cast()]) });
        }
    }
}

fn moves(bench: &Bench) {
    for dtype in [DType::F16, DType::Bf16] {
        for (name, f) in [("load", tile::load(dtype)), ("store", tile::store(dtype))] {
            let (f, x, mut out) = (f.expect("a function"), ones(dtype), vec![0u64; N]);
            // SAFETY: there are `N` elements of each.
            bench.row(&format!("{name} {dtype}"), || unsafe { f(N, out.as_mut_ptr().cast(), &[x.as_ptr().cast()]) });
        }
    }
    for columns in [1, 4, 16, 128, 1024] {
        let (f, x, mut out) = (tile::spread(DType::F32), ones(DType::F32), vec![0u64; N]);
        let name = format!("spread f32 to rows of {columns}");
        // SAFETY: there are `N` elements to write and at most `N` to read.
        bench.row(&name, || unsafe { f(N / columns, columns, out.as_mut_ptr().cast(), x.as_ptr().cast()) });
    }
    for bytes in [1, 2, 4, 8] {
        for stride in [0, 1, 2, 3, 16, -1] {
            let (f, x, mut out) = (tile::strided(bytes), vec![0u64; 16 * N], vec![0u64; N]);
            let start = if stride < 0 { (N - 1) * bytes } else { 0 };
            let name = format!("{bytes} bytes with stride {stride}");
            // SAFETY: all that is read lies in the vector.
            bench.row(&name, || unsafe { f(N, out.as_mut_ptr().cast(), x.as_ptr().cast::<u8>().add(start), stride) });
        }
    }
}

/// Chains as batch norm and its derivative have them: the time of all steps together.
fn chains(bench: &Bench) {
    use tile::chain::{ChainOp, ChainStep, Fetch, Rounding, Store, function_at};
    let step = |op, fetch, input| ChainStep {
        op,
        fetch,
        input,
        is_far: false,
        bools: 2,
        round: Rounding::Exact,
        store: Store::Nothing,
        out: 5,
    };
    let tile = |op, input| step(op, Fetch::Tile, input);
    let one = |op, input| step(op, Fetch::One, input);
    let stored = |step: ChainStep, out| ChainStep { store: Store::Tile, out, ..step };
    let far = |step: ChainStep| ChainStep { is_far: true, ..step };
    let chains = [
        ("copy", vec![stored(far(tile(ChainOp::Load, 0)), 5)]),
        (
            "add of bf16",
            vec![
                far(step(ChainOp::Load, Fetch::Bf16, 0)),
                ChainStep { round: Rounding::Bf16, store: Store::Bf16, ..far(step(ChainOp::Add, Fetch::Bf16, 1)) },
            ],
        ),
        ("add", vec![far(tile(ChainOp::Load, 0)), stored(far(tile(ChainOp::Add, 1)), 5)]),
        (
            "normalised",
            vec![
                far(tile(ChainOp::Load, 0)),
                one(ChainOp::Sub, 2),
                one(ChainOp::Mul, 3),
                one(ChainOp::Add, 2),
                stored(one(ChainOp::MaxPlain, 3), 5),
            ],
        ),
        (
            "derivative",
            vec![
                far(tile(ChainOp::Load, 0)),
                stored(one(ChainOp::IfTrue, 3), 6),
                one(ChainOp::Mul, 2),
                stored(one(ChainOp::Add, 3), 4),
                far(tile(ChainOp::Load, 1)),
                one(ChainOp::Sub, 2),
                one(ChainOp::Mul, 2),
                stored(tile(ChainOp::SubFrom, 4), 5),
            ],
        ),
    ];
    // As registers of a loop: at multiples of a cache line, and no two with the same offset in a page.
    const STRIDE: usize = 4 * N + 320;
    let mut memory = vec![0u64; STRIDE];
    let first = memory.as_mut_ptr().cast::<u8>();
    let first = first.wrapping_add(first.align_offset(64));
    let slots: Vec<*mut u8> = (0..7).map(|slot| first.wrapping_add(slot * STRIDE)).collect();
    for (name, steps) in chains {
        for (level, n) in Level::all().flat_map(|level| [(level, N), (level, 1000)]) {
            let Some(f) = function_at(level) else { continue };
            let name = format!("chain {name}, {n}, {:?}", level.instructions());
            // SAFETY: each of the seven slots has room for `N` elements.
            bench.row(&name, || unsafe { f(n, &steps, std::hint::black_box(slots.as_ptr())) });
        }
    }
}

struct Bench {
    filter: String,
}

impl Bench {
    fn op(&self, op: impl Into<Prim>, ins: &[DType]) {
        let op = op.into();
        let dtypes: Vec<&str> = ins.iter().map(|dtype| dtype.name()).collect();
        let params: String = op.params().iter().map(|(_, value)| format!(" {value:?}")).collect();
        let name = format!("{}{params} {}", op.name(), dtypes.join(" "));
        let avals: Vec<Aval> = ins.iter().map(|&dtype| Aval::new(dtype, [N])).collect();
        let Ok(outs) = op.infer(&avals) else { return };
        if !name.contains(&self.filter) {
            return;
        }
        let operands: Vec<Vec<u64>> = ins.iter().map(|&dtype| ones(dtype)).collect();
        let mut out = vec![0u64; N];
        let immediate = tile::immediate(&op);
        let mut pointers: Vec<*const u8> = operands.iter().map(|x| x.as_ptr().cast()).collect();
        pointers.extend(immediate.as_ref().map(|immediate| immediate.as_ptr().cast::<u8>()));
        let measure = |f: tile::TileFn, n: usize, out: *mut u8, pointers: &[*const u8]| {
            // SAFETY: there are `N` elements of each, of the dtypes that the function was made for.
            least(|| unsafe { f(n, out, std::hint::black_box(pointers)) }) / n as f64
        };
        print!("{name:36}");
        for level in Level::all() {
            let f = tile::elementwise_at(level, &op, ins).expect("a function");
            print!(" {:8.3}", measure(f, N, out.as_mut_ptr().cast(), &pointers));
        }
        let f = tile::elementwise(&op, ins).expect("a function");
        let size = |dtype| tile::register_type(dtype).size();
        let place = (0..ins.len()).rev().find(|&i| size(ins[i]) == size(outs[0].dtype));
        let rest = measure(f, 1000, out.as_mut_ptr().cast(), &pointers);
        match place {
            Some(i) => {
                pointers[i] = out.as_ptr().cast();
                print!(" {:9.3}", measure(f, N, out.as_mut_ptr().cast(), &pointers));
            }
            None => print!(" {:>9}", ""),
        }
        println!(" {rest:9.3}");
    }

    fn row(&self, name: &str, f: impl FnMut()) {
        if name.contains(&self.filter) {
            println!("{name:36} {:8.3}", least(f) / N as f64);
        }
    }
}

/// A register of ones.
fn ones(dtype: DType) -> Vec<u64> {
    let word = match tile::register_type(dtype) {
        DType::F32 => 0x3F80_0000_3F80_0000,
        DType::F64 => 0x3FF0_0000_0000_0000,
        dtype => (0..8 / dtype.size()).fold(0, |word, i| word | 1 << (i * dtype.bits())),
    };
    vec![word; N]
}

/// The least time of a call in nanoseconds.
fn least(mut f: impl FnMut()) -> f64 {
    let times = (0..30).map(|_| {
        let start = Instant::now();
        (0..50).for_each(|_| f());
        start.elapsed().as_nanos() as f64 / 50.0
    });
    times.fold(f64::INFINITY, f64::min)
}
