//! Functions that move elements: between memory and registers, repeated, or strided.

use remat_ir::DType;

use super::TileFn;
use super::loops;
use crate::number::Scalar;
use crate::number::rounding::{Exact, from_bf16, from_f16, to_bf16, to_f16};
use crate::number::with_bits;
use crate::simd::{Level, multiversion};

/// Repeats an element along each row: `out[r * columns + c] = input[r]`.
///
/// # Safety
/// `input` is valid for reading `rows` elements and `out` for writing `rows * columns`, both aligned to the element, and
/// they do not overlap.
pub(crate) type SpreadFn = unsafe fn(rows: usize, columns: usize, out: *mut u8, input: *const u8);

/// Gathers strided elements: `out[i] = input[i * stride]` for `i < n`, with the stride in elements.
///
/// # Safety
/// Each element that is read or written is valid and aligned, and `out` does not overlap the elements that are read.
pub(crate) type StridedFn = unsafe fn(n: usize, out: *mut u8, input: *const u8, stride: isize);

/// Repeats elements: `out[i * times + j] = input[i]` for `i < n` and `j < times`.
///
/// # Safety
/// As of [`StridedFn`].
pub(crate) type RepeatFn = unsafe fn(n: usize, times: usize, out: *mut u8, input: *const u8);

/// The function that loads from memory into a register, if their types differ: it widens f16 and bf16.
pub(crate) fn load(dtype: DType) -> Option<TileFn> {
    load_at(Level::best(), dtype)
}

/// The function that stores a register to memory, if their types differ. It narrows to f16 and bf16, to which the elements are already
/// rounded.
pub(crate) fn store(dtype: DType) -> Option<TileFn> {
    store_at(Level::best(), dtype)
}

pub(super) fn load_at(level: Level, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => Some(loops::unary(level, from_f16, Exact)),
        DType::Bf16 => Some(loops::unary(level, from_bf16, Exact)),
        _ => None,
    }
}

pub(super) fn store_at(level: Level, dtype: DType) -> Option<TileFn> {
    match dtype {
        DType::F16 => Some(loops::unary(level, to_f16, Exact)),
        DType::Bf16 => Some(loops::unary(level, to_bf16, Exact)),
        _ => None,
    }
}

/// The function that repeats register elements of this dtype along rows.
pub(crate) fn spread(dtype: DType) -> SpreadFn {
    with_bits!(dtype, T => spread_at::<T>(Level::best()))
}

/// The function that gathers elements of this many bytes: 1, 2, 4 or 8.
pub(crate) fn strided(bytes: usize) -> StridedFn {
    match bytes {
        1 => strided_at::<u8>(Level::best()),
        2 => strided_at::<u16>(Level::best()),
        4 => strided_at::<u32>(Level::best()),
        _ => strided_at::<u64>(Level::best()),
    }
}

/// The function that repeats elements of this many bytes: 1, 2, 4 or 8.
pub(crate) fn repeats(bytes: usize) -> RepeatFn {
    match bytes {
        1 => repeat_of::<u8>,
        2 => repeat_of::<u16>,
        4 => repeat_of::<u32>,
        _ => repeat_of::<u64>,
    }
}

/// As [`RepeatFn`].
unsafe fn repeat_of<T: Scalar>(n: usize, times: usize, out: *mut u8, input: *const u8) {
    // SAFETY: the caller promises the elements that are read and written, and that they do not overlap.
    let (from, to) = unsafe {
        (std::slice::from_raw_parts(input.cast::<T>(), n), std::slice::from_raw_parts_mut(out.cast::<T>(), n * times))
    };
    repeat(from, times, to);
}

multiversion! {
    /// Copies elements, each repeated `times` times.
    pub(crate) fn repeat<W: Copy>(from: &[W], times: usize, to: &mut [W]) {
        match times {
            2 => repeat_each::<W, 2>(from, to),
            3 => repeat_each::<W, 3>(from, to),
            4 => repeat_each::<W, 4>(from, to),
            _ => {
                for (to, &from) in to.chunks_exact_mut(times).zip(from) {
                    to.fill(from);
                }
            }
        }
    }
}

/// As [`repeat`], with a constant number of copies, so that the compiler writes whole vectors.
#[inline(always)]
fn repeat_each<W: Copy, const TIMES: usize>(from: &[W], to: &mut [W]) {
    for (to, &from) in to.as_chunks_mut::<TIMES>().0.iter_mut().zip(from) {
        *to = [from; TIMES];
    }
}

multiversion! {
    fn spread_at<T: Scalar>(level: Level)
    -> unsafe fn(rows: usize, columns: usize, out: *mut u8, input: *const u8) {
        for r in 0..rows {
            // SAFETY: the caller promises `rows` elements to read and `rows * columns` to write.
            unsafe {
                let x = input.cast::<T>().add(r).read();
                let row = out.cast::<T>().add(r * columns);
                for c in 0..columns {
                    row.add(c).write(x);
                }
            }
        }
    }
}

multiversion! {
    fn strided_at<T: Scalar>(level: Level) -> unsafe fn(n: usize, out: *mut u8, input: *const u8, stride: isize) {
        let (out, input) = (out.cast::<T>(), input.cast::<T>());
        // SAFETY: the caller promises the elements that are read and written.
        unsafe {
            match stride {
                1 => out.copy_from_nonoverlapping(input, n),
                0 if n > 0 => {
                    let x = input.read();
                    for i in 0..n {
                        out.add(i).write(x);
                    }
                }
                _ => {
                    for i in 0..n {
                        out.add(i).write(input.offset(i as isize * stride).read());
                    }
                }
            }
        }
    }
}
