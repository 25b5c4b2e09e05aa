//! A convolution of an image that is not dilated.

use std::cmp::Reverse;

use remat_ir::{Aval, Conv, DType, Shape};
use smallvec::SmallVec;

use super::ConvKernel;
use super::im2col::{Axis, CONTRACTED, Extent, Unfolded};
use super::output::{Scattered, direct_step};
use super::polyphase::Along;
use super::sizes::cut;
use crate::base::disjoint::DisjointMut;
use crate::base::product::Accumulator;
use crate::base::strided::{Rows, Walk};
use crate::interface::Source;
use crate::interface::layout::{Layout, Strides};
use crate::kernels::matmul::{Cut, Reader, Writer};
use crate::threads::Threads;

/// Fewest results of an image for which it is worth that images are convolved one after the other, so that the products of
/// each can be written where they belong.
pub(super) const IMAGE: usize = 256;

/// Positions of windows where the same weights meet elements of the image.
pub(super) struct Phase<A: 'static> {
    windows: Unfolded<A>,
    weights: Unfolded<A>,
    /// Images that are convolved one after the other, and what one is away from the one before in the batch and the result.
    images: usize,
    image_steps: [isize; 2],
    /// The first result, and where the others are, along positions and features.
    first: usize,
    positions: Rows<1>,
    features: Rows<1>,
    /// Whether the windows are the left operand.
    windows_first: bool,
    pub(super) cut: Cut,
}

