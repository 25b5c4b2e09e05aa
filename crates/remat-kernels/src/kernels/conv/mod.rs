//! Convolution by implicit im2col: the product of a matrix of windows and a matrix of weights; and algorithms that are faster for some
//! convolutions. [`algorithms`] lists them all in the order in which they are tried, [`thresholds`] has the sizes from which on they pay.
//!
//! The matrix of windows has a row, or a column, for each position of the window, with the image's elements there. It is never stored: the
//! matrix product asks for blocks of it, which are read in place or gathered ([`im2col`]), and so are blocks of the weights.
//!
//! A dilated image is never filled with zeros. Positions are grouped by the elements of the window that meet elements of the image there
//! ([`polyphase`]). Each group is a convolution of its own, with fewer weights and without dilation. (So a weight that is infinite or NaN
//! does not meet these zeros, but does meet those of padding.)
//!
//! With few output features, as in gradients of images with few channels, elements are multiplied by all weights first, and the products
//! are added to the results that they reach ([`col2im`]).
//!
//! Depthwise convolutions and their gradients multiply channels side by side, element by element ([`depthwise`]).
//!
//! Windows of 3x3 of f32, without strides, are multiplied by Winograd's minimal filtering if the features are not few, forward and for both
//! gradients ([`winograd`]).
//!
//! Two kinds of convolutions read windows in place instead of gathering them: those of few weights ([`direct`]), and those of long windows
//! at few positions, as in gradients of weights ([`long_windows`]). Methods that are right only for finite numbers compute again where a
//! result is not finite ([`finite`]).
//!
//! On a CPU with dot products of bf16 (AVX-512, NEON) and no matrix unit, windows of bf16 are also read in place, forward and for both
//! gradients, if they have several elements and the results have positions (NCHW) or features (NHWC) innermost ([`pairs`]).
//!
//! Other convolutions of bf16, and those of bytes, run on the CPU's unit for such products, if it has one ([`narrow`]). With too few
//! features or positions for its panels, too short windows, or too little work, elements are widened ([`numbers`]), as are other dtypes.
//!
//! The innermost loop of a product reads rows of its right operand and writes rows of the result. So the windows are the left operand where
//! neighbours in the result are features, and where neighbours in the image belong to one window rather than to neighbouring windows, as in
//! gradients of weights. Otherwise they are the right operand.

mod algorithms;
mod col2im;
mod depthwise;
mod direct;
mod finite;
mod im2col;
mod long_windows;
mod narrow;
mod numbers;
mod output;
mod pairs;
mod phase;
mod polyphase;
mod row_segments;
mod sizes;
#[cfg(test)]
mod tests;
mod thresholds;
mod winograd;

use remat_ir::{Aval, Conv, DType};
use smallvec::SmallVec;

use algorithms::Convolution;
pub(crate) use algorithms::Convolutions;
use phase::{MIN_POSITIONS, Phase, Problem, Products};
use polyphase::{Along, phases};

use super::choice;
use crate::base::disjoint::DisjointMut;
use crate::base::strided::TASK_BYTES;
use crate::interface::layout::{Layout, row_major};
use crate::interface::with_word;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// The kernel of a convolution, for operands of these dtypes in any layout. Sums are as in a matrix product, but for minimal filtering
/// ([`winograd`]). Their order depends on the operation and the shapes alone, not on the layouts.
pub(crate) fn kernel(op: &Conv, ins: [(DType, &Layout); 2], out: &Aval) -> Box<dyn Kernel> {
    choice::kernel::<Convolutions>(&Convolution { op, ins, out })
}

/// Fills an output of this dtype, of which some elements meet none of the image.
fn fill_with_zeros(out: &mut Target<'_>, dtype: DType, threads: &Threads) {
    with_word!(dtype, W => threads.for_each_chunk(out.words_mut::<W>(), TASK_BYTES, |_, part| part.fill(W::default())));
}

/// How the products of a convolution are computed.
trait Multiplier: Send + Sync {
    /// How products are cut into tasks.
    type Blocking: Send + Sync;

    /// Whether sums are written to the output without conversion.
    fn is_direct(&self) -> bool;

    fn blocking(&self, products: &Products) -> Self::Blocking;

    /// Bytes of scratch memory for a run on this many threads.
    fn scratch(&self, blocking: &Self::Blocking, threads: usize) -> usize;

