//! Chains at every level of the CPU, compared with their steps applied to one element at a time.

use super::{ChainOp, ChainStep, Fetch, Rounding, Store, function_at};
use crate::number::Number;
use crate::number::rounding::{from_bf16, round_to_bf16, to_bf16};
use crate::simd::Level;
use remat_testkit::arrays::Stream;

const OPS: [ChainOp; 22] = [
    ChainOp::Keep,
    ChainOp::Load,
    ChainOp::Neg,
    ChainOp::Sqrt,
    ChainOp::Add,
    ChainOp::Sub,
    ChainOp::SubFrom,
    ChainOp::Mul,
    ChainOp::Div,
    ChainOp::DivInto,
    ChainOp::Max,
    ChainOp::Min,
    ChainOp::MaxPlain,
    ChainOp::MinPlain,
    ChainOp::IfTrue,
    ChainOp::IfFalse,
    ChainOp::Lt,
    ChainOp::Le,
    ChainOp::Gt,
    ChainOp::Ge,
    ChainOp::Eq,
    ChainOp::Ne,
];
const LENGTHS: [usize; 9] = [0, 1, 7, 8, 31, 64, 127, 128, 333];

/// The memory of one step: tiles of other operands and of results, and bools.
#[derive(Clone, PartialEq, Debug)]
struct Memory {
    tile: Vec<f32>,
    narrow: Vec<u16>,
    bools: Vec<u8>,
    out: Vec<u32>,
    narrow_out: Vec<u16>,
}

/// Numbers of all kinds from a small set, so that equal ones meet.
fn number(stream: &mut Stream) -> f32 {
    let special = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    match stream.below(4) {
        0 => special[stream.below(special.len())],
        1 => f32::from_bits(stream.bits() as u32),
        // Halfway between two bf16, and next to that.
        2 => f32::from_bits((stream.bits() as u32 & 0xFFFF_0000 | 0x8000) + stream.below(3) as u32 - 1),
        _ => stream.below(65) as f32 / 16.0 - 2.0,
    }
}

/// Applies a step to the value of element `i`.
fn one(step: &ChainStep, x: f32, memory: &mut Memory, i: usize) -> f32 {
    let y = match step.fetch {
        Fetch::Nothing | Fetch::Itself => x,
        Fetch::Tile => memory.tile[i],
        Fetch::Bf16 => from_bf16(memory.narrow[i]),
        Fetch::One => memory.tile[0],
        Fetch::OneBf16 => from_bf16(memory.narrow[0]),
    };
    let compared = match step.op {
        ChainOp::Lt => Some(x < y),
        ChainOp::Le => Some(x <= y),
        ChainOp::Gt => Some(x > y),
        ChainOp::Ge => Some(x >= y),
        ChainOp::Eq => Some(x == y),
        ChainOp::Ne => Some(x != y),
        _ => None,
    };
    if let Some(compared) = compared {
        memory.bools[i] = compared.into();
    }
    let x = match step.op {
        ChainOp::Load => y,
        ChainOp::Neg => -x,
        ChainOp::Sqrt => x.sqrt(),
        ChainOp::Add => x + y,
        ChainOp::Sub => x - y,
        ChainOp::SubFrom => y - x,
        ChainOp::Mul => x * y,
        ChainOp::Div => x / y,
        ChainOp::DivInto => y / x,
        ChainOp::Max | ChainOp::MaxPlain => Number::maximum(x, y),
        ChainOp::Min | ChainOp::MinPlain => Number::minimum(x, y),
        ChainOp::IfTrue => [y, x][usize::from(memory.bools[i])],
        ChainOp::IfFalse => [x, y][usize::from(memory.bools[i])],
        _ => x,
    };
    let x = if step.round == Rounding::Exact { x } else { round_to_bf16(x) };
    match step.store {
        Store::Nothing => {}
        Store::Tile | Store::Register => memory.out[i] = x.to_bits(),
        Store::Bf16 => memory.narrow_out[i] = to_bf16(x),
    }
    x
}

/// The bits, with all NaNs equal.
fn of_numbers(memory: &Memory, n: usize) -> Memory {
    let mut memory = memory.clone();
    memory.out.truncate(n);
    let (nan, narrow_nan) = (f32::NAN.to_bits(), to_bf16(f32::NAN));
    memory.out.iter_mut().filter(|x| f32::from_bits(**x).is_nan()).for_each(|x| *x = nan);
    memory.narrow_out.iter_mut().filter(|x| from_bf16(**x).is_nan()).for_each(|x| *x = narrow_nan);
    // NaNs are not equal.
    memory.tile.clear();
    memory
}

