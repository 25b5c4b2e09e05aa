//! Test support for kernels: runs on several numbers of threads, and comparison with the evaluator.

// Buffers of bytes become operands here, as in the arena, and a counting allocator is `unsafe` to write.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;
use std::sync::OnceLock;

use remat_ir::{Array, Aval, DType, Element, Literal, Op, eval_op, with_dtype};
pub(crate) use remat_testkit::arrays::{Stream, assert_close, assert_same, filled, plain, wild};

use crate::interface::{Kernel, Layout, Source, Target};
use crate::threads::Threads;

/// Runs the kernel that `build` makes for the operation on these operands, and compares it with the evaluator, bit for bit: on 1, 2 and 3
/// threads, and in place of every operand that the kernel names. On one thread nothing may be allocated.
pub(crate) fn check(op: &Op, build: impl Fn(&[Aval], &[Aval]) -> Box<dyn Kernel>, ins: &[Array]) {
    check_by(op, build, ins, assert_same);
}

/// As [`check`], with `compare` for the results of the kernel and the evaluator, and a description. Results on several threads are compared
/// with those on one, bit for bit.
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
    let donated = std::iter::once(None).chain(kernel.in_place().iter().copied().map(Some));
    for place in donated {
        let results = [1, 2, 3].map(|count| run(&*kernel, ins, &outs, place, &threads(count)));
        for (i, expected) in expected.iter().enumerate() {
            let what = format!("result {i} of {op:?} on {avals:?}, in place of {place:?}");
            compare(&results[0][i], expected, &what);
            assert_same(&results[1][i], &results[0][i], &format!("2 threads, {what}"));
            assert_same(&results[2][i], &results[0][i], &format!("3 threads, {what}"));
        }
    }
}

/// Runs a kernel on buffers with these elements, with an output in place of an operand (operand, output) if `place` says so. The calling
/// thread may not allocate if it does all of the work.
pub(crate) fn run(
    kernel: &dyn Kernel,
    ins: &[Array],
    outs: &[Aval],
    place: Option<(usize, usize)>,
    threads: &Threads,
) -> Vec<Array> {
    // The initial content of an output is unspecified and differs from run to run: zeros, or NaN if the dtype has one, which shows in sums.
    let garbage = |dtype: DType| match (threads.count() % 2, dtype) {
        (0, _) => 0,
        (_, DType::Bool) => 1,
        _ => 0xFF,
    };
    let inputs: Vec<Buffer> = ins.iter().map(Buffer::of).collect();
    let mut outputs: Vec<Buffer> = outs.iter().map(|aval| Buffer::new(aval.bytes(), garbage(aval.dtype))).collect();
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
    let mut scratch = Buffer::new(kernel.scratch(threads.count()), 0xFF);
    let mut targets: Vec<Target> = outputs
        .iter_mut()
        .zip(outs)
        // SAFETY: the bytes are all 0, all 1 for bools, or all 255 for others, which each dtype allows, or those of an operand that the output may replace.
        .map(|(buffer, aval)| unsafe { Target::new(aval.dtype, buffer.bytes_mut()) })
        .collect();
    // An engine reads the environment before it compiles.
    let _ = crate::isa::max_cpu_isa();
    let before = ALLOCATIONS.get();
    kernel.run(&sources, &mut targets, scratch.bytes_mut(), threads);
    if threads.count() == 1 {
        assert_eq!(ALLOCATIONS.get(), before, "a kernel allocates nothing while it runs");
    }
    drop(targets);
    outputs.iter().zip(outs).map(|(buffer, aval)| buffer.array(aval)).collect()
}

/// Floats from -2 to 2 whose sums are rounded, so that the order of a sum shows in its bits.
pub(crate) fn rough(dtype: DType, shape: &[usize], stream: &mut Stream) -> Array {
    let seed = stream.bits();
    filled(dtype, shape, seed, |stream| match dtype {
        DType::Bool => Literal::from_bool(stream.below(4) > 0),
        _ => Literal::from_f64(dtype, stream.below(1 << 52) as f64 / (1u64 << 50) as f64 - 2.0),
    })
}

