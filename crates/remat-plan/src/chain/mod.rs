//! Chains of blocks, such as the layers of a network: which blocks keep what their backward pass reads, and which run their forward pass
//! again, so that the step fits into a given number of bytes and takes the least time.
//!
//! [`Table`] finds the best schedules of a [`Chain`] for all budgets at once; [`Chain::cost`] judges any schedule without it.

mod judge;
mod program;
mod row;
mod table;
#[cfg(test)]
mod tests;

use remat_ir::{Error, ErrorKind, Result};

pub use table::{ChainPlan, Cost, Table};

/// The operation that errors name.
const CHAIN: &str = "chain";

/// One pass over a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// Picoseconds.
    pub time: u64,
    /// Bytes that are needed only during the pass, besides what the other fields of [`Block`] and [`Tape`] count.
    pub transient: u64,
}

/// One way to run a block so that its backward pass can follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tape {
    /// Bytes from the forward until the backward pass, besides the block's input and output. The input is held anyway, and is not counted
    /// here. The output is held only until the next block's backward pass has ended; if this block's backward pass reads it, it counts in
    /// the transient bytes of that pass.
    pub kept: u64,
    /// The forward pass that keeps those bytes.
    pub forward: Pass,
    /// The backward pass that reads them.
    pub backward: Pass,
}

/// A block of a chain: a function of the previous block's output and of parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// Bytes of its input, which is what a checkpoint before the block holds.
    pub input: u64,
    /// Bytes of the cotangent of its input.
    pub cotangent: u64,
    /// Bytes that its backward pass produces and that are held to the end, such as the gradients of its parameters.
    pub gradients: u64,
    /// The forward pass that keeps nothing.
    pub forward: Pass,
    /// The ways to keep what the backward pass reads; at least one.
    pub options: Vec<Tape>,
}

/// Blocks, each of which reads the output of the one before it. The first input and the cotangent of the last output are held from the
/// beginning. What is held from the beginning to the end, such as parameters, need not be counted.
///
/// ```
/// use remat_plan::chain::{Block, Chain, Pass, Table, Tape};
/// // Forward passes of 1 us, backward passes of 2 us; 10 bytes between blocks, 30 bytes kept within.
/// let forward = Pass { time: 1_000_000, transient: 0 };
/// let backward = Pass { time: 2_000_000, transient: 0 };
/// let block = Block { input: 10, cotangent: 10, forward, options: vec![Tape { kept: 30, forward, backward }], ..Block::default() };
/// let chain = Chain::new(vec![block; 8], 10, 10)?;
/// let table = Table::new(&chain, 500)?;
/// // All blocks keep their tapes, or some run their forward pass a second time.
/// assert_eq!(table.plan(1000).unwrap().cost.time, 24_000_000);
/// assert_eq!(table.plan(200).unwrap().cost.time, 28_000_000);
/// assert!(table.plan(table.minimum() - 1).is_none());
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    blocks: Vec<Block>,
    output: u64,
    cotangent: u64,
    /// The first block of the run of equal blocks in which each block is. Parts of a run of equal length are equal.
    starts: Vec<usize>,
    /// The time of the blocks before each block, each in the fastest way.
    fastest: Vec<u64>,
    /// The gradients of the blocks before each block.
    gradients: Vec<u64>,
}

/// A part of the schedule of a chain.
///
/// Inputs are numbered as the blocks that read them; the output of the last block has the number after those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Runs a block forward and frees its input.
    Forward {
        /// Index of the block.
        block: usize,
    },
    /// Runs a block forward and holds its input.
    Checkpoint {
        /// Index of the block.
        block: usize,
    },
    /// Runs a block forward and holds its input and the tape of one of its options.
    Keep {
        /// Index of the block.
        block: usize,
        /// Index of the option.
        option: usize,
    },
    /// Frees the output of a block if it is held, runs the block backward, and frees its input, its tape and the cotangent of its output.
    Backward {
        /// Index of the block.
        block: usize,
    },
}

impl Tape {
    /// The time of both passes.
    fn time(&self) -> u64 {
        self.forward.time + self.backward.time
    }
}

