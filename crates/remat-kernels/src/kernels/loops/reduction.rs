//! Loops that end in reductions over any axes.
//!
//! Elements are computed tile by tile, and only accumulators are stored. If the last axes are kept, a tile runs along them and is added to
//! a tile of accumulators. If those have few elements, like the channels of an image, a tile runs along the reduced axes and them, and
//! several positions have accumulators of their own. Otherwise a tile runs along the reduced axes, whose elements are reduced like those of
//! a row: in lanes, which become one number after each run of elements. Long reductions are cut into segments, whose results are combined
//! in pairs.
//!
//! Accumulators have levels ([`Accumulators`]), so that the error of a sum grows with the logarithm of the number of its terms.
//!
//! The order of a sum depends only on the shape and the axes. It does not depend on the length of tiles, which changes with the rest of the
//! loop and the layouts of its operands, or on the number of threads. So a sum has the same bits whether its operand is computed in the
//! loop or was stored before.

// Tiles are addressed by pointers, as the functions of tiles are.
#![allow(unsafe_code)]

use std::ops::Range;

use remat_ir::{Prim, Shape};

use super::blocks::{Phase, Space};
use super::dims::Dims;
use super::memory::Memory;
use super::program::{Frame, Program, Tile};
use super::reducer::{Accumulators, Reducer, levels};
use crate::base::disjoint::DisjointMut;
use crate::interface::{Kernel, Layout, Source, Target};
use crate::interface::{LoopInput, LoopSource, LoopSpec};
use crate::threads::Threads;
use crate::tile::{LANES, PART, RUN};

/// A loop whose results are reductions.
pub(super) struct Reduction {
    program: Program,
    reducers: Vec<Reducer>,
    offsets: Vec<OperandOffsets>,
    /// Elements before, along and after the reduced axes.
    outer: usize,
    reduced: usize,
    inner: usize,
    /// Positions along the reduced axes with accumulators of their own, if tiles run along these axes and the inner ones.
    together: Option<usize>,
    segments: usize,
    /// Levels of accumulators.
    levels: usize,
    /// Whether tiles are prefetched.
    fetches: bool,
}

/// The offsets of an operand along the dimensions that tiles do not run along.
struct OperandOffsets {
    outer: Dims,
    /// Offsets along the reduced axes, if tiles run along the kept ones.
    reduced: Dims,
    width: usize,
    input: usize,
    offset: usize,
}

/// A task combines pieces up to this many elements.
const TASK: usize = 1 << 15;
/// Reductions are cut into segments until there are this many pieces.
pub(super) const TASKS: usize = 32;
/// The tile length, in elements, by which the number of segments is decided.
const TILE: usize = 2048;
/// Tiles along fewer inner elements would take longer to begin than to compute. (Measured in docs/EXPERIMENTS.md, "Reductions that keep few
/// channels".)
const FEW: usize = 128;
/// Accumulators of a tile that runs along the reduced axes and few inner elements.
const ACCUMULATORS: usize = 512;

