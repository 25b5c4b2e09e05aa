//! The length of a tile, and the allocation of its registers.

use super::{Event, Instruction, Program, Slot, Storage};
use crate::interface::layout::{Layout, greatest_common_divisor};
use crate::interface::{Extent, LoopSource, LoopSpec};
use crate::kernels::loops::dims::Dims;
use crate::tile;

/// The registers of a tile take at most this many bytes, so that they stay in the first-level cache of any CPU beside the streams. They
/// take more only if a row, which is always in one tile, or the shortest tile is longer.
const REGISTER_BYTES: usize = 16 << 10;
/// The most elements of a tile of a loop without rows.
const LONGEST_TILE: usize = 2048;
const SHORTEST_TILE: usize = 128;

impl Program {
    /// Chooses the length of a tile, and allocates every register.
    pub(super) fn allocate(&mut self, spec: &LoopSpec, wanted: &[usize]) {
        // The last event that reads each register, or else the one that writes it. Events are those of each instruction in turn.
        let events = self.code.iter().flat_map(|instruction| {
            let count = self.events(instruction).count();
            self.events(instruction).enumerate().map(move |(i, event)| (event, i + 1 == count))
        });
        let events: Vec<(Event<'_>, bool)> = events.collect();
        let mut last = vec![0; self.slots.len()];
        for (i, (event, _)) in events.iter().enumerate() {
            for slot in event.ins(&self.args).into_iter().chain(event.out()) {
                last[slot] = i;
            }
        }
        for constant in &self.constants {
            last[constant.slot] = usize::MAX;
        }
        for &slot in wanted {
            last[slot] = usize::MAX;
        }
        let mut pools = [Pool::default(), Pool::default()];
        let pool = |extent: Extent| usize::from(extent == Extent::Row);
        let mut registers: Vec<Option<usize>> = vec![None; self.slots.len()];
        let is_register = |slot: &Slot| matches!(slot.storage, Storage::Register(_));
        for constant in &self.constants {
            registers[constant.slot] = Some(pools[pool(self.slots[constant.slot].extent)].take());
        }
        // Registers that a chain has read for the last time, of which other elements still read another part.
        let mut after_chain: Vec<usize> = Vec::new();
        for (i, &(event, is_last)) in events.iter().enumerate() {
            // A result may take the register of an operand that dies here if their elements have the same size: tile functions work in
            // place then, except for reductions and broadcasts. So may the step of a chain that reads it last, also for bools, and later
            // ones: their elements are no larger than f32.
            let mut dies = event.ins(&self.args);
            dies.sort_unstable();
            dies.dedup();
            dies.retain(|s| last[*s] == i && is_register(&self.slots[*s]));
            let out = event.out();
            let is_free = |s: &usize| match event {
                Event::Instruction(Instruction::Call { out, .. }) => self.slots[*s].width == self.slots[*out].width,
                Event::Instruction(_) => false,
                Event::Step(_) => self.slots[*s].width == size_of::<f32>(),
            };
            let give_back = |pools: &mut [Pool; 2], registers: &[Option<usize>], slot: usize| {
                if let Some(register) = registers[slot] {
                    pools[pool(self.slots[slot].extent)].give(register);
                }
            };
            dies.iter().filter(|s| is_free(s)).for_each(|&s| give_back(&mut pools, &registers, s));
            if let Some(out) = out
                && is_register(&self.slots[out])
                && registers[out].is_none()
            {
                registers[out] = Some(pools[pool(self.slots[out].extent)].take());
            }
            after_chain.extend(dies.iter().filter(|s| !is_free(s)));
            // A result that is never read.
            after_chain.extend(out.filter(|&out| last[out] == i && is_register(&self.slots[out])));
            if is_last {
                after_chain.drain(..).for_each(|s| give_back(&mut pools, &registers, s));
            }
        }
        let [full, row] = pools.map(|pool| pool.count);
        let width = self.slots.iter().filter(|slot| is_register(slot)).map(|slot| slot.width).max().unwrap_or(1);
        let length = tile_length(full * width);
        // A small loop is one tile, with registers for its elements alone. Reductions over axes cut their tiles themselves.
        (self.capacity, self.row_capacity) = match spec.columns {
            Some(columns) => {
                let rows = (length / columns.max(1)).min(spec.rows).max(1);
                (rows * columns, rows)
            }
            None if spec.reduction.is_none() => (length.min(spec.rows.max(1).next_multiple_of(tile::UNROLLED)), 0),
            None => (length, 0),
        };
        if let Some(run) = self.run {
            // A multiple of the block of tile functions, if possible.
            let even = run.div_ceil(run.div_ceil(self.capacity));
            self.capacity = self.capacity.min(even.next_multiple_of(tile::UNROLLED));
        }
        let (full_bytes, row_bytes) = (register_bytes(self.capacity, width), register_bytes(self.row_capacity, width));
        for (slot, register) in self.slots.iter_mut().zip(registers) {
            if let Some(register) = register {
                slot.storage = Storage::Register(match slot.extent {
                    Extent::Full => register * full_bytes,
                    Extent::Row => full * full_bytes + register * row_bytes,
                });
            }
        }
        self.registers = full * full_bytes + row * row_bytes;
    }
}

/// The run lengths at which tiles are cut, so that each operand is one element or read in place within a tile.
pub(super) fn run(spec: &LoopSpec, section: impl Fn(&Layout) -> Option<Layout>) -> Option<usize> {
    let dims = spec.operands.iter().filter_map(|operand| match &operand.source {
        LoopSource::Input { layout, .. } => Some(Dims::of(&section(layout)?)),
        LoopSource::Literal(_) => None,
    });
    let dims: Vec<Dims> = dims.filter(|dims| dims.run().is_some()).collect();
    let shortest = if dims.iter().any(Dims::repeats) { SHORTEST_TILE } else { LONGEST_TILE / 2 };
    dims.iter().filter_map(Dims::run).reduce(greatest_common_divisor).filter(|&run| run >= shortest)
}

/// The number of elements in a tile whose registers take `bytes` bytes per element.
fn tile_length(bytes: usize) -> usize {
    let fits = REGISTER_BYTES / bytes.max(1);
    (fits / SHORTEST_TILE * SHORTEST_TILE).clamp(SHORTEST_TILE, LONGEST_TILE)
}

/// The bytes of a register of `elements` elements of `width` bytes.
fn register_bytes(elements: usize, width: usize) -> usize {
    (elements * width).next_multiple_of(64)
}

/// Registers of one size.
#[derive(Default)]
struct Pool {
    free: Vec<usize>,
    count: usize,
}

impl Pool {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    fn give(&mut self, register: usize) {
        self.free.push(register);
    }
}
