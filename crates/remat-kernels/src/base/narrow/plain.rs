//! Micro-kernels in plain Rust, which replace a unit in tests: they do what one instruction of the matrix unit does, on tiles of the same
//! packed panels. The innermost loops count by hand: without optimisation, as in tests, an iterator takes many times as long.

// Panels are given as pointers, as to every micro-kernel.
#![allow(unsafe_code)]

use std::hint::black_box;

use remat_ir::f16;

use super::offsets::{self, OffsetsKernel};
use super::unit::Unit;
use super::{GROUP, GROUP_BYTES, InPlaceKernel, Kind, MicroKernel, Prefetch, TILE};

/// The functions for these elements, as a unit that is not a matrix unit.
pub(super) fn unit(kind: Kind) -> Unit {
    let (kernel, in_place): (MicroKernel, Option<InPlaceKernel>) = match kind {
        Kind::Bf16 => (bf16, Some(bf16_in_place)),
        Kind::I8 => (signed, Some(signed_in_place)),
        Kind::U8 => (unsigned, Some(unsigned_in_place)),
        Kind::F16 => (f16, Some(f16_in_place)),
        Kind::SplitF32 => (split_f32, None),
        Kind::SplitF16 => (split_f16, None),
    };
    let at_offsets: Option<OffsetsKernel> = if kind == Kind::Bf16 { Some(offsets::plain) } else { None };
    let planes = kind.planes();
    Unit { kernel, in_place, at_offsets, planes, registers, words: 1, is_matrix_unit: false, tiles: None }
}

/// A tile of 16 by 16 words or sums.
type Tile = [u32; TILE];

/// A micro-kernel that adds the product of two tiles by this function.
macro_rules! micro_kernel {
    ($name:ident, $add:path, $kind:expr) => {
        #[doc = concat!("The micro-kernel of [`", stringify!($add), "`].")]
        ///
        /// # Safety
        /// As of every micro-kernel.
        unsafe fn $name(
            groups: usize,
            left: *const u32,
            right: *const u32,
            (sums, stride): (*mut u32, usize),
            adds: bool,
            _: Prefetch,
        ) {
            for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let mut tile = [0; TILE];
                for (row, tile) in tile.chunks_exact_mut(16).enumerate() {
                    // SAFETY: this row is in the sums, which no one else accesses.
                    let sums =
                        unsafe { std::slice::from_raw_parts_mut(sums.add((16 * i + row) * stride + 16 * j), 16) };
                    if adds {
                        tile.copy_from_slice(sums);
                    }
                }
                let ([l, r], planes) = ($kind.planes(), $kind.pairs_of_planes());
                for (group, [x, y]) in (0..groups).flat_map(|group| planes.iter().map(move |&pair| (group, pair))) {
                    let (x, y) = ((group * l + x) * GROUP + i * TILE, (group * r + y) * GROUP + j * TILE);
                    // SAFETY: the panels have these tiles.
                    let [left, right] =
                        unsafe { [left.add(x).cast::<Tile>(), right.add(y).cast()].map(|tile| tile.read()) };
                    $add(&mut tile, &left, &right);
                }
                for (row, tile) in tile.chunks_exact(16).enumerate() {
                    // SAFETY: as above.
                    let sums =
                        unsafe { std::slice::from_raw_parts_mut(sums.add((16 * i + row) * stride + 16 * j), 16) };
                    sums.copy_from_slice(tile);
                }
            }
        }
    };
}

micro_kernel!(bf16, tdpbf16ps, Kind::Bf16);
micro_kernel!(f16, tdpfp16ps, Kind::F16);
micro_kernel!(signed, tdpbssd, Kind::I8);
micro_kernel!(unsigned, tdpbuud, Kind::U8);
micro_kernel!(split_f32, tdpbf16ps, Kind::SplitF32);
micro_kernel!(split_f16, tdpbf16ps, Kind::SplitF16);

/// A micro-kernel for rows in place that adds the product of two tiles by this function.
macro_rules! in_place {
    ($name:ident, $add:path) => {
        #[doc = concat!("The micro-kernel of [`", stringify!($add), "`] for rows in place.")]
        ///
        /// # Safety
        /// As of every such micro-kernel.
        unsafe fn $name(
            groups: usize,
            (left, left_stride): (*const u8, usize),
            right: *const u32,
            (sums, stride): (*mut u32, usize),
            adds: bool,
        ) {
            for first in [0, 16] {
                let row = |i: usize| sums.wrapping_add((first + i) * stride).cast::<[u32; 16]>();
                let mut tile = [0; TILE];
                let rows = tile.as_chunks_mut::<16>().0;
                // SAFETY, of all: these are rows of the sums, groups of the left operand, and tiles of the right one.
                if adds {
                    rows.iter_mut().enumerate().for_each(|(i, to)| *to = unsafe { row(i).read() });
                }
                for group in 0..groups {
                    let mut x = [0; TILE];
                    for (i, x) in x.as_chunks_mut::<16>().0.iter_mut().enumerate() {
                        let from = left.wrapping_add((first + i) * left_stride + group * GROUP_BYTES);
                        *x = unsafe { from.cast::<[u32; 16]>().read_unaligned() };
                    }
                    let y = unsafe { right.add(group * GROUP).cast::<Tile>().read() };
                    $add(&mut tile, &x, &y);
                }
                for (i, sums) in tile.as_chunks::<16>().0.iter().enumerate() {
                    unsafe { row(i).write(*sums) };
                }
            }
        }
    };
}

