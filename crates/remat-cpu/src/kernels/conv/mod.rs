//! Convolution, as a product of a matrix of windows and one of weights.
//!
//! The matrix of windows has a row for each position of a window and a column for each of its elements. Of windows that never
//! leave the image it is a view of the image, which the matrix product reads as any other. Otherwise the blocks that the
//! product asks for are gathered ([`windows`]), and no more is made of the matrix than that.
//!
//! A dilated image is never dilated: positions are grouped by the elements of the window that meet elements of the image
//! there, not zeros, and each group is a convolution of its own, with fewer weights and without dilation. (So a weight that is
//! infinite or no number does not meet these zeros, whereas it does meet those of padding.) Where neighbours in the result are
//! features the windows are the left operand, otherwise the right one.

mod output;
#[cfg(test)]
mod tests;
mod windows;

use std::cmp::Reverse;

use remat_ir::{Aval, Conv, DType, Shape};
use smallvec::SmallVec;

use output::{Scattered, direct_step};
use windows::{Axis, Geometry, Windows};

use super::layout::{Layout, Strides, row_major};
use super::matmul::{Accumulator, Cut, Left, Place, Reader, Right, Side, Writer, accumulator};
use super::walk::{Rows, Walk};
use super::{Kernel, Source, Target, scratch};
use crate::threads::Threads;

/// The kernel of a convolution, of operands of these dtypes in any layout. Sums are as those of a matrix product.
pub(crate) fn kernel(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Box<dyn Kernel> {
    match accumulator(ins[0].0, out.dtype) {
        DType::F32 => Box::new(ConvKernel::<f32>::new(op, ins, out)),
        DType::F64 => Box::new(ConvKernel::<f64>::new(op, ins, out)),
        _ => Box::new(ConvKernel::<i64>::new(op, ins, out)),
    }
}

struct ConvKernel<A: 'static> {
    phases: Vec<Phase<A>>,
    writer: Writer<A>,
    /// What a group is away from the one before in the image, the weights and the result.
    steps: [isize; 3],
}

/// Positions of windows where the same weights meet elements of the image.
struct Phase<A: 'static> {
    image: Image<A>,
    weights: Side<A>,
    /// The first result, and where the others are, along positions and features.
    first: usize,
    positions: Rows<1>,
    features: Rows<1>,
    /// Whether the windows are the left operand.
    windows_first: bool,
    cut: Cut,
}

enum Image<A> {
    /// All windows are inside.
    Inside(Box<Side<A>>),
    Padded(Box<Geometry<A>>),
}

/// A phase along one spatial dimension.
#[derive(Clone, Copy)]
struct Along {
    /// The first position and the distance between positions.
    position: (usize, usize),
    positions: usize,
    /// The first element of a window and the distance between elements.
    element: (usize, usize),
    elements: usize,
    /// The element of the image that the first position and element meet.
    origin: i128,
    /// Elements of the image between positions, and between elements of a window.
    skips: [usize; 2],
}

impl<A: Accumulator> ConvKernel<A> {
    fn new(op: &Conv, [lhs, rhs]: [(DType, &Layout); 2], out: &Aval) -> ConvKernel<A> {
        let groups = op.feature_group_count.max(op.batch_group_count);
        let out_strides = row_major(&out.shape);
        let features = out.shape[op.out_dims.second] / groups;
        let image = match op.batch_group_count {
            1 => rhs.1.shape[op.rhs_dims.second] as isize * lhs.1.strides[op.lhs_dims.second],
            _ => out.shape[op.out_dims.first] as isize * lhs.1.strides[op.lhs_dims.first],
        };
        let group = features as isize;
        let steps = [image, group * rhs.1.strides[op.rhs_dims.first], group * out_strides[op.out_dims.second]];
        let writer = Writer::new(out.dtype);
        let mut combinations: Vec<SmallVec<[Along; 4]>> = vec![SmallVec::new()];
        if out.size() == 0 {
            combinations.clear();
        }
        for d in 0..op.strides.len() {
            let sizes = [out.shape[op.out_dims.spatial[d]], rhs.1.shape[op.rhs_dims.spatial[d]]];
            let along = phases(op, d, sizes);
            let with = |phase: &SmallVec<[Along; 4]>, last: Along| {
                let mut phase = phase.clone();
                phase.push(last);
                phase
            };
            combinations =
                combinations.iter().flat_map(|phase| along.iter().map(move |&last| with(phase, last))).collect();
        }
        let phases =
            combinations.iter().map(|along| Phase::new(op, along, [lhs, rhs], out, &out_strides, groups, &writer));
        ConvKernel { phases: phases.collect(), writer, steps }
    }
}

