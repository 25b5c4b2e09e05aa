//! How a phase of a depthwise convolution is cut into tasks.

use std::ops::Range;

use super::super::polyphase::Along;
use super::super::thresholds::{DEPTHWISE_CHANNELS, DEPTHWISE_WORK};
use crate::kernels::matmul::{MANY, even};

/// Sizes of bands, segments and parts, and bounds from which on this method pays.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sizes {
    /// Most elements of the band, the weights and the sums of a task, so that they stay in the second-level cache.
    pub(super) task: usize,
    /// Most elements of the smallest possible task.
    pub(super) most_task: usize,
    /// Most panels of channels of a task.
    pub(super) panels: usize,
    /// Most elements of the window that are summed before the next part.
    pub(super) part: usize,
    /// Fewest elements of a window that is cut into segments.
    pub(super) long: usize,
    /// Fewest multiplications of a task, if it could be larger.
    pub(super) least: usize,
    /// Fewest channels.
    pub(super) channels: usize,
    /// Fewest multiplications.
    pub(super) work: usize,
}

/// The sizes of tasks and parts were measured.
pub(in super::super) const SIZES: Sizes = Sizes {
    task: 64 << 10,
    most_task: 256 << 10,
    panels: 2,
    part: 128,
    long: 1024,
    least: 1 << 17,
    channels: DEPTHWISE_CHANNELS,
    work: DEPTHWISE_WORK,
};

/// Sizes with which small convolutions have several bands, segments and parts.
#[cfg(test)]
pub(in super::super) const SMALL: Sizes =
    Sizes { task: 2000, most_task: 1 << 14, panels: 1, part: 8, long: 20, least: 0, channels: 1, work: 0 };

/// How the results of one phase are cut into tasks.
pub(super) struct Phase {
    pub(super) rows: Along,
    pub(super) columns: Along,
    /// Rows of positions of a task.
    pub(super) tile: usize,
    /// Rows of the window of a step.
    pub(super) step: usize,
    /// Channels of a task, and their number in a row of its memory.
    pub(super) block: usize,
    /// Segments of the steps of all summed images.
    pub(super) segments: usize,
    /// The offset in a band of each element of a window's step.
    pub(super) offsets: Vec<usize>,
}

/// The first element of an image's row or column that some positions and elements need, and how many there are up to the last.
pub(super) fn extent(along: &Along, positions: &Range<usize>, elements: &Range<usize>) -> (i64, usize) {
    let [every, each] = along.skips;
    let first = along.origin as i64 + (positions.start * every + elements.start * each) as i64;
    (first, (positions.len() - 1) * every + (elements.len() - 1) * each + 1)
}

impl Phase {
    /// Columns of a band.
    pub(super) fn width(&self) -> usize {
        extent(&self.columns, &(0..self.columns.positions), &(0..self.columns.elements)).1
    }

    /// Rows of a band.
    fn height(&self) -> usize {
        extent(&self.rows, &(0..self.tile), &(0..self.step)).1
    }

    /// Elements of a band, of the weights and of the sums of a task; `None` if a number overflows.
    pub(super) fn sizes(&self) -> Option<[usize; 3]> {
        let pixels = [
            self.height().checked_mul(self.width())?,
            self.step.checked_mul(self.columns.elements)?,
            self.tile.checked_mul(self.columns.positions)?,
        ];
        let [band, weights, sums] = pixels.map(|count| count.checked_mul(self.block));
        Some([band?, weights?, sums?])
    }

    /// Elements of the memory of a task.
    fn task(&self) -> Option<usize> {
        self.sizes()?.iter().try_fold(0, |sum: usize, &size| sum.checked_add(size))
    }

    pub(super) fn tiles(&self) -> usize {
        self.rows.positions.div_ceil(self.tile)
    }

    /// Steps of all summed images.
    pub(super) fn steps(&self, summed: usize) -> usize {
        summed * self.rows.elements.div_ceil(self.step)
    }

    /// A phase of this many images, summed images and channels, for a micro-kernel with these columns; `None` if the smallest task is too
    /// large, or elements are too far apart for offsets.
    pub(super) fn new(sizes: Sizes, [rows, columns]: [Along; 2], panel: usize, counts: [usize; 3]) -> Option<Phase> {
        const FAR: usize = 1 << 40;
        let is_far = |along: &Along| {
            let [every, each] = along.skips;
            let reach = along.positions.saturating_mul(every).saturating_add(along.elements.saturating_mul(each));
            reach > FAR || along.origin.unsigned_abs() > FAR as u128
        };
        let phase = Phase { rows, columns, tile: 1, step: 1, block: panel, segments: 1, offsets: Vec::new() };
        if is_far(&rows) || is_far(&columns) { None } else { phase.cut(sizes, panel, counts) }
    }

    /// Chooses how to cut.
    fn cut(mut self, sizes: Sizes, columns: usize, [images, summed, channels]: [usize; 3]) -> Option<Phase> {
        let panels = channels.div_ceil(columns);
        let (positions, elements) = (self.rows.positions, self.rows.elements);
        self.block = even(panels, sizes.panels, 1) * columns;
        if self.task()? > sizes.task {
            self.block = columns;
        }
        if self.task()? > sizes.most_task {
            return None;
        }
        // The smaller of both is kept whole if possible: a row of the image is copied once for all of its rows.
        let fits = |phase: &Phase| phase.task().is_some_and(|task| task <= sizes.task);
        for of_positions in if positions < elements { [true, false] } else { [false, true] } {
            let (all, size): (usize, fn(&mut Phase) -> &mut usize) =
                if of_positions { (positions, |phase| &mut phase.tile) } else { (elements, |phase| &mut phase.step) };
            while *size(&mut self) < all {
                *size(&mut self) += 1;
                if !fits(&self) {
                    *size(&mut self) -= 1;
                    break;
                }
            }
            let most = *size(&mut self);
            *size(&mut self) = even(all, most, 1);
        }
        let blocks = images * channels.div_ceil(self.block);
        let length = summed.saturating_mul(elements).saturating_mul(self.columns.elements);
        if self.tile == positions && length >= sizes.long {
            // Segments of equal length, none of which is empty.
            let steps = self.steps(summed);
            self.segments = steps.div_ceil(steps.div_ceil(MANY.div_ceil(blocks).min(steps)));
        } else {
            let work = length.saturating_mul(self.columns.positions).saturating_mul(self.block);
            while blocks * self.tiles() < MANY && self.tile > 1 && self.tile.saturating_mul(work) >= 2 * sizes.least {
                self.tile = even(positions, self.tile.div_ceil(2), 1);
            }
        }
        let row = self.width() * self.block;
        let offset = |y: usize, x: usize| y * self.rows.skips[1] * row + x * self.columns.skips[1] * self.block;
        self.offsets = (0..self.step)
            .flat_map(|y| (0..self.columns.elements).map(move |x| (y, x)))
            .map(|(y, x)| offset(y, x))
            .collect();
        Some(self)
    }
}
