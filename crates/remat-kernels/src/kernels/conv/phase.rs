//! One phase: a convolution of an image that is not dilated.

use std::cmp::Reverse;

use remat_ir::{Aval, Conv, Shape};
use smallvec::SmallVec;

use super::im2col::{Axis, CONTRACTED, Extent, Im2col};
use super::output::direct_stride;
use super::polyphase::Along;
use crate::base::strided::{Rows, StridedIter};
use crate::interface::layout::{Layout, Strides};

/// Images of at least this many positions are convolved one after the other, so that the products of each are written to the
/// output directly.
pub(super) const MIN_POSITIONS: usize = 256;

/// Positions of windows where the same weights meet elements of the image.
pub(super) struct Phase<C> {
    pub(super) windows: Im2col,
    pub(super) weights: Im2col,
    /// Images that are convolved one after the other, and the strides between them in the batch and in the output.
    pub(super) images: usize,
    pub(super) image_strides: [isize; 2],
    /// The offset of the first output, and the offsets along positions and features.
    pub(super) first: usize,
    positions: Rows<1>,
    features: Rows<1>,
    /// Whether the windows are the left operand.
    pub(super) windows_first: bool,
    pub(super) blocking: C,
}

impl<C> Phase<C> {
    /// The offsets along the rows of the products and along their columns.
    pub(super) fn rows_and_columns(&self) -> [&Rows<1>; 2] {
        if self.windows_first { [&self.positions, &self.features] } else { [&self.features, &self.positions] }
    }
}

/// A convolution with the layouts of its operands.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) op: &'a Conv,
    pub(super) lhs: &'a Layout,
    pub(super) rhs: &'a Layout,
    pub(super) out: &'a Aval,
    pub(super) out_strides: &'a Strides,
    pub(super) groups: usize,
    /// Whether sums are written without conversion.
    pub(super) is_direct: bool,
    /// Whether a task convolves one image in all phases.
    pub(super) alone: bool,
}

/// A window axis paired with its stride in the other array (output or weights).
type Paired = (Axis, isize);

/// The part of a phase that the operation and the shapes alone decide, whatever the layouts are.
pub(super) struct Method {
    /// The axes along which products are summed, outermost first: the features have number 0, and spatial axes follow.
    elements: SmallVec<[usize; 4]>,
    /// Whether images are convolved one after the other.
    one_by_one: bool,
    pub(super) products: Products,
}

/// The products of a phase: a batch of products of `rows` by `depth` and `depth` by `columns` elements, the `shape`.
#[derive(Clone, Copy)]
pub(super) struct Products {
    pub(super) batch: usize,
    /// The number of groups, each with its own weights, among the products of the batch; one if this phase is part of one task.
    pub(super) groups: usize,
    pub(super) shape: [usize; 3],
    /// Whether sums can be written to the output without conversion, row by row.
    pub(super) direct: bool,
    /// How many neighbours along the contracted axis have the same stride in the left operand.
    pub(super) run: usize,
    /// Whether the windows are the left operand.
    pub(super) windows_first: bool,
    /// Whether the left operand can be read in place, unless its elements are converted.
    pub(super) in_place: bool,
    /// Whether the whole phase runs in one task.
    pub(super) is_task: bool,
}

/// The axes of the windows and weights of a phase.
#[derive(Clone)]
struct Axes {
    /// Positions of windows in an image, by descending strides in the output.
    positions: Vec<Paired>,
    image: Paired,
    /// The contracted axes: the features first, until a method has another order.
    elements: Vec<Paired>,
    extents: Vec<Extent>,
    /// The offsets of the first output and of the first weight.
    first: usize,
    weight: usize,
}

impl Axes {
    /// The positions of windows in all images.
    fn all_positions(&self) -> Vec<Paired> {
        let mut all = self.positions.clone();
        all.insert(all.partition_point(|(_, stride)| *stride > self.image.1), self.image.clone());
        all
    }
}

fn size(axes: &[Paired]) -> usize {
    axes.iter().map(|(axis, _)| axis.size).product()
}

/// Output offsets of the positions along these axes.
fn output_offsets(axes: &[Paired]) -> Rows<1> {
    let shape: Shape = axes.iter().map(|(axis, _)| axis.size).collect();
    let strides: Strides = axes.iter().map(|axis| axis.1).collect();
    Rows::from(StridedIter::new(&shape, [&strides]))
}

