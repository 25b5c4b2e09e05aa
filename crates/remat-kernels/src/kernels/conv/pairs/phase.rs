//! One phase: a convolution of an image that is not dilated, cut into steps and tasks.

use std::ops::Range;

use super::super::direct::Along;
use super::band::Band;
use super::weights::Weights;
use super::{Problem, Sizes};
use crate::base::narrow::{MOST_ROWS, MOST_RUNS, PANEL};
use crate::base::pieces::pieces;
use crate::base::scratch;
use crate::base::strided::Rows;
use crate::kernels::matmul::{MANY, even};

/// Positions of windows where the same weights meet elements of the image.
pub(super) struct Phase {
    pub(super) weights: Weights,
    images: usize,
    groups: usize,
    /// Input and output features of a group.
    features: [usize; 2],
    pub(super) rows: Along,
    pub(super) columns: Along,
    /// Rows of positions of a task, and images.
    pub(super) positions: usize,
    pub(super) block: usize,
    /// Panels, pairs of features, and rows of the window in a step.
    pub(super) panels: usize,
    pairs: usize,
    window: usize,
    pub(super) band: Band,
    /// The offset in a band of each element of the window in a step; shorter last steps use the first of them.
    pub(super) offsets: Vec<u32>,
    /// Elements of the window that are multiplied with all positions of a task before the next elements are.
    pub(super) part: usize,
    /// Images and rows of positions of a chunk of a task, whose sums are computed before they are written.
    chunk: [usize; 2],
    /// The offset of the first output, and of positions in all images from it.
    pub(super) first: usize,
    pub(super) out_positions: Rows<1>,
}

impl Phase {
    /// The phase with these rows and columns, if this method pays for it.
    pub(super) fn new(
        sizes: Sizes,
        &Problem { images, groups, features }: &Problem,
        [rows, columns]: [Along; 2],
        weights: Weights,
        (first, out_positions): (usize, Rows<1>),
    ) -> Option<Phase> {
        let pairs = features[0].div_ceil(2);
        let depth = pairs.saturating_mul(rows.window * columns.window);
        let mut this = Phase {
            weights,
            images,
            groups,
            features,
            rows,
            columns,
            positions: rows.positions,
            block: 1,
            panels: features[1].div_ceil(PANEL),
            pairs,
            window: rows.window,
            band: Band::new([rows, columns], 1, 1, 1),
            offsets: Vec::new(),
            part: even(depth, sizes.part, 1),
            chunk: [1, 1],
            first,
            out_positions,
        };
        this.choose(sizes)?;
        let [groups, rows] = this.tile(this.positions);
        (groups * rows >= sizes.rows).then_some(this)
    }

    /// Chooses the sizes of steps and tasks; `None` if the smallest are too large.
    fn choose(&mut self, sizes: Sizes) -> Option<()> {
        let depth = self.pairs.checked_mul(self.rows.window)?.checked_mul(self.columns.window * PANEL)?;
        if depth <= sizes.panels {
            self.panels = even(self.panels, sizes.panels / depth, 1);
        } else {
            // Part of the window for all features, since bands are copied for each step.
            let most = (sizes.panels / (self.panels * PANEL * self.columns.window)).max(1);
            if most >= self.window {
                self.pairs = even(self.pairs, most / self.window, 1);
            } else {
                self.pairs = 1;
                self.window = even(self.window, most, 1);
            }
        }
        let band =
            |this: &Phase, positions: usize| Band::new([this.rows, this.columns], positions, this.pairs, this.window);
        // Rows are not cut: the sums of long ones would leave the second-level cache, and are scratch memory of each thread.
        if band(self, 1).len() > sizes.most_band || self.columns.positions > 2 * sizes.chunk {
            return None;
        }
        while self.positions > 1 && band(self, self.positions).len() > sizes.band {
            self.positions = even(self.rows.positions, self.positions.div_ceil(2), 1);
        }
        self.band = band(self, self.positions);
        self.offsets = self.band.offsets();
        let most = (sizes.band / self.band.len()).max(1);
        if self.positions == self.rows.positions {
            self.block = even(self.images, most.min(self.images.div_ceil(MANY)), 1);
        }
        let of_row = self.columns.positions;
        self.chunk = match even(self.positions, (sizes.chunk / of_row).max(1), 1) {
            all if all == self.positions => [even(self.block, (sizes.chunk / (all * of_row)).max(1), 1), all],
            rows => [1, rows],
        };
        let fits = self.kept().is_none_or(|kept| kept <= sizes.kept);
        fits.then_some(())
    }

