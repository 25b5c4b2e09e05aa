//! The products of weights and some elements of an image.

use std::ops::Range;

use remat_ir::DType;

use crate::base::narrow::{GROUP, Kind, PANEL, Part, Side, Unit};
use crate::base::product::{Accumulator, MicroKernel, Right};
use crate::base::scratch;
use crate::interface::Source;
use crate::kernels::conv::im2col::{FREE, Im2col};
use crate::kernels::conv::narrow::GATHERED;
use crate::kernels::conv::thresholds::COL2IM_SUMMED;
use crate::kernels::matmul::narrow::{Operand, kinds};
use crate::kernels::matmul::{Reader, Right as _, even};
use crate::simd::{CACHE_LINE, Level};
use crate::threads::Threads;

/// The operands of a group's products: weights by features, and elements of an image by features.
pub(in super::super) struct Matrices {
    pub(super) weights: Im2col,
    pub(super) image: Im2col,
    /// Rows of the weights.
    pub(super) products: usize,
    /// Features that are summed: the contracted axis.
    pub(super) depth: usize,
}

/// An operand, and the offset of its group.
type At<'a> = (Source<'a>, isize);

/// How weights are multiplied with elements of an image.
pub(in super::super) trait Multiplier: Send + Sync {
    /// The type in which products are summed.
    type Sum: Accumulator;

    /// Columns that are multiplied at a time.
    fn columns(&self) -> usize;

    /// Fewest features to sum for which this is worth it.
    fn least_depth(&self) -> usize;

    /// Bytes of the packed weights of a group, a multiple of 64.
    fn weights(&self, matrices: &Matrices) -> usize;

    /// Bytes of memory for packing some columns, a multiple of 64. The memory of one thread is enough to pack weights.
    fn packed(&self, matrices: &Matrices, columns: usize) -> usize;

    /// The number of products of this many columns, with the padding of panels.
    fn products(&self, matrices: &Matrices, columns: usize) -> usize;

    /// Packs the weights of a group.
    fn pack(&self, matrices: &Matrices, weights: At<'_>, to: &mut [u8], scratch: &mut [u8], threads: &Threads);

    /// Multiplies packed weights by some elements of an image, and returns the stride of the rows of the products.
    fn multiply(
        &self,
        matrices: &Matrices,
        weights: &[u8],
        image: At<'_>,
        columns: Range<usize>,
        packed: &mut [u8],
        products: &mut [Self::Sum],
    ) -> usize;
}

/// Elements that are converted to the type in which they are summed.
pub(super) struct Numbers<A: Accumulator> {
    kernel: &'static MicroKernel<A>,
    readers: [Reader<A>; 2],
}

/// Most features of a part, so that its panels stay in the first-level cache.
const PART: usize = 256;

/// Rows of the weights that are multiplied with one panel after the other: a part of them stays in the second-level cache.
const ROWS: usize = 192;

impl<A: Accumulator> Numbers<A> {
    pub(super) fn new(dtypes: [DType; 2]) -> Numbers<A> {
        Numbers { kernel: A::micro_kernel(Level::best()), readers: dtypes.map(Reader::new) }
    }

    /// Elements of a panel of the weights.
    fn panel(&self, matrices: &Matrices) -> usize {
        self.kernel.rows * matrices.depth
    }
}

/// The stride of rows of some columns: an odd number of cache lines, so that rows do not fall into one set of the cache.
fn row<A>(columns: usize) -> usize {
    let line = CACHE_LINE / size_of::<A>();
    columns.div_ceil(line) / 2 * 2 * line + line
}

impl<A: Accumulator> Multiplier for Numbers<A> {
    type Sum = A;

    fn columns(&self) -> usize {
        self.kernel.columns
    }

    fn least_depth(&self) -> usize {
        COL2IM_SUMMED
    }

    fn weights(&self, matrices: &Matrices) -> usize {
        let panels = matrices.products.div_ceil(self.kernel.height(matrices.products));
        scratch::bytes::<A>(panels * self.panel(matrices))
    }

    fn packed(&self, matrices: &Matrices, columns: usize) -> usize {
        let columns = columns.next_multiple_of(self.kernel.columns).max(row::<A>(columns));
        scratch::bytes::<A>(columns * matrices.depth)
    }

    fn products(&self, matrices: &Matrices, columns: usize) -> usize {
        matrices.products * columns
    }

    fn pack(&self, matrices: &Matrices, (from, offset): At<'_>, to: &mut [u8], _: &mut [u8], threads: &Threads) {
        let weights = matrices.weights.of(self.readers[1].of(from), offset);
        let height = self.kernel.height(matrices.products);
        let panels = matrices.products.div_ceil(height);
        let to = scratch::take::<A>(to, panels * self.panel(matrices)).0;
        threads.for_each_chunk(to, self.panel(matrices), |i, to| {
            let rows = i * height..matrices.products.min((i + 1) * height);
            weights.pack_panel(rows, 0..matrices.depth, self.kernel.rows, to);
        });
    }