impl Problem<'_> {
    /// How a phase is computed. Determined for row-major operands, since the order of sums must not depend on layouts.
    pub(super) fn method(&self, along: &[Along]) -> Method {
        let Problem { op, out, is_direct, .. } = *self;
        let mut axes = self.axes(along);
        let mut elements: SmallVec<[usize; 4]> = (0..axes.elements.len()).collect();
        // Features are summed last where they are neighbours in memory, so that runs of them can be read.
        if op.lhs_dims.spatial.iter().all(|&d| d < op.lhs_dims.second) {
            elements.rotate_left(1);
        }
        let permuted = |axes: &Axes, elements: &[usize]| elements.iter().map(|&i| axes.elements[i].clone()).collect();
        let listed = axes.clone();
        axes.elements = permuted(&listed, &elements);
        let all_positions = axes.all_positions();
        let (count, stride) = (out.shape[op.out_dims.second] / self.groups, self.out_strides[op.out_dims.second]);
        let features = Rows::from(StridedIter::new(&[count], [&[stride]]));
        let features_are_neighbours = all_positions.iter().all(|(axis, outer)| axis.size == 1 || *outer > stride);
        // As the right operand, windows whose contracted elements are neighbours are packed transposed, and the weights too. Then the
        // windows become the left operand, if that transposes fewer elements.
        let transposed = self.windows(&axes, &all_positions).along() == CONTRACTED;
        let windows_first = features_are_neighbours || (transposed && size(&all_positions) >= count);
        let mut one_by_one = self.alone;
        if !windows_first {
            // Weights are read in place if neighbours in memory are summed one after the other.
            elements.sort_by_key(|&i| Reverse(listed.elements[i].1));
            axes.elements = permuted(&listed, &elements);
            one_by_one |= axes.image.0.size > 1
                && size(&axes.positions) >= MIN_POSITIONS
                && direct_stride(is_direct, &features, &output_offsets(&axes.positions)).is_some();
        }
        let (at, images) = if one_by_one { (&axes.positions, axes.image.0.size) } else { (&all_positions, 1) };
        let (across, depth, positions) = (size(at), size(&axes.elements), output_offsets(at));
        let (shape, direct, left) = match windows_first {
            true => ([across, count, depth], direct_stride(is_direct, &positions, &features), self.windows(&axes, at)),
            false => {
                ([count, across, depth], direct_stride(is_direct, &features, &positions), self.weights(&axes, count))
            }
        };
        let products = Products {
            batch: if self.alone { 1 } else { self.groups * images },
            groups: if self.alone { 1 } else { self.groups },
            shape,
            direct: direct.is_some(),
            run: left.contracted_run(),
            windows_first,
            in_place: left.is_in_place(),
            is_task: self.alone,
        };
        Method { elements, one_by_one, products }
    }

    /// The phase computed by this method, with its products cut this way.
    pub(super) fn phase<C>(&self, along: &[Along], method: &Method, blocking: C) -> Phase<C> {
        let Problem { op, out, .. } = *self;
        let (elements, windows_first) = (&method.elements, method.products.windows_first);
        let mut axes = self.axes(along);
        axes.elements = elements.iter().map(|&i| axes.elements[i].clone()).collect();
        let all_positions = axes.all_positions();
        let (count, stride) = (out.shape[op.out_dims.second] / self.groups, self.out_strides[op.out_dims.second]);
        let features = Rows::from(StridedIter::new(&[count], [&[stride]]));
        let (at, images, image_strides) = match method.one_by_one {
            true => (&axes.positions, axes.image.0.size, [axes.image.0.stride, axes.image.1]),
            false => (&all_positions, 1, [0, 0]),
        };
        let (windows, weights, positions) = (self.windows(&axes, at), self.weights(&axes, count), output_offsets(at));
        Phase {
            windows,
            weights,
            images,
            image_strides,
            first: axes.first,
            positions,
            features,
            windows_first,
            blocking,
        }
    }

    fn axes(&self, along: &[Along]) -> Axes {
        let Problem { op, lhs, rhs, out, out_strides, .. } = *self;
        let whole = |dim: usize, size: usize| Axis { size, stride: lhs.strides[dim], along: None };
        let (features, image) = (op.lhs_dims.second, op.lhs_dims.first);
        let mut elements = vec![(whole(features, rhs.shape[op.rhs_dims.second]), rhs.strides[op.rhs_dims.second])];
        let (mut positions, mut extents) = (Vec::new(), Vec::new());
        let (mut first, mut weight) = (0, rhs.offset as isize);
        for (d, along) in along.iter().enumerate() {
            let dim = op.lhs_dims.spatial[d];
            let axis = |skip: usize, size: usize| {
                let stride = (skip as isize).wrapping_mul(lhs.strides[dim]);
                Axis { size, stride, along: Some((d, skip)) }
            };
            let stride = out_strides[op.out_dims.spatial[d]];
            first += along.position.0 * stride as usize;
            positions.push((axis(along.skips[0], along.positions), stride * along.position.1 as isize));
            let stride = rhs.strides[op.rhs_dims.spatial[d]];
            weight += along.element.0 as isize * stride;
            elements.push((axis(along.skips[1], along.elements), stride * along.element.1 as isize));
            extents.push(Extent { size: lhs.shape[dim], stride: lhs.strides[dim], origin: along.origin as i64 });
        }
        positions.sort_by_key(|&(_, stride)| Reverse(stride));
        let image = (whole(image, out.shape[op.out_dims.first]), out_strides[op.out_dims.first]);
        Axes { positions, image, elements, extents, first, weight: weight as usize }
    }

    /// The windows at some positions.
    fn windows(&self, axes: &Axes, positions: &[Paired]) -> Im2col {
        let sides = [positions, &axes.elements].map(|axes| axes.iter().map(|(axis, _)| axis.clone()));
        Im2col::new(self.lhs.offset, &axes.extents, sides)
    }

    /// The weights of `count` features.
    fn weights(&self, axes: &Axes, count: usize) -> Im2col {
        let features = Axis { size: count, stride: self.rhs.strides[self.op.rhs_dims.first], along: None };
        let elements = axes.elements.iter().map(|&(ref axis, stride)| Axis { size: axis.size, stride, along: None });
        Im2col::new(axes.weight, &[], [vec![features], elements.collect()]).with_panels()
    }
}
