//! Training data: text from files and its tokens, and labelled images, as batches that depend only on a seed and a step.
//!
//! ```
//! use remat_data::{Batches, Corpus, Source, Tokenizer};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("a.txt"), "To be, or not to be, that is the question.".repeat(10))?;
//! let corpus = Corpus::in_memory(&Source::open(folder.path(), None)?, &Tokenizer::bytes())?.with_context(16)?;
//! let batches = Batches::new(corpus.train, [4, 16], 0)?;
//! assert_eq!(batches.get(0)?.tokens.shape()?, [4, 16]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Text is read in pieces of a mebibyte, and windows of tokens are read directly from their files, so that texts may be larger than memory.
//! Files are not memory-mapped, since another process may change them; reading a window costs a system call, a few microseconds of a step.
//!
//! Features: `tokenizers` for the tokenizers of Hugging Face, `image` for folders of pictures, `parquet` for Parquet files, `parquet-zstd`
//! for Parquet files compressed with Zstandard.
//!
//! Layers, each of which uses only those above it in this list (a test checks this):
//!
//! 1. `failure`, `shuffle`, `open`, `guard`: errors of files, permutations, files that may be compressed, readers of other crates
//! 2. [`source`](Source), [`tokenizer`](Tokenizer), [`tokens`](Tokens): documents, text as tokens, long sequences of tokens
//! 3. [`images`](Images): labelled images and their batches
//! 4. [`cache`](TokenCache), [`stream`](TokenStream): the folder of shards, tokens as they are made
//! 5. [`corpus`](Corpus), [`batches`](Batches), [`prefetch`](Prefetch): training and held-out tokens, batches, batches made ahead

mod batches;
mod cache;
mod corpus;
mod failure;
mod guard;
mod images;
mod open;
mod prefetch;
mod shuffle;
mod source;
mod stream;
mod tokenizer;
mod tokens;

pub use batches::{Batch, Batches};
pub use cache::{TokenCache, TokenUsage};
pub use corpus::Corpus;
pub use images::{Channels, Fit, ImageBatch, ImageBatches, Images, Pictures, Split};
pub use prefetch::Prefetch;
pub use source::{Piece, Source, TEXT_COLUMN};
pub use stream::TokenStream;
pub use tokenizer::{Decoder, Tokenizer};
pub use tokens::Tokens;
