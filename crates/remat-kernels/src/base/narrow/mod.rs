//! Products of narrow elements, bf16, f16 and bytes, on the units that CPUs have for them: a word of 32 bits holds several elements, and
//! one instruction sums their products. Also products of f32, and of f16 where no unit multiplies it, as sums of bf16.
//!
//! - `amx`: the matrix unit, which multiplies tiles, of bf16, f16, bytes, and split f32 and f16
//! - `avx512`: dot products of pairs of bf16 and quadruples of bytes, added to 16 sums
//! - `avx2`: the same of bytes, added to 8 sums, where the CPU has AVX-VNNI; else products of bytes widened to 16 bits
//! - `neon`: dot products of pairs of bf16 and quadruples of bytes, added to 4 sums
//!
//! All units take the same packed panels ([`pack`](mod@pack)). A panel has 32 rows of the left operand, or 32 columns of the right one. For
//! each *group* of 16 words of the contracted axis it has two tiles, one for each 16 rows or columns. A tile is a matrix of 16 by 16
//! words: a row of the left operand is a row of the tile, a column of the right one a column. Panels and groups are padded with zeros.
//!
//! A micro-kernel multiplies a left panel with a right one and adds to 32 by 32 sums, which are f32 for bf16, and integers modulo 2^32 for
//! bytes. Each sum adds the groups in order, wherever the contracted axis is cut between groups, and so depends on the shapes alone.
//!
//! # Rounding
//!
//! Products of bf16 are exact, unless they are subnormal in f32. The unit decides the order of a sum, and replaces subnormal inputs,
//! intermediate values and results by zeros. Let `u = 2^-24`, and `depth` be the length of the contracted axis, rounded up to a whole
//! group. Then a sum is within `depth * u` of the exact one, relative to the sum of the absolute values of its terms, as in any other
//! order.
//!
//! - The matrix unit sums the 16 products of first elements of the pairs of a group, and those of second ones, adds the two, and
//!   adds that to the sums of the groups before.
//! - AVX-512 adds the products of all pairs one after the other, the second element of a pair before the first.
//! - NEON (`bfdot`) sums the two products of a pair and adds that to the sum, pair by pair. Both roundings are *to odd*: an inexact result
//!   becomes the one of its two neighbours whose last bit is one, and so is off by up to `2 u` of itself, instead of `u`. But there are
//!   half as many roundings: a term is in that of its pair and in those of the later pairs, `depth / 2` in all, since the first pair is
//!   added to zero. Together they are at most `(1 + 2 u)^(depth / 2) - 1`, which is the bound above, larger by a factor of at most
//!   `1 + depth * u`. Source: Arm, "Arm architecture reference manual for A-profile architecture", `BFDotAdd`, which rounds in another way
//!   only where a process sets `FPCR.EBF`.
//!
//! # f32 as sums of bf16
//!
//! An f32 is the sum of three bf16, `x = x1 + x2 + x3`, each but the last the nearest to the remainder. The matrix unit multiplies bf16
//! sixteen times as fast as AVX-512 multiplies f32, so that six products, `x1 y1 + x1 y2 + x2 y1 + x1 y3 + x3 y1 + x2 y2`, are faster than
//! one. The omitted products together are smaller than 2^-24 of `|x y|`, as much as one rounding of a product. A sum has fewer roundings
//! than one that adds position by position, since 16 products are added before they are added to the sum: for random numbers the error is
//! less than half as large. So the bound above holds, for a `depth` larger by 2, where no product is smaller than about 2^-108. Parts of
//! smaller products are subnormal, which the unit replaces by zeros; products near 2^-120 lose a thousandth. Not everything that is exact
//! in f32 is exact here: 4095 * 4095 is off by one. So this is done only on request ([`Precision::High`](crate::Precision)). Unlike JAX's
//! `high` (three products), this adds up six; XLA calls it `BF16_BF16_F32_X6`. Source: Henry, Tang and Heinecke, "Leveraging the bfloat16
//! artificial intelligence datatype for higher-precision computations", IEEE Symposium on Computer Arithmetic, 2019.
//!
//! A word has two parts of one f32. In a group the left operand has a plane of words `(x3, x1)` and one of `(x2, x1)`, the right one `(y1,
//! y3)`, `(y1, y2)` and `(y2, y1)`. So each instruction multiplies symmetrically, and swapped operands have the same sums. Results that are
//! not finite are wrong, since a part of an infinity is NaN; the driver computes them again in f32 (`kernels::matmul::narrow`).
//!
//! # f16 as sums of bf16
//!
//! An f16 has 11 significant bits and a bf16 8, so an f16 is the sum of two bf16, `x = x1 + x2`, and bf16 has exponents for all parts and
//! products. A word has both parts of one f16. The right operand has a plane of words `(y1, y2)` and one of `(y2, y1)`, so that swapped
//! operands have the same sums here too. Nothing is omitted and no product is rounded, so that the bound above holds for a `depth` larger
//! by one. A matrix unit multiplies bf16 sixteen times as fast as AVX-512 multiplies f32, so four products are faster than one of f32.
//!
//! Matrix units of newer CPUs also multiply pairs of f16 (AMX-FP16), with the order of bf16. Their products are exact in f32, and no
//! subnormal number is lost.
//!
//! Without a unit, bf16 and f16 are widened to f32 and added in the order of f32 products, so that the bits depend on the CPU.

