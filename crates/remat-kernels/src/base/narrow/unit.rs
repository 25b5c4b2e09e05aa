//! The units of this CPU, and their use.
//!
//! AMX-FP16, AMX with products of f16, and 64-bit ARM were not measured: no such CPU was at hand. AMX is tested by plain functions that do
//! what one instruction does, ARM by emulation; by Arm's published rates its dot products start as often as multiplications of f32 and
//! multiply two to four times as much. AVX-VNNI was measured on AMD alone. Not used: products of AVX512-FP16, which sum in f16 and lose too
//! much of long sums; AVX-VNNI-INT8 and ARM's matrix instructions (`bfmmla`, `smmla`, those of SME), which sum as we do, but could not be
//! measured; SVE.

// Micro-kernels are functions on pointers.
#![allow(unsafe_code)]

use std::marker::PhantomData;

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::offsets::{MOST_ROWS, MOST_RUNS, OffsetsKernel, RowRuns};
#[cfg(test)]
use super::plain;
use super::{GROUP, InPlaceKernel, Kind, MicroKernel, PANEL, Part, Prefetch, Registers, Side, Sums};
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512};
use crate::isa::{Isa, allows};
use crate::simd::Level;

/// A sum, by its bits.
pub(crate) trait Sum: Copy {}

impl Sum for u32 {}
impl Sum for f32 {}

/// A unit of this CPU that multiplies elements of some kind. A value of this type proves that the CPU has the instructions and that the
/// system permits them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(super) kernel: MicroKernel,
    /// The function that reads rows in place, if the unit has one.
    pub(super) in_place: Option<InPlaceKernel>,
    /// The function that reads words of a left operand at offsets, if the unit has one.
    pub(super) at_offsets: Option<OffsetsKernel>,
    /// The number of planes of a group, of the left operand and of the right one.
    pub(super) planes: [usize; 2],
    pub(super) registers: Registers,
    /// Words that an instruction multiplies. Where it multiplies half of the elements of each, half of them.
    pub(super) words: usize,
    /// Whether it is a matrix unit, for which products are cut and packed in another way.
    pub(super) is_matrix_unit: bool,
    /// The functions that configure the tiles of a thread and release them, if there are tiles. A matrix unit that plain functions replace
    /// has none.
    pub(super) tiles: Option<[unsafe fn(); 2]>,
}

/// The instruction sets with units, the fastest first, and the function that finds the unit for some elements.
const SETS: &[(Isa, fn(Kind) -> Option<Unit>)] = &[
    #[cfg(target_arch = "x86_64")]
    (Isa::Amx, amx::unit),
    #[cfg(target_arch = "x86_64")]
    (Isa::Avx512, avx512::unit),
    #[cfg(target_arch = "x86_64")]
    (Isa::Avx2, avx2::vnni_unit),
    #[cfg(target_arch = "x86_64")]
    (Isa::Avx2, avx2::madd_unit),
    #[cfg(target_arch = "aarch64")]
    (Isa::NeonDot, neon::unit),
];

/// The largest instruction set that kernels use: what the CPU has and [`max_cpu_isa`](crate::max_cpu_isa) allows.
///
/// ```
/// use remat_kernels::{Isa, used_isa};
/// let isa = used_isa();
/// assert!(isa >= Isa::Baseline && !isa.name().is_empty());
/// ```
pub fn used_isa() -> Isa {
    let has_unit = |of: fn(Kind) -> Option<Unit>| {
        [Kind::Bf16, Kind::F16, Kind::I8, Kind::U8].into_iter().any(|kind| of(kind).is_some())
    };
    let units = SETS.iter().filter(|(isa, of)| allows(*isa) && has_unit(*of)).map(|(isa, _)| *isa);
    units.chain([Level::best().isa()]).max().unwrap_or(Isa::Baseline)
}

/// The use of a unit by the current thread.
pub(crate) struct Session {
    unit: Unit,
    /// The state of tiles belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Unit {
    /// The fastest unit for elements of one of these kinds, and the kind: the first kind that has a unit.
    pub(crate) fn of(kinds: &[Kind]) -> Option<(Kind, Unit)> {
        kinds.iter().find_map(|&kind| Some((kind, Unit::best(kind)?)))
    }

    /// The fastest unit for these elements, if it is faster than widening them.
    pub(crate) fn best(kind: Kind) -> Option<Unit> {
        // Units that may not be used are not looked for, since the system is asked for permission to use some of them.
        SETS.iter().filter(|(isa, _)| allows(*isa) && !is_slow(*isa, kind)).find_map(|(_, unit)| unit(kind))
    }

    /// All units for these elements, and the plain functions, which replace a unit in tests: first a matrix unit, then another one.
    #[cfg(test)]
    pub(crate) fn all(kind: Kind) -> Vec<Unit> {
        let plain = plain::unit(kind);
        let plain = [Unit { is_matrix_unit: true, at_offsets: None, ..plain }, plain];
        SETS.iter().filter_map(|(_, unit)| unit(kind)).chain(plain).collect()
    }

    /// Words of a group of a panel.
    pub(crate) fn group(self, side: Side) -> usize {
        GROUP * self.planes[usize::from(side == Side::Right)]
    }

    /// Words that an instruction multiplies.
    pub(crate) fn words(self) -> usize {
        self.words
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
        if let Some([configure, _]) = self.tiles {
            // SAFETY: there is a matrix unit only where one was found.
            unsafe { configure() };
        }
        Session { unit: self, thread: PhantomData }
    }
}

/// Whether the instructions of such a set take longer than widening these elements.
fn is_slow(isa: Isa, kind: Kind) -> bool {
    // Intel's CPUs start a `vdpbf16ps` every other cycle, and two f32 multiplications of vectors in each cycle.
    isa == Isa::Avx512 && kind == Kind::Bf16 && is_intel()
}

/// Whether the CPU is Intel's.
fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !cfg!(miri) && std::arch::x86_64::__cpuid(0).ebx == u32::from_le_bytes(*b"Genu");
    #[cfg(not(target_arch = "x86_64"))]
    false
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
        if let Some([_, release]) = self.unit.tiles {
            // SAFETY: there is a matrix unit only where one was found.
            unsafe { release() };
        }
    }
}
