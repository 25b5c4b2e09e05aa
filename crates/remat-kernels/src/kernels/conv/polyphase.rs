//! The polyphase decomposition of a convolution of a dilated image: positions of windows are grouped by the window elements that meet
//! elements of the image, not the zeros between them.

use remat_ir::{Aval, Conv};
use smallvec::SmallVec;

use crate::interface::layout::{Layout, greatest_common_divisor};

/// A phase along one spatial dimension.
#[derive(Clone, Copy)]
pub(super) struct Along {
    /// The first position and the distance between positions.
    pub(super) position: (usize, usize),
    pub(super) positions: usize,
    /// The first element of a window and the distance between elements.
    pub(super) element: (usize, usize),
    pub(super) elements: usize,
    /// The element of the image that the first position and element meet.
    pub(super) origin: i128,
    /// Elements of the image between positions, and between elements of a window.
    pub(super) skips: [usize; 2],
}

/// The number of phases, and the phases in which windows have elements, along each spatial dimension.
pub(super) fn phases(op: &Conv, out: &Aval, weights: &Layout) -> (usize, Vec<SmallVec<[Along; 4]>>) {
    if out.size() == 0 {
        return (0, Vec::new());
    }
    let mut all: Vec<SmallVec<[Along; 4]>> = vec![SmallVec::new()];
    for d in 0..op.strides.len() {
        let sizes = [out.shape[op.out_dims.spatial[d]], weights.shape[op.rhs_dims.spatial[d]]];
        let along = along(op, d, sizes);
        let with = |phase: &SmallVec<[Along; 4]>, last: Along| {
            let mut phase = phase.clone();
            phase.push(last);
            phase
        };
        all = all.iter().flat_map(|phase| along.iter().map(move |&last| with(phase, last))).collect();
    }
    let count = all.len();
    all.retain(|phase| weights.size() > 0 && phase.iter().all(|along| along.elements > 0));
    (count, all)
}

/// The phases along a spatial dimension with this many positions and elements of a window.
fn along(op: &Conv, d: usize, [positions, elements]: [usize; 2]) -> Vec<Along> {
    let (stride, dilation, low) = (op.strides[d], op.rhs_dilation[d], op.padding[d].0 as i128);
    let image = op.lhs_dilation[d];
    // After this many positions, the same elements of a window meet the image again.
    let common = [stride, dilation].map(|step| greatest_common_divisor(step, image));
    let [every, each] = common.map(|common| image / common);
    let phase = |first: usize| {
        let meets = |k: usize| first as i128 * stride as i128 + k as i128 * dilation as i128 - low;
        let found = (0..each.min(elements)).find(|&k| meets(k).rem_euclid(image as i128) == 0);
        Along {
            position: (first, every),
            positions: (positions - first).div_ceil(every),
            element: (found.unwrap_or(0), each),
            elements: found.map_or(0, |k| (elements - k).div_ceil(each)),
            origin: found.map_or(0, |k| meets(k) / image as i128),
            skips: [stride / common[0], dilation / common[1]],
        }
    };
    (0..every.min(positions)).map(phase).collect()
}
