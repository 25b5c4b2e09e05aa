//! Convolutions of bf16, of f16 and of bytes on the units that CPUs have for them.
//!
//! Windows and weights are packed into panels like the operands of products ([`narrow`]), windows block by
//! block. A block with strides is packed from the image; any other is gathered first, as elements, into memory that stays in the
//! second-level cache. Sums and their order are those of products: the operation and the shapes decide it.

#[cfg(test)]
mod tests;

use std::ops::Range;

use remat_ir::{Aval, Conv, DType};

use super::Multiplier;
use super::im2col::{FREE, Operand};
use super::output::StridedSums;
use super::phase::{Phase, Products};
use super::thresholds::{UNIT_DEPTH, UNIT_POSITIONS, UNIT_WORK};
use crate::base::disjoint::DisjointMut;
use crate::base::narrow::{GROUP, Kind, PANEL, Part, Side, SplitF16, Strided, Unit, pack};
use crate::base::pieces::pieces;
use crate::base::scratch;
use crate::interface::{Layout, Source};
use crate::kernels::matmul::narrow::{self, Panels, Sizes, ToPrefetch, UnitBlocking, kinds};
use crate::number::Scalar;
use crate::threads::Threads;

/// Indices of the free side (four panels), and bytes along the contracted side, that are gathered at a time.
pub(super) const GATHERED: [usize; 2] = [128, 512];

/// Most bytes of weights that are packed once, before all blocks, so that they fit the last-level cache.
const MOST_PACKED: usize = 3 << 19;

/// Fewest positions, of all images, for weights that are packed once.
const LEAST_PACKED: usize = 256;

/// Most elements of a window for each of these positions: gradients of weights have longer windows, and gain nothing.
const LONG: usize = 2;

/// How the products of a convolution are computed on a unit.
pub(super) struct Narrow {
    sizes: Sizes,
    unit: Unit,
    kind: Kind,
    /// The dtype of the output.
    out: DType,
}

/// How products are cut, and the groups whose weights are packed once, if the blocking packs them.
pub(super) struct NarrowBlocking {
    blocking: UnitBlocking,
    groups: usize,
}

impl Narrow {
    /// The unit for a convolution, where this CPU has one that is worth using.
    pub(super) fn new(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<Narrow> {
        Narrow::of(Unit::of, op, ins, out)
    }

    /// As [`new`](Narrow::new), on a CPU with these units.
    fn of(
        unit_of: impl Fn(&[Kind]) -> Option<(Kind, Unit)>,
        op: &Conv,
        ins: [(DType, &Layout); 2],
        out: &Aval,
    ) -> Option<Narrow> {
        let dtypes = ins.map(|(dtype, _)| dtype);
        if dtypes[0] == DType::F32 {
            return None;
        }
        let [groups, weights] = [op.feature_group_count.max(op.batch_group_count), ins[1].1.size()];
        let features = out.shape[op.out_dims.second] / groups;
        let depth = weights / (features * groups).max(1);
        let positions = out.size() / (features * groups).max(1);
        let work = features.saturating_mul(positions).saturating_mul(depth);
        let is_worth = positions >= UNIT_POSITIONS && depth >= UNIT_DEPTH && work >= UNIT_WORK;
        let (kind, unit) = unit_of(kinds(dtypes, out.dtype)).filter(|_| is_worth)?;
        let has_features = features >= UNIT_POSITIONS || (features > 0 && groups == 1 && unit.is_matrix_unit());
        has_features.then(|| Narrow::on(unit, Sizes::of(kind), kind, out.dtype))
    }

    /// The products of elements of this kind on a unit, with these sizes.
    pub(super) fn on(unit: Unit, sizes: Sizes, kind: Kind, out: DType) -> Narrow {
        Narrow { sizes, unit, kind, out }
    }

    fn run_as<'a, N: Part + Scalar>(
        &self,
        phase: &Phase<NarrowBlocking>,
        elements: [&[N]; 2],
        part: impl Fn(usize) -> ([isize; 2], DisjointMut<'a, u8>) + Sync,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        let part = |i: usize| {
            let ([of_windows, of_weights], out) = part(i);
            (phase.windows.of(elements[0], of_windows), phase.weights.of(elements[1], of_weights), out)
        };
        let NarrowBlocking { blocking, groups } = &phase.blocking;
        let (dtype, [rows, columns]) = (self.out, phase.rows_and_columns());
        let before = blocking.before();
        let len = before.map_or(0, |(_, len)| len);
        let (packed, scratch) = scratch::of::<u32>(scratch).split_at_mut(groups * len);
        if let Some((side, len)) = before {
            for (group, to) in packed.chunks_exact_mut(len).enumerate() {
                blocking.pack(side, &part(group * phase.images).1, to, scratch, threads);
            }
        }
        let packed = &*packed;
        let weights = |i: usize, weights| match before {
            Some(_) => Panels::Packed(&packed[i / phase.images * len..][..len]),
            None => Panels::Of(weights),
        };
        if phase.windows_first {
            blocking.run(scratch, threads, |i| {
                let (windows, of_group, out) = part(i);
                (Panels::Of(windows), weights(i, of_group), StridedSums { out, dtype, rows, columns })
            });
        } else {
            blocking.run(scratch, threads, |i| {
                let (windows, of_group, out) = part(i);
                (weights(i, of_group), Panels::Of(windows), StridedSums { out, dtype, rows, columns })
            });
        }
    }
}