impl Reduction {
    pub(super) fn new(spec: &LoopSpec, shape: &Shape, axes: &[usize]) -> Option<Reduction> {
        let last = axes.iter().copied().filter(|&d| shape[d] != 1).max().unwrap_or(0);
        let kept = |d: &usize| !axes.contains(d);
        let outer: Vec<usize> = (0..last).filter(kept).collect();
        let inner: Vec<usize> = (last + 1..shape.len()).filter(kept).collect();
        let size = |dims: &[usize]| dims.iter().map(|&d| shape[d]).product::<usize>();
        let is_inner = size(&inner) > 1;
        let positions = || (ACCUMULATORS / size(&inner)).min(size(axes).div_ceil(2)).max(1);
        let together = (is_inner && size(&inner) < FEW).then(positions);
        let is_along_inner = is_inner && together.is_none();
        let along: Vec<usize> = match together {
            Some(_) => axes.iter().chain(&inner).copied().collect(),
            None if is_inner => inner.clone(),
            None => axes.to_vec(),
        };
        let whole = |layout: &Layout| {
            if layout.size() == 1 {
                return Some(Layout { offset: layout.offset, ..Layout::splat(shape) });
            }
            layout.reshaped(shape)
        };
        let reductions: Vec<usize> = spec.outs.clone();
        let others: Vec<usize> = (0..spec.equations.len()).filter(|e| !reductions.contains(e)).collect();
        let live_outs: Vec<LoopInput> = reductions.iter().map(|&e| spec.equations[e].ins[0]).collect();
        let section = |layout: &Layout| Some(whole(layout)?.permuted(&along));
        let (program, slots) = Program::new(spec, &others, &live_outs, &[], section, !is_along_inner)?;
        let offsets = program.operands().map(|number| {
            let operand = &spec.operands[number];
            let LoopSource::Input { input, layout } = &operand.source else { return None };
            let layout = whole(layout)?;
            let reduced = if is_along_inner { layout.permuted(axes) } else { Layout::contiguous(&[]) };
            Some(OperandOffsets {
                outer: Dims::of(&layout.permuted(&outer)),
                reduced: Dims::of(&reduced),
                width: operand.dtype.size(),
                input: *input,
                offset: layout.offset * operand.dtype.size(),
            })
        });
        let offsets = offsets.collect::<Option<Vec<OperandOffsets>>>()?;
        let reducers = reductions.iter().zip(slots).map(|(&e, value)| {
            let equation = &spec.equations[e];
            let Prim::Reduce(op) = &equation.op else { return None };
            Reducer::new(op.kind, equation.dtype, value)
        });
        let reducers = reducers.collect::<Option<Vec<Reducer>>>()?;
        let (outer, reduced, inner) = (size(&outer), size(axes), size(&inner));
        let fetches = program.fetches(outer * reduced * inner);
        let (tasks, steps) = (outer * inner.div_ceil(TILE).max(1), reduced * inner.min(TILE));
        let segments = (TASKS.div_ceil(tasks.max(1))).min(steps / TASK).max(1);
        let at_once = together.unwrap_or(if inner > 1 { 1 } else { RUN });
        let levels = levels(reduced.div_ceil(segments).div_ceil(at_once));
        Some(Reduction { program, reducers, offsets, outer, reduced, inner, together, segments, levels, fetches })
    }

    /// Whether it has this many results, one per piece of work.
    pub(super) fn is_of_positions(&self, results: usize) -> bool {
        self.segments == 1 && self.inner == 1 && self.outer == results
    }

    /// Whether tiles run along the inner dimensions only.
    fn is_along_inner(&self) -> bool {
        self.inner > 1 && self.together.is_none()
    }

    /// Tiles along the inner dimensions.
    fn tiles(&self) -> usize {
        if self.is_along_inner() { self.inner.div_ceil(self.program.capacity.max(1)) } else { 1 }
    }

    /// The bytes that each thread needs for registers and accumulators.
    fn scratch_per_thread(&self) -> usize {
        self.program.scratch() + self.reducers.len() * self.accumulator()
    }

    /// The accumulators of each level: a tile of them, those of several positions, or one for all runs.
    fn width(&self) -> usize {
        match self.together {
            Some(positions) => positions * self.inner,
            None if self.inner > 1 => self.program.capacity,
            None => 1,
        }
    }

    /// The bytes of the accumulators of one reduction, after lanes and their reduction if it has them.
    fn accumulator(&self) -> usize {
        ((self.lanes() + self.levels * self.width()) * 8).next_multiple_of(64)
    }

    /// The lanes of a part and of a run, and the reduction of these, if tiles run along the reduced axes only.
    fn lanes(&self) -> usize {
        if self.inner == 1 { 2 * LANES + 1 } else { 0 }
    }

    fn results(&self) -> usize {
        self.outer * self.inner
    }

    /// Whether the outputs serve as accumulators.
    fn is_direct(&self, reducer: &Reducer) -> bool {
        self.segments == 1 && reducer.register == reducer.dtype
    }

    /// The offset of the segments' results in the scratch memory, in bytes.
    fn partial(&self, threads: usize, reducer: usize) -> usize {
        threads * self.scratch_per_thread() + reducer * self.segments * accumulators(self.results())
    }

    /// The number of pieces of work, each a segment of one tile of results.
    fn pieces(&self) -> usize {
        self.outer * self.tiles() * self.segments
    }

    /// The number of pieces in a task.
    fn of_task(&self) -> usize {
        let elements = self.reduced.div_ceil(self.segments) * self.inner.min(self.program.capacity.max(1));
        (TASK / elements.max(1)).max(1)
    }