/// The elements of a view of a buffer, row-major.
pub(crate) fn elements(buffer: &Array, layout: &Layout) -> Array {
    let mut offsets = vec![layout.offset as isize];
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        offsets = offsets.iter().flat_map(|&at| (0..size as isize).map(move |i| at + i * stride)).collect();
    }
    with_dtype!(buffer.dtype(), T => {
        let all = buffer.as_slice::<T>().expect("the dtype");
        let elements = offsets.iter().map(|&at| all[at as usize]).collect();
        Array::from_vec::<T>(elements, layout.shape.iter().copied()).expect("as many elements as the shape has")
    })
}

/// A view of this shape, and its buffer: axes in any order, each a slice with any stride, reversed, or broadcast.
pub(crate) fn view(dtype: DType, shape: &[usize], stream: &mut Stream) -> (Array, Layout) {
    let rank = shape.len();
    let mut order: Vec<usize> = (0..rank).collect();
    let [permutes, slices, reverses, broadcasts] = [2, 3, 3, 7].map(|n| stream.below(n) == 0);
    if permutes {
        (0..rank).for_each(|i| order.swap(i, i + stream.below(rank - i)));
    }
    let mut buffer = vec![1; rank];
    let (mut start, mut limit, mut strides) = (vec![0; rank], vec![1; rank], vec![1; rank]);
    let mut reversed = Vec::new();
    for (i, &axis) in order.iter().enumerate() {
        if broadcasts && stream.below(2) == 0 {
            continue;
        }
        if slices && stream.below(2) == 0 {
            (start[i], strides[i]) = (stream.below(3), 1 + stream.below(3));
        }
        limit[i] = start[i] + (shape[axis] * strides[i]).saturating_sub(strides[i] - 1);
        buffer[i] = limit[i] + if slices { stream.below(3) } else { 0 };
        if reverses && stream.below(2) == 0 {
            reversed.push(i);
        }
    }
    let layout = Layout::contiguous(&buffer).sliced(&start, &limit, &strides).reversed(&reversed);
    (rough(dtype, &buffer, stream), layout.broadcast(shape, &order))
}

/// Runs the kernel that `build` makes for an operation on random views, and on row-major copies of the same elements. The results must have
/// the same bits on any number of threads.
pub(crate) fn check_views(
    op: &Op,
    ins: &[Aval],
    build: impl Fn(&[(DType, &Layout)], &[Aval]) -> Box<dyn Kernel>,
    stream: &mut Stream,
) {
    let outs = op.infer(ins).unwrap_or_else(|error| panic!("{error}"));
    let views: Vec<(Array, Layout)> = ins.iter().map(|aval| view(aval.dtype, &aval.shape, stream)).collect();
    let (buffers, layouts): (Vec<Array>, Vec<Layout>) = views.into_iter().unzip();
    let kernel_of = |layouts: &[Layout]| {
        let ins: Vec<(DType, &Layout)> = ins.iter().map(|aval| aval.dtype).zip(layouts).collect();
        build(&ins, &outs)
    };
    let copies: Vec<Array> = buffers.iter().zip(&layouts).map(|(buffer, layout)| elements(buffer, layout)).collect();
    let row_major: Vec<Layout> = ins.iter().map(Layout::from).collect();
    let expected = run(&*kernel_of(&row_major), &copies, &outs, None, &threads(1));
    let kernel = kernel_of(&layouts);
    for count in [1, 3] {
        let got = run(&*kernel, &buffers, &outs, None, &threads(count));
        for (got, expected) in got.iter().zip(&expected) {
            assert_same(got, expected, &format!("{count} threads, {op:?} on views {layouts:?} of {ins:?}"));
        }
    }
}

/// A pool of `count` threads; pools are made once.
pub(crate) fn threads(count: usize) -> Threads {
    static POOLS: [OnceLock<Threads>; 17] = [const { OnceLock::new() }; 17];
    POOLS[count].get_or_init(|| Threads::new(count).expect("threads start")).clone()
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
    /// The number of allocations of this thread.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count.
struct Counting;

// SAFETY: every call goes to the system allocator. The count is a constant-initialised thread local without a destructor, which neither
// allocates nor panics.
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

/// A copy kernel shows that the checks work.
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
    for dtype in remat_ir::DType::ALL {
        for shape in [&[][..], &[0], &[3, 0, 2], &[7, 3]] {
            check(&op, |_, _| Box::new(Same), &[plain(dtype, shape, 1)]);
            check(&op, |_, _| Box::new(Same), &[wild(dtype, shape, 2)]);
        }
    }
}
