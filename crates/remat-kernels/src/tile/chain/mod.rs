//! Chains: several elementwise operations on f32 and bf16 in one pass over a tile.
//!
//! A tile function reads its operands from the first-level cache and writes its result there, which for an addition takes longer than the
//! addition itself. A chain is a list of [`ChainStep`]s with one value, which stays in CPU registers between steps: a few vectors of it take
//! all steps before the next vectors do. Values that a later step reads again are stored to a tile on the way. So one function serves all
//! chains, and dispatching a step takes little time compared with its vectors.
//!
//! Each step rounds like its operation on its own: a product and the sum after it are rounded twice, and a bf16 is an f32 that is rounded
//! at once.

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::simd::Level;
#[cfg(target_arch = "x86_64")]
use crate::simd::{CACHE_LINE, prefetch};

/// How many bytes ahead a stream is prefetched. Several streams are more than the hardware prefetcher handles. (Without it, a loop over
/// arrays in memory took about twice the time: docs/EXPERIMENTS.md, "Chains in loops".)
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 2048;

/// One operation of a chain. Its numbers are slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChainStep {
    pub(crate) op: ChainOp,
    /// The other operand: its kind and its slot.
    pub(crate) fetch: Fetch,
    pub(crate) input: u32,
    /// Whether the other operand comes from memory that is not yet in the first-level cache.
    pub(crate) is_far: bool,
    /// The bools that a selection reads, or that a comparison writes.
    pub(crate) bools: u32,
    pub(crate) round: Rounding,
    /// Whether and how the value is stored.
    pub(crate) store: Store,
    pub(crate) out: u32,
}

/// The result of a step, given the value `x` and the other operand `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ChainOp {
    /// `x`.
    Keep,
    /// `y`.
    Load,
    Neg,
    Sqrt,
    Add,
    Sub,
    /// `y - x`.
    SubFrom,
    Mul,
    Div,
    /// `y / x`.
    DivInto,
    Max,
    Min,
    /// The maximum, for `y` that is neither NaN nor -0.
    MaxPlain,
    /// The minimum, for `y` that is neither NaN nor 0.
    MinPlain,
    /// `x` where the bool is true, else `y`.
    IfTrue,
    /// `x` where the bool is false, else `y`.
    IfFalse,
    /// Whether `x < y`; the value remains.
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
}

/// The other operand of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fetch {
    /// There is none.
    Nothing,
    /// The value itself.
    Itself,
    /// A tile of f32.
    Tile,
    /// A tile of bf16, as they are in memory.
    Bf16,
    /// One f32.
    One,
    /// One bf16.
    OneBf16,
}

/// How the result of a step is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    Exact,
    /// To bf16, for results of arithmetic on bf16: a NaN among them is a bf16 NaN.
    Bf16,
    /// To bf16, any number.
    AnyToBf16,
}

/// How the value is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Store {
    Nothing,
    Tile,
    /// In a tile with room for whole vectors: values that are read soon are best written as whole vectors.
    Register,
    /// As bf16, which it already is.
    Bf16,
}

/// Computes all steps for the first `n` elements of the slots.
///
/// # Safety
/// `slots` has a pointer for each number in the steps, aligned to its elements and valid for `n` of them, or for one if a single element is
/// fetched; bools are 0 or 1. Written memory overlaps read memory only if both have the same first element, written elements are no larger than
/// read ones, and no later step reads the old content. (Vectors are read and written in ascending order, so that bools may take the place of
/// the tile that they compare.)
pub(crate) type ChainFn = unsafe fn(n: usize, steps: &[ChainStep], slots: *const *mut u8);

/// The function that computes chains, if this CPU has vectors for it.
pub(crate) fn function() -> Option<ChainFn> {
    function_at(Level::best())
}

/// As [`function`], for a level of this CPU.
pub(crate) fn function_at(level: Level) -> Option<ChainFn> {
    #[cfg(target_arch = "x86_64")]
    return x86::function_at(level);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = level;
        None
    }
}

