//! Generates tokens with a decoder, one after the other.

use std::iter::FusedIterator;

use remat_ir::{Error, ErrorKind, Loc, Result};

use super::{KvCache, Sampling};
use crate::random::{self, Key};
use crate::trace::{current_loc, pinned_at};
use crate::{DType, JitOptions, Jitted, Tensor, Tree, eval_shape, jit_with};

/// A language model that continues from a cache, such as [`Gpt2`](super::Gpt2) and [`Llama`](super::Llama). [`Generator`] requires it.
///
/// ```
/// use remat::nn::{Decoder, Gpt2, Gpt2Config};
/// use remat::{Tensor, random};
/// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
/// let model = Gpt2::new(random::key(0), &config);
/// assert_eq!((model.vocabulary()?, model.context()?), (50, Some(16)));
/// let (logits, cache) = model.apply_cached(&Tensor::new([[3, 1, 4]]), Decoder::cache(&model, 1, 8)?)?;
/// assert_eq!((logits.shape()?, cache.length.item::<i32>()?), (&[1, 3, 50][..], 3));
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Decoder: Tree + Clone {
    /// The size of the vocabulary.
    ///
    /// # Errors
    /// If weights are failed tensors.
    fn vocabulary(&self) -> Result<usize>;

    /// The longest sequence that the model can read; `None` if there is no limit.
    ///
    /// # Errors
    /// As [`Decoder::vocabulary`].
    fn context(&self) -> Result<Option<usize>>;

    /// An empty cache for sequences of up to `positions` tokens.
    ///
    /// # Errors
    /// If the model has fewer positions, or weights are failed tensors.
    fn cache(&self, batch: usize, positions: usize) -> Result<KvCache>;

    /// The logits `[batch, positions, vocabulary]` for the token after each of `tokens`, integers `[batch, positions]` that follow the
    /// tokens in the cache, and the next cache.
    ///
    /// # Errors
    /// If the tokens do not fit.
    fn apply_cached(&self, tokens: &Tensor, cache: KvCache) -> Result<(Tensor, KvCache)>;
}

/// Generates tokens that continue prompts.
///
/// A prompt is read in one call. Then each token goes through a program that is compiled once, with the position as an argument and a
/// donated cache, in which keys and values are written in place. Prompts of unequal lengths end at the same position and begin at different
/// ones.
///
/// When the tokens reach the model's context, or [`context`](Generator::context), the last half of it is read again as a new prompt, and so
/// on. This works for learned positions, which cannot slide, as well as for rotary ones. The model does not see earlier tokens.
///
/// ```
/// use remat::nn::{Generator, Gpt2, Gpt2Config, Sampling};
/// use remat::random;
/// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
/// let generator = Generator::new(Gpt2::new(random::key(0), &config), Sampling::default());
/// let mut text = vec![3, 1, 4];
/// for tokens in generator.tokens(random::key(1), &[&text.clone()], 20)? {
///     text.push(tokens?[0]);
/// }
/// assert_eq!(text.len(), 23);
/// # Ok::<(), remat::Error>(())
/// ```
pub struct Generator<M: Decoder> {
    model: M,
    sampling: Sampling,
    /// The most positions that the model reads, if that is less than its context.
    pub context: Option<usize>,
    step: Jitted<Step<M>, Result<(Tensor, KvCache)>, fn(&Step<M>) -> Result<(Tensor, KvCache)>>,
}

/// The argument of the compiled program.
#[derive(Tree)]
struct Step<M> {
    model: M,
    /// i32[batch, positions]
    tokens: Tensor,
    cache: KvCache,
    key: Key,
    /// The number of tokens drawn before.
    number: Tensor,
    sampling: Sampling,
}

/// Marks a token whose logits are NaN.
const NOT_A_TOKEN: i32 = -1;

