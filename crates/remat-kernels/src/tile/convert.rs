//! Conversions between dtypes.

use remat_ir::DType;

use super::TileFn;
use super::loops;
use crate::number::Scalar;
use crate::number::rounding::{Exact, ToBf16, ToF16, from_bf16, from_f16, to_bf16, to_f16};
use crate::number::{Number, with_bits};
use crate::simd::Level;

/// The function that converts elements of one dtype to another.
pub(super) fn convert(level: Level, from: DType, to: DType) -> Option<TileFn> {
    match from {
        _ if from == to => Some(copy(level, from)),
        // Every f16 and bf16 is an f32, and is represented as one.
        DType::F16 | DType::Bf16 if to == DType::F32 => Some(copy(level, DType::F32)),
        DType::F16 | DType::Bf16 | DType::F32 => from_float::<f32>(level, to),
        DType::F64 => from_float::<f64>(level, to),
        // A bool is the byte 0 or 1.
        _ if to == DType::Bool => {
            with_bits!(from, T => Some(loops::unary(level, |x: T| u8::from(x != T::ZERO), Exact)))
        }
        _ if to.is_float() => match from {
            // Tiles of i8 and i16 are read as their bits, since loops over these are compiled for all levels.
            DType::I8 => integer_to_float(level, |x: u8| x as i8, to),
            DType::I16 => integer_to_float(level, |x: u16| x as i16, to),
            DType::I32 => integer_to_float(level, |x: i32| x, to),
            DType::I64 => integer_to_float(level, |x: i64| x, to),
            DType::U16 => integer_to_float(level, |x: u16| x, to),
            DType::U32 => integer_to_float(level, |x: u32| x, to),
            DType::U64 => integer_to_float(level, |x: u64| x, to),
            _ => integer_to_float(level, |x: u8| x, to),
        },
        _ if to.size() <= from.size() => truncate(level, from.size(), to.size()),
        _ => extend(level, from, to.size()),
    }
}

/// The function that copies a register.
fn copy(level: Level, dtype: DType) -> TileFn {
    with_bits!(dtype, T => loops::unary(level, |x: T| x, Exact))
}

/// The function that converts integers to integers of no more bytes. It keeps the low bits, whatever the signs.
fn truncate(level: Level, from: usize, to: usize) -> Option<TileFn> {
    Some(match (from, to) {
        (2, 1) => loops::unary(level, |x: u16| x as u8, Exact),
        (4, 1) => loops::unary(level, |x: u32| x as u8, Exact),
        (8, 1) => loops::unary(level, |x: u64| x as u8, Exact),
        (4, 2) => loops::unary(level, |x: u32| x as u16, Exact),
        (8, 2) => loops::unary(level, |x: u64| x as u16, Exact),
        (8, 4) => loops::unary(level, |x: u64| x as u32, Exact),
        (1, 1) => copy(level, DType::U8),
        (2, 2) => copy(level, DType::U16),
        (4, 4) => copy(level, DType::U32),
        (8, 8) => copy(level, DType::U64),
        _ => return None,
    })
}

/// The function that converts integers or bools to integers of more bytes. The bits are those of the same number, with the sign of the
/// source dtype.
fn extend(level: Level, from: DType, to: usize) -> Option<TileFn> {
    Some(match (from, to) {
        (DType::Bool | DType::U8, 2) => loops::unary(level, |x: u8| u16::from(x), Exact),
        (DType::Bool | DType::U8, 4) => loops::unary(level, |x: u8| u32::from(x), Exact),
        (DType::Bool | DType::U8, 8) => loops::unary(level, |x: u8| u64::from(x), Exact),
        (DType::U16, 4) => loops::unary(level, |x: u16| u32::from(x), Exact),
        (DType::U16, 8) => loops::unary(level, |x: u16| u64::from(x), Exact),
        (DType::U32, 8) => loops::unary(level, |x: u32| u64::from(x), Exact),
        (DType::I8, 2) => loops::unary(level, |x: i8| i16::from(x), Exact),
        (DType::I8, 4) => loops::unary(level, |x: i8| i32::from(x), Exact),
        (DType::I8, 8) => loops::unary(level, |x: i8| i64::from(x), Exact),
        (DType::I16, 4) => loops::unary(level, |x: i16| i32::from(x), Exact),
        (DType::I16, 8) => loops::unary(level, |x: i16| i64::from(x), Exact),
        (DType::I32, 8) => loops::unary(level, |x: i32| i64::from(x), Exact),
        _ => return None,
    })
}

/// The function that converts integers, which tiles store as `B`, to floats.
fn integer_to_float<B: Scalar, S: ToFloat>(
    level: Level,
    integer: impl Fn(B) -> S + Copy + 'static,
    to: DType,
) -> Option<TileFn> {
    Some(match to {
        DType::F16 if size_of::<S>() > 1 => loops::costly_unary(level, move |x| integer(x).to_odd_f32(), ToF16),
        DType::Bf16 if size_of::<S>() > 1 => loops::costly_unary(level, move |x| integer(x).to_odd_f32(), ToBf16),
        // Every integer of 8 bits is an f16 and a bf16, which are represented as f32.
        DType::F16 | DType::Bf16 | DType::F32 => loops::unary(level, move |x| integer(x).to_f32(), Exact),
        DType::F64 => loops::unary(level, move |x| integer(x).to_f64(), Exact),
        _ => return None,
    })
}