impl Multiplier for Narrow {
    type Blocking = NarrowBlocking;

    /// Sums are rounded while they are written, so this counts as writing them directly.
    fn is_direct(&self) -> bool {
        true
    }

    fn blocking(&self, products: &Products) -> NarrowBlocking {
        let [_, per_group] = self.kind.per_word_and_group();
        let space = GATHERED[0] * GATHERED[1] / size_of::<u32>();
        let Products { batch, groups, shape, windows_first, is_task, .. } = *products;
        let [rows, columns, depth] = shape;
        let (side, features, positions) =
            if windows_first { (Side::Right, columns, rows) } else { (Side::Left, rows, columns) };
        // Panels and groups are padded with zeros, and may take several times the bytes of the weights.
        let [features, depth_words] =
            [features.next_multiple_of(PANEL), depth.div_ceil(per_group) * self.unit.group(side) / PANEL];
        let bytes = [features, depth_words, groups, 4].into_iter().fold(1, usize::saturating_mul);
        let positions = positions.saturating_mul(batch / groups);
        let is_worth = bytes <= MOST_PACKED && positions >= LEAST_PACKED.max(depth / LONG);
        // Tiles wait for data from the last-level cache, so on such a unit each block packs its weights again.
        let packs = is_worth && !is_task && !self.unit.is_matrix_unit();
        let blocking = UnitBlocking::new(self.sizes, self.unit, batch, shape, per_group).with_space(space);
        NarrowBlocking { blocking: blocking.with_packed(packs.then_some(side)), groups }
    }

    fn scratch(&self, NarrowBlocking { blocking, groups }: &NarrowBlocking, threads: usize) -> usize {
        (blocking.before().map_or(0, |(_, len)| groups * len) + blocking.scratch(threads)) * size_of::<u32>()
    }

    fn run<'a>(
        &self,
        phase: &Phase<NarrowBlocking>,
        ins: &[Source<'_>],
        part: impl Fn(usize) -> ([isize; 2], DisjointMut<'a, u8>) + Sync,
        scratch: &mut [u8],
        threads: &Threads,
    ) {
        match self.kind {
            Kind::Bf16 | Kind::F16 => self.run_as::<u16>(phase, [0, 1].map(|i| ins[i].words()), part, scratch, threads),
            Kind::SplitF16 => {
                let elements = [0, 1].map(|i| SplitF16::all(ins[i].words()));
                self.run_as(phase, elements, part, scratch, threads)
            }
            _ => self.run_as::<u8>(phase, [0, 1].map(|i| ins[i].words()), part, scratch, threads),
        }
    }
}

impl<N: Part + Scalar> narrow::Operand for Operand<'_, &[N]> {
    fn pack(&self, free: Range<usize>, depth: Range<usize>, side: Side, to: &mut [u32], space: &mut [u32]) {
        let group = N::planes(side) * GROUP;
        let panel = depth.len().div_ceil(N::PER_GROUP) * group;
        if let Some(from) = self.strided(&free, &depth) {
            return pack(from, free.len(), depth.len(), side, to, panel);
        }
        let gathered = scratch::words::<N>(space);
        let most = GATHERED[1] / size_of::<N>();
        for (i, rows) in pieces(free, GATHERED[0]).enumerate() {
            for (j, part) in pieces(depth.clone(), most).enumerate() {
                let strides = if self.matrix.along() == FREE { [1, rows.len()] } else { [part.len(), 1] };
                let block = [rows.clone(), part];
                self.read(&block, strides, gathered);
                let [rows, part] = block.map(|range| range.len());
                let [free, contracted] = strides.map(|stride| stride as isize);
                let from = Strided { elements: &*gathered, start: 0, free, contracted };
                let to = &mut to[i * (GATHERED[0] / PANEL) * panel + j * (most / N::PER_GROUP) * group..];
                pack(from, rows, part, side, to, panel);
            }
        }
    }

    fn to_prefetch(&self, free: &Range<usize>, depth: &Range<usize>) -> ToPrefetch {
        match self.strided(free, depth) {
            Some(from) => ToPrefetch::of(&from, free.len(), depth.len()),
            None => ToPrefetch::NONE,
        }
    }
}

impl<'a, N: Part> Operand<'a, &'a [N]> {
    /// A part of the matrix, if it has neighbours along one side and one stride along the other.
    fn strided(&self, free: &Range<usize>, depth: &Range<usize>) -> Option<Strided<'a, N>> {
        let (start, strides) = self.locate(&[free.clone(), depth.clone()])?;
        // With a stride of zero elements any stride will do.
        let [free, contracted] =
            [(strides[0], free), (strides[1], depth)].map(|(s, range)| if range.len() > 1 { s } else { 1 });
        (free == 1 || contracted == 1).then_some(Strided { elements: self.elements, start, free, contracted })
    }
}