    /// The rows and columns of positions; one row, where neighbouring rows are neighbours in a band.
    pub(super) fn rows_and_columns(&self, rows: usize) -> [usize; 2] {
        if self.band.is_flat() { [1, rows * self.columns.positions] } else { [rows, self.columns.positions] }
    }

    /// The groups of rows in a tile, and the rows of a group, for this many rows of positions. A tile has positions of one group, or whole
    /// groups.
    pub(super) fn tile(&self, rows: usize) -> [usize; 2] {
        match self.rows_and_columns(rows) {
            [rows, few] if 2 * few <= MOST_ROWS => [even(rows, (MOST_ROWS / few).min(MOST_RUNS), 1), few],
            [_, many] => [1, even(many, MOST_ROWS, 1)],
        }
    }

    /// The number of panels of a group's features.
    pub(super) fn all_panels(&self) -> usize {
        self.features[1].div_ceil(PANEL)
    }

    /// The steps of a panel: pairs of features, and rows of the window.
    pub(super) fn steps(&self) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let (window, rows) = (self.rows.window, self.window);
        pieces(0..self.features[0], 2 * self.pairs)
            .flat_map(move |features| pieces(0..window, rows).map(move |rows| [features.clone(), rows]))
    }

    /// Whether a panel has several steps.
    pub(super) fn has_steps(&self) -> bool {
        2 * self.pairs < self.features[0] || self.window < self.rows.window
    }

    /// The chunks of a task with this many images and rows of positions.
    pub(super) fn chunks(&self, images: usize, rows: usize) -> impl Iterator<Item = [Range<usize>; 2]> + use<> {
        let [some, part] = self.chunk;
        pieces(0..images, some).flat_map(move |images| pieces(0..rows, part).map(move |rows| [images.clone(), rows]))
    }

    /// The number of chunks of a task.
    pub(super) fn all_chunks(&self) -> usize {
        self.block.div_ceil(self.chunk[0]) * self.positions.div_ceil(self.chunk[1])
    }

    /// Words of the sums of a chunk with a panel; 16 positions are transposed at a time.
    pub(super) fn sums(&self) -> usize {
        (self.chunk[0] * self.chunk[1] * self.columns.positions).next_multiple_of(16) * PANEL
    }

    /// The number of bands along the images and along rows of positions.
    pub(super) fn tasks(&self) -> [usize; 2] {
        [self.images.div_ceil(self.block), self.rows.positions.div_ceil(self.positions)]
    }

    /// The number of sums that are kept from step to step; `None` if there is one step.
    pub(super) fn kept(&self) -> Option<usize> {
        let tasks = self.groups * self.tasks().iter().product::<usize>();
        self.has_steps().then(|| tasks.saturating_mul(self.panels * self.all_chunks()).saturating_mul(self.sums()))
    }

    /// Bytes of a step's panels, of the kept sums, and of a task's bands and sums.
    pub(super) fn bytes(&self) -> [usize; 4] {
        let own = if self.has_steps() { 0 } else { self.sums() };
        let words =
            [self.groups * self.panels * self.panel(), self.kept().unwrap_or(0), self.block * self.band.len(), own];
        words.map(scratch::bytes::<u32>)
    }

    /// Words of a panel of a step.
    pub(super) fn panel(&self) -> usize {
        self.offsets.len() * PANEL
    }
}
