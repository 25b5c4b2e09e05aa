//! The operands of products of matrices, which can be read in place or packed, and the outputs.

use std::ops::Range;

use crate::base::pieces::pieces;
use crate::base::product::{self, Accumulator, MicroKernel};
use crate::kernels::matmul::narrow::ToPrefetch;

/// Padding between the rows of a block that is copied row by row, so that they do not fall into one set of a cache.
const GAP: usize = 16;

/// A left block: some rows and positions of a left operand.
pub(in crate::kernels) enum LeftBlock<'a, A> {
    /// In place, or copied with the same strides everywhere.
    Strided(product::Left<'a, A>),
    /// Packed, panel after panel, by [`pack_panels`].
    Packed(&'a [A]),
}

/// A left operand: its columns are the contracted axis.
pub(in crate::kernels) trait Left<A: Accumulator>: Sync {
    /// A block of it, read in place or packed to memory of [`block_len`] elements. It will be multiplied with this many columns.
    fn block<'a>(
        &'a self,
        kernel: &MicroKernel<A>,
        rows: Range<usize>,
        depth: Range<usize>,
        columns: usize,
        to: &'a mut [A],
    ) -> LeftBlock<'a, A>;

    /// The memory from which a block is packed, to be prefetched, if that is worth it.
    fn to_prefetch(&self, _rows: &Range<usize>, _depth: &Range<usize>) -> ToPrefetch {
        ToPrefetch::NONE
    }
}

/// A right operand: its rows are the contracted axis.
pub(in crate::kernels) trait Right<A: Accumulator>: Sync {
    /// A part of it, if it can be read in place.
    fn in_place(&self, depth: Range<usize>, columns: Range<usize>) -> Option<product::Right<'_, A>>;

    /// Packs some columns into panels of a width, one after the other, and fills the rest of the last panel with zeros.
    fn pack(&self, depth: Range<usize>, columns: Range<usize>, width: usize, to: &mut [A]);
}

/// The output of products.
pub(in crate::kernels) trait Output<A>: Sync {
    /// The first element and the stride of rows, if products are written without conversion to neighbours in a row. Either all outputs of a
    /// [`Blocking`](super::Blocking) have this, or none.
    fn direct(&self) -> Option<(*mut A, usize)>;

    /// Writes a block of products, row by row.
    ///
    /// # Safety
    /// No other task has access to the elements of the block.
    unsafe fn write(&self, rows: Range<usize>, columns: Range<usize>, sums: &[A]);
}

/// Elements of a block of `rows` rows and `depth` positions of the contracted axis.
pub(in crate::kernels) fn block_len<A: Accumulator>(kernel: &MicroKernel<A>, rows: usize, depth: usize) -> usize {
    let packed = rows.next_multiple_of(kernel.rows) * depth;
    packed.max(rows * block_stride(depth))
}

/// The distance between the rows of a block that is copied row by row.
pub(in crate::kernels) fn block_stride(depth: usize) -> usize {
    depth + GAP
}

/// Elements of the panels of a block.
pub(in crate::kernels::matmul) fn panels_len<A: Accumulator>(
    kernel: &MicroKernel<A>,
    rows: usize,
    depth: usize,
) -> usize {
    rows.div_ceil(kernel.height(rows)) * kernel.rows * depth
}

/// Packs the rows of a block into panels of [`MicroKernel::height`] rows each. `pack` packs a panel of some rows.
pub(in crate::kernels) fn pack_panels<'a, A: Accumulator>(
    kernel: &MicroKernel<A>,
    rows: Range<usize>,
    depth: usize,
    to: &'a mut [A],
    mut pack: impl FnMut(Range<usize>, &mut [A]),
) -> &'a [A] {
    let (height, len) = (kernel.height(rows.len()), kernel.rows * depth);
    let to = &mut to[..panels_len(kernel, rows.len(), depth)];
    for_each_panel(rows, height, len, to, &mut pack);
    to
}

/// Calls `f` with the rows or columns of each panel and its memory of `len` elements.
pub(in crate::kernels) fn for_each_panel<A>(
    all: Range<usize>,
    size: usize,
    len: usize,
    to: &mut [A],
    mut f: impl FnMut(Range<usize>, &mut [A]),
) {
    if len > 0 {
        pieces(all, size).zip(to.chunks_exact_mut(len)).for_each(|(panel, to)| f(panel, to));
    }
}