in_place!(bf16_in_place, tdpbf16ps);
in_place!(f16_in_place, tdpfp16ps);
in_place!(signed_in_place, tdpbssd);
in_place!(unsigned_in_place, tdpbuud);

/// Replaces the measurement of instructions on registers, by a loop.
///
/// # Safety
/// None is needed.
unsafe fn registers(count: usize) -> usize {
    (0..count).filter(|&i| black_box(i) < count).count()
}

/// What `tdpbf16ps` does, bit for bit. The first elements of the pairs are summed, and so are the second ones, with fused multiplications
/// and additions. Both sums are added, and the result is added to the old sum. Subnormal numbers, before or after an operation, become
/// zero. The bits of a NaN are not specified here.
fn tdpbf16ps(sums: &mut Tile, left: &Tile, right: &Tile) {
    add_pairs(sums, [left, right].map(|tile| pairs(tile, |half| flushed(f32::from_bits(half << 16)))));
}

/// What `tdpfp16ps` does, as [`tdpbf16ps`], but that it keeps subnormal elements.
fn tdpfp16ps(sums: &mut Tile, left: &Tile, right: &Tile) {
    add_pairs(sums, [left, right].map(|tile| pairs(tile, |half| f16::from_bits(half as u16).to_f32())));
}

/// Adds the products of the pairs of numbers of each word.
fn add_pairs(sums: &mut Tile, [left, right]: [[[f32; 2]; TILE]; 2]) {
    let mut i = 0;
    while i < TILE {
        let mut of_pair = [0f32; 2];
        let mut word = 0;
        while word < 16 {
            let (x, y) = (left[i / 16 * 16 + word], right[word * 16 + i % 16]);
            of_pair = [add_product(of_pair[0], x[0], y[0]), add_product(of_pair[1], x[1], y[1])];
            word += 1;
        }
        let before = flushed(f32::from_bits(sums[i]));
        sums[i] = flushed(before + flushed(of_pair[0] + of_pair[1])).to_bits();
        i += 1;
    }
}

/// The numbers of the pairs of a tile, whose bits `number` reads.
fn pairs(tile: &Tile, number: impl Fn(u32) -> f32) -> [[f32; 2]; TILE] {
    tile.map(|word| [word & 0xffff, word >> 16].map(&number))
}

/// Zero for a subnormal number.
fn flushed(x: f32) -> f32 {
    if x > -f32::MIN_POSITIVE && x < f32::MIN_POSITIVE { 0f32.copysign(x) } else { x }
}

/// `sum + x * y` of bf16 or f16, rounded once. Their product is exact, unless it is too small or too large. Only then the function for
/// fused operations is needed, which takes long where the CPU has no instruction for it.
fn add_product(sum: f32, x: f32, y: f32) -> f32 {
    let product = x * y;
    let size = if product < 0.0 { -product } else { product };
    let is_exact = size > f32::MIN_POSITIVE && size <= f32::MAX || x == 0.0 || y == 0.0;
    let sum = if is_exact { sum + product } else { x.mul_add(y, sum) };
    // As `flushed`, whose call would take as long as the rest.
    if sum > -f32::MIN_POSITIVE && sum < f32::MIN_POSITIVE { flushed(sum) } else { sum }
}

/// What `tdpbssd` does: sums of the products of four signed bytes, modulo 2^32.
fn tdpbssd(sums: &mut Tile, left: &Tile, right: &Tile) {
    add_bytes(sums, [left, right].map(|tile| tile.map(|word| word.to_le_bytes().map(|byte| i32::from(byte as i8)))));
}

/// What `tdpbuud` does: sums of the products of four unsigned bytes, modulo 2^32.
fn tdpbuud(sums: &mut Tile, left: &Tile, right: &Tile) {
    add_bytes(sums, [left, right].map(|tile| tile.map(|word| word.to_le_bytes().map(i32::from))));
}

/// Adds the products of the four numbers of each word.
fn add_bytes(sums: &mut Tile, [left, right]: [[[i32; 4]; TILE]; 2]) {
    let mut i = 0;
    while i < TILE {
        let mut word = 0;
        while word < 16 {
            let (x, y) = (left[i / 16 * 16 + word], right[word * 16 + i % 16]);
            let product = x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3];
            sums[i] = sums[i].wrapping_add(product as u32);
            word += 1;
        }
        i += 1;
    }
}
