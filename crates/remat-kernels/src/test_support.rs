//! What the tests of kernels share: arrays of any dtype, runs on several numbers of threads, comparison with the evaluator.

// Buffers of bytes become operands here, as in the arena, and an allocator that counts is `unsafe` to write.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;
use std::sync::OnceLock;

use remat_ir::{Array, Aval, DType, Element, Literal, Op, eval_op, with_dtype};

use super::{Kernel, Source, Target};
use crate::threads::Threads;

/// A stream of pseudo-random numbers, the same in every run (Vigna, splitmix64).
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64) -> Stream {
        Stream(seed.wrapping_mul(0xD134_2543_DE82_EF95))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.bits() >> 11) as usize % bound
    }
}

/// Values without surprises: floats from -2 to 2, integers from -8 to 8 (from 0 to 16 where they have no sign), bools.
pub(crate) fn plain(dtype: DType, shape: &[usize], seed: u64) -> Array {
    filled(dtype, shape, seed, |stream| {
        let step = stream.below(4097) as f64;
        match dtype {
            DType::Bool => Literal::from_bool(step > 2048.0),
            _ if dtype.is_float() => Literal::from_f64(dtype, step / 1024.0 - 2.0),
            _ => Literal::from_i128(dtype, (step / 256.0) as i128 - if dtype.is_signed() { 8 } else { 0 }),
        }
    })
}

/// Values of every kind: a few small ones, many times over, so that there are ties; NaNs, infinities, zeros of both signs,
/// the ends of the range, and any bits at all.
pub(crate) fn wild(dtype: DType, shape: &[usize], seed: u64) -> Array {
    let special = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, f64::MAX, f64::MIN, 1e-40];
    filled(dtype, shape, seed, |stream| match stream.below(8) {
        0 => Literal::from_f64(dtype, special[stream.below(special.len())]),
        1 | 2 => match stream.bits() {
            bits if dtype == DType::Bool => Literal::from_bool(bits & 1 == 1),
            bits => Literal::from_bits(dtype, bits),
        },
        _ => Literal::from_f64(dtype, stream.below(9) as f64 - 4.0),
    })
}

/// An array whose elements `value` draws one after the other.
pub(crate) fn filled(dtype: DType, shape: &[usize], seed: u64, value: impl Fn(&mut Stream) -> Literal) -> Array {
    let mut stream = Stream::new(seed);
    let aval = Aval::new(dtype, shape.iter().copied());
    let data = with_dtype!(dtype, T => {
        T::wrap((0..aval.size()).map(|_| T::from_literal(value(&mut stream)).expect("the dtype")).collect())
    });
    Array::new(aval, data).expect("as many elements as the shape has")
}

/// Runs the kernel that `build` makes for the operation on these operands, and compares with the evaluator, bit for bit:
/// on 1, 2 and 3 threads, and in place of every operand that the kernel names. On one thread nothing may be allocated.
pub(crate) fn check(op: &Op, build: impl Fn(&[Aval], &[Aval]) -> Box<dyn Kernel>, ins: &[Array]) {
    check_by(op, build, ins, assert_same);
}

/// As [`check`], where `compare` is given the kernel's and the evaluator's results and a description. Results on several
/// threads are compared with those on one, bit for bit.
pub(crate) fn check_by(
    op: &Op,
    build: impl Fn(&[Aval], &[Aval]) -> Box<dyn Kernel>,
    ins: &[Array],
    compare: impl Fn(&Array, &Array, &str),
) {
    let avals: Vec<Aval> = ins.iter().map(|x| x.aval().clone()).collect();
    let outs = op.infer(&avals).unwrap_or_else(|error| panic!("{error}"));
    let expected = eval_op(op, ins).unwrap_or_else(|error| panic!("{error}"));
    let kernel = build(&avals, &outs);
    let places = std::iter::once(None).chain(kernel.in_place().iter().copied().map(Some));
    for place in places {
        let results = [1, 2, 3].map(|count| run(&*kernel, ins, &outs, place, &threads(count)));
        for (i, expected) in expected.iter().enumerate() {
            let what = format!("result {i} of {op:?} on {avals:?}, in place of {place:?}");
            compare(&results[0][i], expected, &what);
            assert_same(&results[1][i], &results[0][i], &format!("2 threads, {what}"));
            assert_same(&results[2][i], &results[0][i], &format!("3 threads, {what}"));
        }
    }
}

