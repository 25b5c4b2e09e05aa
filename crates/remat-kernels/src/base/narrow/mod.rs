//! Products of narrow elements, bf16 and bytes, on the units that CPUs have for them: a word of 32 bits holds several elements, and one
//! instruction sums their products. Also products of f32, as sums of bf16, where that is faster.
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
//! Without a unit, bf16 are widened to f32 and added in the order of f32 products, so that the bits depend on the CPU.

// Micro-kernels are functions on pointers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod offsets;
mod pack;
mod part;
#[cfg(test)]
mod plain;
mod rate;
#[cfg(test)]
mod tests;
mod transpose;

use std::marker::PhantomData;

use offsets::OffsetsKernel;
pub(crate) use offsets::{MOST_ROWS, MOST_RUNS, RowRuns};
pub(crate) use pack::{Side, Strided, pack};
pub(crate) use part::{Part, Split};
use remat_ir::DType;
pub(crate) use transpose::{Transpose, transpose};

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
    /// Summed in i32, modulo 2^32.
    I8,
    /// Summed in i32, modulo 2^32.
    U8,
    /// Computed as sums of bf16 ([`Split`]), summed in f32.
    F32,
}

impl Kind {
    /// The kind of elements of this dtype, if units multiply them.
    pub(crate) fn of(dtype: DType) -> Option<Kind> {
        match dtype {
            DType::Bf16 => Some(Kind::Bf16),
            DType::F32 => Some(Kind::F32),
            DType::I8 => Some(Kind::I8),
            DType::U8 => Some(Kind::U8),
            _ => None,
        }
    }

    /// The number of planes of a group, of the left operand and of the right one.
    #[cfg_attr(
        not(any(test, target_arch = "x86_64")),
        allow(dead_code, reason = "only CPUs of x86-64 have units so far")
    )]
    fn planes(self) -> [usize; 2] {
        if self == Kind::F32 { [Side::Left, Side::Right].map(Split::planes) } else { [1, 1] }
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

/// A sum, by its bits.
pub(crate) trait Sum: Copy {}

impl Sum for u32 {}
impl Sum for f32 {}

/// A unit of this CPU that multiplies elements of some kind. A value of this type proves that the CPU has the instructions and that the
/// system permits them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    kernel: MicroKernel,
    /// The function that reads rows in place, if the unit has one.
    in_place: Option<InPlaceKernel>,
    /// The function that reads words of a left operand at offsets, if the unit has one.
    at_offsets: Option<OffsetsKernel>,
    /// The number of planes of a group, of the left operand and of the right one.
    planes: [usize; 2],
    registers: Registers,
    /// Whether it is a matrix unit, for which products are cut and packed in another way.
    is_matrix_unit: bool,
    /// Whether it has tiles that must be configured. A matrix unit that plain functions replace has none.
    has_tiles: bool,
}

/// The use of a unit by the current thread.
pub(crate) struct Session {
    unit: Unit,
    /// The state of tiles belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Unit {
    /// The fastest unit for these elements, if it is faster than widening them.
    pub(crate) fn best(kind: Kind) -> Option<Unit> {
        #[cfg(target_arch = "x86_64")]
        {
            use crate::isa::{Isa, allows};
            // Intel's CPUs start a `vdpbf16ps` every other cycle, and two f32 multiplications of vectors in each cycle.
            let slow = kind == Kind::Bf16 && is_intel();
            // Permission to use the matrix unit is not requested if it may not be used.
            let matrix = if allows(Isa::Amx) { Unit::matrix(kind) } else { None };
            matrix.or_else(|| Unit::vector(kind).filter(|_| !slow && allows(Isa::Avx512)))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = kind;
            None
        }
    }