fn from_float<S: ToInteger>(level: Level, to: DType) -> Option<TileFn> {
    Some(match to {
        DType::Bool => loops::unary(level, S::to_bool, Exact),
        // As bits, as above.
        DType::I8 => loops::unary(level, |x: S| x.to_i8() as u8, Exact),
        DType::I16 => loops::unary(level, |x: S| x.to_i16() as u16, Exact),
        DType::I32 => loops::unary(level, S::to_i32, Exact),
        DType::I64 => loops::unary(level, S::to_i64, Exact),
        DType::U8 => loops::unary(level, S::to_u8, Exact),
        DType::U16 => loops::unary(level, S::to_u16, Exact),
        DType::U32 => loops::unary(level, S::to_u32, Exact),
        DType::U64 => loops::unary(level, S::to_u64, Exact),
        DType::F16 => loops::unary(level, S::to_odd_f32, ToF16),
        DType::Bf16 => loops::unary(level, S::to_odd_f32, ToBf16),
        DType::F32 => loops::unary(level, S::to_f32, Exact),
        DType::F64 => loops::unary(level, S::to_f64, Exact),
    })
}

/// The conversions of one value to floats.
trait ToFloat: Scalar {
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// An f32 that rounds to the same f16 and bf16 as this value.
    fn to_odd_f32(self) -> f32;
}

/// The conversions of one float to integers: truncated and saturated, with NaN as zero, like Rust's `as`.
trait ToInteger: ToFloat {
    fn to_bool(self) -> u8;
    fn to_i8(self) -> i8;
    fn to_i16(self) -> i16;
    fn to_i32(self) -> i32;
    fn to_i64(self) -> i64;
    fn to_u8(self) -> u8;
    fn to_u16(self) -> u16;
    fn to_u32(self) -> u32;
    fn to_u64(self) -> u64;
}

macro_rules! to_float {
    ($($type:ident, |$x:ident| $odd:expr;)*) => { $(
        impl ToFloat for $type {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_odd_f32(self) -> f32 {
                let $x = self;
                $odd
            }
        }
    )* };
}

macro_rules! to_integer {
    ($($type:ident)*) => { $(
        impl ToInteger for $type {
            to_integer! { @truncate $type to_i8 i8, to_i16 i16, to_i32 i32, to_i64 i64 }
            to_integer! { @truncate $type to_u8 u8, to_u16 u16, to_u32 u32, to_u64 u64 }
            #[inline(always)]
            fn to_bool(self) -> u8 {
                u8::from(self != 0.0)
            }
        }
    )* };
    // The same as `as`, in a form that is vectorised.
    (@truncate $type:ident $($name:ident $to:ident),*) => { $(
        #[inline(always)]
        fn $name(self) -> $to {
            const LOW: $type = $to::MIN as $type;
            // One more than the largest integer is a power of 2.
            const ABOVE: $type = ($to::MAX / 2 + 1) as $type * 2.0;
            let whole = self.trunc();
            let fits = (LOW..ABOVE).contains(&whole);
            // SAFETY: it is a whole number, not less than the smallest nor more than the largest integer.
            let integer: $to = unsafe { (if fits { whole } else { 0.0 }).to_int_unchecked() };
            let bound = if self > 0.0 { $to::MAX } else { $to::MIN };
            let bound = if self.is_nan() { 0 } else { bound };
            if fits { integer } else { bound }
        }
    )* };
}

to_float! {
    i8, |x| x.into();
    i16, |x| x.into();
    i32, |x| round_to_odd(x.into());
    i64, |x| round_to_odd(sticky(x.unsigned_abs()).copysign(if x < 0 { -1.0 } else { 1.0 }));
    u8, |x| x.into();
    u16, |x| x.into();
    u32, |x| round_to_odd(x.into());
    u64, |x| round_to_odd(sticky(x));
    f32, |x| x;
    f64, |x| round_to_odd(x);
}

to_integer! { f32 f64 }

/// An f32 that rounds to the same f16 and bf16 as this f64: truncated, with the last bit set if it is inexact. Rounding twice to nearest
/// would err if the first rounding makes a tie.
#[inline(always)]
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let exact = (f64::from(nearest) == x) | x.is_nan();
    let overshot = f64::from(nearest).abs() > x.abs();
    let odd = f32::from_bits(nearest.to_bits().wrapping_sub(u32::from(overshot)) | 1);
    if exact { nearest } else { odd }
}

/// An f64 that rounds to every smaller format as this integer does: the bits that do not fit set the last one.
#[inline(always)]
fn sticky(x: u64) -> f64 {
    let low = u64::from(x & 0xFFF != 0) << 12;
    let gathered = (x & !0xFFF) | low;
    (if x < 1 << 53 { x } else { gathered }) as f64
}

/// The function that reads the bits of one dtype as another of the same size.
pub(super) fn bitcast(level: Level, from: DType, to: DType) -> Option<TileFn> {
    if from == to {
        return Some(copy(level, from));
    }
    if from.size() != to.size() || from == DType::Bool || to == DType::Bool {
        return None;
    }
    Some(match (from, to) {
        (DType::F16, DType::Bf16) => loops::unary(level, |x: f32| from_bf16(to_f16(x)), Exact),
        (DType::Bf16, DType::F16) => loops::unary(level, |x: f32| from_f16(to_bf16(x)), Exact),
        (DType::F16, _) => loops::unary(level, to_f16, Exact),
        (DType::Bf16, _) => loops::unary(level, to_bf16, Exact),
        (_, DType::F16) => loops::unary(level, from_f16, Exact),
        (_, DType::Bf16) => loops::unary(level, from_bf16, Exact),
        _ => copy(level, from),
    })
}
