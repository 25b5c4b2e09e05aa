//! Dot products of a vector of bytes and rows of bytes, modulo 2^32, by the instructions that a CPU has for them.
//!
//! - AVX-512 VNNI and AVX-VNNI multiply unsigned bytes by signed ones, and add quadruples of products to sums of 32 bits. So the bytes of
//!   the rows are shifted by 128, by flipping their highest bit, and 128 times the sum of the vector makes up for it.
//! - AVX2 multiplies pairs of 16 bits and adds the two products. The even and the odd bytes are widened.
//!
//! All are exact, as is every order.

// Vector instructions, which read through pointers.
#![allow(unsafe_code)]

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

use crate::base::narrow::{widen_signed, widen_unsigned};
use crate::isa::{Isa, allows};
use crate::simd::prefetch;

/// Bytes that are multiplied at a time: of a vector register of AVX-512, or of two of AVX2.
pub(super) const STEP: usize = 64;

/// Bytes of a vector register of AVX2.
const HALF: usize = STEP / 2;

/// Rows whose sums are in registers at a time.
pub(super) const ROWS: usize = 8;

/// Most vectors that are multiplied one after the other, by any instructions.
pub(super) const VECTORS: usize = 8;

/// The distance in bytes by which a row is prefetched, or the next rows where it ends.
const AHEAD: usize = 512;

/// The dot products of a vector, padded with zeros, and `count` rows of `depth` bytes with this stride. Bytes of the rows may be shifted
/// ([`ByteDots::shift`]). Sums past `count` are unspecified.
///
/// # Safety
/// The rows are valid for reading, there is one at least, and the vector has `depth` bytes, rounded up to [`STEP`]. The CPU has the
/// instructions.
type Dots = unsafe fn(x: &[u8], rows: (*const u8, usize), count: usize, depth: usize) -> [u32; ROWS];

/// The functions of an instruction set that this CPU has.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteDots {
    signed: Dots,
    unsigned: Dots,
    /// Whether the bytes of the rows are shifted by 128: signed ones to unsigned, and unsigned ones to signed.
    is_shifted: bool,
    /// Most vectors for which multiplying one after the other is faster than the unit of these instructions, which multiplies 16 at a time.
    pub(super) vectors: usize,
}

impl ByteDots {
    /// The fastest functions that the CPU has and may use.
    pub(super) fn best() -> Option<ByteDots> {
        ByteDots::all().find_map(|(isa, dots)| allows(isa).then_some(dots))
    }

    /// All that the CPU has, the fastest first.
    pub(super) fn all() -> impl Iterator<Item = (Isa, ByteDots)> {
        let has_avx2 = is_x86_feature_detected!("avx2");
        let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let sets = [
            (
                has_avx512 && is_x86_feature_detected!("avx512vnni"),
                Isa::Avx512,
                ByteDots { signed: avx512::<true>, unsigned: avx512::<false>, is_shifted: true, vectors: 4 },
            ),
            (
                has_avx2 && is_x86_feature_detected!("avxvnni"),
                Isa::Avx2,
                ByteDots {
                    signed: signed_quadruples,
                    unsigned: unsigned_quadruples,
                    is_shifted: true,
                    vectors: VECTORS,
                },
            ),
            (
                has_avx2,
                Isa::Avx2,
                ByteDots { signed: signed_pairs, unsigned: unsigned_pairs, is_shifted: false, vectors: VECTORS },
            ),
        ];
        sets.into_iter().filter_map(|(has, isa, dots)| has.then_some((isa, dots)))
    }

    /// The function for these bytes.
    pub(super) fn of(self, is_signed: bool) -> Dots {
        if is_signed { self.signed } else { self.unsigned }
    }

    /// What has to be added to each dot product, where this is the sum of the vector.
    pub(super) fn shift(self, is_signed: bool, sum: u32) -> u32 {
        let shift = if self.is_shifted { sum.wrapping_mul(128) } else { 0 };
        if is_signed { shift.wrapping_neg() } else { shift }
    }
}