// Micro-kernels are functions on pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod offsets;
mod pack;
mod part;
#[cfg(test)]
mod plain;
mod rate;
mod split;
#[cfg(test)]
mod tests;
mod transpose;
mod unit;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::{widen_signed, widen_unsigned};
pub(crate) use offsets::{MOST_ROWS, MOST_RUNS, RowRuns};
pub(crate) use pack::{Side, Strided, pack};
pub(crate) use part::Part;
use remat_ir::DType;
pub(crate) use split::{SplitF16, SplitF32};
pub(crate) use transpose::{Transpose, transpose};
pub use unit::used_isa;
pub(crate) use unit::{Session, Unit};

/// Rows of a packed left operand, or columns of a right one, in a panel.
pub(crate) const PANEL: usize = 32;

/// Words of a tile.
const TILE: usize = 256;

/// Words of a group of a panel.
pub(crate) const GROUP: usize = 2 * TILE;

/// Bytes of a row in a group.
pub(crate) const GROUP_BYTES: usize = 64;

/// Sums of a left and a right panel: rows of [`PANEL`] sums.
pub(crate) type Sums = [u32; PANEL * PANEL];

/// Narrow elements that units multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Summed in f32.
    Bf16,
    /// Summed in f32.
    F16,
    /// Summed in i32, modulo 2^32.
    I8,
    /// Summed in i32, modulo 2^32.
    U8,
    /// f32, computed as sums of bf16 ([`SplitF32`]), summed in f32.
    SplitF32,
    /// f16, computed as sums of bf16 ([`SplitF16`]), summed in f32.
    SplitF16,
}

impl Kind {
    /// The kinds of elements of this dtype, if units multiply them, the fastest first.
    pub(crate) fn of(dtype: DType) -> &'static [Kind] {
        match dtype {
            DType::Bf16 => &[Kind::Bf16],
            DType::F16 => &[Kind::F16, Kind::SplitF16],
            DType::F32 => &[Kind::SplitF32],
            DType::I8 => &[Kind::I8],
            DType::U8 => &[Kind::U8],
            _ => &[],
        }
    }

    /// Elements of a word, and of a row in a group.
    pub(crate) fn per_word_and_group(self) -> [usize; 2] {
        match self {
            Kind::Bf16 | Kind::F16 => [u16::PER_WORD, u16::PER_GROUP],
            Kind::I8 | Kind::U8 => [u8::PER_WORD, u8::PER_GROUP],
            Kind::SplitF32 => [SplitF32::PER_WORD, SplitF32::PER_GROUP],
            Kind::SplitF16 => [SplitF16::PER_WORD, SplitF16::PER_GROUP],
        }
    }

    /// The pairs of planes that are multiplied, of the left operand and of the right one, in this order.
    fn pairs_of_planes(self) -> &'static [[usize; 2]] {
        match self {
            Kind::Bf16 | Kind::F16 | Kind::I8 | Kind::U8 => &[[0, 0]],
            Kind::SplitF32 => &[[0, 0], [1, 1], [1, 2]],
            Kind::SplitF16 => &[[0, 0], [0, 1]],
        }
    }

    /// The number of planes of a group, of the left operand and of the right one.
    #[cfg_attr(
        not(any(test, target_arch = "x86_64", target_arch = "aarch64")),
        allow(dead_code, reason = "only these architectures have units")
    )]
    fn planes(self) -> [usize; 2] {
        [0, 1].map(|side| self.pairs_of_planes().iter().map(|pair| pair[side] + 1).max().unwrap_or(1))
    }
}

/// Multiplies `groups` groups of a left panel with those of a right one. Writes the sums, whose rows have the given stride, or adds
/// to them.
///
/// # Safety
/// Both operands are valid for reading `groups` groups, each of [`Unit::planes`] times [`GROUP`] words. The sums are valid for reading and
/// writing [`PANEL`] rows of [`PANEL`] sums, and no other thread accesses the sums or writes the operands. The CPU has the instructions.
type MicroKernel =
    unsafe fn(groups: usize, left: *const u32, right: *const u32, sums: (*mut u32, usize), adds: bool, ahead: Prefetch);

/// Multiplies 32 rows of a left operand, read in place with the given stride in bytes, by the first 16 columns of a right panel: `groups`
/// groups. Writes the sums, whose rows have the given stride, or adds to them, as a [`MicroKernel`] does for packed rows.
///
/// # Safety
/// The rows are valid for reading `groups` times [`GROUP_BYTES`] bytes. The rest is as for a micro-kernel, with [`PANEL`] rows of 16 sums.
type InPlaceKernel =
    unsafe fn(groups: usize, left: (*const u8, usize), right: *const u32, sums: (*mut u32, usize), adds: bool);

/// Measures the instructions of a unit: adds products to `count` times several sums, with operands in registers. Gives the number of
/// instructions.
///
/// # Safety
/// The CPU has the instructions; the tiles of a matrix unit are configured.
type Registers = unsafe fn(count: usize) -> usize;

/// What a micro-kernel prefetches into the second-level cache while it multiplies, if it is one of a matrix unit: [`Prefetch::BYTES`] for
/// each group. Nothing is read through the pointer, which may be invalid.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only the matrix unit fetches ahead"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefetch {
    pub(crate) first: *const u8,
    /// Bytes from the memory prefetched for a group to that for the next.
    pub(crate) stride: isize,
}

impl Prefetch {
    /// Bytes that are prefetched for a group: four cache lines.
    pub(crate) const BYTES: usize = 256;
}