/// The next tokens, `i32[batch, 1]`, and the cache.
fn step<M: Decoder>(args: &Step<M>) -> Result<(Tensor, KvCache)> {
    let (logits, cache) = args.model.apply_cached(&args.tokens, args.cache.clone())?;
    let last = logits.index((.., -1)).to_dtype(DType::F32);
    let drawn = args.sampling.choose(args.key.fold_in(&args.number), &last);
    let tokens = last.max(-1).is_nan().select(NOT_A_TOKEN, drawn);
    Ok((tokens.expand_dims(-1), cache))
}

impl<M: Decoder> Generator<M> {
    /// A generator for this model, which draws tokens according to `sampling`.
    #[track_caller]
    pub fn new(model: M, sampling: Sampling) -> Generator<M> {
        Generator::new_with(&JitOptions::default(), model, sampling)
    }

    /// As [`Generator::new`] with options of the compiled programs.
    #[track_caller]
    pub fn new_with(options: &JitOptions, model: M, sampling: Sampling) -> Generator<M> {
        let name = Some(options.name.clone().unwrap_or_else(|| "generate".into()));
        let step = jit_with(&JitOptions { name, ..options.clone() }, step::<M> as fn(&Step<M>) -> _);
        Generator { model, sampling, context: None, step }
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The next `count` tokens after each prompt, drawn on demand: one for each prompt at a time. The same key draws the same tokens after
    /// the same prompts. A prompt longer than the context loses its beginning.
    ///
    /// # Errors
    /// If a prompt is empty or has a token outside the vocabulary, the sampling options are out of range, or weights are failed tensors.
    /// The iterator returns the errors of the compiled programs, and one if logits are NaN.
    #[track_caller]
    pub fn tokens(&self, key: Key, prompts: &[impl AsRef<[u32]>], count: usize) -> Result<Tokens<'_, M>> {
        self.begin(current_loc(), &self.model, key, prompts, count)
    }

