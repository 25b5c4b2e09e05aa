//! Several loops over one space, computed block by block.
//!
//! A normalisation reads its operand three times: for a mean, for a variance and for its result. Where the operand is larger than the
//! caches, three loops read it from memory three times. But all that belongs to one channel of images, or to one long row, mostly fits into the cache of a core, or is at
//! least small beside the last-level one, so that one task computes all loops of some positions one after the other (phases, of a block), and memory is read once.
//!
//! Each phase is the program of its loop, and its results have the bits that the loop alone gives.

#![allow(unsafe_code)]

use std::ops::Range;

use super::map::Map;
use super::memory::{Memory, OfPhase};
use super::reduction::{Reduction, TASKS};
use crate::interface::{BlockedLoops, Kernel, Layout, LoopPhase, LoopSource, LoopSpec, PhaseMemory, Source, Target};
use crate::threads::Threads;

/// The positions before, along and after the dimension of blocks.
#[derive(Clone, Copy)]
pub(super) struct Space([usize; 3]);

/// A loop of which some positions can be computed.
pub(super) trait Phase: Send + Sync {
    /// Bytes of scratch memory for this many positions.
    fn scratch(&self, kept: usize) -> usize;

    /// As [`Kernel::in_place`].
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// Computes what belongs to some positions along the dimension of blocks.
    ///
    /// # Safety
    /// The memory is what the loop was made for, over this space, and no other task uses these positions of its outputs.
    unsafe fn run(&self, space: &Space, kept: Range<usize>, scratch: &mut [u8], memory: &Memory<'_>);
}

/// A loop, and where its inputs and its outputs are.
struct Placed {
    phase: Box<dyn Phase>,
    ins: Vec<PhaseMemory>,
    outs: Vec<PhaseMemory>,
    /// How many of the values inside of blocks have memory while it runs: the first ones.
    inside: usize,
}

/// The kernel.
struct Blocks {
    phases: Vec<Placed>,
    space: Space,
    /// Positions of a block.
    of_block: usize,
    in_place: Vec<(usize, usize)>,
}

/// What the arrays of a block take together, so that they stay in the second-level cache of a core, or nearly so, if a position takes no more.
const BLOCK_BYTES: usize = 512 << 10;
/// There are at least so many blocks, where there are as many positions.
pub(super) const BLOCKS: usize = 16;
/// Elements of a block that lie one after the other, at least, where a block is several pieces of its arrays: tiles are no longer than a piece, and take longer to begin than
/// to compute where they are shorter. (A normalisation in pieces of 64 elements took 2.0 times the time that its loops take alone, 0.85 to 1.2 in pieces of 128, 0.87 of 256.)
const LEAST_PIECE: usize = 256;
/// What one position takes, at most: more is in no cache when the next loop reads it, and one position is the least that a task can be. (Loops over 16 MB for each position
/// took 0.76 of the time that they take alone, 0.97 over 32 MB.)
const MOST_BYTES: usize = 16 << 20;

impl Space {
    fn size(&self) -> usize {
        self.0.iter().product()
    }

    /// Where the elements at these positions are in an array with so many elements: one at each position of the space, or one for each kept position.
    pub(super) fn ranges(&self, size: usize, kept: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let [before, all, after] = if size == self.size() { self.0 } else { [1, self.0[1], 1] };
        (0..before).map(move |b| (b * all + kept.start) * after..(b * all + kept.end) * after)
    }
}

/// The positions of a block, where the elements of all arrays at one position of the space take `width` bytes.
pub(super) fn of_block([before, kept, after]: [usize; 3], width: usize) -> usize {
    let fit = BLOCK_BYTES / (width * before * after).max(1);
    fit.min(kept / BLOCKS).max(1)
}

impl BlockedLoops {
    /// No reduction to so many positions along the dimension is cut into segments.
    pub const LEAST_POSITIONS: usize = TASKS;

    /// Whether loops over a space are worth computing together. `width` is what the elements of all their arrays take at one position of it, in bytes.
    pub fn are_worthwhile(space: [usize; 3], width: usize) -> bool {
        let [before, _, after] = space;
        let piece = of_block(space, width) * after;
        (before == 1 || piece >= LEAST_PIECE) && width * before * after <= MOST_BYTES
    }

    /// The pairs of an input and an output of a loop whose memory can be the same: [`Kernel::in_place`] of its kernel. `None` if there is no tile function for one of
    /// the operations.
    pub fn in_place(spec: &LoopSpec) -> Option<Vec<(usize, usize)>> {
        if spec.reduction.is_some() {
            return Some(Vec::new());
        }
        Some(Phase::in_place(&Map::new(spec)?).to_vec())
    }

    /// The kernel; `None` if a loop cannot be computed in blocks of this space, or there is no tile function for one of the operations.
    pub fn kernel(&self) -> Option<Box<dyn Kernel>> {
        let space = Space(self.space);
        let mut phases = Vec::new();
        // The arrays with an element at each position of the space, and the bytes of such an element.
        let mut arrays: Vec<(PhaseMemory, usize)> = Vec::new();
        for (at, LoopPhase { spec, ins, outs }) in self.phases.iter().enumerate() {
            let read = spec.operands.iter().filter_map(|operand| match &operand.source {
                LoopSource::Input { input, layout } if is_whole(layout, space.size()) => {
                    Some((ins[*input], operand.dtype.size()))
                }
                _ => None,
            });
            let is_full = spec.reduction.is_none() && size(spec) == space.size();
            let width = |equation: usize| spec.equations[equation].dtype.size();
            let written =
                spec.outs.iter().zip(outs).filter(|_| is_full).map(|(&equation, &out)| (out, width(equation)));
            arrays.extend(read.chain(written));
            let (phase, inside) = (phase(spec, &space)?, self.inside(at));
            phases.push(Placed { phase, ins: ins.clone(), outs: outs.clone(), inside });
        }
        arrays.sort_unstable();
        arrays.dedup();
        let of_block = of_block(self.space, arrays.iter().map(|(_, width)| width).sum());
        let in_place = in_place(self, &phases);
        Some(Box::new(Blocks { phases, space, of_block, in_place }))
    }

