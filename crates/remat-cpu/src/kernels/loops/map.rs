//! Loops over all places, or over rows.

#![allow(unsafe_code)]

use super::LoopSpec;
use super::program::{Frame, Program, Tile};
use crate::kernels::{Kernel, Source, Target};
use crate::threads::Threads;

/// A loop whose results have an element at each place or one per row.
pub(super) struct Map {
    program: Program,
    /// Rows, or places where there are no columns.
    rows: usize,
    columns: Option<usize>,
}

/// A task computes at least this many elements, so that to hand it to a thread costs little in comparison.
const TASK: usize = 1 << 15;

impl Map {
    pub(super) fn new(spec: &LoopSpec) -> Option<Map> {
        let equations: Vec<usize> = (0..spec.equations.len()).collect();
        let (program, _) = Program::new(spec, &equations, &[], &spec.outs, |layout| Some(layout.clone()))?;
        Some(Map { program, rows: spec.rows, columns: spec.columns })
    }

    /// The rows of a tile: single elements where there are no columns.
    fn step(&self) -> usize {
        if self.columns.is_some() { self.program.row_capacity } else { self.program.capacity }
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
        let columns = self.columns.unwrap_or(1);
        let per_task = (TASK / columns.max(1)).next_multiple_of(self.step().max(1));
        let outs = &*outs;
        threads.for_each_with_scratch(self.rows.div_ceil(per_task), scratch, |task, scratch| {
            let end = self.rows.min((task + 1) * per_task);
            // SAFETY: the sources and targets are those that the kernel was made for. Tasks are disjoint ranges of rows,
            // each computes only its own, and tiles are at most as long as the program's capacity.
            unsafe {
                let frame = Frame::new(&self.program, scratch, ins, outs);
                for row in (task * per_task..end).step_by(self.step()) {
                    let rows = self.step().min(end - row);
                    frame.run(Tile { start: row * columns, len: rows * columns, row, rows });
                }
            }
        });
    }
}
