//! The loop that all elementwise functions share.
//!
//! Elements are read, computed and written in blocks that are local values. So LLVM's vectoriser need not know whether the output is one of
//! the operands, and one body serves all cases. The remainder is computed as part of a block too, so there is no scalar remainder.

use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::TileFn;
use crate::number::Scalar;
use crate::number::rounding::{Exact, Round};
use crate::simd::{Instructions, Level, multiversion, with_level_number};

/// Elements of an unrolled block: enough vectors to keep a CPU with long latencies busy, and few enough to fit its registers.
pub(crate) const UNROLLED: usize = 64;

/// A function of up to three elements; missing operands are `()`.
pub(super) trait Function<A, B, C, D>: Copy {
    /// The function, created at the start of a tile.
    ///
    /// # Safety
    /// `ins` are those of a [`TileFn`] for this function.
    unsafe fn new(ins: &[*const u8]) -> Self;

    /// One element.
    fn call(self, a: A, b: B, c: C) -> D;
}

/// A function of one element, given as a closure.
#[derive(Clone, Copy)]
struct One<F>(F);

/// A function of two elements.
#[derive(Clone, Copy)]
struct Two<F>(F);

/// A function of three elements.
#[derive(Clone, Copy)]
struct Three<F>(F);

/// A function of two elements whose second operand is the same throughout.
#[derive(Clone, Copy)]
struct WithOne<A, F>(A, F);

/// A function that is vectorised for common arguments and uses another method for the others.
pub(super) trait Guarded<T>: Copy + 'static {
    /// Whether the argument is a common one.
    fn is_within(x: T) -> bool;

    /// The function of a common argument.
    fn within(x: T) -> T;

    /// The function of any other argument.
    fn beyond(x: T) -> T;
}

/// A guarded function whose arguments are all common.
#[derive(Clone, Copy)]
struct Within<G>(PhantomData<G>);

/// A guarded function of arbitrary arguments.
#[derive(Clone, Copy)]
struct Any<G>(PhantomData<G>);

impl<A, D, F: Fn(A) -> D + Copy> Function<A, (), (), D> for One<F> {
    #[inline(always)]
    unsafe fn new(_: &[*const u8]) -> Self {
        // SAFETY: loops are only created in this file, for a function that was passed by value.
        One(unsafe { stateless() })
    }

    #[inline(always)]
    fn call(self, a: A, _: (), _: ()) -> D {
        self.0(a)
    }
}

impl<A, B, D, F: Fn(A, B) -> D + Copy> Function<A, B, (), D> for Two<F> {
    #[inline(always)]
    unsafe fn new(_: &[*const u8]) -> Self {
        // SAFETY: as above.
        Two(unsafe { stateless() })
    }

    #[inline(always)]
    fn call(self, a: A, b: B, _: ()) -> D {
        self.0(a, b)
    }
}

impl<A, B, C, D, F: Fn(A, B, C) -> D + Copy> Function<A, B, C, D> for Three<F> {
    #[inline(always)]
    unsafe fn new(_: &[*const u8]) -> Self {
        // SAFETY: as above.
        Three(unsafe { stateless() })
    }

    #[inline(always)]
    fn call(self, a: A, b: B, c: C) -> D {
        self.0(a, b, c)
    }
}

impl<A: Scalar, D, F: Fn(A, A) -> D + Copy> Function<A, (), (), D> for WithOne<A, F> {
    #[inline(always)]
    unsafe fn new(ins: &[*const u8]) -> Self {
        // SAFETY: the second pointer of this function points to an element; and as above.
        unsafe { WithOne(ins[1].cast::<A>().read(), stateless()) }
    }

    #[inline(always)]
    fn call(self, a: A, _: (), _: ()) -> D {
        self.1(a, self.0)
    }
}

impl<T, G: Guarded<T>> Function<T, (), (), T> for Within<G> {
    #[inline(always)]
    unsafe fn new(_: &[*const u8]) -> Self {
        Within(PhantomData)
    }

    #[inline(always)]
    fn call(self, x: T, _: (), _: ()) -> T {
        G::within(x)
    }
}

impl<T: Copy, G: Guarded<T>> Function<T, (), (), T> for Any<G> {
    #[inline(always)]
    unsafe fn new(_: &[*const u8]) -> Self {
        Any(PhantomData)
    }

    #[inline(always)]
    fn call(self, x: T, _: (), _: ()) -> T {
        if G::is_within(x) { G::within(x) } else { G::beyond(x) }
    }
}