    /// Computes the products of a phase. `part` gives, for each product, the offsets of windows and weights, and the output.
    fn run<'a>(
        &self,
        phase: &Phase<Self::Blocking>,
        ins: &[Source<'_>],
        part: impl Fn(usize) -> ([isize; 2], DisjointMut<'a, u8>) + Sync,
        scratch: &mut [u8],
        threads: &Threads,
    );
}

struct ConvKernel<M: Multiplier> {
    multiplier: M,
    phases: Vec<Phase<M::Blocking>>,
    /// The number of groups times images, if each task convolves one image in all phases while it is in the caches.
    tasks: Option<usize>,
    /// Whether some outputs meet no element of the image, and are zero.
    has_zeros: bool,
    /// The dtype of the output.
    dtype: DType,
    /// The strides from group to group in the image, the weights and the output.
    strides: [isize; 3],
}

/// Groups and images become tasks only from this many on.
const MIN_IMAGE_TASKS: usize = 8;

impl<M: Multiplier> ConvKernel<M> {
    fn new(multiplier: M, op: &Conv, [(_, lhs), (_, rhs)]: [(DType, &Layout); 2], out: &Aval) -> ConvKernel<M> {
        let groups = op.feature_group_count.max(op.batch_group_count);
        let out_strides = row_major(&out.shape);
        let features = out.shape[op.out_dims.second] / groups;
        let image = match op.batch_group_count {
            1 => rhs.shape[op.rhs_dims.second] as isize * lhs.strides[op.lhs_dims.second],
            _ => out.shape[op.out_dims.first] as isize * lhs.strides[op.lhs_dims.first],
        };
        let group = features as isize;
        let strides = [image, group * rhs.strides[op.rhs_dims.first], group * out_strides[op.out_dims.second]];
        let (all, found) = phases(op, out, rhs);
        let images = out.shape[op.out_dims.first];
        let alone = found.len() > 1
            && images * groups >= MIN_IMAGE_TASKS
            && found.iter().all(|along| along.iter().map(|along| along.positions).product::<usize>() >= MIN_POSITIONS);
        let is_direct = multiplier.is_direct();
        let problem = Problem { op, lhs, rhs, out, out_strides: &out_strides, groups, is_direct, alone };
        let row_major = [lhs, rhs].map(|layout| Layout::contiguous(&layout.shape));
        let packed = Problem { lhs: &row_major[0], rhs: &row_major[1], ..problem };
        let phase = |along: &SmallVec<[Along; 4]>| {
            let method = packed.method(along);
            problem.phase(along, &method, multiplier.blocking(&method.products))
        };
        ConvKernel {
            has_zeros: found.len() < all,
            phases: found.iter().map(phase).collect(),
            tasks: alone.then_some(images * groups),
            dtype: out.dtype,
            strides,
            multiplier,
        }
    }
}

impl<M: Multiplier> Kernel for ConvKernel<M> {
    fn scratch(&self, threads: usize) -> usize {
        let of_phase = |phase: &Phase<M::Blocking>, threads| self.multiplier.scratch(&phase.blocking, threads);
        let most = |threads| self.phases.iter().map(|phase| of_phase(phase, threads)).max().unwrap_or(0);
        if self.tasks.is_some() { threads * most(1) } else { most(threads) }
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        if self.has_zeros {
            fill_with_zeros(&mut outs[0], self.dtype, threads);
        }
        let all = DisjointMut::bytes(&mut outs[0]);
        // Convolves a batch of groups and images, from `first` on.
        let run = |first: usize, scratch: &mut [u8], threads: &Threads| {
            for phase in &self.phases {
                // The offsets of a group and an image, and the output of their products.
                let part = |i: usize| {
                    let i = first + i;
                    let (group, image) = ((i / phase.images) as isize, (i % phase.images) as isize);
                    let [of_image, of_weights, of_out] = self.strides.map(|stride| group * stride);
                    let to = phase.first + (of_out + image * phase.image_strides[1]) as usize;
                    let offsets = [of_image + image * phase.image_strides[0], of_weights];
                    (offsets, all.skip(to * self.dtype.size()))
                };
                self.multiplier.run(phase, ins, part, scratch, threads);
            }
        };
        match self.tasks {
            Some(tasks) => {
                threads.for_each_with_scratch(tasks, scratch, |i, scratch| run(i, scratch, &Threads::SERIAL))
            }
            None => run(0, scratch, threads),
        }
    }
}