    /// All units for these elements, and the plain functions, which replace a unit in tests: first a matrix unit, then another one.
    #[cfg(test)]
    pub(crate) fn all(kind: Kind) -> Vec<Unit> {
        let (kernel, in_place): (MicroKernel, Option<InPlaceKernel>) = match kind {
            Kind::Bf16 => (plain::bf16, Some(plain::bf16_in_place)),
            Kind::I8 => (plain::signed, Some(plain::signed_in_place)),
            Kind::U8 => (plain::unsigned, Some(plain::unsigned_in_place)),
            Kind::F32 => (plain::split, None),
        };
        let at_offsets: Option<OffsetsKernel> = if kind == Kind::Bf16 { Some(offsets::plain) } else { None };
        let plain = Unit {
            kernel,
            in_place,
            at_offsets,
            planes: kind.planes(),
            registers: plain::registers,
            is_matrix_unit: false,
            has_tiles: false,
        };
        let plain = [Unit { is_matrix_unit: true, at_offsets: None, ..plain }, plain];
        #[cfg(target_arch = "x86_64")]
        return [Unit::matrix(kind), Unit::vector(kind)].into_iter().flatten().chain(plain).collect();
        #[cfg(not(target_arch = "x86_64"))]
        plain.into()
    }

    /// The matrix unit.
    #[cfg(target_arch = "x86_64")]
    fn matrix(kind: Kind) -> Option<Unit> {
        let found = amx::found();
        let (has, kernel, in_place): (bool, MicroKernel, Option<InPlaceKernel>) = match kind {
            Kind::Bf16 => (found.bf16, amx::bf16, Some(amx::bf16_in_place)),
            Kind::I8 => (found.int8, amx::signed, Some(amx::signed_in_place)),
            Kind::U8 => (found.int8, amx::unsigned, Some(amx::unsigned_in_place)),
            Kind::F32 => (found.bf16, amx::split, None),
        };
        let bytes = matches!(kind, Kind::I8 | Kind::U8);
        let registers: Registers = if bytes { amx::registers_of_quadruples } else { amx::registers_of_pairs };
        has.then_some(Unit {
            kernel,
            in_place,
            at_offsets: None,
            planes: kind.planes(),
            registers,
            is_matrix_unit: true,
            has_tiles: true,
        })
    }

    /// The dot products of AVX-512.
    #[cfg(target_arch = "x86_64")]
    fn vector(kind: Kind) -> Option<Unit> {
        let [has_pairs, has_quadruples] =
            [is_x86_feature_detected!("avx512bf16"), is_x86_feature_detected!("avx512vnni")];
        let (has, kernel, in_place): (bool, MicroKernel, InPlaceKernel) = match kind {
            Kind::Bf16 => (has_pairs, avx512::bf16, avx512::bf16_in_place),
            Kind::I8 => (has_quadruples, avx512::signed, avx512::signed_in_place),
            Kind::U8 => (has_quadruples, avx512::unsigned, avx512::unsigned_in_place),
            // It would take six products of bf16, and the CPU computes two of those in the time of one of f32.
            Kind::F32 => return None,
        };
        let planes = kind.planes();
        let registers: Registers =
            if kind == Kind::Bf16 { avx512::registers_of_pairs } else { avx512::registers_of_quadruples };
        let at_offsets: Option<OffsetsKernel> = if kind == Kind::Bf16 { Some(offsets::avx512) } else { None };
        (has && is_x86_feature_detected!("avx512f")).then_some(Unit {
            kernel,
            in_place: Some(in_place),
            at_offsets,
            planes,
            registers,
            is_matrix_unit: false,
            has_tiles: false,
        })
    }

    /// Words of a group of a panel.
    pub(crate) fn group(self, side: Side) -> usize {
        GROUP * self.planes[usize::from(side == Side::Right)]
    }

    /// Whether it reads rows of a left operand in place.
    pub(crate) fn reads_in_place(self) -> bool {
        self.in_place.is_some()
    }

    /// Whether it reads words of a left operand at offsets.
    pub(crate) fn reads_at_offsets(self) -> bool {
        self.at_offsets.is_some()
    }

    /// Whether it is a matrix unit (AMX): then a panel takes the same time even if few of its columns have elements.
    pub(crate) fn is_matrix_unit(self) -> bool {
        self.is_matrix_unit
    }

    /// Starts using the unit.
    pub(crate) fn session(self) -> Session {
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles {
            // SAFETY: there is a matrix unit only where one was found.
            unsafe { amx::configure() };
        }
        Session { unit: self, thread: PhantomData }
    }
}

