//! All sequences of a text, to test a model on.

use std::collections::VecDeque;

use remat::{Result, Tensor};
use remat_data::TokenStream;

use crate::data::Batch;

/// The sequences of a text in batches, in order, made as its tokens are: memory does not depend on the size of the text. Each has `context`
/// tokens to predict, after the token that begins sequences if there is one; otherwise each token but the first is predicted from those
/// before. The last batch may have fewer sequences, and the end of the text that does not fill a sequence is left out.
pub(crate) struct Sequences {
    stream: TokenStream,
    begin: Option<u32>,
    context: usize,
    batch: usize,
    /// Tokens that are not in a batch yet; without a token that begins sequences, after the last one that is.
    ready: VecDeque<i32>,
    /// The tokens so far.
    tokens: u64,
    predicted: u64,
}

impl Sequences {
    /// Sequences of this context, or of all tokens that can be predicted if there are fewer, and batches of this many.
    ///
    /// # Errors
    /// If the text cannot be read or tokenized.
    pub(crate) fn new(stream: TokenStream, begin: Option<u32>, context: usize, batch: usize) -> Result<Sequences> {
        let (ready, tokens, predicted) = (VecDeque::new(), 0, 0);
        let mut this = Sequences { stream, begin, context, batch, ready, tokens, predicted };
        if !this.has_sequence()? {
            this.context = this.ready.len().saturating_sub(this.before());
        }
        Ok(this)
    }

    /// The tokens of a sequence; 0 if the text has none to predict.
    pub(crate) fn context(&self) -> usize {
        self.context
    }

    /// The bytes of the text; at the end, of all of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.stream.bytes()
    }

    /// The tokens of the text; at the end, all of them.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The tokens to predict of the batches so far.
    pub(crate) fn predicted(&self) -> u64 {
        self.predicted
    }

    /// The tokens of the text before the first that is predicted.
    fn before(&self) -> usize {
        usize::from(self.begin.is_none())
    }

    /// Reads the tokens of the next sequence; `false` if the text has fewer.
    fn has_sequence(&mut self) -> Result<bool> {
        while self.ready.len().saturating_sub(self.before()) < self.context {
            let Some(tokens) = self.stream.next().transpose()? else { return Ok(false) };
            self.tokens += tokens.len() as u64;
            self.ready.extend(tokens.into_iter().map(u32::cast_signed));
        }
        Ok(true)
    }

    fn batch(&mut self) -> Result<Option<Batch>> {
        let (mut inputs, mut targets, mut rows) = (Vec::new(), Vec::new(), 0);
        while rows < self.batch && self.has_sequence()? {
            let before = self.before();
            inputs.extend(self.begin.map(u32::cast_signed));
            inputs.extend(self.ready.iter().take(self.context - 1 + before));
            targets.extend(self.ready.iter().skip(before).take(self.context));
            self.ready.drain(..self.context);
            rows += 1;
        }
        let shape = [rows, self.context];
        self.predicted += targets.len() as u64;
        let tensor = |tokens: Vec<i32>| Tensor::from_vec(tokens, shape);
        Ok((rows > 0).then(|| Batch { tokens: tensor(inputs), targets: tensor(targets) }))
    }
}

impl Iterator for Sequences {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.batch().transpose()
    }
}

#[cfg(test)]
mod tests {
    use remat_data::{Source, Tokenizer};

    use super::*;

    /// Inputs and targets of each batch, and the numbers of tokens to predict and of bytes.
    fn of(text: &str, begin: Option<u32>, context: usize, batch: usize) -> (Vec<[Vec<i32>; 2]>, [u64; 3]) {
        let stream = TokenStream::new(&Source::in_memory("a text", text), &Tokenizer::bytes());
        let mut sequences = Sequences::new(stream, begin, context, batch).unwrap();
        if sequences.context() == 0 {
            return (Vec::new(), [0, sequences.tokens(), sequences.bytes()]);
        }
        let both = |batch: Batch| [&batch.tokens, &batch.targets].map(|tensor| tensor.to_vec::<i32>().unwrap());
        let batches = sequences.by_ref().map(|batch| both(batch.unwrap())).collect();
        (batches, [sequences.predicted(), sequences.tokens(), sequences.bytes()])
    }

    #[test]
    fn each_token_is_predicted_once() {
        let text = "\0\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}";
        let (batches, counts) = of(text, None, 2, 2);
        assert_eq!(batches, [[vec![0, 1, 2, 3], vec![1, 2, 3, 4]], [vec![4, 5], vec![5, 6]]]);
        assert_eq!(counts, [6, 8, 8]);
        let (batches, counts) = of(text, Some(9), 3, 5);
        assert_eq!(batches, [[vec![9, 0, 1, 9, 3, 4], vec![0, 1, 2, 3, 4, 5]]]);
        assert_eq!(counts, [6, 8, 8]);
        // A sequence of one token, and a text that is shorter than a sequence.
        assert_eq!(of("\u{1}\u{2}", Some(9), 1, 9).0, [[vec![9, 9], vec![1, 2]]]);
        assert_eq!(of("\u{1}\u{2}\u{3}", None, 100, 9), (vec![[vec![1, 2], vec![2, 3]]], [2, 3, 3]));
        assert_eq!(of("\u{1}\u{2}\u{3}", Some(9), 100, 9), (vec![[vec![9, 1, 2], vec![1, 2, 3]]], [3, 3, 3]));
        // Too few.
        assert_eq!(of("", Some(9), 3, 1), (Vec::new(), [0, 0, 0]));
        assert_eq!(of("a", None, 3, 1), (Vec::new(), [0, 1, 1]));
    }
}
