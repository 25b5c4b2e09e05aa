//! Micro-kernels: the interface between them and the driver of matrix products.
//!
//! A micro-kernel multiplies a panel of some rows of the left operand and a panel of some columns of the right one, and keeps the sums in
//! registers meanwhile. In a panel the elements of one position of the contracted axis are neighbours: one for each row (or column) of the
//! micro-kernel's tile. Cutting, packing and threads belong to the driver (`kernels::matmul`), and are the same for all micro-kernels. To
//! add one for another CPU, implement [`Vector`](super::tile::Vector) for its registers, choose the size of the tile
//! (`tile::micro_kernel`), and return it from [`Accumulator::micro_kernel`]. A test calls all micro-kernels that this CPU supports.
//!
//! Each sum adds the positions of a call in order, for any row and column and any number of rows and columns, so that a result does not
//! depend on how a product is cut. bf16 and bytes have their own units (`base::narrow`), which sum in another order.

use super::{Accumulator, Right};

/// A micro-kernel.
pub(crate) struct MicroKernel<A: Accumulator> {
    /// The most rows of a call, and the elements that a position has in a panel of the left operand.
    pub(crate) rows: usize,
    /// The most columns of a call, and the elements that a position has in a panel of the right operand.
    pub(crate) columns: usize,
    /// Fewest columns for `packed`; with fewer, `strided` is called.
    pub(crate) min_columns: usize,
    /// Columns of a vector.
    pub(crate) lanes: usize,
    /// The function that multiplies two panels.
    ///
    /// # Safety
    /// As [`PackedFn`] says.
    pub(crate) packed: PackedFn<A>,
    /// The function that multiplies operands with any strides, so that small matrices need not be packed.
    ///
    /// # Safety
    /// As [`StridedFn`] says.
    pub(crate) strided: StridedFn<A>,
    /// The function that multiplies a panel and vectors of columns that a right operand has at offsets.
    ///
    /// # Safety
    /// As [`IndirectFn`] says.
    pub(crate) indirect: IndirectFn<A>,
    /// The function that multiplies a left operand of segments and a panel of the right one.
    ///
    /// # Safety
    /// As [`SegmentsFn`] says.
    pub(crate) segments: SegmentsFn<A>,
    /// The function that multiplies rows that the left operand has at offsets and rows of the right one, element by element.
    ///
    /// # Safety
    /// As [`ElementwiseFn`] says.
    pub(crate) elementwise: ElementwiseFn<A>,
    /// Multiplies and adds in registers alone for a number of steps, and returns the number of multiplications. It measures the ceiling of
    /// products.
    ///
    /// # Safety
    /// The CPU has the instructions.
    pub(crate) registers: unsafe fn(steps: usize) -> usize,
}

/// Neighbouring columns, at most a vector of them ([`MicroKernel::lanes`]).
#[derive(Clone, Copy)]
pub(crate) struct ColumnVector<A> {
    /// The pointer from which offsets of the right operand count.
    pub(crate) from: *const A,
    /// The first element of the result.
    pub(crate) to: *mut A,
    /// Columns that are written.
    pub(crate) len: usize,
}

/// Most vectors of columns of a call.
pub(crate) const MOST_VECTORS: usize = 4;

impl<A: Accumulator> MicroKernel<A> {
    /// The height of tiles of equal height that have these rows.
    #[inline]
    pub(crate) fn height(&self, rows: usize) -> usize {
        rows.div_ceil(rows.div_ceil(self.rows).max(1)).max(1)
    }

    /// Multiplies a panel of some rows and at most a panel of columns. The right operand is a panel if its rows have the stride of one.
    ///
    /// # Panics
    /// If an operand has fewer positions, or the result fewer elements.
    #[inline]
    pub(crate) fn multiply(
        &self,
        size: [usize; 3],
        left: &[A],
        right: Right<'_, A>,
        (out, row): (&mut [A], usize),
        adds: bool,
    ) {
        let [rows, columns, positions] = size;
        assert!((1..=self.rows).contains(&rows) && (1..=self.columns).contains(&columns));
        let is_panel = right.row_stride == self.columns && columns >= self.min_columns;
        assert!(positions * self.rows <= left.len() && (rows - 1) * row + columns <= out.len());
        let ((right, right_row), left) =
            (right.checked(positions, if is_panel { self.columns } else { columns }), left.as_ptr());
        // SAFETY: the operands and the result have these elements (checked), and the kernel is for this CPU.
        unsafe {
            if is_panel {
                (self.packed)(size, left, right, Prefetch::nothing(right), (out.as_mut_ptr(), row), adds);
            } else {
                (self.strided)(size, (left, [1, self.rows]), (right, right_row), (out.as_mut_ptr(), row), adds);
            }
        }
    }
}