/// What is known of a convolution.
pub(super) struct Problem<'a, A: 'static> {
    pub(super) op: &'a Conv,
    pub(super) lhs: (DType, &'a Layout),
    pub(super) rhs: (DType, &'a Layout),
    pub(super) out: &'a Aval,
    pub(super) out_strides: &'a Strides,
    pub(super) groups: usize,
    pub(super) writer: &'a Writer<A>,
    /// Whether a task convolves an image in all phases.
    pub(super) alone: bool,
}

/// An axis of the windows with the distance between neighbours in what it is in besides the image: the result or the weights.
type Paired = (Axis, isize);

/// What is decided of a phase by the operation and the shapes alone, whatever the layouts are.
pub(super) struct Method {
    /// The axes along which products are summed, outermost first: the features have number 0, and spatial axes follow.
    elements: SmallVec<[usize; 4]>,
    /// Whether the windows are the left operand.
    windows_first: bool,
    /// Whether images are convolved one after the other.
    one_by_one: bool,
    cut: Cut,
}

/// What windows and weights of a phase run along.
#[derive(Clone)]
struct Axes {
    /// Positions of windows in an image, the farthest apart in the result first.
    positions: Vec<Paired>,
    image: Paired,
    /// What products are summed along: the features first, until a method has another order.
    elements: Vec<Paired>,
    extents: Vec<Extent>,
    /// The first result, and the first of the weights.
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

/// Where what is at some indices of axes is in the result.
fn results(axes: &[Paired]) -> Rows<1> {
    let shape: Shape = axes.iter().map(|(axis, _)| axis.size).collect();
    let strides: Strides = axes.iter().map(|axis| axis.1).collect();
    Rows::from(Walk::new(&shape, [&strides]))
}

impl<A: Accumulator> Problem<'_, A> {
    /// How a phase is computed. Of a problem with row-major operands: the order of sums must not depend on layouts.
    pub(super) fn method(&self, along: &[Along]) -> Method {
        let Problem { op, out, writer, .. } = *self;
        let mut axes = self.axes(along);
        let mut elements: SmallVec<[usize; 4]> = (0..axes.elements.len()).collect();
        // Features are summed last where they are neighbours, so that runs of them can be read.
        if op.lhs_dims.spatial.iter().all(|&d| d < op.lhs_dims.second) {
            elements.rotate_left(1);
        }
        let in_order = |axes: &Axes, elements: &[usize]| elements.iter().map(|&i| axes.elements[i].clone()).collect();
        let listed = axes.clone();
        axes.elements = in_order(&listed, &elements);
        let all_positions = axes.all_positions();
        let (count, stride) = (out.shape[op.out_dims.second] / self.groups, self.out_strides[op.out_dims.second]);
        let features = Rows::from(Walk::new(&[count], [&[stride]]));
        let features_are_neighbours = all_positions.iter().all(|(axis, step)| axis.size == 1 || *step > stride);
        // As right operand, what has its neighbours in a window is turned. Then both are: the windows, if there are fewer.
        let turned = self.windows(&axes, &all_positions).along() == CONTRACTED;
        let windows_first = features_are_neighbours || (turned && size(&all_positions) >= count);
        let mut one_by_one = self.alone;
        if !windows_first {
            // Weights are read where they lie, if neighbours are summed one after the other.
            elements.sort_by_key(|&i| Reverse(listed.elements[i].1));
            axes.elements = in_order(&listed, &elements);
            one_by_one |= axes.image.0.size > 1
                && size(&axes.positions) >= IMAGE
                && direct_step(writer, &features, &results(&axes.positions)).is_some();
        }
        let (at, images) = if one_by_one { (&axes.positions, axes.image.0.size) } else { (&all_positions, 1) };
        let (across, depth, positions) = (size(at), size(&axes.elements), results(at));
        let (shape, direct, left) = match windows_first {
            true => ([across, count, depth], direct_step(writer, &positions, &features), self.windows(&axes, at)),
            false => ([count, across, depth], direct_step(writer, &features, &positions), self.weights(&axes, count)),
        };
        let batch = if self.alone { 1 } else { self.groups * images };
        let cut = cut::<A>(batch, shape, direct.is_some(), left.contracted_run(), windows_first, self.alone);
        Method { elements, windows_first, one_by_one, cut }
    }

    /// A phase that is computed by this method.
    pub(super) fn phase(&self, along: &[Along], method: Method) -> Phase<A> {
        let Problem { op, out, .. } = *self;
        let Method { elements, windows_first, one_by_one, cut } = method;
        let mut axes = self.axes(along);
        axes.elements = elements.iter().map(|&i| axes.elements[i].clone()).collect();
        let all_positions = axes.all_positions();
        let (count, stride) = (out.shape[op.out_dims.second] / self.groups, self.out_strides[op.out_dims.second]);
        let features = Rows::from(Walk::new(&[count], [&[stride]]));
        let (at, images, image_steps) = match one_by_one {
            true => (&axes.positions, axes.image.0.size, [axes.image.0.step, axes.image.1]),
            false => (&all_positions, 1, [0, 0]),
        };
        let (windows, weights, positions) = (self.windows(&axes, at), self.weights(&axes, count), results(at));
        Phase { windows, weights, images, image_steps, first: axes.first, positions, features, windows_first, cut }
    }

    fn axes(&self, along: &[Along]) -> Axes {
        let Problem { op, lhs: (_, lhs), rhs: (_, rhs), out, out_strides, .. } = *self;
        let whole = |dim: usize, size: usize| Axis { size, step: lhs.strides[dim], along: None };
        let (features, image) = (op.lhs_dims.second, op.lhs_dims.first);
        let mut elements = vec![(whole(features, rhs.shape[op.rhs_dims.second]), rhs.strides[op.rhs_dims.second])];
        let (mut positions, mut extents) = (Vec::new(), Vec::new());
        let (mut first, mut weight) = (0, rhs.offset as isize);
        for (d, along) in along.iter().enumerate() {
            let dim = op.lhs_dims.spatial[d];
            let axis = |skip: usize, size: usize| {
                let step = (skip as isize).wrapping_mul(lhs.strides[dim]);
                Axis { size, step, along: Some((d, skip)) }
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
    fn windows(&self, axes: &Axes, positions: &[Paired]) -> Unfolded<A> {
        let (dtype, layout) = self.lhs;
        let sides = [positions, &axes.elements].map(|axes| axes.iter().map(|(axis, _)| axis.clone()));
        Unfolded::new(Reader::new(dtype), layout.offset, &axes.extents, sides)
    }

    /// The weights of so many features.
    fn weights(&self, axes: &Axes, count: usize) -> Unfolded<A> {
        let (dtype, layout) = self.rhs;
        let features = Axis { size: count, step: layout.strides[self.op.rhs_dims.first], along: None };
        let elements = axes.elements.iter().map(|&(ref axis, step)| Axis { size: axis.size, step, along: None });
        Unfolded::new(Reader::new(dtype), axes.weight, &[], [vec![features], elements.collect()])
    }
}

impl<A: Accumulator> Phase<A> {
    /// Convolves the groups and images from one on that are the batch of the cut.
    pub(super) fn run(
        &self,
        kernel: &ConvKernel<A>,
        first: usize,
        ins: &[Source<'_>],
        all: DisjointMut<'_, u8>,
        scratch: &mut [A],
        threads: &Threads,
    ) {
        // The operands of a group and an image, and where their products go.
        let part = |i: usize| {
            let i = first + i;
            let (group, image) = ((i / self.images) as isize, (i % self.images) as isize);
            let [of_image, of_weights, of_out] = kernel.steps.map(|step| group * step);
            let to = self.first + (of_out + image * self.image_steps[1]) as usize;
            (
                self.windows.of(ins[0], of_image + image * self.image_steps[0]),
                self.weights.of(ins[1], of_weights),
                all.skip(to * kernel.writer.dtype.size()),
            )
        };
        let writer = &kernel.writer;
        if self.windows_first {
            let (rows, columns) = (&self.positions, &self.features);
            self.cut.run(scratch, threads, |i| {
                let (windows, weights, place) = part(i);
                (windows, weights, Scattered { place, writer, rows, columns })
            });
        } else {
            let (rows, columns) = (&self.features, &self.positions);
            self.cut.run(scratch, threads, |i| {
                let (windows, weights, place) = part(i);
                (weights, windows, Scattered { place, writer, rows, columns })
            });
        }
    }
}