    fn multiply(
        &self,
        matrices: &Matrices,
        weights: &[u8],
        (from, offset): At<'_>,
        columns: Range<usize>,
        packed: &mut [u8],
        products: &mut [A],
    ) -> usize {
        let Matrices { products: rows, depth, .. } = *matrices;
        let (kernel, count) = (self.kernel, columns.len());
        let packed = scratch::of::<A>(packed);
        let image = matrices.image.of(self.readers[0].of(from), offset);
        // Rows of neighbours are copied whole, in longer runs than a panel has.
        let in_rows = matrices.image.along() == FREE;
        let right_row = if in_rows { row::<A>(count) } else { kernel.columns };
        if in_rows {
            image.read(&[columns, 0..depth], [1, right_row], packed);
        } else {
            image.pack(0..depth, columns, kernel.columns, packed);
        }
        let weights = scratch::shared::<A>(weights);
        let height = kernel.height(rows);
        let block = even(rows, ROWS, height);
        let part = even(depth, PART, 8);
        for positions in (0..depth).step_by(part).map(|k| k..depth.min(k + part)) {
            for block in (0..rows).step_by(block).map(|i| i..rows.min(i + block)) {
                for j in (0..count).step_by(kernel.columns) {
                    let first = if in_rows { j } else { j * depth };
                    let right =
                        Right { elements: &packed[first + positions.start * right_row..], row_stride: right_row };
                    for i in block.clone().step_by(height) {
                        let left = &weights[i / height * self.panel(matrices) + positions.start * kernel.rows..];
                        let size = [height.min(rows - i), kernel.columns.min(count - j), positions.len()];
                        let out = &mut products[i * count + j..];
                        kernel.multiply(size, left, right, (out, count), positions.start > 0);
                    }
                }
            }
        }
        count
    }
}

/// bf16 on a matrix unit of the CPU.
pub(super) struct Pairs {
    unit: Unit,
}

/// Groups of a part.
const GROUPS: usize = 16;

impl Pairs {
    /// The matrix unit, where this CPU has one for such operands.
    pub(super) fn new(from: [DType; 2], to: DType) -> Option<Pairs> {
        if !kinds(from, to).contains(&Kind::Bf16) {
            return None;
        }
        Some(Pairs::on(Unit::best(Kind::Bf16)?))
    }

    pub(super) fn on(unit: Unit) -> Pairs {
        Pairs { unit }
    }

    /// Words of a panel.
    fn panel(&self, matrices: &Matrices) -> usize {
        matrices.depth.div_ceil(u16::PER_GROUP) * GROUP
    }

    /// Words of memory to gather elements in.
    fn space() -> usize {
        GATHERED[0] * GATHERED[1] / size_of::<u32>()
    }
}

impl Multiplier for Pairs {
    type Sum = f32;

    fn columns(&self) -> usize {
        PANEL
    }

    /// With fewer features a group would be filled with zeros.
    fn least_depth(&self) -> usize {
        u16::PER_GROUP
    }

    fn weights(&self, matrices: &Matrices) -> usize {
        scratch::bytes::<u32>(matrices.products.div_ceil(PANEL) * self.panel(matrices))
    }

    fn packed(&self, matrices: &Matrices, columns: usize) -> usize {
        scratch::bytes::<u32>(columns.div_ceil(PANEL) * self.panel(matrices) + Pairs::space())
    }

    fn products(&self, matrices: &Matrices, columns: usize) -> usize {
        matrices.products.next_multiple_of(PANEL) * columns.next_multiple_of(PANEL)
    }

    fn pack(&self, matrices: &Matrices, (from, offset): At<'_>, to: &mut [u8], scratch: &mut [u8], threads: &Threads) {
        let (rows, depth) = (matrices.products, matrices.depth);
        let weights = matrices.weights.of(from.words::<u16>(), offset);
        let to = scratch::take::<u32>(to, rows.div_ceil(PANEL) * self.panel(matrices)).0;
        let panels = to.chunks_exact_mut(self.panel(matrices)).enumerate();
        threads.for_each_item_with_scratch(rows.div_ceil(PANEL), panels, scratch, |(i, to), scratch| {
            let rows = i * PANEL..rows.min((i + 1) * PANEL);
            weights.pack(rows, 0..depth, Side::Left, to, &mut scratch::of::<u32>(scratch)[..Pairs::space()]);
        });
    }

    fn multiply(
        &self,
        matrices: &Matrices,
        weights: &[u8],
        (from, offset): At<'_>,
        columns: Range<usize>,
        packed: &mut [u8],
        products: &mut [f32],
    ) -> usize {
        let (panel, count) = (self.panel(matrices), columns.len().div_ceil(PANEL));
        let (pitch, rows) = (count * PANEL, matrices.products.div_ceil(PANEL));
        let (packed, space) = scratch::of::<u32>(packed).split_at_mut(count * panel);
        let image = matrices.image.of(from.words::<u16>(), offset);
        image.pack(columns, 0..matrices.depth, Side::Right, packed, space);
        let weights = &scratch::shared::<u32>(weights)[..rows * panel];
        let session = self.unit.session();
        for part in (0..panel).step_by(GROUPS * GROUP).map(|k| k..panel.min(k + GROUPS * GROUP)) {
            for j in 0..count {
                let right = &packed[j * panel..][part.clone()];
                for i in 0..rows {
                    let left = &weights[i * panel..][part.clone()];
                    let sums = &mut products[i * PANEL * pitch + j * PANEL..];
                    session.multiply(left, right, (sums, pitch), part.start > 0, None);
                }
            }
        }
        pitch
    }
}
