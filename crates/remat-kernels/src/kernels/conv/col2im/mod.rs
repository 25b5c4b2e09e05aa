//! Convolutions with few output features by col2im: a matrix product whose elements are added to the results that they reach.
//!
//! A gathered window is used once for each output feature. With few output features, as in gradients of images with few channels, gathering
//! takes many times as long as multiplying. Here the weights are the left operand, with a row for each output feature and window element.
//! The elements of the image are the right operand: each is a column of all its features. Each product belongs to one result, at the
//! position of the image's element moved by the element of the window. Products that fall outside of the output are dropped.
//!
//! A task computes a *band* of rows of an image. It takes some rows of the image at a time. Their products ([`products`]) stay in the
//! second-level cache and are added to the rows of results that they reach ([`sums`]). A row of results is written once no later product
//! reaches it. Where the image is dilated, one element of the window reaches results that are apart. They are stored as neighbours until
//! they are written.
//!
//! The operation and the shapes decide whether a convolution is computed this way. The order of sums is: features, in parts, for each
//! product; then rows of the image, parts of a row, and elements of the window. It does not depend on the bands, whose number depends on
//! the threads.
//!
//! Here weights do not meet the zeros of padding. This changes only results that are not finite, which are computed again
//! ([`IfFinite`](super::finite::IfFinite)). So each element of the window must reach some result.

mod along;
mod products;
mod sums;
#[cfg(test)]
mod tests;

use std::ops::Range;

use remat_ir::{Aval, Conv, DType};

use super::im2col::{Axis, Im2col};
use super::thresholds::{
    COL2IM_DEPTH, COL2IM_DEPTH_BESIDE_DIRECT, COL2IM_ELEMENTS, COL2IM_FEATURES, COL2IM_SCRATCH, COL2IM_TASKS,
    COL2IM_WORK,
};
use along::{Along, Reached};
use products::{Matrices, Multiplier, Numbers, Pairs};
use sums::{ResultRows, Sums, Tap};

use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::scratch;
use crate::interface::layout::{Layout, row_major};
use crate::interface::{Kernel, Source, Target};
use crate::kernels::matmul::{Writer, even};
use crate::threads::Threads;

/// Sizes of steps, and bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Most elements of a step's columns and of their products, so that they stay in the second-level cache.
    step: usize,
    /// Columns that a step may have even if it exceeds `step`.
    columns: usize,
    /// Most elements of scratch memory: the packed weights with their padding, and the sums of the rows of results that a step reaches.
    scratch: usize,
    /// Fewest multiplications.
    work: usize,
    /// Fewest elements of an image.
    least: usize,
    /// Most features of the result.
    features: usize,
    /// Fewest input features for each output feature.
    depth: usize,
    /// Fewest tasks: one row of one image would be computed by one thread.
    tasks: usize,
}

/// The sizes of steps were measured.
const SIZES: Sizes = Sizes {
    step: 3 << 15,
    columns: 128,
    scratch: COL2IM_SCRATCH,
    work: COL2IM_WORK,
    least: COL2IM_ELEMENTS,
    features: COL2IM_FEATURES,
    depth: COL2IM_DEPTH,
    tasks: COL2IM_TASKS,
};

/// Sizes with which small convolutions have several steps.
#[cfg(test)]
const SMALL: Sizes =
    Sizes { step: 400, columns: 12, scratch: 1 << 16, work: 0, least: 1, features: usize::MAX, depth: 0, tasks: 0 };

/// Tasks for each thread, where an image has enough rows.
const TASKS: usize = 2;

/// Rows of a band for each row that it shares with the next band; both bands compute the products of shared rows.
const BAND: usize = 8;

/// Elements of a row of the window whose products are added at a time.
const TAPS: usize = 16;

/// A convolution with few output features.
pub(super) struct Col2im<M: Multiplier> {
    multiplier: M,
    matrices: Matrices,
    writer: Writer<M::Sum>,
    images: usize,
    groups: usize,
    /// Output features in a group.
    features: usize,
    rows: Along,
    columns: Along,
    /// The strides of images and groups in the image, and of groups in the weights.
    strides: [isize; 3],
    /// The strides of images, features, rows and columns in the output.
    out_strides: [isize; 4],
    /// The results in a row that each element of a row of the window reaches.
    reached: Vec<Reached>,
    /// Rows and columns of the image in a step.
    step: [usize; 2],
}