impl Chain {
    /// A chain of these blocks. `output` and `cotangent` are the bytes of the last block's output and of its cotangent.
    ///
    /// # Errors
    ///
    /// Of kind `Argument` if there is no block, a block has no option, or bytes or times are so large that sums could overflow.
    pub fn new(blocks: Vec<Block>, output: u64, cotangent: u64) -> Result<Chain> {
        let error = |message: String| Err(Error::new(ErrorKind::Argument, CHAIN, message));
        if blocks.is_empty() {
            return error("a chain has at least one block".into());
        }
        if let Some(block) = blocks.iter().position(|b| b.options.is_empty()) {
            return error(format!("block {block} has no option"));
        }
        if bounds(&blocks, output, cotangent).is_none() {
            return error("the sum of the bytes or of the times of all passes is too large".into());
        }
        let fastest = sums(&blocks, |b| b.options.iter().map(Tape::time).min().unwrap_or(0));
        let gradients = sums(&blocks, |b| b.gradients);
        let starts = (0..blocks.len()).collect();
        let mut chain = Chain { blocks, output, cotangent, starts, fastest, gradients };
        for block in 1..chain.blocks.len() {
            if chain.is_equal(block - 1, block) {
                chain.starts[block] = chain.starts[block - 1];
            }
        }
        Ok(chain)
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether two blocks and their outputs are equal.
    fn is_equal(&self, a: usize, b: usize) -> bool {
        let boundary = |block: usize| (self.value(block + 1), self.cotangent(block + 1));
        self.blocks[a] == self.blocks[b] && boundary(a) == boundary(b)
    }

    /// The last block of the shortest part of the chain that begins with this block and is not equal to one that begins before it in the
    /// same run.
    fn last_of_parts(&self, first: usize) -> usize {
        let start = self.starts[first];
        let is_same = |&block: &usize| self.starts[block] == start;
        if start == first {
            first
        } else {
            (first..self.blocks.len()).take_while(is_same).last().map_or(first, |b| b + 1)
        }
    }

    /// The bytes that are live at the peak of the passes of a block that keeps this tape, as the first of the blocks up to `last`, and the
    /// bytes that it holds while the others run.
    fn keep(&self, block: usize, last: usize, tape: &Tape) -> (u64, u64) {
        let held = self.value(block) + tape.kept;
        let forward = held + self.cotangent(last + 1) + self.value(block + 1) + tape.forward.transient;
        let cotangents = self.cotangent(block) + self.cotangent(block + 1);
        let backward = held + cotangents + self.gradients(block, last + 1) + tape.backward.transient;
        (forward.max(backward), held)
    }

    /// The index of the fastest option of a block; of those, the one that keeps the least.
    fn fastest_option(&self, block: usize) -> usize {
        let options = self.blocks[block].options.iter().enumerate();
        options.min_by_key(|(_, tape)| (tape.time(), tape.kept)).map_or(0, |(i, _)| i)
    }

    /// The time of the blocks from `first` to before `end`, each in the fastest way.
    fn fastest(&self, first: usize, end: usize) -> u64 {
        self.fastest[end] - self.fastest[first]
    }

    /// The gradients of the blocks from `first` to before `end`.
    fn gradients(&self, first: usize, end: usize) -> u64 {
        self.gradients[end] - self.gradients[first]
    }

    /// Bytes of the input of a block, or of the output of the last.
    fn value(&self, at: usize) -> u64 {
        self.blocks.get(at).map_or(self.output, |b| b.input)
    }

    /// Bytes of the cotangent of a value.
    fn cotangent(&self, at: usize) -> u64 {
        self.blocks.get(at).map_or(self.cotangent, |b| b.cotangent)
    }
}

/// The sums over the blocks before each block, and over all.
fn sums(blocks: &[Block], value: impl Fn(&Block) -> u64) -> Vec<u64> {
    let sums = blocks.iter().scan(0, |sum, block| {
        *sum += value(block);
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// Bounds of the live bytes and of the time of any schedule, in which each block runs forward at most as often as there are blocks, and
/// once more to keep a tape. `None` if a bound overflows.
fn bounds(blocks: &[Block], output: u64, cotangent: u64) -> Option<(u64, u64)> {
    let (mut bytes, mut time) = (output.checked_add(cotangent)?, 0u64);
    for block in blocks {
        let mut sizes = vec![block.input, block.cotangent, block.gradients, block.forward.transient];
        let mut slowest = 0;
        for option in &block.options {
            sizes.extend([option.kept, option.forward.transient, option.backward.transient]);
            slowest = slowest.max(option.forward.time.checked_add(option.backward.time)?);
        }
        bytes = sizes.into_iter().try_fold(bytes, u64::checked_add)?;
        let again = block.forward.time.checked_mul(blocks.len() as u64)?;
        time = time.checked_add(again)?.checked_add(slowest)?;
    }
    // The largest number stands for an unknown time.
    (time < row::UNKNOWN).then_some((bytes, time))
}