    /// As [`Generator::tokens`] for another model whose tensors have the same shapes and dtypes, so that programs are compiled once for
    /// both. This samples a model while it is trained; create the generator from an abstract model, so that it holds no weights.
    ///
    /// ```
    /// use remat::nn::{Generator, Gpt2, Gpt2Config, Sampling};
    /// use remat::{eval_shape, random};
    /// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    /// let init = |key: &random::Key| Gpt2::new(key.reuse(), &config);
    /// let generator = Generator::new(eval_shape(init)(&random::key(0))?, Sampling::default());
    /// for seed in 0..2 {
    ///     let model = init(&random::key(seed));
    ///     let text = generator.tokens_of(random::key(7), &model, &[[3, 1, 4]], 5)?.collect::<remat::Result<Vec<_>>>()?;
    ///     assert_eq!(text.len(), 5);
    /// }
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Generator::tokens`].
    #[track_caller]
    pub fn tokens_of<'a>(
        &'a self,
        key: Key,
        model: &'a M,
        prompts: &[impl AsRef<[u32]>],
        count: usize,
    ) -> Result<Tokens<'a, M>> {
        self.begin(current_loc(), model, key, prompts, count)
    }

    /// The tokens for a caller at `loc`, which is the location of the model's run and of errors.
    fn begin<'a>(
        &'a self,
        loc: Loc,
        model: &'a M,
        key: Key,
        prompts: &[impl AsRef<[u32]>],
        count: usize,
    ) -> Result<Tokens<'a, M>> {
        let checked = || {
            self.sampling.check()?;
            let vocabulary = model.vocabulary()?;
            for prompt in prompts.iter().map(AsRef::as_ref) {
                if prompt.is_empty() {
                    return Err(refused("a prompt has no token that could be continued".into()));
                }
                if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocabulary) {
                    let message = format!("token {token} of a prompt is not one of the {vocabulary} of the model");
                    return Err(refused(message));
                }
            }
            let longest = prompts.iter().map(|prompt| prompt.as_ref().len()).max().unwrap_or(1);
            let room = self.room(model, longest, count)?;
            let texts = prompts.iter().map(|prompt| prompt.as_ref().to_vec()).collect();
            Ok(Tokens { generator: self, model, loc, key, texts, room, drawn: 0, count, state: State::Unread })
        };
        pinned_at(loc, checked).map_err(|error: Error| error.at(loc))
    }

    /// The number of cache positions for this many tokens after a prompt.
    ///
    /// # Errors
    /// If there are none.
    fn room(&self, model: &M, prompt: usize, count: usize) -> Result<usize> {
        let own = model.context()?;
        let context = self.context.into_iter().chain(own).min();
        if context == Some(0) {
            return Err(refused("a context of 0 positions has no room for a token".into()));
        }
        // The last token is not read.
        Ok(prompt.saturating_add(count.saturating_sub(1)).min(context.unwrap_or(usize::MAX)))
    }

    /// The most bytes that are live while `count` tokens are drawn after each of `batch` prompts, each with at most `prompt` tokens. The
    /// programs are compiled but not run. Model and cache are included; the model may be abstract.
    ///
    /// ```
    /// use remat::nn::{Generator, Gpt2, Gpt2Config, Sampling};
    /// use remat::random;
    /// let config = Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    /// let generator = Generator::new(Gpt2::new(random::key(0), &config), Sampling::default());
    /// assert!(generator.peak(1, 3, 20)? > generator.peak(1, 3, 2)?);
    /// # Ok::<(), remat::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of the model; if a program exceeds its memory limit.
    #[track_caller]
    pub fn peak(&self, batch: usize, prompt: usize, count: usize) -> Result<usize> {
        let loc = current_loc();
        pinned_at(loc, || {
            let room = self.room(&self.model, prompt, count)?;
            let first = prompt.min(room);
            // The programs of the first call, of the following ones, and of those that read the context again.
            let next = (count > 1).then_some(1);
            let again = (count > room - first + 1).then_some((room / 2).max(1));
            let cache = eval_shape(|(): &()| self.model.cache(batch, room))(&())?;
            let mut most = 0;
            for tokens in [first].into_iter().chain(next).chain(again) {
                let step = Step {
                    model: self.model.clone(),
                    tokens: Tensor::shape_only([batch, tokens], DType::I32),
                    cache: cache.clone(),
                    key: random::key(0),
                    number: Tensor::from(0u32),
                    sampling: self.sampling,
                };
                most = most.max(self.step.memory(&step)?.donated_peak);
            }
            Ok(most)
        })
        .map_err(|error: Error| error.at(loc))
    }
}

/// The prompts with `count` tokens that a model adds to each: [`Generator`] for callers who do not need each token at once.
///
/// ```
/// use remat::nn::{self, Llama, LlamaConfig, Sampling};
/// use remat::random;
/// let config = LlamaConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, num_attention_heads: 2, ..LlamaConfig::default() };
/// let model = Llama::new(random::key(0), &config);
/// let texts = nn::generate(random::key(0), &model, &[vec![1, 2, 3], vec![4]], 5, Sampling::greedy())?;
/// assert_eq!((texts[0].len(), texts[1].len(), texts[1][0]), (8, 6, 4));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`Generator::tokens`].
#[track_caller]
pub fn generate<M: Decoder>(
    key: Key,
    model: &M,
    prompts: &[impl AsRef<[u32]>],
    count: usize,
    sampling: Sampling,
) -> Result<Vec<Vec<u32>>> {
    let loc = current_loc();
    let generator = Generator::new(model.clone(), sampling);
    let mut texts: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt.as_ref().to_vec()).collect();
    for tokens in generator.begin(loc, model, key, prompts, count)? {
        texts.iter_mut().zip(tokens?).for_each(|(text, token)| text.push(token));
    }
    Ok(texts)
}

/// The tokens from [`Generator::tokens`]: an iterator over one token per prompt. It ends after the first error.
pub struct Tokens<'a, M: Decoder> {
    generator: &'a Generator<M>,
    model: &'a M,
    /// The location of the call that asked for the tokens.
    loc: Loc,
    key: Key,
    /// The text to read after the context is full: the ends of the texts so far, of at most `room` tokens.
    texts: Vec<Vec<u32>>,
    /// The positions of the cache.
    room: usize,
    drawn: usize,
    count: usize,
    state: State,
}