/// Whether this method computes a convolution of bf16 on a unit of the CPU, and pays for it.
pub(super) fn applies_to_pairs(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> bool {
    let pairs = Pairs::new(ins.map(|(dtype, _)| dtype), out.dtype);
    pairs.is_some_and(|pairs| Col2im::applies(SIZES, &pairs, op, ins, out))
}

/// The kernel of a convolution of bf16 on a unit of the CPU, if this method applies.
pub(super) fn of_pairs(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Option<impl Kernel + use<>> {
    let pairs = Pairs::new(ins.map(|(dtype, _)| dtype), out.dtype)?;
    Col2im::new(SIZES, pairs, op, ins, out)
}

/// The sizes for a convolution. `is_direct` says whether windows could be read in place ([`direct`](super::direct)) instead.
fn sizes(is_direct: bool) -> Sizes {
    Sizes { depth: if is_direct { COL2IM_DEPTH_BESIDE_DIRECT } else { SIZES.depth }, ..SIZES }
}

/// Whether this method computes a convolution with sums of this type, and pays for it.
pub(super) fn applies_to_numbers<A: Accumulator>(
    is_direct: bool,
    op: &Conv,
    ins: [(DType, &Layout); 2],
    out: &Aval,
) -> bool {
    Col2im::applies(sizes(is_direct), &Numbers::<A>::new(ins.map(|(dtype, _)| dtype)), op, ins, out)
}

/// The kernel of a convolution with sums of this type, if this method applies.
pub(super) fn of_numbers<A: Accumulator>(
    is_direct: bool,
    op: &Conv,
    ins: [(DType, &Layout); 2],
    out: &Aval,
) -> Option<impl Kernel + use<A>> {
    Col2im::new(sizes(is_direct), Numbers::<A>::new(ins.map(|(dtype, _)| dtype)), op, ins, out)
}

/// Whether some element of the window reaches no result, or less than two thirds of the products reach one. Of long windows, as in
/// gradients of weights, nearly all products fall outside.
fn wastes(rows: &Along, columns: &Along) -> bool {
    if rows.is_any_outside() || columns.is_any_outside() {
        return true;
    }
    let inside = rows.pairs_inside().saturating_mul(columns.pairs_inside());
    let all = [rows.image, rows.window, columns.image, columns.window].into_iter().fold(1, usize::saturating_mul);
    inside < all / 3 * 2
}

impl<M: Multiplier> Col2im<M> {
    /// Whether this method computes a convolution and pays for it.
    fn applies(
        sizes: Sizes,
        multiplier: &M,
        op: &Conv,
        [(_, lhs), (_, rhs)]: [(DType, &Layout); 2],
        out: &Aval,
    ) -> bool {
        let is_empty = [out.size(), lhs.size(), rhs.size()].contains(&0);
        if is_empty || op.batch_group_count > 1 || op.strides.iter().any(|&stride| stride > 1) {
            return false;
        }
        let Some([rows, columns]) = Along::both(op, lhs, rhs, out) else { return false };
        let groups = op.feature_group_count;
        let (features, depth) = (out.shape[op.out_dims.second] / groups, rhs.shape[op.rhs_dims.second]);
        let window = rows.window * columns.window;
        let (products, elements) = (features * window, rows.image * columns.image);
        let images = lhs.shape[op.lhs_dims.first];
        let work = [products, depth, elements, images, groups].into_iter().fold(1, usize::saturating_mul);
        window > 1
            && elements >= sizes.least
            && work >= sizes.work
            && features <= sizes.features
            && depth >= features.saturating_mul(sizes.depth)
            && (sizes.depth == 0 || depth >= multiplier.least_depth())
            && products.saturating_mul(depth).saturating_mul(groups) <= sizes.scratch
            && (sizes.depth == 0 || !wastes(&rows, &columns))
    }

    /// The kernel, if this method applies.
    pub(super) fn new(
        sizes: Sizes,
        multiplier: M,
        op: &Conv,
        ins: [(DType, &Layout); 2],
        out: &Aval,
    ) -> Option<Col2im<M>> {
        if !Col2im::applies(sizes, &multiplier, op, ins, out) {
            return None;
        }
        let [(_, lhs), (_, rhs)] = ins;
        let [rows, columns] = Along::both(op, lhs, rhs, out)?;
        let (groups, images) = (op.feature_group_count, lhs.shape[op.lhs_dims.first]);
        let (features, depth) = (out.shape[op.out_dims.second] / groups, rhs.shape[op.rhs_dims.second]);
        let products = features * rows.window * columns.window;
        let axis = |size: usize, stride: isize| Axis { size, stride, along: None };
        let spatial = |i: usize| [rows, columns].map(|along| axis([along.image, along.window][i], along.strides[i]));
        let summed = |layout: &Layout, d: usize| vec![axis(depth, layout.strides[d])];
        let mut of_weights = vec![axis(features, rhs.strides[op.rhs_dims.first])];
        of_weights.extend(spatial(1));
        let matrices = Matrices {
            weights: Im2col::new(rhs.offset, &[], [of_weights, summed(rhs, op.rhs_dims.second)]),
            image: Im2col::new(lhs.offset, &[], [spatial(0).to_vec(), summed(lhs, op.lhs_dims.second)]),
            products,
            depth,
        };
        // As many rows as fit, at least one; of a long row a part.
        let most = (sizes.step / (products + depth)).max(sizes.columns);
        let step = match columns.image <= most {
            true => [even(rows.image, most / columns.image, 1), columns.image],
            false => [1, even(columns.image, most, multiplier.columns())],
        };
        let out_strides = row_major(&out.shape);
        let out_spatial = |i: usize| match (op.out_dims.spatial.len() + i).checked_sub(2) {
            Some(i) => out_strides[op.out_dims.spatial[i]],
            None => 0,
        };
        let this = Col2im {
            multiplier,
            writer: Writer::new(out.dtype),
            images,
            groups,
            features,
            rows,
            columns,
            reached: columns.reached(),
            strides: [
                lhs.strides[op.lhs_dims.first],
                depth as isize * lhs.strides[op.lhs_dims.second],
                features as isize * rhs.strides[op.rhs_dims.first],
            ],
            out_strides: [
                out_strides[op.out_dims.first],
                out_strides[op.out_dims.second],
                out_spatial(0),
                out_spatial(1),
            ],
            matrices,
            step,
        };
        let slots = this.rows.apart.checked_mul(step[0])?.checked_add(this.rows.reach())?;
        let sums = slots.checked_mul(columns.phase() * columns.apart)?.checked_mul(features)?;
        let weights = this.bytes()[0] / size_of::<M::Sum>();
        let fits = sums <= sizes.scratch && weights <= sizes.scratch;
        (fits && images * groups * this.bands() >= sizes.tasks).then_some(this)
    }

    /// Columns of a step.
    fn step_columns(&self) -> usize {
        self.step[0] * self.step[1]
    }

    /// The number of rows of results that a step reaches.
    fn slots(&self) -> usize {
        (self.step[0] - 1) * self.rows.apart + self.rows.reach() + 1
    }

    /// Elements of a row of results, which is stored phase after phase.
    fn row(&self) -> usize {
        self.columns.apart * self.columns.phase()
    }

    /// Most bands of an image.
    fn bands(&self) -> usize {
        // Rows of results that bands share, if each band begins where an element reaches its first result.
        let shared = self.rows.reach() / self.rows.apart * self.rows.apart;
        self.rows.results / (BAND * shared).max(self.rows.apart)
    }

    /// Rows of results in a band, for this many threads.
    fn band(&self, threads: usize) -> usize {
        let wanted = (TASKS * threads).div_ceil(self.images * self.groups);
        let bands = wanted.min(self.bands()).max(1);
        self.rows.results.div_ceil(bands).next_multiple_of(self.rows.apart)
    }

    /// Bytes of the packed weights, and of the columns, the products and the sums of a step.
    fn bytes(&self) -> [usize; 4] {
        let columns = self.step_columns();
        [
            self.groups * self.multiplier.weights(&self.matrices),
            self.multiplier.packed(&self.matrices, columns),
            scratch::bytes::<M::Sum>(self.multiplier.products(&self.matrices, columns)),
            scratch::bytes::<M::Sum>(self.features * self.slots() * self.row()),
        ]
    }

    /// Computes a band of an image.
    fn compute(
        &self,
        image: Source<'_>,
        offset: isize,
        weights: &[u8],
        out: &ResultRows<'_, M::Sum>,
        band: Range<usize>,
        scratch: &mut [u8],
    ) {
        let [_, packed, products, _] = self.bytes();
        let (packed, scratch) = scratch.split_at_mut(packed);
        let (products, scratch) = scratch.split_at_mut(products);
        let products = scratch::of::<M::Sum>(products);
        let sums = scratch::of::<M::Sum>(scratch);
        let sums = &mut sums[..self.features * self.slots() * self.row()];
        let mut sums = Sums::new(sums, [self.features, self.slots(), self.row()], band.clone());
        let reaching = self.rows.reaching(&band);
        for first in reaching.clone().step_by(self.step[0]) {
            let rows = first..reaching.end.min(first + self.step[0]);
            // No later product reaches the rows before this one.
            sums.write_before(self.rows.result(first, self.rows.window - 1), out);
            for column in (0..self.columns.image).step_by(self.step[1]) {
                let columns = column..self.columns.image.min(column + self.step[1]);
                let from = first * self.columns.image + column;
                let positions = from..from + (rows.len() - 1) * self.columns.image + columns.len();
                let pitch =
                    self.multiplier.multiply(&self.matrices, weights, (image, offset), positions, packed, products);
                self.add(products, pitch, [rows.clone(), columns], &mut sums);
            }
        }
        sums.write_before(band.end as i64, out);
    }

    /// Adds the products of some rows and columns of the image. The products of one feature and window element are `pitch` from those of
    /// the next.
    fn add(&self, products: &[M::Sum], pitch: usize, [rows, columns]: [Range<usize>; 2], sums: &mut Sums<'_, M::Sum>) {
        let (window, phase) = (self.columns.window, self.columns.phase());
        for (i, y) in rows.enumerate() {
            for (part, reached) in self.reached.chunks(TAPS).enumerate() {
                let mut taps = [Tap::default(); TAPS];
                for (tap, (k, reached)) in taps.iter_mut().zip(reached.iter().enumerate()) {
                    let (to, inside) = reached.inside(&columns);
                    if !inside.is_empty() {
                        let from = (part * TAPS + k) * pitch + i * self.columns.image + inside.start - columns.start;
                        *tap = Tap { to: reached.phase * phase + to, from, len: inside.len() };
                    }
                }
                for (feature, k) in (0..self.features).flat_map(|f| (0..self.rows.window).map(move |k| (f, k))) {
                    if let Some(to) = sums.row(feature, self.rows.result(y, k)) {
                        let from = (feature * self.rows.window + k) * window * pitch;
                        sums::add(to, &products[from..], &taps[..reached.len()]);
                    }
                }
            }
        }
    }
}

impl<M: Multiplier> Kernel for Col2im<M> {
    fn scratch(&self, threads: usize) -> usize {
        let [weights, packed, products, sums] = self.bytes();
        weights + threads * (packed + products + sums)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let [weights, packed, products, sums] = self.bytes();
        let (weights, scratch) = scratch.split_at_mut(weights);
        let scratch = &mut scratch[..threads.count() * (packed + products + sums)];
        let of_group = self.multiplier.weights(&self.matrices);
        for (group, to) in weights.chunks_exact_mut(of_group).enumerate() {
            let offset = group as isize * self.strides[2];
            self.multiplier.pack(&self.matrices, (ins[1], offset), to, scratch, threads);
        }
        let weights = &*weights;
        let all = DisjointMut::bytes(&mut outs[0]);
        let band = self.band(threads.count());
        let bands = self.rows.results.div_ceil(band);
        threads.for_each_with_scratch(self.images * self.groups * bands, scratch, |task, scratch| {
            let (i, band) = (task / bands, task % bands * band..self.rows.results.min((task % bands + 1) * band));
            let (image, group) = ((i / self.groups) as isize, i % self.groups);
            let offset = image * self.strides[0] + group as isize * self.strides[1];
            let first = image * self.out_strides[0] + (group * self.features) as isize * self.out_strides[1];
            let out = ResultRows {
                out: all,
                writer: &self.writer,
                first,
                strides: [self.out_strides[1], self.out_strides[2], self.out_strides[3]],
                phases: [self.columns.apart, self.columns.phase()],
                columns: self.columns.results,
            };
            self.compute(ins[0], offset, &weights[group * of_group..][..of_group], &out, band, scratch);
        });
    }
}