/// Whether the CPU is Intel's.
#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    !cfg!(miri) && std::arch::x86_64::__cpuid(0).ebx == u32::from_le_bytes(*b"Genu")
}

impl Session {
    /// Multiplies a left panel with a right one, and writes the sums, whose rows have the given stride, or adds to them. Prefetches
    /// `ahead`, if given.
    ///
    /// # Panics
    /// If the panels do not have the same whole number of groups, or there are fewer sums.
    #[inline]
    pub(crate) fn multiply<T: Sum>(
        &self,
        left: &[u32],
        right: &[u32],
        (sums, stride): (&mut [T], usize),
        adds: bool,
        ahead: Option<Prefetch>,
    ) {
        const { assert!(size_of::<T>() == size_of::<u32>()) };
        let groups = left.len() / (self.unit.planes[0] * GROUP);
        assert!([left.len(), right.len()] == self.unit.planes.map(|planes| planes * GROUP * groups));
        assert!((PANEL - 1) * stride + PANEL <= sums.len());
        let sums = (sums.as_mut_ptr().cast(), stride);
        // Prefetching memory that is in the cache costs nothing.
        let ahead = ahead.unwrap_or(Prefetch { first: left.as_ptr().cast(), stride: 0 });
        // SAFETY: the panels have these groups, and there are enough sums (checked), which are borrowed mutably. The unit was found, and
        // the tiles of this thread, which the session does not leave, are configured.
        unsafe { (self.unit.kernel)(groups, left.as_ptr(), right.as_ptr(), sums, adds, ahead) }
    }
}

impl Session {
    /// Multiplies [`PANEL`] rows of a left operand, read in place `stride` elements apart, by the first 16 columns of a right panel, and
    /// writes the sums, in rows [`PANEL`] apart, or adds to them.
    ///
    /// # Panics
    /// If the unit does not read in place, or there are fewer elements than the panel's groups need.
    #[inline]
    pub(crate) fn multiply_in_place<N: Part>(
        &self,
        (left, stride): (&[N], usize),
        right: &[u32],
        sums: &mut Sums,
        adds: bool,
    ) {
        let groups = right.len() / GROUP;
        assert!(groups == 0 || (PANEL - 1) * stride + groups * N::PER_GROUP <= left.len());
        let kernel = self.unit.in_place.expect("a unit that reads in place");
        let left = (left.as_ptr().cast(), stride * size_of::<N>());
        // SAFETY: the operands have these rows and groups (checked), and the sums are borrowed mutably. The unit was found, and the tiles
        // of this thread are configured.
        unsafe { kernel(groups, left, right.as_ptr(), (sums.as_mut_ptr(), PANEL), adds) }
    }
}

impl Session {
    /// For each row of a tile, multiplies the words of the left operand at `offsets` from it with the rows of a panel of 32 or 16 columns,
    /// and writes the sums, in rows [`PANEL`] apart, or adds to them.
    ///
    /// # Safety
    /// The left operand has the words at all offsets from all rows.
    ///
    /// # Panics
    /// If the unit does not read at offsets, the panel has another number of rows, there are too few sums, or the tile has too many rows.
    #[inline]
    pub(crate) unsafe fn multiply_at_offsets(
        &self,
        rows: RowRuns,
        left: *const u32,
        offsets: &[u32],
        right: &[u32],
        sums: &mut [u32],
        adds: bool,
    ) {
        let (count, wide) = (rows.runs * rows.rows_per_run, right.len() == offsets.len() * PANEL);
        assert!(wide || right.len() * 2 == offsets.len() * PANEL);
        assert!(rows.runs <= MOST_RUNS && count <= MOST_ROWS && count * PANEL <= sums.len());
        let kernel = self.unit.at_offsets.expect("a unit that reads at offsets");
        // SAFETY: the panel has these rows and there are enough sums (checked), which are borrowed mutably; the left operand is as the
        // caller promises, and the unit was found.
        unsafe { kernel(rows, left, offsets, right.as_ptr(), wide, sums.as_mut_ptr(), adds) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.unit.has_tiles {
            // SAFETY: there is a matrix unit only where one was found.
            unsafe { amx::release() };
        }
    }
}