/// What the model has read so far.
enum State {
    /// Nothing.
    Unread,
    /// Everything except the last tokens, `i32[batch, 1]`, up to a position.
    Read(Box<Read>),
    /// There was an error.
    Ended,
}

/// The state that continues a text.
struct Read {
    cache: KvCache,
    last: Tensor,
    positions: usize,
}

impl<M: Decoder> Tokens<'_, M> {
    fn draw(&mut self) -> Result<Vec<u32>> {
        let (tokens, cache, positions) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Read(read) if read.positions < self.room => (read.last, read.cache, read.positions),
            State::Read(read) => self.read((self.room / 2).max(1), read.cache)?,
            State::Unread | State::Ended => {
                let cache = self.model.cache(self.texts.len(), self.room)?;
                self.read(self.room, cache)?
            }
        };
        let count = tokens.dim(1)?;
        let Generator { sampling, step, .. } = self.generator;
        let step_args = Step {
            model: self.model.clone(),
            tokens,
            cache,
            key: self.key.reuse(),
            number: Tensor::from(self.drawn as u32),
            sampling: *sampling,
        };
        let (last, cache) = step.call(step_args)?;
        let drawn = last.to_vec::<i32>()?;
        let drawn: Vec<u32> = drawn.into_iter().map(known).collect::<Result<_>>()?;
        for (text, &token) in self.texts.iter_mut().zip(&drawn) {
            text.push(token);
            // Tokens that the model cannot read again are dropped, many at a time.
            if text.len() > 2 * self.room {
                text.drain(..text.len() - self.room);
            }
        }
        self.drawn += 1;
        self.state = State::Read(Box::new(Read { cache, last, positions: positions + count }));
        Ok(drawn)
    }

    /// The last tokens of all texts, which end at the same position, and a cache for them. The positions in the given cache no longer
    /// count.
    fn read(&self, keeps: usize, cache: KvCache) -> Result<(Tensor, KvCache, usize)> {
        let ends: Vec<&[u32]> = self.texts.iter().map(|text| &text[text.len().saturating_sub(keeps)..]).collect();
        let longest = ends.iter().map(|end| end.len()).max().unwrap_or(1);
        let mut tokens = Vec::with_capacity(ends.len() * longest);
        for end in &ends {
            tokens.resize(tokens.len() + longest - end.len(), 0);
            tokens.extend(end.iter().map(|&token| token as i32));
        }
        let first = ends.iter().any(|end| end.len() < longest).then(|| {
            let first = ends.iter().map(|end| (longest - end.len()) as i32).collect();
            Tensor::from_vec::<i32>(first, [ends.len()])
        });
        let cache = KvCache { length: Tensor::from(0i32), first, ..cache };
        Ok((Tensor::from_vec(tokens, [ends.len(), longest]), cache, 0))
    }
}

impl<M: Decoder> Iterator for Tokens<'_, M> {
    type Item = Result<Vec<u32>>;

    fn next(&mut self) -> Option<Result<Vec<u32>>> {
        if self.drawn == self.count {
            return None;
        }
        let loc = self.loc;
        let drawn = pinned_at(loc, || self.draw()).map_err(|error| error.at(loc));
        if drawn.is_err() {
            self.drawn = self.count;
        }
        Some(drawn)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error ends the iterator earlier.
        (usize::from(self.drawn < self.count), Some(self.count - self.drawn))
    }
}

impl<M: Decoder> FusedIterator for Tokens<'_, M> {}

fn known(token: i32) -> Result<u32> {
    u32::try_from(token).map_err(|_| {
        let message = "the logits of the next token are NaN: weights are NaN, or so large that activations overflow";
        Error::new(ErrorKind::Argument, "nn::Generator", message)
    })
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Argument, "nn::Generator", message)
}
