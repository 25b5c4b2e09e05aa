//! Convolutions of long windows with few output features, as in gradients of weights: image and window are exchanged.
//!
//! The sum of products of a window with an image, at a position, is that of the image with the window at the opposite position. So the few
//! output features become the few images of [`long_windows`](super::long_windows), whose windows are read in place, and the many images
//! become the output features.
//!
//! The zeros of padding are then around the window, and elements of the image meet zeros that they do not meet by the operation. So if a
//! result is not finite, all are computed again without the exchange ([`IfFinite`](super::finite::IfFinite)).

use remat_ir::{Aval, Conv, ConvDims, DType};

use super::long_windows::{LongWindows, Sizes};
use crate::base::product::Accumulator;
use crate::interface::layout::Layout;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// A convolution with image and window exchanged.
pub(super) struct Exchanged<A: Accumulator> {
    exchanged: LongWindows<A>,
}

/// The convolution with image and window exchanged, and both: they are read backwards, so that the results are in order. `None` if there are
/// strides, dilation or too many output features, or an element would reach no result.
fn exchanged(sizes: Sizes, op: &Conv, [lhs, rhs]: [&Layout; 2], out: &Aval) -> Option<(Conv, [Layout; 2])> {
    let is_plain = [&op.strides, &op.lhs_dilation, &op.rhs_dilation].iter().all(|all| all.iter().all(|&x| x == 1));
    if !is_plain || out.shape[op.out_dims.second] >= sizes.images {
        return None;
    }
    let padding = |d: usize| {
        let sizes = [lhs.shape[op.lhs_dims.spatial[d]], rhs.shape[op.rhs_dims.spatial[d]]];
        let [image, window, results] = [sizes[0], sizes[1], out.shape[op.out_dims.spatial[d]]].map(|x| x as i64);
        let (low, high) = op.padding[d];
        // An element of the window that is in the padding at all positions would reach no result, whatever its value.
        if low.max(high) >= results {
            return None;
        }
        Some(((image - window).checked_add(low)?, (results - 1).checked_sub(low)?))
    };
    let exchanged = Conv {
        padding: (0..op.strides.len()).map(padding).collect::<Option<Vec<_>>>()?,
        lhs_dims: op.rhs_dims.clone(),
        rhs_dims: op.lhs_dims.clone(),
        out_dims: ConvDims { first: op.out_dims.second, second: op.out_dims.first, ..op.out_dims.clone() },
        ..op.clone()
    };
    Some((exchanged, [rhs.reversed(&op.rhs_dims.spatial), lhs.reversed(&op.lhs_dims.spatial)]))
}

impl<A: Accumulator> Exchanged<A> {
    /// Whether this method computes a convolution and pays for it.
    pub(super) fn applies(sizes: Sizes, op: &Conv, [lhs, rhs]: [(DType, &Layout); 2], out: &Aval) -> bool {
        exchanged(sizes, op, [lhs.1, rhs.1], out).is_some_and(|(op, [window, image])| {
            LongWindows::<A>::applies(sizes, &op, [(rhs.0, &window), (lhs.0, &image)], out)
        })
    }

    /// The kernel, if this method applies.
    pub(super) fn new(sizes: Sizes, op: &Conv, [lhs, rhs]: [(DType, &Layout); 2], out: &Aval) -> Option<Exchanged<A>> {
        let (op, [window, image]) = exchanged(sizes, op, [lhs.1, rhs.1], out)?;
        Some(Exchanged { exchanged: LongWindows::new(sizes, &op, [(rhs.0, &window), (lhs.0, &image)], out)? })
    }
}

impl<A: Accumulator> Kernel for Exchanged<A> {
    fn scratch(&self, threads: usize) -> usize {
        self.exchanged.scratch(threads)
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        self.exchanged.run(&[ins[1], ins[0]], outs, scratch, threads);
    }
}