/// A vector of f32 in a register. The methods for parts read and write only the first `n` elements; `n` may exceed the vector.
///
/// # Safety of all methods
/// The CPU has the instructions; pointers are valid for as many elements as are read or written.
#[cfg(target_arch = "x86_64")]
trait Vector: Copy {
    const LEN: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn load_part(from: *const f32, n: usize) -> Self;
    unsafe fn load_bf16(from: *const u16) -> Self;
    unsafe fn load_bf16_part(from: *const u16, n: usize) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn store_part(self, to: *mut f32, n: usize);
    /// Stores the upper half of each element.
    unsafe fn store_bf16(self, to: *mut u16);
    unsafe fn store_bf16_part(self, to: *mut u16, n: usize);
    /// `self` if the bool is true, else `other`.
    unsafe fn select(self, other: Self, bools: *const u8) -> Self;
    unsafe fn select_part(self, other: Self, bools: *const u8, n: usize) -> Self;
    /// Stores whether a comparison holds; `PREDICATE` is its number in the instruction.
    unsafe fn compare<const PREDICATE: i32>(self, other: Self, bools: *mut u8);
    unsafe fn compare_part<const PREDICATE: i32>(self, other: Self, bools: *mut u8, n: usize);
    unsafe fn neg(self) -> Self;
    unsafe fn sqrt(self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// As [`Number::maximum`](crate::number::Number::maximum).
    unsafe fn max(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn max_plain(self, other: Self) -> Self;
    unsafe fn min_plain(self, other: Self) -> Self;
    unsafe fn round(self) -> Self;
    unsafe fn round_any(self) -> Self;
}

/// The most vectors that take a step together: enough to keep a CPU with long latencies busy, and half of its registers with AVX2.
#[cfg(target_arch = "x86_64")]
const MOST: usize = 8;

/// Evaluates an expression for each of `COUNT` vectors, by its number: those of the result, or nothing after `do`. It is not a closure, since
/// vector instructions require inlining.
#[cfg(target_arch = "x86_64")]
macro_rules! each {
    (do $($name:ident),* => $e:expr) => { each!(@ [()] [$($name),*] $e; 0 1 2 3 4 5 6 7) };
    ($($name:ident),* => $e:expr) => { each!(@ [V::splat(0.0)] [$($name),*] $e; 0 1 2 3 4 5 6 7) };
    (@ $other:tt $names:tt $e:expr; $($number:tt)*) => { ($(each!(# $other $names $number $e)),*) };
    (# [$other:expr] [$i:ident $(, $x:ident)*] $number:tt $e:expr) => {
        if $number < COUNT {
            let ($i, $($x),*): (usize, $(each!(any $x)),*) = ($number, $($x.$number),*);
            $e
        } else {
            $other
        }
    };
    (any $x:ident) => { _ };
}

/// # Safety
/// That of a [`ChainFn`], and the CPU has the instructions of the vectors.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn run<V: Vector>(n: usize, steps: &[ChainStep], slots: *const *mut u8) {
    let len = MOST * V::LEN;
    let whole = n - n % len;
    let rest = n - whole;
    // SAFETY: these are the elements up to `n`.
    unsafe {
        for start in (0..whole).step_by(len) {
            group::<V, MOST, false>(start, len, steps, slots);
        }
        // A division takes as long for vectors that nobody reads.
        match rest.div_ceil(V::LEN) {
            0 => {}
            1 => group::<V, 1, true>(whole, rest, steps, slots),
            2 => group::<V, 2, true>(whole, rest, steps, slots),
            3 | 4 => group::<V, 4, true>(whole, rest, steps, slots),
            _ => group::<V, MOST, true>(whole, rest, steps, slots),
        }
    }
}

/// Computes all steps for `n` elements from `start` on: a whole group of `COUNT` vectors, or a part of one if `IS_PART`.
///
/// # Safety
/// As for [`run`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn group<V: Vector, const COUNT: usize, const IS_PART: bool>(
    start: usize,
    n: usize,
    steps: &[ChainStep],
    slots: *const *mut u8,
) {
    let len = V::LEN;
    // The number of elements left for a vector.
    let left = |i: usize| n.saturating_sub(i * len);
    // SAFETY: of each slot, the elements from `start` on are read or written, which are `n` in all, as the caller promises.
    unsafe {
        let at = |slot: u32| *slots.add(slot as usize);
        let tile = |slot: u32| at(slot).cast::<f32>().wrapping_add(start);
        let narrow = |slot: u32| at(slot).cast::<u16>().wrapping_add(start);
        let bools = |slot: u32| at(slot).wrapping_add(start);
        let zero = V::splat(0.0);
        macro_rules! whole_or_part {
            ($f:ident / $part:ident ($($x:expr),*) $i:expr) => {
                if IS_PART { V::$part($($x,)* left($i)) } else { V::$f($($x),*) }
            };
        }
        let fetch_ahead = |from: *const u8, width: usize| {
            for line in 0..(n * width).div_ceil(CACHE_LINE) {
                prefetch(from.wrapping_add(AHEAD + line * CACHE_LINE));
            }
        };
        let mut x = each!(_i => zero);
        for step in steps {
            if step.is_far {
                match step.fetch {
                    Fetch::Tile => fetch_ahead(tile(step.input).cast(), size_of::<f32>()),
                    _ => fetch_ahead(narrow(step.input).cast(), size_of::<u16>()),
                }
            }
            macro_rules! compare {
                ($predicate:literal, $i:ident: $x:expr, $y:expr) => {{
                    let to = bools(step.bools).wrapping_add($i * len);
                    if IS_PART {
                        $x.compare_part::<$predicate>($y, to, left($i));
                    } else {
                        $x.compare::<$predicate>($y, to);
                    }
                    $x
                }};
            }
            macro_rules! select {
                ($i:ident: $chosen:expr, $other:expr) => {{
                    let from = bools(step.bools).cast_const().wrapping_add($i * len);
                    whole_or_part!(select / select_part($chosen, $other, from) $i)
                }};
            }
            // The result of the step, where the other operand of vector `$i` is `$y`.
            macro_rules! result {
                ($i:ident => $y:expr) => {
                    match step.op {
                        ChainOp::Keep => x,
                        ChainOp::Load => each!($i => $y),
                        ChainOp::Neg => each!(_i, x => x.neg()),
                        ChainOp::Sqrt => each!(_i, x => x.sqrt()),
                        ChainOp::Add => each!($i, x => x.add($y)),
                        ChainOp::Sub => each!($i, x => x.sub($y)),
                        ChainOp::SubFrom => each!($i, x => $y.sub(x)),
                        ChainOp::Mul => each!($i, x => x.mul($y)),
                        ChainOp::Div => each!($i, x => x.div($y)),
                        ChainOp::DivInto => each!($i, x => $y.div(x)),
                        ChainOp::Max => each!($i, x => x.max($y)),
                        ChainOp::Min => each!($i, x => x.min($y)),
                        ChainOp::MaxPlain => each!($i, x => x.max_plain($y)),
                        ChainOp::MinPlain => each!($i, x => x.min_plain($y)),
                        ChainOp::IfTrue => each!($i, x => select!($i: x, $y)),
                        ChainOp::IfFalse => each!($i, x => select!($i: $y, x)),
                        // The predicates that do not signal for quiet NaN. Of these only `Ne` is true for NaN.
                        ChainOp::Lt => each!($i, x => compare!(0x11, $i: x, $y)),
                        ChainOp::Le => each!($i, x => compare!(0x12, $i: x, $y)),
                        ChainOp::Gt => each!($i, x => compare!(0x1E, $i: x, $y)),
                        ChainOp::Ge => each!($i, x => compare!(0x1D, $i: x, $y)),
                        ChainOp::Eq => each!($i, x => compare!(0x00, $i: x, $y)),
                        ChainOp::Ne => each!($i, x => compare!(0x04, $i: x, $y)),
                    }
                };
            }
            let number = || match step.fetch {
                Fetch::OneBf16 => f32::from_bits(u32::from(at(step.input).cast::<u16>().read()) << 16),
                _ => at(step.input).cast::<f32>().read(),
            };
            let mut others: [V; MOST] = x.into();
            x = if IS_PART {
                // Parts are short: the operations are compiled once for operands of every kind.
                match step.fetch {
                    Fetch::Nothing | Fetch::Itself => {}
                    Fetch::Tile => {
                        let from = tile(step.input);
                        each!(do i => others[i] = V::load_part(from.wrapping_add(i * len), left(i)));
                    }
                    Fetch::Bf16 => {
                        let from = narrow(step.input);
                        each!(do i => others[i] = V::load_bf16_part(from.wrapping_add(i * len), left(i)));
                    }
                    Fetch::One | Fetch::OneBf16 => others = [V::splat(number()); MOST],
                }
                result!(i => others[i])
            } else {
                // The other operand is loaded where it is used. Loaded before, its vectors would take as many registers as the value's, and
                // both take all that AVX2 has: half of a step would be moves and spills. (Row "Operands of chains that are loaded where they
                // are used" of docs/EXPERIMENTS.md.)
                match step.fetch {
                    Fetch::Nothing | Fetch::Itself => result!(i => others[i]),
                    Fetch::Tile => {
                        let from = tile(step.input);
                        result!(i => V::load(from.wrapping_add(i * len)))
                    }
                    Fetch::Bf16 => {
                        let from = narrow(step.input);
                        result!(i => V::load_bf16(from.wrapping_add(i * len)))
                    }
                    Fetch::One | Fetch::OneBf16 => {
                        let number = V::splat(number());
                        result!(_i => number)
                    }
                }
            };
            match step.round {
                Rounding::Exact => {}
                Rounding::Bf16 => x = each!(_i, x => x.round()),
                Rounding::AnyToBf16 => x = each!(_i, x => x.round_any()),
            }
            match step.store {
                Store::Nothing => {}
                Store::Register => {
                    let to = tile(step.out);
                    each!(do i, x => {
                        if left(i) > 0 {
                            x.store(to.wrapping_add(i * len));
                        }
                    });
                }
                Store::Tile => {
                    let to = tile(step.out);
                    each!(do i, x => {
                        whole_or_part!(store / store_part(x, to.wrapping_add(i * len)) i);
                    });
                }
                Store::Bf16 => {
                    let to = narrow(step.out);
                    each!(do i, x => {
                        whole_or_part!(store_bf16 / store_bf16_part(x, to.wrapping_add(i * len)) i);
                    });
                }
            }
        }
    }
}
