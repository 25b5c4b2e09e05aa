//! The dynamic program over the parts of a chain and slots of memory.
//!
//! The schedules are those of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains: how to
//! train deep neural networks with limited memory" (2019), with several options for each block as in Zhao, Le Hellard, Eyraud-Dubois,
//! Gusak and Beaumont, "Rockmate: an efficient, fast, automatic and generic tool for re-materialization in PyTorch" (2023). To
//! differentiate the blocks `i` to `j`, given the input of `i`, either
//!
//! - `i` runs forward and keeps the tape of an option, `i + 1` to `j` are differentiated, and `i` runs backward, or
//! - `i` to `s - 1` run forward, the inputs of `i` and `s` being held, `s` to `j` are differentiated, and then `i` to `s - 1`.
//!
//! A value that is held stays until the backward pass that reads it.

use super::row::{Parts, Row, Rows, UNKNOWN};
use super::{Chain, Operation};

/// The least times of all parts of a chain with up to a number of slots of memory.
pub(super) struct Program {
    /// The bytes of a slot.
    unit: u64,
    /// The most slots.
    slots: usize,
    /// For each first block, the parts that begin with it. Of the parts within a run of equal blocks, only those at its start are here.
    parts: Vec<PartsFrom>,
}

/// The parts of a chain that begin with the same block.
struct PartsFrom {
    /// The last block of the first of them. Each other one has one block more than the one before.
    last: usize,
    rows: Rows,
}

/// A way to differentiate a part of the chain.
struct Way<'a> {
    choice: Choice,
    parts: Parts<'a>,
}

#[derive(Clone, Copy)]
enum Choice {
    Keep { option: usize },
    Split { at: usize },
}

/// What remains to do while operations are listed.
enum Task {
    Differentiate { first: usize, last: usize, slots: usize },
    Backward { block: usize },
}

impl Program {
    pub(super) fn new(chain: &Chain, unit: u64, slots: usize) -> Program {
        let blocks = chain.blocks.len();
        let parts = (0..blocks).map(|first| PartsFrom { last: chain.last_of_parts(first), rows: Rows::default() });
        let mut program = Program { unit, slots, parts: parts.collect() };
        let mut times = Vec::new();
        for last in 0..blocks {
            for first in (0..=last).rev() {
                if program.parts[first].last <= last {
                    times.clear();
                    times.resize(slots + 1, UNKNOWN);
                    program.ways(chain, first, last).for_each(|way| way.parts.lower(&mut times));
                    program.parts[first].rows.push(&times, chain.fastest(first, last + 1));
                }
            }
        }
        program
    }

    /// The least numbers of slots for each of the times that the whole chain can take.
    pub(super) fn distinct(&self, chain: &Chain) -> impl Iterator<Item = usize> {
        self.row(chain, 0, chain.blocks.len() - 1).steps()
    }

    /// The least time of the whole chain with this number of slots.
    #[cfg(test)]
    pub(super) fn time(&self, chain: &Chain, slots: usize) -> Option<u64> {
        self.row(chain, 0, chain.blocks.len() - 1).at(slots)
    }

    /// The fastest schedule of the whole chain with this number of slots; empty if there is none.
    pub(super) fn operations(&self, chain: &Chain, slots: usize) -> Vec<Operation> {
        let mut operations = Vec::new();
        let mut tasks = vec![Task::Differentiate { first: 0, last: chain.blocks.len() - 1, slots }];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Backward { block } => operations.push(Operation::Backward { block }),
                Task::Differentiate { first, last, slots } => {
                    let Some((choice, [second, again])) = self.choose(chain, first, last, slots) else { continue };
                    match choice {
                        Choice::Keep { option } => {
                            operations.push(Operation::Keep { block: first, option });
                            tasks.push(Task::Backward { block: first });
                            if first < last {
                                tasks.push(Task::Differentiate { first: first + 1, last, slots: second });
                            }
                        }
                        Choice::Split { at } => {
                            operations.push(Operation::Checkpoint { block: first });
                            operations.extend((first + 1..at).map(|block| Operation::Forward { block }));
                            tasks.push(Task::Differentiate { first, last: at - 1, slots: again });
                            tasks.push(Task::Differentiate { first: at, last, slots: second });
                        }
                    }
                }
            }
        }
        operations
    }

    /// The first way that takes the least time with this number of slots, and the slots of its parts.
    fn choose(&self, chain: &Chain, first: usize, last: usize, slots: usize) -> Option<(Choice, [usize; 2])> {
        let least = Some(self.row(chain, first, last).at(slots)?);
        let way = self.ways(chain, first, last).find(|way| way.parts.at(slots) == least)?;
        Some((way.choice, way.parts.held.map(|held| slots - held)))
    }

    /// All ways to differentiate the blocks from `first` to `last`.
    fn ways<'a>(&'a self, chain: &'a Chain, first: usize, last: usize) -> impl Iterator<Item = Way<'a>> {
        let second = if first < last { self.row(chain, first + 1, last) } else { Row::NOTHING };
        let keep = chain.blocks[first].options.iter().enumerate().map(move |(option, tape)| {
            let (need, held) = chain.keep(first, last, tape);
            let (need, held) = (self.slots(need), [self.slots(held), 0]);
            let parts = Parts { rows: [second, Row::NOTHING], held, time: tape.time(), need };
            Way { choice: Choice::Keep { option }, parts }
        });
        // The input and the cotangent of the last output are live from the beginning.
        let (input, given) = (chain.value(first), chain.value(first) + chain.cotangent(last + 1));
        let input = self.slots(input);
        let split = (first + 1..=last).scan((0, 0), move |(time, forward), at| {
            let pass = chain.blocks[at - 1].forward;
            let read = if at - 1 == first { 0 } else { chain.value(at - 1) };
            *forward = (read + chain.value(at) + pass.transient).max(*forward);
            *time += pass.time;
            let rows = [self.row(chain, at, last), self.row(chain, first, at - 1)];
            let held = [input, self.slots(chain.gradients(at, last + 1))];
            let parts = Parts { rows, held, time: *time, need: self.slots(given + *forward) };
            Some(Way { choice: Choice::Split { at }, parts })
        });
        keep.chain(split)
    }

    fn row(&self, chain: &Chain, first: usize, last: usize) -> Row<'_> {
        let start = chain.starts[first];
        let (first, last) = if chain.starts[last] == start { (start, start + last - first) } else { (first, last) };
        let parts = &self.parts[first];
        parts.rows.row(last - parts.last)
    }

    /// The slots for some bytes. Each size is rounded up, so that a schedule fits into the bytes of its slots.
    fn slots(&self, bytes: u64) -> usize {
        // More slots than there are is not enough in any case.
        usize::try_from(bytes.div_ceil(self.unit)).map_or(self.slots + 1, |n| n.min(self.slots + 1))
    }
}
