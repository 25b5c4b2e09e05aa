//! The register of micro-kernels: what the driver of products of matrices needs to know of each.
//!
//! A micro-kernel multiplies a panel of some rows of the left operand and a panel of some columns of the right one, and holds the
//! sums in registers meanwhile. Cutting, packing and threads are the driver's ([`blocked`](crate::kernels::matmul)), for all
//! micro-kernels alike. To add one, for another dtype or other instructions:
//!
//! 1. Implement [`Packed`] for the type of its packed elements, with the type that it sums in. Operands of any dtype are read as
//!    this type when they are packed.
//! 2. Write a function as [`MicroKernel::packed`] wants it, and say in a [`MicroKernel`] what panels it takes: see [`Panel`].
//!    The driver gives it whole panels, padded by zeros, also where the matrices end.
//! 3. Return the descriptor from [`Packed::micro_kernel`] on CPUs that have the instructions.
//! 4. Call the test of micro-kernels (`tests::check_micro_kernel`) for it.
//!
//! Each sum must run over the positions that one call gets in an order that depends on their number alone, not on the row, the
//! column, or how many of them there are: so a result does not depend on how a product is cut.

use super::Accumulator;
use crate::number::Scalar;
use crate::simd::Level;

/// Elements that products are computed of.
pub(crate) trait Packed: Scalar + remat_ir::Element {
    /// What their products are summed in.
    type Sum: Accumulator;

    /// The best micro-kernel that a CPU with these instructions has.
    fn micro_kernel(level: Level) -> &'static MicroKernel<Self>;

    /// The number that a bf16 is; integers are truncated.
    fn from_bf16(x: remat_ir::bf16) -> Self;
}

/// How a panel lies in memory: element `k` of row (or column) `i` is number `(k / unit * width + i) * unit + k % unit`. So with a
/// unit of 1, which a plain kernel of floats has, the elements of one position of the contracted axis are neighbours, `width` of
/// them; instructions that multiply pairs have a unit of 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Panel {
    /// Rows of the left operand, or columns of the right one.
    pub(crate) width: usize,
    /// Positions of the contracted axis that lie side by side.
    pub(crate) unit: usize,
}

/// A micro-kernel of packed elements `P`.
pub(crate) struct MicroKernel<P: Packed> {
    /// Panels of the left operand: their width is the most rows of a call.
    pub(crate) left: Panel,
    /// Panels of the right operand: their width is the most columns of a call.
    pub(crate) right: Panel,
    /// Panels have a multiple of this many positions, zeros at the end: a multiple of both units.
    pub(crate) positions: usize,
    /// The function that multiplies two panels.
    ///
    /// # Safety
    /// As [`PackedFn`] says.
    pub(crate) packed: PackedFn<P>,
    /// The function that multiplies operands with any strides, where there is one: then small matrices need not be packed. It sums
    /// in the same order.
    pub(crate) strided: Option<StridedFn<P>>,
    /// Columns that `packed` is called with at least: fewer are given to `strided`. It is 1 where there is no such function.
    pub(crate) min_columns: usize,
    /// Multiplies and adds in registers alone, for a number of steps, and gives the number of multiplications: for the ceiling
    /// that products are measured against.
    ///
    /// # Safety
    /// The CPU has the instructions.
    pub(crate) registers: unsafe fn(steps: usize) -> usize,
}

impl<P: Packed> MicroKernel<P> {
    /// The height of equal tiles of some rows.
    #[inline]
    pub(crate) fn height(&self, rows: usize) -> usize {
        rows.div_ceil(rows.div_ceil(self.left.width).max(1)).max(1)
    }
}

/// Multiplies a panel of rows and a panel of columns of `size` `[rows, columns, positions]`, of which the first two are the first
/// ones of the panels, at least one of each, and the last is a multiple of [`MicroKernel::positions`] and not zero. Writes the
/// products to `out`, a row-major matrix with the given stride of rows, or adds them to what is there.
///
/// From `ahead` on there is an eighth of a panel of the right operand that later calls will read, while it may still be far away: to
/// fetch it into the second-level cache meanwhile can pay. The address may be invalid.
///
/// # Safety
/// Both panels are valid for reading, padding included, and aligned to a cache line where a panel takes a multiple of one; `out`
/// is valid for writing these rows and columns, and for reading if `adds`. The CPU has the instructions.
pub(crate) type PackedFn<P> = unsafe fn(
    size: [usize; 3],
    left: *const P,
    right: *const P,
    ahead: *const P,
    out: (*mut <P as Packed>::Sum, usize),
    adds: bool,
);

/// As [`PackedFn`], of any number of positions, which need not be padded, with the strides of rows and columns of the left operand
/// and of rows of the right one, whose columns are neighbours.
///
/// # Safety
/// Both operands are valid for reading these rows and columns, and what [`PackedFn`] asks of the result and the CPU.
pub(crate) type StridedFn<P> = unsafe fn(
    size: [usize; 3],
    left: (*const P, [usize; 2]),
    right: (*const P, usize),
    out: (*mut <P as Packed>::Sum, usize),
    adds: bool,
);
