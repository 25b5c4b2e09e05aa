//! Several loops over one space, computed block by block.
//!
//! A normalisation reads its operand three times: for a mean, for a variance, and for its result. If the operand is larger than the caches,
//! three loops read it from memory three times. But the elements of one channel of images, or of one long row, usually fit into the cache
//! of a core, or at least take a small part of the last-level cache. So one task computes all loops for some positions (a block), one after
//! the other (phases), and memory is read once.
//!
//! Each phase is the program of its loop, and its results have the same bits as those of the loop alone.

#![allow(unsafe_code)]

use std::ops::Range;

use super::map::Map;
use super::memory::{FullValues, Memory, OfPhase};
use super::reduction::{Reduction, TASKS};
use crate::interface::{BlockedLoops, Kernel, Layout, LoopPhase, LoopSource, LoopSpec, PhaseMemory, Source, Target};
use crate::threads::Threads;

/// The positions before, along and after the dimension of blocks.
#[derive(Clone, Copy)]
pub(super) struct Space([usize; 3]);

/// A loop that can be computed for some positions only.
pub(super) trait Phase: Send + Sync {
    /// Bytes of scratch memory for this many positions.
    fn scratch(&self, kept: usize) -> usize;

    /// As [`Kernel::in_place`].
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// Computes the loop at some positions along the dimension of blocks.
    ///
    /// # Safety
    /// The memory has the layout for which the loop was compiled, over this space, and no other task uses these positions of its outputs.
    unsafe fn run(&self, space: &Space, kept: Range<usize>, scratch: &mut [u8], memory: &Memory<'_>);
}

/// A loop, and where its inputs and its outputs are.
struct Placed {
    phase: Box<dyn Phase>,
    ins: Vec<PhaseMemory>,
    outs: Vec<PhaseMemory>,
    /// How many of the values inside of blocks have memory while the phase runs: a prefix of them.
    inside: usize,
}

/// The kernel.
struct Blocks {
    phases: Vec<Placed>,
    space: Space,
    /// Positions of a block.
    block_len: usize,
    /// Where the memory of each value with one element per position of the space begins in that of a thread, and the bytes of them all.
    full: Vec<usize>,
    full_bytes: usize,
    in_place: Vec<(usize, usize)>,
}

/// Bytes of all arrays of a block together, so that they stay in the second-level cache of a core, or nearly so. A block has at least one
/// position.
const BLOCK_BYTES: usize = 512 << 10;
/// Fewest blocks, where there are enough positions.
pub(super) const BLOCKS: usize = 16;
/// Fewest contiguous elements of a block, where a block is several pieces of its arrays. Tiles are no longer than a piece, and short tiles
/// take longer to start than to compute. (A normalisation in pieces of 64 elements took 2.0 times the time of its separate loops; in pieces
/// of 128, 0.85 to 1.2; in pieces of 256, 0.87.)
const LEAST_PIECE: usize = 256;
/// Most bytes of one position. The next loop would find more in no cache, and a task has at least one position. (Loops over 16 MB for each
/// position took 0.76 of the time of separate loops; over 32 MB, 0.97.)
const MOST_BYTES: usize = 16 << 20;

impl Space {
    fn size(&self) -> usize {
        self.0.iter().product()
    }

    /// The ranges of these positions in an array of `size` elements, which has an element at each position of the space, or for each kept
    /// position.
    pub(super) fn ranges(&self, size: usize, kept: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let [before, all, after] = if size == self.size() { self.0 } else { [1, self.0[1], 1] };
        (0..before).map(move |b| (b * all + kept.start) * after..(b * all + kept.end) * after)
    }
}

/// The positions of a block, where the elements of all arrays at one position of the space take `width` bytes.
pub(super) fn block_len([before, kept, after]: [usize; 3], width: usize) -> usize {
    let fit = BLOCK_BYTES / (width * before * after).max(1);
    fit.min(kept / BLOCKS).max(1)
}

impl BlockedLoops {
    /// Reductions to at least this many positions along the dimension are not cut into segments.
    pub const LEAST_POSITIONS: usize = TASKS;

    /// Whether computing loops over a space together is worth it. `width` is the bytes of the elements of all their arrays at one position
    /// of the space.
    pub fn are_worthwhile(space: [usize; 3], width: usize) -> bool {
        let [before, _, after] = space;
        let piece = block_len(space, width) * after;
        (before == 1 || piece >= LEAST_PIECE) && width * before * after <= MOST_BYTES
    }

    /// The pairs of an input and an output of a loop that can share memory: [`Kernel::in_place`] of its kernel. `None` if an operation has
    /// no tile function.
    pub fn in_place(spec: &LoopSpec) -> Option<Vec<(usize, usize)>> {
        if spec.reduction.is_some() {
            return Some(Vec::new());
        }
        Some(Phase::in_place(&Map::new(spec)?).to_vec())
    }