/// The pointers to some rows, the last again where there are fewer, and the distance from the end of a row to what is prefetched there.
#[inline(always)]
fn pointers((first, stride): (*const u8, usize), count: usize, depth: usize) -> ([*const u8; ROWS], usize) {
    let rows = std::array::from_fn(|n| first.wrapping_add(n.min(count - 1) * stride));
    (rows, (AHEAD + ROWS * stride).wrapping_sub(depth))
}

/// By AVX-512 VNNI.
///
/// # Safety
/// As of every such function.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn avx512<const SIGNED: bool>(x: &[u8], rows: (*const u8, usize), count: usize, depth: usize) -> [u32; ROWS] {
    let flip = _mm512_set1_epi8(i8::MIN);
    let (rows, to_next_rows) = pointers(rows, count, depth);
    let mut sums = [_mm512_setzero_si512(); ROWS];
    for l in (0..depth).step_by(STEP) {
        let mask = if depth - l >= STEP { u64::MAX } else { (1 << (depth - l)) - 1 };
        let ahead = if l + AHEAD < depth { AHEAD } else { to_next_rows };
        // SAFETY, of both: the vector has these bytes, and the mask has those of the rows.
        let x = unsafe { _mm512_loadu_si512(x.as_ptr().add(l).cast()) };
        for (sum, row) in sums.iter_mut().zip(&rows) {
            let from = row.wrapping_add(l);
            prefetch(from.wrapping_add(ahead));
            let row = _mm512_xor_si512(unsafe { _mm512_maskz_loadu_epi8(mask, from.cast()) }, flip);
            *sum = if SIGNED { _mm512_dpbusd_epi32(*sum, row, x) } else { _mm512_dpbusd_epi32(*sum, x, row) };
        }
    }
    sums.map(|sum| _mm512_reduce_add_epi32(sum) as u32)
}

/// A function of vectors of AVX2, which adds the products of bytes of a row and of the vector by `add`.
macro_rules! dots {
    ($(#[$doc:meta])* $name:ident, $features:literal, $add:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of every such function.
        #[target_feature(enable = $features)]
        unsafe fn $name(x: &[u8], rows: (*const u8, usize), count: usize, depth: usize) -> [u32; ROWS] {
            let (mut rows, to_next_rows) = pointers(rows, count, depth);
            let mut sums = [_mm256_setzero_si256(); ROWS];
            let rest = depth % STEP;
            for l in (0..depth - rest).step_by(STEP) {
                let ahead = if l + AHEAD < depth { AHEAD } else { to_next_rows };
                for row in &rows {
                    prefetch(row.wrapping_add(l).wrapping_add(ahead));
                }
                for l in [l, l + HALF] {
                    // SAFETY, of both: the vector and the rows have these bytes, as the caller promises.
                    let x = unsafe { _mm256_loadu_si256(x.as_ptr().add(l).cast()) };
                    for (sum, row) in sums.iter_mut().zip(&rows) {
                        *sum = $add(*sum, unsafe { _mm256_loadu_si256(row.add(l).cast()) }, x);
                    }
                }
            }
            if rest > 0 {
                // What is multiplied by the zeros of the padded vector does not count, but it has to be readable.
                let mut last = [[0u8; STEP]; ROWS];
                for (row, last) in rows.iter_mut().zip(&mut last) {
                    // SAFETY: the row has these bytes, which are fewer than those of `last`.
                    unsafe { row.add(depth - rest).copy_to_nonoverlapping(last.as_mut_ptr(), rest) };
                    *row = last.as_ptr();
                }
                for l in [0, HALF] {
                    // SAFETY, of both: the vector is padded to the end of this step, and the copies have its bytes.
                    let x = unsafe { _mm256_loadu_si256(x.as_ptr().add(depth - rest + l).cast()) };
                    for (sum, row) in sums.iter_mut().zip(&rows) {
                        *sum = $add(*sum, unsafe { _mm256_loadu_si256(row.add(l).cast()) }, x);
                    }
                }
            }
            sums.map(|sum| {
                let mut lanes = [0u32; HALF / 4];
                // SAFETY: they are as long as a vector.
                unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
                lanes.into_iter().fold(0, u32::wrapping_add)
            })
        }
    };
}

dots!(
    /// By AVX-VNNI, for signed bytes.
    signed_quadruples, "avx2,avxvnni", add_signed_quadruples
);
dots!(
    /// By AVX-VNNI, for unsigned bytes.
    unsigned_quadruples, "avx2,avxvnni", add_unsigned_quadruples
);
dots!(
    /// By AVX2, for signed bytes.
    signed_pairs, "avx2", add_signed_pairs
);
dots!(
    /// By AVX2, for unsigned bytes.
    unsigned_pairs, "avx2", add_unsigned_pairs
);

/// Adds the products of signed bytes, of which those of the row are shifted to unsigned.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn add_signed_quadruples(sums: __m256i, row: __m256i, x: __m256i) -> __m256i {
    _mm256_dpbusd_avx_epi32(sums, _mm256_xor_si256(row, _mm256_set1_epi8(i8::MIN)), x)
}

