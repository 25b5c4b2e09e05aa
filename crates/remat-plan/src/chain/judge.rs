//! The time and the peak of a schedule, found by running it. It shares nothing with the table that finds schedules.

use remat_ir::{Error, ErrorKind, Result};

use super::{CHAIN, Chain, Cost, Operation};

/// What is live between two operations.
struct State<'a> {
    chain: &'a Chain,
    /// Which inputs of blocks are held, and whether the last output is.
    is_held: Vec<bool>,
    /// The option whose tape is held, of each block.
    tapes: Vec<Option<usize>>,
    /// The value whose cotangent is held.
    cotangent: usize,
    /// The sum of the live bytes.
    live: u64,
    cost: Cost,
}

impl Chain {
    /// The time and the peak of a schedule: the most bytes that are live at one time, including the first input and the last cotangent.
    ///
    /// # Errors
    ///
    /// Of kind `Argument` if an operation reads something that is not held, repeats a block whose output or tape is held, or if a block
    /// has not run backward at the end.
    pub fn cost(&self, operations: &[Operation]) -> Result<Cost> {
        let last = self.blocks.len();
        let mut state = State {
            chain: self,
            is_held: vec![false; last + 1],
            tapes: vec![None; last],
            cotangent: last,
            live: self.value(0) + self.cotangent(last),
            cost: Cost::default(),
        };
        state.is_held[0] = true;
        for (i, &operation) in operations.iter().enumerate() {
            if state.run(operation).is_none() {
                let message = format!("operation {i}, {operation:?}, cannot run after those before it");
                return Err(Error::new(ErrorKind::Argument, CHAIN, message));
            }
        }
        if state.cotangent > 0 {
            let message = format!("block {} does not run backward", state.cotangent - 1);
            return Err(Error::new(ErrorKind::Argument, CHAIN, message));
        }
        Ok(state.cost)
    }
}

impl State<'_> {
    fn run(&mut self, operation: Operation) -> Option<()> {
        match operation {
            Operation::Forward { block } => {
                let pass = self.chain.blocks.get(block)?.forward;
                self.forward(block, 0, pass.transient, pass.time)?;
                self.free(block);
            }
            Operation::Checkpoint { block } => {
                let pass = self.chain.blocks.get(block)?.forward;
                self.forward(block, 0, pass.transient, pass.time)?;
            }
            Operation::Keep { block, option } => {
                let tape = self.chain.blocks.get(block)?.options.get(option)?;
                self.forward(block, tape.kept, tape.forward.transient, tape.forward.time)?;
                self.tapes[block] = Some(option);
            }
            Operation::Backward { block } => self.backward(block)?,
        }
        Some(())
    }

    /// Runs a block forward, which produces its output and these kept bytes.
    fn forward(&mut self, block: usize, kept: u64, transient: u64, time: u64) -> Option<()> {
        if !self.is_held[block] || self.is_held[block + 1] || self.tapes[block].is_some() || block >= self.cotangent {
            return None;
        }
        self.is_held[block + 1] = true;
        self.live += self.chain.value(block + 1) + kept;
        self.pass(transient, time);
        Some(())
    }

    fn backward(&mut self, block: usize) -> Option<()> {
        let of = self.chain.blocks.get(block)?;
        let tape = of.options[self.tapes[block].take()?];
        if !self.is_held[block] || self.cotangent != block + 1 {
            return None;
        }
        if self.is_held[block + 1] {
            self.free(block + 1);
        }
        self.live += of.cotangent + of.gradients;
        self.pass(tape.backward.transient, tape.backward.time);
        self.live -= self.chain.cotangent(block + 1) + tape.kept;
        self.cotangent = block;
        self.free(block);
        Some(())
    }

    fn free(&mut self, value: usize) {
        self.is_held[value] = false;
        self.live -= self.chain.value(value);
    }

    fn pass(&mut self, transient: u64, time: u64) {
        self.cost.peak = self.cost.peak.max(self.live + transient);
        // A schedule of others may repeat passes without end.
        self.cost.time = self.cost.time.saturating_add(time);
    }
}
