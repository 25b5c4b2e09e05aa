//! Writes sums as elements of a result.

// Results are written through pointers, since the tasks' results interleave.
#![allow(unsafe_code)]

use remat_ir::{DType, bf16, f16};

use crate::base::narrow::PANEL;
use crate::number::Number;
use crate::simd::{Level, multiversion};

/// Writes `size` rows and columns of sums, with rows [`PANEL`] apart, as elements of a dtype, with these strides.
///
/// # Safety
/// The elements are valid for writing, from `to` on.
///
/// # Panics
/// If there are fewer sums.
pub(in crate::kernels) unsafe fn write_sums(
    dtype: DType,
    sums: &[u32],
    size: [usize; 2],
    to: *mut u8,
    strides: [isize; 2],
) {
    let level = Level::best();
    // SAFETY: as the caller promises.
    unsafe {
        match (dtype, dtype.size()) {
            (DType::Bf16, _) => store::<bf16>(level)(sums, size, to.cast(), strides),
            (DType::F16, _) => store::<f16>(level)(sums, size, to.cast(), strides),
            (_, 1) => store::<u8>(level)(sums, size, to.cast(), strides),
            (_, 2) => store::<u16>(level)(sums, size, to.cast(), strides),
            _ => store::<u32>(level)(sums, size, to.cast(), strides),
        }
    }
}

/// The type to which sums are converted.
trait Stored: Copy {
    /// Converts the bits of a sum to an element.
    fn of(sum: u32) -> Self;
}

macro_rules! rounded {
    ($($type:ty)*) => { $(
        impl Stored for $type {
            #[inline(always)]
            fn of(sum: u32) -> $type {
                <$type>::narrow(f32::from_bits(sum))
            }
        }
    )* };
}

rounded!(bf16 f16);

macro_rules! low_bits {
    ($($type:ty)*) => { $(
        impl Stored for $type {
            #[inline(always)]
            fn of(sum: u32) -> $type {
                sum as $type
            }
        }
    )* };
}

low_bits!(u8 u16 u32);

multiversion! {
    /// The function that writes rows and columns of sums with these strides; the elements must be valid for writing.
    fn store<T: Stored>(level: Level) -> unsafe fn(sums: &[u32], size: [usize; 2], to: *mut T, strides: [isize; 2]) {
        let ([rows, columns], [row, column]) = (size, strides);
        if column == 1 || columns == 1 {
            for i in 0..rows {
                let sums = &sums[i * PANEL..][..columns];
                // SAFETY: the row has this many elements, as the caller promises.
                let to = unsafe { std::slice::from_raw_parts_mut(to.offset(i as isize * row), columns) };
                match (to.first_chunk_mut::<PANEL>(), sums.first_chunk::<PANEL>()) {
                    (Some(to), Some(sums)) => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = T::of(sum)),
                    _ => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = T::of(sum)),
                }
            }
            return;
        }
        if row.abs() > column.abs() {
            for (i, sums) in sums.chunks(PANEL).enumerate().take(rows) {
                let mut converted = [T::of(0); PANEL];
                converted.iter_mut().zip(sums).for_each(|(to, &sum)| *to = T::of(sum));
                for (j, &x) in converted[..columns].iter().enumerate() {
                    // SAFETY: the caller promises this element.
                    unsafe { to.offset(i as isize * row + j as isize * column).write(x) };
                }
            }
            return;
        }
        for j in 0..columns {
            let to = to.wrapping_offset(j as isize * column);
            for i in 0..rows {
                // SAFETY: the caller promises this element.
                unsafe { to.offset(i as isize * row).write(T::of(sums[i * PANEL + j])) };
            }
        }
    }
}