/// What a call prefetches for later calls. Nothing is read through these pointers, which may be invalid.
#[derive(Clone, Copy)]
pub(crate) struct Prefetch<A> {
    /// A part of a panel of the right operand, which [`CALLS_PER_PANEL`](super::CALLS_PER_PANEL) calls prefetch together.
    pub(crate) right: *const A,
    /// The first of some cache lines, one for every [`POSITIONS_PER_LINE`](super::POSITIONS_PER_LINE) positions.
    pub(crate) lines: *const u8,
    /// Bytes from one of these lines to the next.
    pub(crate) stride: isize,
}

impl<A> Prefetch<A> {
    /// Prefetches only lines of a panel that is read anyway.
    pub(crate) fn nothing(right: *const A) -> Prefetch<A> {
        Prefetch { right, lines: right.cast(), stride: 0 }
    }
}

/// Multiplies a panel of rows and a panel of columns. `size` is `[rows, columns, positions]`, where rows and columns are the first ones of
/// the panels, at least one of each. Writes the products to `out`, a row-major matrix with the given stride of rows, or adds them to it.
///
/// Meanwhile it prefetches the lines of [`Prefetch`] into the second-level cache.
///
/// # Safety
/// Both panels are valid for reading, whole. `out` is valid for writing these rows and columns, and for reading if `adds`. The CPU has the
/// instructions.
pub(crate) type PackedFn<A> =
    unsafe fn(size: [usize; 3], left: *const A, right: *const A, ahead: Prefetch<A>, out: (*mut A, usize), adds: bool);

/// As [`PackedFn`], with the strides of rows and columns of the left operand and of rows of the right one, whose columns are
/// neighbours.
///
/// # Safety
/// Both operands are valid for reading these rows and columns; the result and the CPU are as for [`PackedFn`].
pub(crate) type StridedFn<A> = unsafe fn(
    size: [usize; 3],
    left: (*const A, [usize; 2]),
    right: (*const A, usize),
    out: (*mut A, usize),
    adds: bool,
);

/// Multiplies a panel of the left operand and `columns / lanes` vectors of columns of the right one, which is read through offsets (an
/// indirect operand, as in XNNPACK's indirect GEMM): each position of the contracted axis has an offset, at which each vector of columns
/// has its elements. Row `i` of the results of a vector is `out.0 + i * out.1` elements after its first. Results are written, or added to
/// those that are there.
///
/// # Safety
/// The panel is valid for reading a position for each offset, and each vector of columns for reading `lanes` elements at every offset.
/// Results of `len` elements are valid for writing, and for reading if `adds`. The CPU has the instructions.
pub(crate) type IndirectFn<A> = unsafe fn(
    rows: usize,
    left: *const A,
    vectors: *const ColumnVector<A>,
    offsets: &[usize],
    out: (usize, usize),
    adds: bool,
);

/// Neighbouring positions of the contracted axis: where each segment begins, how many positions it has, and the strides of rows, of
/// groups of [`ROWS_PER_POINTER`] rows, and of columns, which are the positions.
#[derive(Clone, Copy)]
pub(crate) struct Segments<'a> {
    pub(crate) offsets: &'a [usize],
    pub(crate) len: usize,
    pub(crate) row_stride: usize,
    pub(crate) group_stride: usize,
    pub(crate) column_stride: usize,
}

/// Rows of a left operand whose addresses are computed from one pointer. From a single pointer for all rows, the address of each row would
/// depend on that of the row before.
pub(crate) const ROWS_PER_POINTER: usize = 3;

/// Multiplies some rows of a left operand, whose positions of the contracted axis are in segments, and a whole panel of the right operand.
/// The products are written to `out`, a matrix with the given stride of rows and the columns of the panel, or added to it.
///
/// # Safety
/// The rows are valid for reading at each position of each segment, and the panel for all these positions. `out` is valid for writing, and
/// for reading if `adds`. The CPU has the instructions.
pub(crate) type SegmentsFn<A> =
    unsafe fn(rows: usize, left: *const A, segments: Segments<'_>, right: *const A, out: (*mut A, usize), adds: bool);

/// Multiplies a panel's columns element by element: for each position of the contracted axis, the elements that each row of the left operand
/// has at the position's offset, by those of the position's row of the right operand. The sums over positions, one for each row and column,
/// are written to `out`, or added to it. Rows of the left operand, the right one and the result have these strides.
///
/// # Safety
/// The left operand is valid for reading `columns` elements at each offset from each row on, the right one for a row of as many for each
/// offset. `out` is valid for writing these rows, and for reading if `adds`. The CPU has the instructions.
pub(crate) type ElementwiseFn<A> = unsafe fn(
    rows: usize,
    left: (*const A, usize),
    offsets: &[usize],
    right: (*const A, usize),
    out: (*mut A, usize),
    adds: bool,
);