fn check(steps: &[ChainStep], level: Level, n: usize, stream: &mut Stream) {
    let Some(chain) = function_at(level) else { return };
    // Room for whole vectors after a value that is stored as a register.
    let room = n + 16;
    let memory = Memory {
        tile: (0..n.max(1)).map(|_| number(stream)).collect(),
        narrow: (0..n.max(1)).map(|_| to_bf16(round_to_bf16(number(stream)))).collect(),
        bools: (0..n).map(|_| stream.below(2) as u8).collect(),
        out: vec![7; room],
        narrow_out: vec![7; n],
    };
    let (mut got, mut expected) = (memory.clone(), memory.clone());
    let slots = [
        got.tile.as_mut_ptr().cast::<u8>(),
        got.narrow.as_mut_ptr().cast(),
        got.bools.as_mut_ptr(),
        got.out.as_mut_ptr().cast(),
        got.narrow_out.as_mut_ptr().cast(),
    ];
    // SAFETY: there are `n` elements of each slot, one at least of those that are read, and whole vectors of the third.
    unsafe { chain(n, steps, slots.as_ptr()) };
    for i in 0..n {
        steps.iter().fold(0.0, |x, step| one(step, x, &mut expected, i));
    }
    assert_eq!(of_numbers(&got, n), of_numbers(&expected, n), "{n} elements {:?}, {level:?}, {steps:?}", memory.tile);
    let is_whole = !steps.iter().any(|step| step.store == Store::Register);
    assert!(!is_whole || got.out[n..].iter().all(|&x| x == 7), "writes after {n} elements, {steps:?}");
}

fn step(op: ChainOp, fetch: Fetch, round: Rounding, store: Store) -> ChainStep {
    let input = u32::from(matches!(fetch, Fetch::Bf16 | Fetch::OneBf16));
    let out = if store == Store::Bf16 { 4 } else { 3 };
    ChainStep { op, fetch, input, is_far: true, bools: 2, round, store, out }
}

#[test]
fn each_step_does_what_it_says() {
    let mut stream = Stream::new(3);
    for level in Level::all() {
        for op in OPS {
            for fetch in [Fetch::Itself, Fetch::Tile, Fetch::Bf16, Fetch::One, Fetch::OneBf16] {
                for n in LENGTHS {
                    for (load, round, store) in [
                        (Fetch::Tile, Rounding::Exact, Store::Tile),
                        (Fetch::Bf16, Rounding::Exact, Store::Tile),
                        (Fetch::Tile, Rounding::Exact, Store::Register),
                        (Fetch::Tile, Rounding::AnyToBf16, Store::Bf16),
                        (Fetch::Bf16, Rounding::Bf16, Store::Bf16),
                    ] {
                        let is_bf16 = matches!(fetch, Fetch::Bf16 | Fetch::OneBf16 | Fetch::Itself);
                        let plain = matches!(op, ChainOp::MaxPlain | ChainOp::MinPlain);
                        if round == Rounding::Bf16 && !is_bf16 || plain {
                            continue;
                        }
                        let load = step(ChainOp::Load, load, Rounding::Exact, Store::Nothing);
                        check(&[load, step(op, fetch, round, store)], level, n, &mut stream);
                    }
                }
            }
        }
    }
}