    /// Computes some pieces.
    ///
    /// # Safety
    /// As for [`Reduction::piece`].
    unsafe fn task(
        &self,
        pieces: Range<usize>,
        scratch: &mut [u8],
        memory: &Memory<'_>,
        to: &dyn Fn(usize, usize) -> *mut u8,
    ) {
        let (registers, accumulators) = scratch.split_at_mut(self.program.scratch());
        // SAFETY: promised by the caller.
        unsafe {
            let frame = Frame::new(&self.program, registers, memory);
            for piece in pieces {
                self.piece(piece, &frame, accumulators.as_mut_ptr(), memory, to);
            }
        }
    }

    /// Accumulates a segment of one tile of results.
    ///
    /// # Safety
    /// As for [`Frame::run`]; there is room for the accumulators, and `to` gives room for the results of the piece.
    unsafe fn piece(
        &self,
        piece: usize,
        frame: &Frame<'_>,
        accumulators: *mut u8,
        memory: &Memory<'_>,
        to: &dyn Fn(usize, usize) -> *mut u8,
    ) {
        let (per_outer, capacity) = (self.tiles() * self.segments, self.program.capacity);
        let (outer, rest) = (piece / per_outer, piece % per_outer);
        let (segment, tile) = (rest % self.segments, rest / self.segments);
        let len = self.reduced.div_ceil(self.segments);
        let part = (segment * len).min(self.reduced)..((segment + 1) * len).min(self.reduced);
        let first = segment * self.results() + outer * self.inner;
        let start = tile * capacity;
        let width = if self.is_along_inner() { capacity.min(self.inner - start) } else { self.width() };
        // SAFETY: the caller's promise is passed on; there is room for the levels of each reduction, and for lanes before them.
        unsafe {
            let (bytes, lanes, most) = (self.accumulator(), self.lanes(), self.width());
            let reductions = || {
                self.reducers.iter().enumerate().map(|(e, reducer)| {
                    let (start, size) = (accumulators.add(e * bytes), reducer.register.size());
                    let (first, stride) = (start.add(lanes * size), most * size);
                    (e, start, Accumulators { reducer, first, stride, width, levels: self.levels })
                })
            };
            let has_parts = part.len() >= PART;
            for (_, lanes, sums) in reductions() {
                if self.inner == 1 {
                    sums.reducer.clear(if has_parts { 2 * LANES } else { LANES }, lanes);
                }
                sums.clear();
            }
            let set_bases = |reduced: usize| {
                for (o, operand) in self.offsets.iter().enumerate() {
                    let position = operand.outer.at(outer) + operand.reduced.at(reduced);
                    let start = memory.input(operand.input, operand.width).wrapping_add(operand.offset);
                    frame.set_base(o, start.wrapping_offset(position * operand.width as isize));
                }
            };
            if self.is_along_inner() {
                for (row, reduced) in part.enumerate() {
                    set_bases(reduced);
                    frame.run(Tile { start, len: width, row: 0, rows: 0 }, None);
                    for (_, _, sums) in reductions() {
                        sums.add_row(row, frame.value(sums.reducer.value));
                    }
                }
                for (e, _, sums) in reductions() {
                    let size = width * sums.reducer.register.size();
                    std::ptr::copy_nonoverlapping(sums.total(), to(e, first + start), size);
                }
                return;
            }
            // Tiles run along the reduced axes, and along the inner ones if there are any.
            set_bases(0);
            let (from, until) = (part.start * self.inner, part.end * self.inner);
            let mut start = from;
            while start < until {
                let len = self.program.tile(start).min(until - start);
                let next = (self.fetches && start + len < until).then_some(start + len);
                frame.run(Tile { start, len, row: 0, rows: 0 }, next);
                for (_, lanes, sums) in reductions() {
                    let (value, before) = (frame.value(sums.reducer.value), start - from);
                    match self.together {
                        Some(_) => sums.add(before, len, value),
                        None => sums.add_in_lanes(lanes, before, len, value),
                    }
                }
                start += len;
            }
            for (e, lanes, sums) in reductions() {
                if self.together.is_none() {
                    sums.add_run(lanes, has_parts);
                }
                let results = sums.reducer.halve(sums.total(), self.together.unwrap_or(1), self.inner);
                std::ptr::copy_nonoverlapping(results, to(e, first), self.inner * sums.reducer.register.size());
            }
        }
    }

