//! Micro-kernels: what products of matrices need to know of each.
//!
//! A micro-kernel multiplies a panel of some rows of the left operand and a panel of some columns of the right one, and holds the
//! sums in registers meanwhile. In a panel the elements of one position of the contracted axis are neighbours: one for each row (or
//! column) that the micro-kernel takes at most. Cutting, packing and threads are the driver's (`kernels::matmul`), for all
//! micro-kernels alike. To add one, for another CPU: implement [`Vector`](super::tile::Vector) for its registers, choose the size of
//! the tile (`tile::micro_kernel`), and return it from [`Accumulator::micro_kernel`]. A test calls all that this CPU has.
//!
//! Each sum runs over the positions of a call in their order, whatever the row, the column, and how many of them there are: so a
//! result does not depend on how a product is cut. bf16 and bytes have units of their own (`base::narrow`), which sum otherwise.

use super::{Accumulator, Right};

/// A micro-kernel.
pub(crate) struct MicroKernel<A: Accumulator> {
    /// The most rows of a call, and the elements that a position has in a panel of the left operand.
    pub(crate) rows: usize,
    /// The most columns of a call, and the elements that a position has in a panel of the right operand.
    pub(crate) columns: usize,
    /// Columns that `packed` is called with at least: fewer are given to `strided`.
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
    /// The function that multiplies a panel and vectors of the right operand that lie apart.
    ///
    /// # Safety
    /// As [`ApartFn`] says.
    pub(crate) apart: ApartFn<A>,
    /// The function that multiplies a left operand of segments and a panel of the right one.
    ///
    /// # Safety
    /// As [`SegmentsFn`] says.
    pub(crate) segments: SegmentsFn<A>,
    /// Multiplies and adds in registers alone, for a number of steps, and gives the number of multiplications: for the ceiling
    /// that products are measured against.
    ///
    /// # Safety
    /// The CPU has the instructions.
    pub(crate) registers: unsafe fn(steps: usize) -> usize,
}

/// Neighbouring columns, at most [`MicroKernel::lanes`].
#[derive(Clone, Copy)]
pub(crate) struct Piece<A> {
    /// Where offsets of the right operand count from.
    pub(crate) from: *const A,
    /// The first element of the result.
    pub(crate) to: *mut A,
    /// Columns that are written.
    pub(crate) len: usize,
}

/// Most pieces of a call.
pub(crate) const MOST_PIECES: usize = 4;

impl<A: Accumulator> MicroKernel<A> {
    /// The height of equal tiles of some rows.
    #[inline]
    pub(crate) fn height(&self, rows: usize) -> usize {
        rows.div_ceil(rows.div_ceil(self.rows).max(1)).max(1)
    }

    /// Multiplies a panel of some rows and as many columns as it has at most, which are a panel where their rows are so far apart.
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
        let is_panel = right.row == self.columns && columns >= self.min_columns;
        assert!(positions * self.rows <= left.len() && (rows - 1) * row + columns <= out.len());
        let ((right, right_row), left) =
            (right.checked(positions, if is_panel { self.columns } else { columns }), left.as_ptr());
        // SAFETY: the operands and the result have so many elements (checked), and the kernel is one for this CPU.
        unsafe {
            if is_panel {
                (self.packed)(size, left, right, Ahead::nothing(right), (out.as_mut_ptr(), row), adds);
            } else {
                (self.strided)(size, (left, [1, self.rows]), (right, right_row), (out.as_mut_ptr(), row), adds);
            }
        }
    }
}

/// What a call fetches that later ones read. Nothing is read through the addresses, which may be invalid.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<A> {
    /// A part ([`CALLS`](super::CALLS)) of a panel of the right operand.
    pub(crate) right: *const A,
    /// The first of some cache lines, one for every [`FETCH`](super::FETCH) positions.
    pub(crate) lines: *const u8,
    /// Bytes from one of these lines to the next.
    pub(crate) stride: isize,
}

impl<A> Ahead<A> {
    /// No lines but those of a panel that is read anyway.
    pub(crate) fn nothing(right: *const A) -> Ahead<A> {
        Ahead { right, lines: right.cast(), stride: 0 }
    }
}

/// Multiplies a panel of rows and a panel of columns of `size` `[rows, columns, positions]`, of which the first two are the first
/// ones of the panels, at least one of each. Writes the products to `out`, a row-major matrix with the given stride of rows, or adds
/// them to what is there.
///
/// What [`Ahead`] says is fetched into the second-level cache meanwhile.
///
/// # Safety
/// Both panels are valid for reading, whole; `out` is valid for writing these rows and columns, and for reading if `adds`. The CPU
/// has the instructions.
pub(crate) type PackedFn<A> =
    unsafe fn(size: [usize; 3], left: *const A, right: *const A, ahead: Ahead<A>, out: (*mut A, usize), adds: bool);

/// As [`PackedFn`], with the strides of rows and columns of the left operand and of rows of the right one, whose columns are
/// neighbours.
///
/// # Safety
/// Both operands are valid for reading these rows and columns, and what [`PackedFn`] asks of the result and the CPU.
pub(crate) type StridedFn<A> = unsafe fn(
    size: [usize; 3],
    left: (*const A, [usize; 2]),
    right: (*const A, usize),
    out: (*mut A, usize),
    adds: bool,
);

/// Multiplies a panel of the left operand and `columns / lanes` pieces of the right one, of which each position of the contracted axis
/// has an offset: the pieces have a vector there. Of the results, row `i` of a piece is `out.0 + i * out.1` elements behind its first; they
/// are written, or added to what is there.
///
/// # Safety
/// The panel is valid for reading as many positions as there are offsets, and each piece for reading `lanes` elements at every
/// offset; results of `len` elements are valid for writing, and for reading if `adds`. The CPU has the instructions.
pub(crate) type ApartFn<A> =
    unsafe fn(rows: usize, left: *const A, pieces: *const Piece<A>, offsets: &[usize], out: (usize, usize), adds: bool);

/// Neighbouring positions of the contracted axis: where each segment begins, how many positions it has, and the strides of rows, of
/// groups of [`ROWS_OF_GROUP`] rows, and of positions.
#[derive(Clone, Copy)]
pub(crate) struct Segments<'a> {
    pub(crate) offsets: &'a [usize],
    pub(crate) len: usize,
    pub(crate) row: usize,
    pub(crate) group: usize,
    pub(crate) column: usize,
}

/// Rows of a left operand whose addresses are counted from one pointer: from a single one the address of each row would wait for that of the
/// row before.
pub(crate) const ROWS_OF_GROUP: usize = 3;

/// Multiplies some rows of a left operand, of which the positions of the contracted axis are in segments, and a panel of the right
/// operand, whole. The products are written to `out`, a matrix with the given stride of rows and as many columns as the panel, or
/// added to what is there.
///
/// # Safety
/// The rows are valid for reading at each position of each segment, and the panel for as many positions; `out` is valid for
/// writing, and for reading if `adds`. The CPU has the instructions.
pub(crate) type SegmentsFn<A> =
    unsafe fn(rows: usize, left: *const A, segments: Segments<'_>, right: *const A, out: (*mut A, usize), adds: bool);