#[test]
fn a_bound_that_is_plain_is_one_instruction() {
    const NUMBERS: [f32; 11] =
        [-0.0, 0.0, 1.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, -1e-45, 6.0, 7.0];
    for (level, n) in Level::all().flat_map(|level| LENGTHS.map(|n| (level, n))) {
        let Some(chain) = function_at(level) else { continue };
        let x: Vec<f32> = NUMBERS.into_iter().cycle().take(n).collect();
        for (op, bounds) in
            [(ChainOp::MaxPlain, [0.0, 1.0, -1.0, f32::NEG_INFINITY]), (ChainOp::MinPlain, [-0.0, 6.0, -1.0, 1e30])]
        {
            let f: fn(f32, f32) -> f32 = if op == ChainOp::MaxPlain { Number::maximum } else { Number::minimum };
            for (bound, fetch) in bounds.into_iter().flat_map(|bound| {
                [Fetch::One, Fetch::OneBf16, Fetch::Tile, Fetch::Bf16].map(|fetch| (round_to_bf16(bound), fetch))
            }) {
                let (mut from, mut to) = (x.clone(), vec![7.0f32; n]);
                let (mut wide, mut narrow) = (vec![bound; n.max(1)], vec![to_bf16(bound); n.max(1)]);
                let is_narrow = matches!(fetch, Fetch::Bf16 | Fetch::OneBf16);
                let bounds = if is_narrow { narrow.as_mut_ptr().cast() } else { wide.as_mut_ptr().cast::<u8>() };
                let slots = [from.as_mut_ptr().cast(), bounds, to.as_mut_ptr().cast()];
                let load = ChainStep { out: 0, ..step(ChainOp::Load, Fetch::Tile, Rounding::Exact, Store::Nothing) };
                let limit = ChainStep { input: 1, out: 2, ..step(op, fetch, Rounding::Exact, Store::Tile) };
                // SAFETY: there are `n` elements of each slot, one at least of the bounds.
                unsafe { chain(n, &[load, limit], slots.as_ptr()) };
                let expected: Vec<u32> = x.iter().map(|&x| f(x, bound).to_bits()).collect();
                let got: Vec<u32> = to.into_iter().map(f32::to_bits).collect();
                assert_eq!(got, expected, "{level:?} {op:?} {bound:?} {fetch:?}");
            }
        }
    }
}

#[test]
fn steps_without_another_operand_read_no_slot() {
    let fs: [(ChainOp, fn(f32) -> f32); 3] =
        [(ChainOp::Keep, |x| x), (ChainOp::Neg, |x| -x), (ChainOp::Sqrt, f32::sqrt)];
    for (level, n) in Level::all().flat_map(|level| LENGTHS.map(|n| (level, n))) {
        let Some(chain) = function_at(level) else { continue };
        for (op, f) in fs {
            let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let (mut from, mut to) = (x.clone(), vec![7.0f32; n]);
            let slots = [from.as_mut_ptr().cast::<u8>(), std::ptr::null_mut(), to.as_mut_ptr().cast()];
            let load = ChainStep { out: 0, ..step(ChainOp::Load, Fetch::Tile, Rounding::Exact, Store::Nothing) };
            let step = step(op, Fetch::Nothing, Rounding::Exact, Store::Tile);
            let step = ChainStep { input: 1, is_far: false, out: 2, ..step };
            // SAFETY: there are `n` elements of the first and the last slot, and no step fetches from the other.
            unsafe { chain(n, &[load, step], slots.as_ptr()) };
            assert_eq!(to, x.into_iter().map(f).collect::<Vec<f32>>(), "{level:?} {op:?}");
        }
    }
}

#[test]
fn bools_take_the_place_of_the_tile_that_they_compare() {
    let mut stream = Stream::new(5);
    for (level, n) in Level::all().flat_map(|level| LENGTHS.map(|n| (level, n))) {
        let Some(chain) = function_at(level) else { continue };
        let compares = [ChainOp::Lt, ChainOp::Le, ChainOp::Gt, ChainOp::Ge, ChainOp::Eq, ChainOp::Ne];
        for op in compares {
            let mut numbers = || (0..n).map(|_| number(&mut stream)).collect::<Vec<f32>>();
            let (x, y) = (numbers(), numbers());
            let (mut from, mut place) = (x.clone(), y.clone());
            let slots = [from.as_mut_ptr().cast::<u8>(), place.as_mut_ptr().cast()];
            let load = ChainStep { out: 0, ..step(ChainOp::Load, Fetch::Tile, Rounding::Exact, Store::Nothing) };
            let compare = step(op, Fetch::Tile, Rounding::Exact, Store::Nothing);
            let compare = ChainStep { input: 1, bools: 1, out: 0, ..compare };
            // SAFETY: there are `n` elements of each slot; the bools begin where the numbers do, and are smaller.
            unsafe { chain(n, &[load, compare], slots.as_ptr()) };
            let got: Vec<u8> = place.iter().flat_map(|x| x.to_ne_bytes()).take(n).collect();
            let holds = |x: f32, y: f32| match op {
                ChainOp::Lt => x < y,
                ChainOp::Le => x <= y,
                ChainOp::Gt => x > y,
                ChainOp::Ge => x >= y,
                ChainOp::Eq => x == y,
                _ => x != y,
            };
            let expected: Vec<u8> = x.iter().zip(&y).map(|(&x, &y)| holds(x, y).into()).collect();
            assert_eq!(got, expected, "{n} elements, {level:?} {op:?}");
        }
    }
}
