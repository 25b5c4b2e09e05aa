//! Loops over all elements, or over rows.

#![allow(unsafe_code)]

use std::ops::Range;

use super::blocks::{Phase, Space};
use super::memory::Memory;
use super::program::{Frame, Program, Tile};
use crate::interface::LoopSpec;
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;
#[cfg(test)]
use crate::tile::chain::ChainFn;

/// A loop whose results have one element per position or one per row.
pub(super) struct Map {
    program: Program,
    /// Rows, or elements if there are no columns.
    rows: usize,
    columns: Option<usize>,
    /// The rows of a task, and the number of tasks.
    per_task: usize,
    tasks: usize,
    /// Whether tiles are prefetched.
    fetches: bool,
}

/// The fewest elements of a task, so that handing it to a thread costs little in comparison.
const TASK: usize = 1 << 15;

impl Map {
    pub(super) fn new(spec: &LoopSpec) -> Option<Map> {
        let equations: Vec<usize> = (0..spec.equations.len()).collect();
        let (program, _) =
            Program::new(spec, &equations, &[], &spec.outs, |layout| Some(layout.clone()), spec.columns.is_none())?;
        let (rows, columns) = (spec.rows, spec.columns);
        let fetches = program.fetches(rows * columns.unwrap_or(1));
        let mut map = Map { program, rows, columns, per_task: 1, tasks: 0, fetches };
        let even = map.program.run.filter(|&run| run <= TASK).unwrap_or(map.tile(0)).max(1);
        map.per_task = (TASK / columns.unwrap_or(1).max(1)).next_multiple_of(even);
        map.tasks = rows.div_ceil(map.per_task);
        Some(map)
    }

    /// The same loop with another chain function.
    #[cfg(test)]
    pub(super) fn with_chain(mut self, chain: ChainFn) -> Map {
        self.program.set_chain(chain);
        self
    }

    /// The number of rows in the tile that begins with this one, which are single elements if there are no columns.
    fn tile(&self, row: usize) -> usize {
        if self.columns.is_some() { self.program.row_capacity } else { self.program.tile(row) }
    }

    /// Computes some rows, or elements if there are no columns, tile by tile.
    ///
    /// # Safety
    /// As for [`Frame::run`], of each tile of these rows.
    unsafe fn tiles(&self, frame: &Frame<'_>, range: Range<usize>) {
        let columns = self.columns.unwrap_or(1);
        let mut row = range.start;
        while row < range.end {
            let rows = self.tile(row).min(range.end - row);
            let next = (self.fetches && row + rows < range.end).then_some((row + rows) * columns);
            // SAFETY: promised by the caller; tiles are at most as long as the program's capacity.
            unsafe { frame.run(Tile { start: row * columns, len: rows * columns, row, rows }, next) };
            row += rows;
        }
    }
}

impl Phase for Map {
    fn scratch(&self, _: usize) -> usize {
        self.program.scratch()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.program.in_place
    }

    unsafe fn run(&self, space: &Space, kept: Range<usize>, scratch: &mut [u8], memory: &Memory<'_>) {
        let rows = |elements: usize| elements / self.columns.unwrap_or(1);
        // SAFETY: promised by the caller; the ranges of different positions are disjoint.
        unsafe {
            let frame = Frame::new(&self.program, scratch, memory);
            for (piece, range) in space.ranges(self.rows * self.columns.unwrap_or(1), kept).enumerate() {
                frame.set_outs(memory, piece);
                self.tiles(&frame, rows(range.start)..rows(range.end));
            }
        }
    }
}

impl Kernel for Map {
    fn scratch(&self, threads: usize) -> usize {
        threads * self.program.scratch()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.program.in_place
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (per_task, outs) = (self.per_task, &*outs);
        threads.for_each_with_scratch(self.tasks, scratch, |task, scratch| {
            let end = self.rows.min((task + 1) * per_task);
            // SAFETY: the sources and targets are those that the kernel was made for. Tasks are disjoint ranges of rows,
            // each computes only its own.
            unsafe {
                let frame = Frame::new(&self.program, scratch, &Memory::new(ins, outs));
                self.tiles(&frame, task * per_task..end);
            }
        });
    }
}