/// Adds the products of unsigned bytes, of which those of the row are shifted to signed.
#[inline]
#[target_feature(enable = "avx2,avxvnni")]
fn add_unsigned_quadruples(sums: __m256i, row: __m256i, x: __m256i) -> __m256i {
    _mm256_dpbusd_avx_epi32(sums, x, _mm256_xor_si256(row, _mm256_set1_epi8(i8::MIN)))
}

/// Adds the products of signed bytes: those of even ones, and those of odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn add_signed_pairs(sums: __m256i, row: __m256i, x: __m256i) -> __m256i {
    add_widened(sums, widen_signed(row), widen_signed(x))
}

/// Adds the products of unsigned bytes: those of even ones, and those of odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn add_unsigned_pairs(sums: __m256i, row: __m256i, x: __m256i) -> __m256i {
    add_widened(sums, widen_unsigned(row), widen_unsigned(x))
}

/// Adds the products of the even bytes and those of the odd ones, which are widened to 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn add_widened(sums: __m256i, row: [__m256i; 2], x: [__m256i; 2]) -> __m256i {
    let [even, odd] = [0, 1].map(|i| _mm256_madd_epi16(row[i], x[i]));
    _mm256_add_epi32(sums, _mm256_add_epi32(even, odd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Stream;

    /// The number of a byte.
    fn number(byte: u8, is_signed: bool) -> u32 {
        if is_signed { i32::from(byte as i8) as u32 } else { u32::from(byte) }
    }

    /// For every rest of a step, and with the bytes that have the largest products.
    #[test]
    fn all_instructions_give_the_exact_sums() {
        let mut bits = Stream::new(1);
        for (_, dots) in ByteDots::all() {
            for (depth, count) in (1..STEP + 2).map(|depth| (depth, depth % ROWS + 1)).chain([(1000, 8), (8192, 3)]) {
                for extreme in [false, true] {
                    let mut byte = || {
                        let byte = bits.bits() as u8;
                        if extreme { [0x80, 0x7f, 0xff][usize::from(byte) % 3] } else { byte }
                    };
                    // Rows a little farther apart than they are long, or all the same.
                    let stride = if count % 2 == 0 { depth + 3 } else { 0 };
                    let rows: Vec<u8> = (0..(count - 1) * stride + depth).map(|_| byte()).collect();
                    let mut x: Vec<u8> = (0..depth).map(|_| byte()).collect();
                    x.resize(depth.next_multiple_of(STEP), 0);
                    for is_signed in [true, false] {
                        let sum = x.iter().map(|&x| number(x, is_signed)).fold(0, u32::wrapping_add);
                        // SAFETY: there are `count` rows, the vector is padded, and the CPU has the instructions.
                        let found = unsafe { dots.of(is_signed)(&x, (rows.as_ptr(), stride), count, depth) };
                        for (i, found) in found.into_iter().enumerate().take(count) {
                            let products = rows[i * stride..][..depth].iter().zip(&x);
                            let products =
                                products.map(|(&a, &b)| number(a, is_signed).wrapping_mul(number(b, is_signed)));
                            let [found, expected] =
                                [found.wrapping_add(dots.shift(is_signed, sum)), products.fold(0, u32::wrapping_add)];
                            assert_eq!(found, expected, "{dots:?}: {count} rows of {depth} bytes");
                        }
                    }
                }
            }
        }
    }
}