    /// The kernel; `None` if a loop cannot be computed in blocks of this space, or an operation has no tile function.
    pub fn kernel(&self) -> Option<Box<dyn Kernel>> {
        let space = Space(self.space);
        // The arrays with an element at each position of the space, and the bytes of such an element.
        let mut arrays: Vec<(PhaseMemory, usize)> = Vec::new();
        for LoopPhase { spec, ins, outs } in &self.phases {
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
        }
        arrays.sort_unstable();
        arrays.dedup();
        let block_len = block_len(self.space, arrays.iter().map(|(_, width)| width).sum());
        let mut phases = Vec::new();
        for (at, LoopPhase { spec, ins, outs }) in self.phases.iter().enumerate() {
            let (phase, inside) = (phase(&reading_blocks(spec, ins, &space, block_len)?, &space)?, self.inside(at));
            phases.push(Placed { phase, ins: ins.clone(), outs: outs.clone(), inside });
        }
        let in_place = in_place(self, &phases);
        let [before, _, after] = self.space;
        let (mut full, mut full_bytes) = (Vec::new(), 0);
        for value in 0.. {
            let widths = arrays.iter().filter(|(memory, _)| *memory == PhaseMemory::Block(value));
            let Some(width) = widths.map(|(_, width)| width).max() else { break };
            full.push(full_bytes);
            full_bytes += (before * block_len * after * width).next_multiple_of(64);
        }
        Some(Box::new(Blocks { phases, space, block_len, full, full_bytes, in_place }))
    }

    /// How many of the values inside of blocks have memory while a phase runs: up to the last one that this or an earlier phase writes, and
    /// this or a later phase reads.
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

/// The number of elements of a loop without a reduction.
fn size(spec: &LoopSpec) -> usize {
    spec.rows * spec.columns.unwrap_or(1)
}

/// A loop that reads values of full size where they are in the memory of a block. `None` if it reads one not whole or not in order.
fn reading_blocks(spec: &LoopSpec, ins: &[PhaseMemory], space: &Space, block_len: usize) -> Option<LoopSpec> {
    let [before, kept, after] = space.0;
    let mut spec = spec.clone();
    for operand in &mut spec.operands {
        let LoopSource::Input { input, layout } = &mut operand.source else { continue };
        if matches!(ins[*input], PhaseMemory::Block(_)) {
            if !is_whole(layout, space.size()) {
                return None;
            }
            *layout = Layout::contiguous(&[before, kept, after]);
            layout.strides[0] = isize::try_from(block_len * after).ok()?;
        }
    }
    Some(spec)
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

/// The inputs of the kernel whose memory an output may take, because the phase that first writes the output allows it. No later phase may
/// read the input, and earlier ones may read it only at the positions of the block.
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

/// Whether an operand has the elements of an array of the space, in order.
fn is_whole(layout: &Layout, size: usize) -> bool {
    layout.is_contiguous() && layout.offset == 0 && layout.size() == size
}

impl Blocks {
    /// Bytes of scratch memory for one thread. The values of full size are at its start, and the others inside of blocks at its end, the first
    /// one last.
    fn scratch_per_thread(&self) -> usize {
        self.full_bytes + self.of_phases()
    }

    /// Those besides values of full size.
    fn of_phases(&self) -> usize {
        let of_phase = |placed: &Placed| {
            placed.phase.scratch(self.block_len).next_multiple_of(64) + placed.inside * self.bytes_per_value()
        };
        self.phases.iter().map(of_phase).max().unwrap_or(0)
    }

    /// Bytes of a value inside of blocks.
    fn bytes_per_value(&self) -> usize {
        (self.block_len * 8).next_multiple_of(64)
    }
}

impl Kernel for Blocks {
    fn scratch(&self, threads: usize) -> usize {
        threads * self.scratch_per_thread()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let ([_, all, after], outs) = (self.space.0, &*outs);
        threads.for_each_with_scratch(all.div_ceil(self.block_len), scratch, |block, scratch| {
            let kept = block * self.block_len..all.min((block + 1) * self.block_len);
            let (full, scratch) = scratch[..self.scratch_per_thread()].split_at_mut(self.full_bytes);
            let full = FullValues {
                start: full.as_mut_ptr(),
                offsets: &self.full,
                after,
                gap: (all - self.block_len) * after,
            };
            for Placed { phase, ins: of_loop, outs: results, inside } in &self.phases {
                let before = self.of_phases() - inside * self.bytes_per_value();
                let (scratch, inside) = scratch.split_at_mut(before);
                let end = inside.as_mut_ptr_range().end;
                let bytes_per_value = self.bytes_per_value();
                let memory = Memory::new(ins, outs).of_phase(OfPhase {
                    ins: of_loop,
                    outs: results,
                    end,
                    bytes_per_value,
                    first: kept.start,
                    full,
                });
                // SAFETY: the kernel was made for these sources and targets. Blocks are disjoint, and phases read only those positions of
                // written arrays that are in the block, as `LoopPhase` says. Each value inside has room for an element at each position.
                unsafe { phase.run(&self.space, kept.clone(), scratch, &memory) }
            }
        });
    }
}
