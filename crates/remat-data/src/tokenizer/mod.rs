//! Tokenizers: text as numbers and back.

mod decoder;
#[cfg(feature = "tokenizers")]
mod huggingface;

use std::path::Path;

use remat::Result;
use remat::files::wrong;
use remat::layer::location;
use twox_hash::XxHash3_64;

pub use decoder::Decoder;

use crate::failure::invalid;

/// The operation that errors name.
const TOKENIZER: &str = "Tokenizer";

/// The file of a tokenizer in a folder.
const FILE: &str = "tokenizer.json";

/// The number of bytes.
const BYTES: u32 = 256;

/// Text as tokens, numbers below [`vocabulary`](Tokenizer::vocabulary), and tokens as text.
///
/// ```
/// use remat_data::Tokenizer;
///
/// let tokenizer = Tokenizer::bytes();
/// assert_eq!(tokenizer.encode("ab".as_bytes())?, [97, 98]);
/// assert_eq!(tokenizer.decode(&[97, 98])?, "ab");
/// assert_eq!((tokenizer.vocabulary(), tokenizer.end_of_text()), (256, None));
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    kind: Kind,
    end: Option<u32>,
    fingerprint: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Bytes,
    #[cfg(feature = "tokenizers")]
    HuggingFace(std::sync::Arc<huggingface::Model>),
}

impl Tokenizer {
    /// Each byte is a token; no token separates documents.
    pub fn bytes() -> Tokenizer {
        Tokenizer { kind: Kind::Bytes, end: None, fingerprint: XxHash3_64::oneshot(b"bytes") }
    }

    /// Each byte is a token, and token 256 ends a document.
    ///
    /// ```
    /// let tokenizer = remat_data::Tokenizer::bytes_with_end();
    /// assert_eq!((tokenizer.vocabulary(), tokenizer.end_of_text()), (257, Some(256)));
    /// assert_eq!(tokenizer.decode(&[104, 105, 256])?, "hi");
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn bytes_with_end() -> Tokenizer {
        Tokenizer { kind: Kind::Bytes, end: Some(BYTES), fingerprint: XxHash3_64::oneshot(b"bytes with end") }
    }

