//! Tokenizers of Hugging Face, by the crate `tokenizers`.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::Path;

use remat::files::{cannot, write_bytes, wrong};
use remat::{Error, ErrorKind, Result};
use serde::Deserialize;
use twox_hash::XxHash3_64;

use super::{FILE, TOKENIZER};
use crate::guard::guarded;

/// Names of the token that ends documents, in GPT-2, Llama 2, Llama 3, Gemma.
const ENDS: [&str; 4] = ["<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"];

/// The file next to a tokenizer that defines its special tokens.
pub(super) const CONFIG: &str = "tokenizer_config.json";

/// A tokenizer, the number of its tokens, and the one that it puts before each text.
#[derive(Debug)]
pub(super) struct Model {
    inner: tokenizers::Tokenizer,
    pub(super) vocabulary: usize,
    pub(super) begin: Option<u32>,
    /// The texts of the two files; the second may be missing.
    json: Vec<u8>,
    config: Option<Vec<u8>>,
}

/// The end-of-document entry of the configuration: the text of a token, or an object with it.
#[derive(Deserialize)]
struct Config {
    eos_token: Option<Token>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Content(String),
    Object { content: String },
}

/// The tokenizer of a file, the token that ends documents, and a fingerprint of both.
///
/// # Errors
/// If a file cannot be read, is not a tokenizer, or names an end token that is not in the vocabulary.
pub(super) fn open(path: &Path) -> Result<(Model, Option<u32>, u64)> {
    let json = fs::read(path).map_err(|error| cannot(TOKENIZER, "read", path, &error))?;
    let inner = guarded(|| parsed(&json)).and_then(|parsed| parsed.map_err(|error| error.to_string()));
    let inner =
        inner.map_err(|error| wrong(TOKENIZER, path, format!("is not a `tokenizer.json` of Hugging Face: {error}")))?;
    let largest = inner.get_vocab(true).into_values().max();
    let vocabulary = largest.map_or(0, |token| token as usize + 1);
    if vocabulary == 0 {
        return Err(wrong(TOKENIZER, path, "has no tokens"));
    }
    let config = config(&path.with_file_name(CONFIG))?;
    let end = match configured(&path.with_file_name(CONFIG), config.as_deref())? {
        None => ENDS.iter().find_map(|token| inner.token_to_id(token)),
        Some(token) => Some(inner.token_to_id(&token).ok_or_else(|| {
            wrong(TOKENIZER, path, format!("lacks the token `{token}`, which `{CONFIG}` says ends a text"))
        })?),
    };
    let mut hasher = XxHash3_64::new();
    hasher.write(&json);
    hasher.write(&end.map_or(u64::MAX, u64::from).to_le_bytes());
    // Derived from the tokens around a text of one letter.
    let around = used("encode", || inner.encode("a", true))?;
    let begin = around.get_special_tokens_mask().first().filter(|&&is_special| is_special == 1);
    let begin = begin.and_then(|_| around.get_ids().first().copied());
    Ok((Model { inner, vocabulary, begin, json, config }, end, hasher.finish()))
}

/// The tokenizer of a text in JSON. Lengths are cut elsewhere.
fn parsed(json: &[u8]) -> tokenizers::Result<tokenizers::Tokenizer> {
    let mut inner = tokenizers::Tokenizer::from_bytes(json)?;
    inner.with_truncation(None)?.with_padding(None);
    Ok(inner)
}

/// The text of a configuration, if there is one.
fn config(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        json => json.map(Some).map_err(|error| cannot(TOKENIZER, "read", path, &error)),
    }
}

/// The end-of-text token of a configuration.
fn configured(path: &Path, json: Option<&[u8]>) -> Result<Option<String>> {
    let Some(json) = json else { return Ok(None) };
    let config: Config =
        serde_json::from_slice(json).map_err(|error| wrong(TOKENIZER, path, format!("is damaged: {error}")))?;
    Ok(config.eos_token.map(|token| match token {
        Token::Content(content) | Token::Object { content } => content,
    }))
}

impl Model {
    /// Writes the files from which it was read. Removes the configuration of another tokenizer.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        let at = folder.join(CONFIG);
        match &self.config {
            Some(config) => write_bytes(TOKENIZER, &at, config)?,
            None => match fs::remove_file(&at) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(cannot(TOKENIZER, "remove", &at, &error));
                }
                _ => {}
            },
        }
        write_bytes(TOKENIZER, &folder.join(FILE), &self.json)
    }

    pub(super) fn encode(&self, texts: &[&[u8]]) -> Result<Vec<Vec<u32>>> {
        let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
        let encoded = used("encode", || self.inner.encode_batch_fast(texts, false))?;
        Ok(encoded.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
    }

    pub(super) fn decode(&self, tokens: &[u32]) -> Result<String> {
        used("decode", || self.inner.decode(tokens, true))
    }
}

/// What a tokenizer makes of something.
///
/// # Errors
/// Its own, or its panic: a file may ask for what its parts cannot do.
fn used<T>(what: &str, work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let done = guarded(work).and_then(|done| done.map_err(|error| error.to_string()));
    done.map_err(|error| Error::new(ErrorKind::Argument, TOKENIZER, format!("the tokenizer cannot {what}: {error}")))
}