    /// Combines the segments of one reduction, rounds and stores.
    fn combine(&self, reducer: &Reducer, partial: DisjointMut<'_, u8>, out: &Target<'_>, threads: &Threads) {
        let (results, width) = (self.results(), reducer.register.size());
        threads.for_each(results.div_ceil(TASK), |task| {
            let from = task * TASK;
            let n = TASK.min(results - from);
            let first = partial.at(from * width);
            // SAFETY: partial results of all segments lie one after the other; each task has its own range of results.
            unsafe {
                // In pairs, so that the error does not grow with the number of segments.
                let mut segments = self.segments;
                while segments > 1 {
                    let half = segments.div_ceil(2);
                    for segment in half..segments {
                        let to = partial.at(((segment - half) * results + from) * width);
                        let next = partial.at((segment * results + from) * width);
                        (reducer.accumulate)(n, to, &[to.cast_const(), next.cast_const()]);
                    }
                    segments = half;
                }
                reducer.store(n, first, out.as_ptr().wrapping_add(from * reducer.dtype.size()));
            }
        });
    }
}

/// The bytes of the accumulators of this many results.
fn accumulators(results: usize) -> usize {
    (results * 8).next_multiple_of(64)
}

impl Phase for Reduction {
    /// The scratch memory of a task, and the accumulators of all positions if they are rounded at the end.
    fn scratch(&self, kept: usize) -> usize {
        let rounded = self.reducers.iter().filter(|reducer| !self.is_direct(reducer)).count();
        self.scratch_per_thread() + rounded * accumulators(kept)
    }

    unsafe fn run(&self, _: &Space, kept: Range<usize>, scratch: &mut [u8], memory: &Memory<'_>) {
        let (of_task, results) = scratch.split_at_mut(self.scratch_per_thread());
        let results = DisjointMut::new(results);
        let out = |e: usize| {
            memory.output(e, self.reducers[e].dtype.size(), 0).wrapping_add(kept.start * self.reducers[e].dtype.size())
        };
        let result = |e: usize| match self.is_direct(&self.reducers[e]) {
            true => out(e),
            false => {
                let before = self.reducers[..e].iter().filter(|reducer| !self.is_direct(reducer)).count();
                results.at(before * accumulators(kept.len()))
            }
        };
        let to =
            |e: usize, index: usize| result(e).wrapping_add((index - kept.start) * self.reducers[e].register.size());
        // SAFETY: promised by the caller. Without segments and without inner elements, a piece is a position.
        unsafe {
            self.task(kept.clone(), of_task, memory, &to);
            for (e, reducer) in self.reducers.iter().enumerate().filter(|(_, reducer)| !self.is_direct(reducer)) {
                reducer.store(kept.len(), result(e), out(e));
            }
        }
    }
}

impl Kernel for Reduction {
    fn scratch(&self, threads: usize) -> usize {
        if self.reducers.iter().all(|reducer| self.is_direct(reducer)) {
            return threads * self.scratch_per_thread();
        }
        self.partial(threads, self.reducers.len())
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        // If a kept dimension has no elements, there is nothing to read either.
        if self.results() == 0 {
            return;
        }
        let partial = self.partial(threads.count(), 0);
        let (of_threads, partials) = scratch.split_at_mut(partial);
        let partials = DisjointMut::new(partials);
        let starts = |e: usize| partials.skip(self.partial(threads.count(), e) - partial);
        let outs = &*outs;
        let to = |e: usize, index: usize| {
            let reducer = &self.reducers[e];
            let start = if self.is_direct(reducer) { outs[e].as_ptr() } else { starts(e).at(0) };
            start.wrapping_add(index * reducer.register.size())
        };
        let (all, of_task) = (self.pieces(), self.of_task());
        threads.for_each_with_scratch(all.div_ceil(of_task), of_threads, |task, scratch| {
            // SAFETY: the sources and targets are those that the kernel was made for. Each piece computes other results, or another segment
            // of them.
            unsafe { self.task(task * of_task..all.min((task + 1) * of_task), scratch, &Memory::new(ins, outs), &to) }
        });
        for (e, reducer) in self.reducers.iter().enumerate() {
            if !self.is_direct(reducer) {
                self.combine(reducer, starts(e), &outs[e], threads);
            }
        }
    }
}