    /// The tokenizer of a `tokenizer.json` in the format of Hugging Face, or of a folder with one. Needs the feature `tokenizers`.
    ///
    /// The token that ends documents is the `eos_token` of `tokenizer_config.json` next to it. Without that file it is a known one
    /// (`<|endoftext|>`, `</s>`, `<|end_of_text|>`, `<eos>`), if the vocabulary has it. Other tokens that the file adds to a text are not
    /// added: the token that begins a text is [`begin_of_text`](Tokenizer::begin_of_text).
    ///
    /// # Errors
    /// If the file cannot be read or is not a tokenizer; without the feature.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let (loc, path) = (location(), path.as_ref());
        let file = if path.is_dir() { path.join(FILE) } else { path.to_path_buf() };
        Tokenizer::open_file(&file).map_err(|error| error.at(loc))
    }

    #[cfg(feature = "tokenizers")]
    fn open_file(path: &Path) -> Result<Tokenizer> {
        // A pipe would be waited for, and a device may have no end.
        let is_odd = |path: &Path| std::fs::metadata(path).is_ok_and(|kind| !kind.is_file());
        if let Some(odd) =
            [path.to_path_buf(), path.with_file_name(huggingface::CONFIG)].iter().find(|path| is_odd(path))
        {
            return Err(wrong(TOKENIZER, odd, "is not a file"));
        }
        let (model, end, fingerprint) = huggingface::open(path)?;
        Ok(Tokenizer { kind: Kind::HuggingFace(std::sync::Arc::new(model)), end, fingerprint })
    }

    #[cfg(not(feature = "tokenizers"))]
    fn open_file(path: &Path) -> Result<Tokenizer> {
        let message = "cannot be read by this build, which knows bytes alone: build it with the feature `tokenizers`";
        Err(wrong(TOKENIZER, path, message))
    }

    /// Writes the files from which it was read to a folder: `tokenizer.json`, and `tokenizer_config.json` if it existed.
    /// [`open`](Tokenizer::open) on the folder gives a tokenizer with the same fingerprint, even if the original files change. A tokenizer
    /// of bytes has no files.
    ///
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// remat_data::Tokenizer::bytes().save(folder.path())?;
    /// assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a file cannot be written.
    #[track_caller]
    #[cfg_attr(not(feature = "tokenizers"), expect(unused_variables, reason = "bytes have no files"))]
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        match &self.kind {
            Kind::Bytes => Ok(()),
            #[cfg(feature = "tokenizers")]
            Kind::HuggingFace(model) => {
                let loc = location();
                model.save(folder.as_ref()).map_err(|error| error.at(loc))
            }
        }
    }

    /// The size of the vocabulary; each token is below it.
    pub fn vocabulary(&self) -> usize {
        match &self.kind {
            Kind::Bytes => BYTES as usize + usize::from(self.end.is_some()),
            #[cfg(feature = "tokenizers")]
            Kind::HuggingFace(model) => model.vocabulary,
        }
    }

    /// The token that ends a document, if there is one.
    pub fn end_of_text(&self) -> Option<u32> {
        self.end
    }

    /// The token that the tokenizer's file puts before each text, if any: models trained with it expect it at the beginning of a sequence.
    /// [`encode`](Tokenizer::encode) does not add it.
    pub fn begin_of_text(&self) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => None,
            #[cfg(feature = "tokenizers")]
            Kind::HuggingFace(model) => model.begin,
        }
    }

    /// A number that identifies the tokenizer: tokens of one are meaningless to another.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The tokens of a text in UTF-8. Bytes that are not UTF-8 are ordinary tokens of a tokenizer of bytes; for other tokenizers they are
    /// U+FFFD, the replacement character. The text of a special token, such as `<|endoftext|>`, becomes that token, except with a tokenizer
    /// of bytes.
    ///
    /// # Errors
    /// If the tokenizer has no token for a part of the text.
    #[track_caller]
    pub fn encode(&self, text: &[u8]) -> Result<Vec<u32>> {
        let loc = location();
        Ok(self.encode_all(&[text]).map_err(|error| error.at(loc))?.pop().unwrap_or_default())
    }

    /// The tokens of several texts, each as [`encode`](Tokenizer::encode) gives them, computed on all cores.
    ///
    /// # Errors
    /// As [`encode`](Tokenizer::encode).
    pub(crate) fn encode_all(&self, texts: &[&[u8]]) -> Result<Vec<Vec<u32>>> {
        match &self.kind {
            Kind::Bytes => Ok(texts.iter().map(|text| text.iter().map(|&byte| u32::from(byte)).collect()).collect()),
            #[cfg(feature = "tokenizers")]
            Kind::HuggingFace(model) => model.encode(texts),
        }
    }

    /// The text of tokens, with U+FFFD for bytes that are not UTF-8. Special tokens, such as the end token, have no text.
    ///
    /// # Errors
    /// If there is no such token.
    #[track_caller]
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        let (loc, vocabulary) = (location(), self.vocabulary());
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let message = format!("there is no token {token}: the vocabulary has {vocabulary}");
            return Err(invalid(TOKENIZER, message).at(loc));
        }
        match &self.kind {
            Kind::Bytes => {
                // Token 256 is not a byte.
                let bytes: Vec<u8> = tokens.iter().filter_map(|&token| u8::try_from(token).ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            #[cfg(feature = "tokenizers")]
            Kind::HuggingFace(model) => model.decode(tokens).map_err(|error| error.at(loc)),
        }
    }

    /// Decodes tokens one by one, as a model generates them.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// Whether bytes that are not UTF-8 are replaced.
    pub(crate) fn needs_text(&self) -> bool {
        !matches!(self.kind, Kind::Bytes)
    }
}
