//! f16 and bf16 as f32: rounding to them, and conversions between memory and registers.
//!
//! All of this is arithmetic on the bits of an f32, so that it is vectorised everywhere.

/// The rounding of an operation's results.
pub(crate) trait Round<T>: Copy + 'static {
    /// Whether results are correct without it.
    const IS_EXACT: bool;
    /// Whether functions that are common in models are compiled with it. If not, a separate loop rounds their results.
    const IS_COMMON: bool;

    /// The rounded result, in its register type.
    fn round(x: T) -> T;
}

/// No rounding: the dtype is its register type, or the operation's results on f16 or bf16 are of that dtype already.
#[derive(Clone, Copy)]
pub(crate) struct Exact;

/// The result is an f16.
#[derive(Clone, Copy)]
pub(crate) struct ToF16;

/// The result is a bf16.
#[derive(Clone, Copy)]
pub(crate) struct ToBf16;

impl<T> Round<T> for Exact {
    const IS_EXACT: bool = true;
    const IS_COMMON: bool = true;

    #[inline(always)]
    fn round(x: T) -> T {
        x
    }
}

impl Round<f32> for ToF16 {
    const IS_EXACT: bool = false;
    const IS_COMMON: bool = false;

    #[inline(always)]
    fn round(x: f32) -> f32 {
        round_to_f16(x)
    }
}

impl Round<f32> for ToBf16 {
    const IS_EXACT: bool = false;
    const IS_COMMON: bool = true;

    #[inline(always)]
    fn round(x: f32) -> f32 {
        round_to_bf16(x)
    }
}

/// The nearest bf16, half to even; a NaN stays NaN.
#[inline(always)]
pub(crate) fn round_to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    f32::from_bits(if x.is_nan() { bits | 0x0040_0000 } else { rounded } & 0xFFFF_0000)
}

/// The nearest f16, half to even; a NaN stays NaN.
#[inline(always)]
pub(crate) fn round_to_f16(x: f32) -> f32 {
    let bits = x.to_bits();
    let sign = bits & 0x8000_0000;
    let magnitude = bits ^ sign;
    let rounded = (magnitude + (0xFFF + (magnitude >> 13 & 1))) & !0x1FFF;
    // From 2^16 on the result is infinity, and a NaN loses the bits that f16 lacks.
    let overflow = if x.is_nan() { (magnitude | 0x0040_0000) & !0x1FFF } else { f32::INFINITY.to_bits() };
    // Below 2^-14, f16 numbers are as far apart as those of f32 between 1/2 and 1, and the addition rounds to them.
    let subnormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
    let rounded = if magnitude < 0x3880_0000 { subnormal } else { rounded };
    let rounded = if rounded >= 0x4780_0000 { overflow } else { rounded };
    f32::from_bits(sign | rounded)
}

/// The f32 of a bf16's bits.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bits of the bf16 in an f32.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// The f32 of an f16's bits.
#[inline(always)]
pub(crate) fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let shifted = u32::from(bits & 0x7FFF) << 13;
    // The bias of the exponent is 15 in f16 and 127 in f32. The multiplication makes subnormals normal.
    let finite = (f32::from_bits(shifted) * f32::from_bits((254 - 15) << 23)).to_bits();
    let magnitude = if shifted >= 0x0F80_0000 { shifted | 0x7F80_0000 } else { finite };
    f32::from_bits(sign | magnitude)
}

/// The bits of the f16 in an f32.
#[inline(always)]
pub(crate) fn to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    let normal = (magnitude >> 13).wrapping_sub((127 - 15) << 10);
    // The number as a multiple of 2^-24.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits() & 0x7FF;
    let special = 0x7C00 | (magnitude >> 13 & 0x3FF);
    let magnitude = if magnitude < 0x3880_0000 {
        subnormal
    } else if magnitude >= 0x7F80_0000 {
        special
    } else {
        normal
    };
    ((bits >> 16 & 0x8000) | magnitude) as u16
}