/// Another copy of a function that captures nothing.
///
/// # Safety
/// A value of this type exists.
#[inline(always)]
unsafe fn stateless<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "a function of a tile captures nothing") };
    // SAFETY: no byte is read; the type has values (promised), and copying one creates another.
    unsafe { std::ptr::NonNull::<F>::dangling().read() }
}

/// A loop over one operand whose results are rounded. `f` is inlined if it is small or `#[inline(always)]`.
pub(super) fn unary<A: Scalar, D: Scalar, R: Round<D>>(
    level: Level,
    f: impl Fn(A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Function<A, (), (), D>>(level: Level, _: F, _: R) -> TileFn {
        blocks::<A, (), (), D, R, F>(level)
    }
    of(level, One(f), round)
}

/// As [`unary`], for a function that takes much longer than rounding. A second loop rounds its results, so that it is compiled once for
/// f32, f16 and bf16.
pub(super) fn costly_unary<A: Scalar, D: Scalar, R: Round<D>>(
    level: Level,
    f: impl Fn(A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Function<A, (), (), D>>(level: Level, _: F, _: R) -> TileFn {
        rounded::<D, R, Blocks<A, (), D, F>>(level)
    }
    of(level, One(f), round)
}

/// As [`costly_unary`], for a function that is common in models. For bf16 it rounds in the same loop.
pub(super) fn common_unary<A: Scalar, D: Scalar, R: Round<D>>(
    level: Level,
    f: impl Fn(A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    if R::IS_COMMON { unary(level, f, round) } else { costly_unary(level, f, round) }
}

/// As [`binary`], for a function that takes much longer than rounding; see [`costly_unary`].
pub(super) fn costly_binary<A: Scalar, D: Scalar, R: Round<D>>(
    level: Level,
    f: impl Fn(A, A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Function<A, A, (), D>>(level: Level, _: F, _: R) -> TileFn {
        rounded::<D, R, Blocks<A, A, D, F>>(level)
    }
    of(level, Two(f), round)
}

/// The function of two operands in exchanged order.
pub(super) fn reversed<A: Scalar, D: Scalar>(level: Level, f: impl Fn(A, A) -> D + Copy + 'static) -> TileFn {
    fn of<A: Scalar, D: Scalar, F: Function<A, A, (), D>>(level: Level, _: F) -> TileFn {
        with_level_number!(level, call_reversed::<Blocks<A, A, D, F>>)
    }
    of(level, Two(f))
}

/// A loop over two operands, whose results are rounded.
pub(super) fn binary<A: Scalar, D: Scalar, R: Round<D>>(
    level: Level,
    f: impl Fn(A, A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Function<A, A, (), D>>(level: Level, _: F, _: R) -> TileFn {
        blocks::<A, A, (), D, R, F>(level)
    }
    of(level, Two(f), round)
}

/// A loop over one operand and a single element as second operand, whose results are rounded.
pub(super) fn with_one<A: Scalar, D: Scalar, R: Round<D>>(
    level: Level,
    f: impl Fn(A, A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Fn(A, A) -> D + Copy + 'static>(level: Level, _: F, _: R) -> TileFn {
        blocks::<A, (), (), D, R, WithOne<A, F>>(level)
    }
    of(level, f, round)
}

/// A loop over two operands of any types.
pub(super) fn mixed<A: Scalar, B: Scalar, D: Scalar>(level: Level, f: impl Fn(A, B) -> D + Copy + 'static) -> TileFn {
    fn of<A: Scalar, B: Scalar, D: Scalar, F: Function<A, B, (), D>>(level: Level, _: F) -> TileFn {
        blocks::<A, B, (), D, Exact, F>(level)
    }
    of(level, Two(f))
}

/// A loop over three operands.
pub(super) fn ternary<A: Scalar, B: Scalar>(level: Level, f: impl Fn(A, B, B) -> B + Copy + 'static) -> TileFn {
    fn of<A: Scalar, B: Scalar, F: Function<A, B, B, B>>(level: Level, _: F) -> TileFn {
        blocks::<A, B, B, B, Exact, F>(level)
    }
    of(level, Three(f))
}

/// A loop over one operand, with a function that reads the instruction's immediate.
pub(super) fn with_immediate<T: Scalar, F: Function<T, (), (), T>>(level: Level) -> TileFn {
    blocks::<T, (), (), T, Exact, F>(level)
}

/// As [`with_immediate`], for a function that takes much longer than rounding; see [`costly_unary`].
pub(super) fn costly_with_immediate<T: Scalar, R: Round<T>, F: Function<T, (), (), T>>(level: Level) -> TileFn {
    rounded::<T, R, Blocks<T, (), T, F>>(level)
}

/// A loop over one operand, with a function with a rare case, whose results are rounded by a second loop. Computing a tile in blocks or
/// element by element gives the same results.
pub(super) fn guarded<T: Scalar, R: Round<T>, G: Guarded<T>>(level: Level, _: G, _: R) -> TileFn {
    rounded::<T, R, GuardedBlocks<T, G>>(level)
}

/// A plain loop over one operand, for functions that cannot be vectorised.
pub(super) fn unary_scalar<A: Scalar, D: Scalar, R: Round<D>>(f: impl Fn(A) -> D + Copy + 'static, round: R) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Function<A, (), (), D>>(_: F, _: R) -> TileFn {
        one_by_one::<A, (), D, R, F>
    }
    of(One(f), round)
}

/// A plain loop over two operands, for functions that cannot be vectorised.
pub(super) fn binary_scalar<A: Scalar, D: Scalar, R: Round<D>>(
    f: impl Fn(A, A) -> D + Copy + 'static,
    round: R,
) -> TileFn {
    fn of<A: Scalar, D: Scalar, R: Round<D>, F: Function<A, A, (), D>>(_: F, _: R) -> TileFn {
        one_by_one::<A, A, D, R, F>
    }
    of(Two(f), round)
}

/// A type that represents a function compiled for each level.
trait Compiled {
    /// The function for a level.
    fn at(level: Level) -> TileFn;
}

/// The loop over blocks, without rounding.
struct Blocks<A, B, D, F>(PhantomData<(A, B, D, F)>);

/// The loop of a guarded function.
struct GuardedBlocks<T, G>(PhantomData<(T, G)>);

impl<A: Scalar, B: Scalar, D: Scalar, F: Function<A, B, (), D>> Compiled for Blocks<A, B, D, F> {
    fn at(level: Level) -> TileFn {
        blocks::<A, B, (), D, Exact, F>(level)
    }
}

impl<T: Scalar, G: Guarded<T>> Compiled for GuardedBlocks<T, G> {
    fn at(level: Level) -> TileFn {
        guarded_blocks::<T, G>(level)
    }
}

/// A function, and a second loop that rounds its results.
fn rounded<D: Scalar, R: Round<D>, F: Compiled>(level: Level) -> TileFn {
    if R::IS_EXACT { F::at(level) } else { with_level_number!(level, call_and_round::<D, R, F>) }
}

/// # Safety
/// That of a [`TileFn`], and the CPU has the instructions of this level.
unsafe fn call_and_round<D: Scalar, R: Round<D>, F: Compiled, const LEVEL: u8>(
    n: usize,
    out: *mut u8,
    ins: &[*const u8],
) {
    fn round<D: Scalar, R: Round<D>, F: Function<D, (), (), D>>(level: Level, _: F) -> TileFn {
        blocks::<D, (), (), D, R, F>(level)
    }
    // SAFETY: the CPU has the instructions (promised).
    let level = unsafe { Level::numbered(LEVEL) };
    // The compiler must not know the functions, or it would inline another copy of them.
    let (f, round) = black_box((F::at(level), round::<D, R, _>(level, One(|x: D| x))));
    // SAFETY: the arguments are those of a `TileFn`; for the second, the output is the operand.
    unsafe {
        f(n, out, ins);
        round(n, out, &[out.cast_const()]);
    }
}

/// # Safety
/// That of a [`TileFn`], and the CPU has the instructions of this level.
unsafe fn call_reversed<F: Compiled, const LEVEL: u8>(n: usize, out: *mut u8, ins: &[*const u8]) {
    // SAFETY: the CPU has the instructions, and the arguments are those of a `TileFn` of two operands.
    unsafe { black_box(F::at(Level::numbered(LEVEL)))(n, out, &[ins[1], ins[0]]) }
}

/// The loop over blocks for a level. This is [`multiversion!`], but for the masks of AVX-512.
fn blocks<A: Scalar, B: Scalar, C: Scalar, D: Scalar, R: Round<D>, F: Function<A, B, C, D>>(level: Level) -> TileFn {
    unsafe fn plain<A: Scalar, B: Scalar, C: Scalar, D: Scalar, R: Round<D>, F: Function<A, B, C, D>>(
        n: usize,
        out: *mut u8,
        ins: &[*const u8],
    ) {
        // SAFETY: the arguments are those of a `TileFn`.
        unsafe { in_blocks::<A, B, C, D, R, F, false>(n, out, ins) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn avx2<A: Scalar, B: Scalar, C: Scalar, D: Scalar, R: Round<D>, F: Function<A, B, C, D>>(
        n: usize,
        out: *mut u8,
        ins: &[*const u8],
    ) {
        // SAFETY: the arguments are those of a `TileFn`.
        unsafe { in_blocks::<A, B, C, D, R, F, false>(n, out, ins) }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
    unsafe fn avx512<A: Scalar, B: Scalar, C: Scalar, D: Scalar, R: Round<D>, F: Function<A, B, C, D>>(
        n: usize,
        out: *mut u8,
        ins: &[*const u8],
    ) {
        // SAFETY: the arguments are those of a `TileFn`, and this function has masks.
        unsafe { in_blocks::<A, B, C, D, R, F, true>(n, out, ins) }
    }
    const fn is_common<T: Scalar>() -> bool {
        T::IS_COMMON_IN_TILES
    }
    // If this constant condition is false, no other versions are compiled.
    if const { !(is_common::<A>() && is_common::<B>() && is_common::<C>() && is_common::<D>()) } {
        return plain::<A, B, C, D, R, F>;
    }
    match level.instructions() {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => avx512::<A, B, C, D, R, F>,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => avx2::<A, B, C, D, R, F>,
        Instructions::Plain => plain::<A, B, C, D, R, F>,
    }
}

multiversion! {
    fn guarded_blocks<T: Scalar, G: Guarded<T>>(level: Level)
    -> unsafe fn(n: usize, out: *mut u8, ins: &[*const u8]) {
        let x = operand::<T>(ins, 0);
        let mut outside = false;
        for i in 0..n {
            // SAFETY: `n` elements of the operand can be read.
            outside |= !G::is_within(unsafe { x.add(i).read() });
        }
        // SAFETY: the arguments are those of a `TileFn`.
        unsafe {
            if outside {
                one_by_one::<T, (), T, Exact, Any<G>>(n, out, ins);
            } else {
                // Without masks: they need a function that is written for AVX-512 alone, and here one body is compiled for every level.
                in_blocks::<T, (), (), T, Exact, Within<G>, false>(n, out, ins);
            }
        }
    }
}

/// The loop over blocks. The remainder is computed by a last block that overlaps the one before it. In a tile shorter than a block, the
/// block is padded.
///
/// # Safety
/// That of a [`TileFn`]; if `IS_MASKED`, this is inlined into a function with the masks of AVX-512.
#[inline(always)]
unsafe fn in_blocks<
    A: Scalar,
    B: Scalar,
    C: Scalar,
    D: Scalar,
    R: Round<D>,
    F: Function<A, B, C, D>,
    const IS_MASKED: bool,
>(
    n: usize,
    out: *mut u8,
    ins: &[*const u8],
) {
    // SAFETY: `ins` are those of a `TileFn`.
    let f = unsafe { F::new(ins) };
    let (a, b, c, out) = (operand::<A>(ins, 0), operand::<B>(ins, 1), operand::<C>(ins, 2), out.cast::<D>());
    // The scalars of a small program would wait for a block around them, and their divisions for those of the block.
    if n == 1 {
        // SAFETY: there is an element of each operand, which is read before the result is written.
        return unsafe { out.write(R::round(f.call(a.read(), b.read(), c.read()))) };
    }
    let mut filled = MaybeUninit::<([A; UNROLLED], [B; UNROLLED], [C; UNROLLED])>::uninit();
    let mut last = MaybeUninit::<[D; UNROLLED]>::uninit();
    let has_last = !n.is_multiple_of(UNROLLED);
    // The last block is computed first, while the operands are intact even if the output is one of them.
    let mut block = (a, b, c, last.as_mut_ptr().cast::<D>());
    if has_last && n < UNROLLED {
        // SAFETY: the operands have `n` elements, which fit in a block, and zeros are valid elements of it.
        unsafe {
            let filled = filled.as_mut_ptr();
            let (to_a, to_b, to_c) = (&raw mut (*filled).0, &raw mut (*filled).1, &raw mut (*filled).2);
            pad::<A, IS_MASKED>(n, a, to_a);
            pad::<B, IS_MASKED>(n, b, to_b);
            pad::<C, IS_MASKED>(n, c, to_c);
            (block.0, block.1, block.2) = (to_a.cast(), to_b.cast(), to_c.cast());
        }
    } else if has_last {
        // SAFETY: the operands have `n` elements, and these are at least a block.
        unsafe { (block.0, block.1, block.2) = (a.add(n - UNROLLED), b.add(n - UNROLLED), c.add(n - UNROLLED)) };
    }
    let (mut from, mut count) = (block, UNROLLED);
    let mut is_last = has_last;
    loop {
        if !is_last {
            (from, count) = ((a, b, c, out), n / UNROLLED * UNROLLED);
        }
        let mut i = 0;
        while i < count {
            // SAFETY: `UNROLLED` elements from `i` can be read from each operand and written to the output: those of the tile, or those of the
            // last block, which has its own memory. A block is read before any of it is written, so the output may be an operand.
            unsafe {
                let a = from.0.add(i).cast::<[A; UNROLLED]>().read();
                let b = from.1.add(i).cast::<[B; UNROLLED]>().read();
                let c = from.2.add(i).cast::<[C; UNROLLED]>().read();
                let mut results = [MaybeUninit::<D>::uninit(); UNROLLED];
                for j in 0..UNROLLED {
                    results[j].write(R::round(f.call(a[j], b[j], c[j])));
                }
                from.3.add(i).cast::<[MaybeUninit<D>; UNROLLED]>().write(results);
            }
            i += UNROLLED;
        }
        if !is_last {
            break;
        }
        is_last = false;
    }
    // SAFETY: the last block is computed if there is one: the last elements of the output, or all of them.
    unsafe {
        if has_last && n < UNROLLED {
            out.copy_from_nonoverlapping(last.as_ptr().cast(), n);
        } else if has_last {
            out.add(n - UNROLLED).cast::<[D; UNROLLED]>().write(last.assume_init());
        }
    }
}

/// Copies `n` elements to a block, whose other elements become zeros. With masks it is written in whole vectors: the loop that reads such
/// vectors would have to wait for zeros and parts of elements to reach the cache.
///
/// # Safety
/// `from` has `n` elements, fewer than a block, and zeros are valid ones; if `IS_MASKED`, as for [`in_blocks`].
#[inline(always)]
unsafe fn pad<T: Scalar, const IS_MASKED: bool>(n: usize, from: *const T, to: *mut [T; UNROLLED]) {
    #[cfg(target_arch = "x86_64")]
    if IS_MASKED {
        use std::arch::x86_64::{_mm512_maskz_loadu_epi8, _mm512_storeu_epi8};
        const VECTOR: usize = 64;
        for start in (0..size_of::<[T; UNROLLED]>()).step_by(VECTOR) {
            let bytes = (n * size_of::<T>()).saturating_sub(start).min(VECTOR);
            let mask = u64::MAX.checked_shr((VECTOR - bytes) as u32).unwrap_or(0);
            // SAFETY: bytes behind the elements are not read, and a block is whole vectors.
            unsafe {
                let vector = _mm512_maskz_loadu_epi8(mask, from.cast::<i8>().wrapping_add(start));
                _mm512_storeu_epi8(to.cast::<i8>().wrapping_add(start), vector);
            }
        }
        return;
    }
    // SAFETY: promised by the caller.
    unsafe {
        to.write_bytes(0, 1);
        to.cast::<T>().copy_from_nonoverlapping(from, n);
    }
}

/// The loop of functions that cannot be vectorised.
///
/// # Safety
/// That of a [`TileFn`].
#[inline(always)]
unsafe fn one_by_one<A: Scalar, B: Scalar, D: Scalar, R: Round<D>, F: Function<A, B, (), D>>(
    n: usize,
    out: *mut u8,
    ins: &[*const u8],
) {
    // SAFETY: `ins` are those of a `TileFn`.
    let f = unsafe { F::new(ins) };
    let (a, b, out) = (operand::<A>(ins, 0), operand::<B>(ins, 1), out.cast::<D>());
    for i in 0..n {
        // SAFETY: `n` elements can be read from each operand and written to the output. An element is read before it is
        // written, so that the output may be an operand.
        unsafe { out.add(i).write(R::round(f.call(a.add(i).read(), b.add(i).read(), ()))) };
    }
}

/// The pointer to an operand. A missing operand is `()`, of which nothing is read.
#[inline(always)]
fn operand<T: Scalar>(ins: &[*const u8], i: usize) -> *const T {
    if size_of::<T>() == 0 { std::ptr::dangling() } else { ins[i].cast() }
}