    /// How many of the values inside of blocks have memory while a phase runs: up to the last one that this or an earlier phase writes, and this or a later one reads.
    fn inside(&self, at: usize) -> usize {
        let number = |memory: &PhaseMemory| if let PhaseMemory::Inside(value) = memory { Some(*value) } else { None };
        let written = self.phases[..=at].iter().flat_map(|phase| &phase.outs).filter_map(number);
        let is_read = |value: usize| {
            let read =
                self.phases[at..].iter().flat_map(|phase| &phase.ins).any(|memory| number(memory) == Some(value));
            read || self.phases[at].outs.iter().any(|memory| number(memory) == Some(value))
        };
        written.filter(|&value| is_read(value)).map(|value| value + 1).max().unwrap_or(0)
    }
}

/// The elements of a loop that is no reduction.
fn size(spec: &LoopSpec) -> usize {
    spec.rows * spec.columns.unwrap_or(1)
}

/// A loop as a phase over a space, if it can be computed position by position.
fn phase(spec: &LoopSpec, space: &Space) -> Option<Box<dyn Phase>> {
    let [_, kept, _] = space.0;
    match &spec.reduction {
        None => {
            let fits = spec.columns.is_none() && [space.size(), kept].contains(&size(spec));
            Some(Box::new(Map::new(spec).filter(|_| fits)?))
        }
        Some((shape, axes)) => {
            Some(Box::new(Reduction::new(spec, shape, axes).filter(|reduction| reduction.is_of_positions(kept))?))
        }
    }
}

/// The inputs of the kernel whose memory an output may take: that of the phase which writes it first, if no later one reads the input, and the
/// earlier ones read it at the positions of the block alone.
fn in_place(loops: &BlockedLoops, phases: &[Placed]) -> Vec<(usize, usize)> {
    let size = loops.space.iter().product::<usize>();
    let is_elsewhere = |of_phase: &LoopPhase, read: PhaseMemory| {
        of_phase.spec.operands.iter().any(|operand| match &operand.source {
            LoopSource::Input { input, layout } => of_phase.ins[*input] == read && !is_whole(layout, size),
            LoopSource::Literal(_) => false,
        })
    };
    let mut pairs = Vec::new();
    for (at, placed) in phases.iter().enumerate() {
        for &(i, k) in placed.phase.in_place() {
            let (read, written) = (placed.ins[i], placed.outs[k]);
            let (PhaseMemory::Input(input), PhaseMemory::Output(out)) = (read, written) else { continue };
            let is_read_later = phases[at + 1..].iter().any(|later| later.ins.contains(&read));
            let is_written_before = phases[..at].iter().any(|earlier| earlier.outs.contains(&written));
            let is_read_elsewhere = loops.phases[..at].iter().any(|before| is_elsewhere(before, read));
            if !is_read_later && !is_written_before && !is_read_elsewhere && !pairs.contains(&(input, out)) {
                pairs.push((input, out));
            }
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Whether the elements of an operand are those of an array of the space, in order.
fn is_whole(layout: &Layout, size: usize) -> bool {
    layout.is_contiguous() && layout.offset == 0 && layout.size() == size
}

impl Blocks {
    /// Bytes of scratch memory of one thread. The values inside of blocks are at its end, the first one last.
    fn of_thread(&self) -> usize {
        let of_phase = |placed: &Placed| {
            placed.phase.scratch(self.of_block).next_multiple_of(64) + placed.inside * self.of_value()
        };
        self.phases.iter().map(of_phase).max().unwrap_or(0)
    }

    /// Bytes of a value inside of blocks.
    fn of_value(&self) -> usize {
        (self.of_block * 8).next_multiple_of(64)
    }
}

impl Kernel for Blocks {
    fn scratch(&self, threads: usize) -> usize {
        threads * self.of_thread()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let (all, outs) = (self.space.0[1], &*outs);
        threads.for_each_with_scratch(all.div_ceil(self.of_block), scratch, |block, scratch| {
            let kept = block * self.of_block..all.min((block + 1) * self.of_block);
            for Placed { phase, ins: of_loop, outs: results, inside } in &self.phases {
                let before = self.of_thread() - inside * self.of_value();
                let (scratch, inside) = scratch[..self.of_thread()].split_at_mut(before);
                let end = inside.as_mut_ptr_range().end;
                let of_value = self.of_value();
                let memory = Memory::new(ins, outs).of_phase(OfPhase {
                    ins: of_loop,
                    outs: results,
                    end,
                    of_value,
                    first: kept.start,
                });
                // SAFETY: the sources and targets are those that the kernel was made for. Blocks are disjoint, and phases read of what is written
                // those positions alone that are in the block, as `LoopPhase` says. Each value inside has room for an element for each.
                unsafe { phase.run(&self.space, kept.clone(), scratch, &memory) }
            }
        });
    }
}
