//! Sequences of tokens as batches.

use remat::layer::location;
use remat::{Result, Tensor, Tree};

use crate::failure::{expect_memory, invalid};
use crate::shuffle::{Shuffle, mixed};
use crate::tokens::Tokens;

/// The operation that errors name.
const BATCHES: &str = "Batches";

/// Sequences of tokens, and for each token the next one: both `i32[batch, context]`.
#[derive(Clone, Tree)]
pub struct Batch {
    /// The tokens.
    pub tokens: Tensor,
    /// The next tokens.
    pub targets: Tensor,
}

/// The batches of a training run. The sequences of a step's batch depend only on the seed and the step, so that a resumed run sees the same
/// batches.
///
/// An epoch cuts the tokens into windows of `context` tokens, whose targets are the same window one token later. It has every window once,
/// in a random order that is computed, not stored. Each epoch has another order, and a batch may have windows of two epochs. The first
/// window of an epoch begins at a random offset, one of at least `context` possible ones, so that each epoch cuts windows at other tokens.
/// An epoch leaves out fewer than `2 * context` tokens, at both ends of the text.
///
/// ```
/// use remat_data::{Batches, Tokens};
///
/// let tokens = Tokens::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 10)?;
/// let batches = Batches::new(tokens, [4, 2], 1)?;
/// assert_eq!(batches.windows(), 4);
/// let batch = batches.get(0)?;
/// let mut firsts: Vec<i32> = batch.tokens.index((.., 0)).to_vec()?;
/// firsts.sort();
/// assert!(firsts == [0, 2, 4, 6] || firsts == [1, 3, 5, 7]);
/// assert_eq!((&batch.targets - &batch.tokens).to_vec::<i32>()?, [1; 8]);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batches {
    tokens: Tokens,
    context: usize,
    batch: usize,
    seed: u64,
}

impl Batches {
    /// Batches of `batch` sequences of `context` tokens.
    ///
    /// # Errors
    /// If one of these is 0; if there are fewer than `context + 1` tokens.
    #[track_caller]
    pub fn new(tokens: Tokens, [batch, context]: [usize; 2], seed: u64) -> Result<Batches> {
        let loc = location();
        if context == 0 || batch == 0 {
            let message = format!("a batch of {batch} sequences of {context} tokens is empty");
            return Err(invalid(BATCHES, message).at(loc));
        }
        if tokens.len() <= context as u64 {
            let message = format!(
                "there are {} tokens, too few for a context of {context} and the token that follows",
                tokens.len()
            );
            return Err(invalid(BATCHES, message).at(loc));
        }
        Ok(Batches { tokens, context, batch, seed })
    }

    /// The number of windows of an epoch: as many as leave room for `context` offsets, but at least one.
    pub fn windows(&self) -> u64 {
        let context = self.context as u64;
        ((self.tokens.len() - context) / context).max(1)
    }

    /// The batch of a step.
    ///
    /// # Errors
    /// If a shard cannot be read, or there is no memory for the batch.
    #[track_caller]
    pub fn get(&self, step: u64) -> Result<Batch> {
        let loc = location();
        // Inputs and targets are i32.
        let bytes = self.batch.checked_mul(self.context).and_then(|tokens| tokens.checked_mul(8));
        let what = || format!("a batch of {} sequences of {} tokens", self.batch, self.context);
        expect_memory(BATCHES, what, bytes).map_err(|error| error.at(loc))?;
        let first = step.wrapping_mul(self.batch as u64);
        let starts = (0..self.batch as u64).map(|row| self.start(first.wrapping_add(row)));
        batch_at(&self.tokens, starts, self.context).map_err(|error| error.at(loc))
    }

    /// The first token of a window, where windows are counted over all epochs.
    fn start(&self, window: u64) -> u64 {
        let (count, context) = (self.windows(), self.context as u64);
        let epoch = window / count;
        // All offsets that leave room for the target of the last token, so that both ends are left out equally often.
        let offsets = self.tokens.len() - count * context;
        let offset = mixed(mixed(self.seed ^ 1) ^ epoch) % offsets;
        offset + Shuffle::new(self.seed, epoch, count).at(window % count) * context
    }

    /// Batches of all sequences in the order of the tokens, to evaluate a model. The last batch may have fewer sequences; tokens at the end
    /// that do not fill a sequence are left out.
    ///
    /// # Errors
    /// A batch is an error if a shard cannot be read.
    pub fn in_order(&self) -> impl Iterator<Item = Result<Batch>> + use<> {
        let (this, count) = (self.clone(), (self.tokens.len() - 1) / self.context as u64);
        (0..count).step_by(self.batch).map(move |first| {
            let windows = first..count.min(first.saturating_add(this.batch as u64));
            batch_at(&this.tokens, windows.map(|window| window * this.context as u64), this.context)
        })
    }
}

/// The sequences that begin at these tokens.
fn batch_at(tokens: &Tokens, starts: impl Iterator<Item = u64>, context: usize) -> Result<Batch> {
    let (mut inputs, mut targets, mut rows) = (Vec::new(), Vec::new(), 0usize);
    for start in starts {
        let window = tokens.read(start, context + 1)?;
        inputs.extend(&window[..context]);
        targets.extend(&window[1..]);
        rows += 1;
    }
    let tensor = |tokens: Vec<i32>| Tensor::from_vec(tokens, [rows, context]);
    Ok(Batch { tokens: tensor(inputs), targets: tensor(targets) })
}