/// Runs a kernel on buffers with these elements, with an output in place of an operand (operand, output) if `place` says so.
/// Nothing may be allocated on the calling thread where it does all of the work.
pub(crate) fn run(
    kernel: &dyn Kernel,
    ins: &[Array],
    outs: &[Aval],
    place: Option<(usize, usize)>,
    threads: &Threads,
) -> Vec<Array> {
    // What an output holds before is unspecified, and differs from run to run.
    let garbage = (threads.count() % 2) as u8;
    let inputs: Vec<Buffer> = ins.iter().map(Buffer::of).collect();
    let mut outputs: Vec<Buffer> = outs.iter().map(|aval| Buffer::new(aval.bytes(), garbage)).collect();
    let mut sources: Vec<Source> = inputs
        .iter()
        .zip(ins)
        // SAFETY: the buffer holds the elements of an array of this dtype.
        .map(|(buffer, x)| unsafe { Source::new(x.dtype(), buffer.bytes()) })
        .collect();
    if let Some((operand, output)) = place {
        outputs[output].bytes_mut().copy_from_slice(inputs[operand].bytes());
        sources[operand] = Source::in_place(ins[operand].dtype(), outputs[output].bytes().as_ptr());
    }
    let mut scratch = Buffer::new(kernel.scratch(threads.count()), 0xA5);
    let mut targets: Vec<Target> = outputs
        .iter_mut()
        .zip(outs)
        // SAFETY: the bytes are all 0 or all 1, which every dtype allows, or those of an operand that the output may replace.
        .map(|(buffer, aval)| unsafe { Target::new(aval.dtype, buffer.bytes_mut()) })
        .collect();
    let before = ALLOCATIONS.get();
    kernel.run(&sources, &mut targets, scratch.bytes_mut(), threads);
    if threads.count() == 1 {
        assert_eq!(ALLOCATIONS.get(), before, "a kernel allocates nothing while it runs");
    }
    drop(targets);
    outputs.iter().zip(outs).map(|(buffer, aval)| buffer.array(aval)).collect()
}

/// So many threads; pools are made once.
pub(crate) fn threads(count: usize) -> Threads {
    static POOLS: [OnceLock<Threads>; 4] = [const { OnceLock::new() }; 4];
    POOLS[count].get_or_init(|| Threads::new(count).expect("threads start")).clone()
}

/// Fails unless the avals are equal and the elements are, bit for bit; one NaN is as good as another.
#[track_caller]
pub(crate) fn assert_same(got: &Array, expected: &Array, what: &str) {
    if got.aval() == expected.aval() && Buffer::of(got).bytes() == Buffer::of(expected).bytes() {
        return;
    }
    assert_each(got, expected, what, |a, b| a == b || (a.as_f64().is_nan() && b.as_f64().is_nan()));
}

/// Fails unless the avals are equal and every element is within `tolerance` times the larger of its size and `scale`.
/// Elements that are no numbers or infinite have to be equal.
#[track_caller]
pub(crate) fn assert_close(got: &Array, expected: &Array, tolerance: f64, scale: f64, what: &str) {
    assert_each(got, expected, what, |a, b| {
        let (a, b) = (a.as_f64(), b.as_f64());
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(scale)
    });
}

#[track_caller]
fn assert_each(got: &Array, expected: &Array, what: &str, equal: impl Fn(Literal, Literal) -> bool) {
    assert_eq!(got.aval(), expected.aval(), "{what}");
    for i in 0..expected.data().len() {
        let (a, b) = (got.data().get(i).expect("the size"), expected.data().get(i).expect("the size"));
        assert!(equal(a, b), "element {i} is {a} and should be {b}: {what}");
    }
}

/// Bytes that are aligned as the arena's are.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    const ALIGNMENT: usize = 64;

    fn new(len: usize, value: u8) -> Buffer {
        let bytes = vec![value; len + Buffer::ALIGNMENT];
        let start = bytes.as_ptr().align_offset(Buffer::ALIGNMENT);
        Buffer { bytes, start, len }
    }

    fn of(array: &Array) -> Buffer {
        let mut buffer = Buffer::new(array.aval().bytes(), 0);
        // SAFETY: the bytes are 0, which is an element of every dtype.
        let mut target = unsafe { Target::new(array.dtype(), buffer.bytes_mut()) };
        with_dtype!(array.dtype(), T => {
            target.slice_mut::<T>().copy_from_slice(array.as_slice::<T>().expect("the dtype"));
        });
        buffer
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }

    fn array(&self, aval: &Aval) -> Array {
        // SAFETY: the bytes were written as elements of this dtype.
        let source = unsafe { Source::new(aval.dtype, self.bytes()) };
        let data = with_dtype!(aval.dtype, T => T::wrap(source.slice::<T>().to_vec()));
        Array::new(aval.clone(), data).expect("as many elements as the shape has")
    }
}

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

// SAFETY: every call is the system allocator's; the count is a constant-initialised thread local without a destructor, which
// neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, block) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A kernel that copies shows that the support does what it says.
#[test]
fn a_kernel_that_copies_agrees_with_the_evaluator() {
    struct Same;
    impl Kernel for Same {
        fn in_place(&self) -> &[(usize, usize)] {
            &[(0, 0)]
        }

        fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], _: &mut [u8], threads: &Threads) {
            if ins[0].is_in_place() {
                return;
            }
            with_dtype!(ins[0].dtype(), T => {
                let from = ins[0].slice::<T>();
                threads.for_each_chunk(outs[0].slice_mut::<T>(), 5, |i, to| to.copy_from_slice(&from[i * 5..][..to.len()]));
            });
        }
    }
    let op = Op::from(remat_ir::StopGradient);
    for dtype in DType::ALL {
        for shape in [&[][..], &[0], &[3, 0, 2], &[7, 3]] {
            check(&op, |_, _| Box::new(Same), &[plain(dtype, shape, 1)]);
            check(&op, |_, _| Box::new(Same), &[wild(dtype, shape, 2)]);
        }
    }
}