/// The phases along a spatial dimension with this many positions and elements of a window.
fn phases(op: &Conv, d: usize, [positions, elements]: [usize; 2]) -> Vec<Along> {
    let (stride, dilation, low) = (op.strides[d], op.rhs_dilation[d], op.padding[d].0 as i128);
    let image = op.lhs_dilation[d];
    // As many steps later the same elements of the image are met.
    let [every, each] = [image / common_divisor(stride, image), image / common_divisor(dilation, image)];
    let phase = |first: usize| {
        let meets = |k: usize| first as i128 * stride as i128 + k as i128 * dilation as i128 - low;
        let found = (0..each.min(elements)).find(|&k| meets(k).rem_euclid(image as i128) == 0);
        Along {
            position: (first, every),
            positions: (positions - first).div_ceil(every),
            element: (found.unwrap_or(0), each),
            elements: found.map_or(0, |k| (elements - k).div_ceil(each)),
            origin: found.map_or(0, |k| meets(k) / image as i128),
            skips: [stride / common_divisor(stride, image), dilation / common_divisor(dilation, image)],
        }
    };
    (0..every.min(positions)).map(phase).collect()
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl<A: Accumulator> Phase<A> {
    fn new(
        op: &Conv,
        along: &[Along],
        [lhs, rhs]: [(DType, &Layout); 2],
        out: &Aval,
        out_strides: &Strides,
        groups: usize,
        writer: &Writer<A>,
    ) -> Phase<A> {
        // Each axis with the stride of what it is in besides the image: the result, or the weights.
        let l = |d: usize| lhs.1.strides[d];
        let (batch, feature) = (op.lhs_dims.first, op.lhs_dims.second);
        let spatial = |skip: usize, d: usize, size: usize| {
            let step = if size > 1 { skip as isize * l(op.lhs_dims.spatial[d]) } else { 0 };
            Axis { size, step, along: Some((d, skip)) }
        };
        let whole = |dim: usize, size: usize| Axis { size, step: l(dim), along: None };
        let mut positions: Vec<(Axis, isize)> =
            vec![(whole(batch, out.shape[op.out_dims.first]), out_strides[op.out_dims.first])];
        let mut elements: Vec<(Axis, isize)> = Vec::new();
        let mut first = 0;
        let mut weight = rhs.1.offset as isize;
        for (d, along) in along.iter().enumerate() {
            let stride = out_strides[op.out_dims.spatial[d]];
            first += along.position.0 * stride as usize;
            positions.push((spatial(along.skips[0], d, along.positions), stride * along.position.1 as isize));
            let stride = rhs.1.strides[op.rhs_dims.spatial[d]];
            weight += along.element.0 as isize * stride;
            elements.push((spatial(along.skips[1], d, along.elements), stride * along.element.1 as isize));
        }
        positions.sort_by_key(|&(_, stride)| Reverse(stride));
        // Features are summed last where they are neighbours, so that runs of them can be read.
        let features_last = op.lhs_dims.spatial.iter().all(|&d| l(d).unsigned_abs() >= l(feature).unsigned_abs());
        let of_feature = (whole(feature, rhs.1.shape[op.rhs_dims.second]), rhs.1.strides[op.rhs_dims.second]);
        elements.insert(if features_last { elements.len() } else { 0 }, of_feature);

        let rows = |axes: &[(Axis, isize)], stride: fn(&(Axis, isize)) -> isize| {
            let shape: Shape = axes.iter().map(|(axis, _)| axis.size).collect();
            let strides: Strides = axes.iter().map(stride).collect();
            Rows::from(Walk::new(&shape, [&strides]))
        };
        let features = |stride: isize, count: usize| Rows::from(Walk::new(&[count], [&[stride]]));
        let count = out.shape[op.out_dims.second] / groups;
        let weights = Side {
            reader: Reader::new(rhs.0),
            start: weight,
            free: features(rhs.1.strides[op.rhs_dims.first], count),
            contracted: rows(&elements, |axis| axis.1),
        };
        let (to, to_features) = (rows(&positions, |axis| axis.1), features(out_strides[op.out_dims.second], count));
        let geometry = Geometry {
            reader: Reader::new(lhs.0),
            start: lhs.1.offset as isize,
            spatial: op.lhs_dims.spatial.iter().map(|&d| (lhs.1.shape[d], l(d))).collect(),
            origin: along.iter().map(|along| along.origin as i64).collect(),
            axes: [&positions, &elements].map(|axes| axes.iter().map(|(axis, _)| axis.clone()).collect()),
        };
        let image = if geometry.is_inside() {
            Image::Inside(Box::new(Side {
                reader: Reader::new(lhs.0),
                start: geometry.first(),
                free: rows(&positions, |axis| axis.0.step),
                contracted: rows(&elements, |axis| axis.0.step),
            }))
        } else {
            Image::Padded(Box::new(geometry))
        };
        let windows_first =
            positions.iter().all(|(axis, stride)| axis.size == 1 || *stride > out_strides[op.out_dims.second]);
        let size = |axes: &[(Axis, isize)]| axes.iter().map(|(axis, _)| axis.size).product::<usize>();
        let (windows, depth) = (size(&positions), size(&elements));
        let (shape, direct) = if windows_first {
            ([windows, count, depth], direct_step(writer, &to, &to_features))
        } else {
            ([count, windows, depth], direct_step(writer, &to_features, &to))
        };
        Phase {
            image,
            weights,
            first,
            positions: to,
            features: to_features,
            windows_first,
            cut: Cut::new::<A>(groups, shape, direct.is_some()),
        }
    }
}

impl<A: Accumulator> Kernel for ConvKernel<A> {
    fn scratch(&self, threads: usize) -> usize {
        self.phases.iter().map(|phase| phase.cut.scratch(threads)).max().unwrap_or(0) * size_of::<A>()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let all = Place::new(&mut outs[0]);
        let scratch = scratch::of::<A>(scratch);
        for phase in &self.phases {
            let offset = |i: usize, of: usize| i as isize * self.steps[of];
            let weights = |i: usize| phase.weights.matrix(ins[1], offset(i, 1));
            match &phase.image {
                Image::Inside(side) => {
                    phase.run(self, all, scratch, threads, |i| (side.matrix(ins[0], offset(i, 0)), weights(i)));
                }
                Image::Padded(geometry) => phase.run(self, all, scratch, threads, |i| {
                    let elements = geometry.reader.of(ins[0]);
                    (Windows { geometry, elements, offset: offset(i, 0) }, weights(i))
                }),
            }
        }
    }
}

impl<A: Accumulator> Phase<A> {
    fn run<W: Left<A> + Right<A>, M: Left<A> + Right<A>>(
        &self,
        kernel: &ConvKernel<A>,
        all: Place,
        scratch: &mut [A],
        threads: &Threads,
        operands: impl Fn(usize) -> (W, M) + Sync,
    ) {
        let place = |i: usize| all.at((self.first + i * kernel.steps[2] as usize) * kernel.writer.dtype.size());
        if self.windows_first {
            let (rows, columns) = (&self.positions, &self.features);
            self.cut.run(scratch, threads, |i| {
                let (windows, weights) = operands(i);
                (windows, weights, Scattered { place: place(i), writer: &kernel.writer, rows, columns })
            });
        } else {
            let (rows, columns) = (&self.features, &self.positions);
            self.cut.run(scratch, threads, |i| {
                let (windows, weights) = operands(i);
                (weights, windows, Scattered { place: place(i), writer: &kernel.writer, rows, columns })
            });
        }
    }
}
