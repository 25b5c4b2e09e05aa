//! Text in its containers, tokenizers, and shards of tokens.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use remat_data::{Corpus, Source, Tokenizer};

use super::{Format, Place, Read, Rule, hash};
use crate::harness::work::Work;

pub(super) fn formats() -> Vec<Format> {
    let place = Place::File;
    let (rule, writes) = (Rule::Formed, false);
    let tokens =
        Format { name: "tokens", rule: Rule::Noticed, place, writes: true, make: make_tokens, read: read_tokens };
    let mut formats = vec![
        Format { name: "JSON lines", rule, place, writes, make: make_lines, read: read_text },
        Format { name: "gz", rule: Rule::Noticed, place, writes, make: make_gz, read: read_text },
        Format { name: "zst", rule: Rule::Noticed, place, writes, make: make_zst, read: read_text },
        tokens,
    ];
    if cfg!(feature = "parquet") {
        formats.push(Format { name: "Parquet", rule, place, writes, make: make_parquet, read: read_text });
    }
    if cfg!(feature = "tokenizers") {
        formats.push(Format {
            name: "tokenizer.json",
            rule,
            place,
            writes,
            make: make_tokenizer,
            read: read_tokenizer,
        });
    }
    formats
}

fn text() -> String {
    (0..200).map(|i| format!("line {i}: to be or not to be, that is the question {}\n", i * i)).collect()
}

fn make_lines(_: &Work, folder: &Path) -> Result<()> {
    let line = |i: usize| {
        format!("{{\"id\": {i}, \"text\": \"to be \\u00e9 \\\"or\\\" not {i}\", \"tags\": [1, {{\"a\": null}}]}}\n")
    };
    Ok(fs::write(folder.join("a.jsonl"), (0..30).map(line).collect::<String>())?)
}

fn make_gz(_: &Work, folder: &Path) -> Result<()> {
    let mut encoder = GzEncoder::new(fs::File::create(folder.join("a.txt.gz"))?, Compression::default());
    encoder.write_all(text().as_bytes())?;
    encoder.finish()?;
    Ok(())
}

fn make_zst(_: &Work, folder: &Path) -> Result<()> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    Ok(fs::write(folder.join("a.txt.zst"), ruzstd::encoding::compress_to_vec(text().as_bytes(), level))?)
}

fn make_parquet(_: &Work, folder: &Path) -> Result<()> {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../remat-data/tests/data");
    fs::copy(samples.join("snappy.parquet"), folder.join("a.parquet"))?;
    fs::copy(samples.join("gzip.parquet"), folder.join("b.parquet"))?;
    Ok(())
}

/// The text of all files.
fn read_text(_: &Work, folder: &Path) -> Read {
    let read = || {
        let mut bytes = Vec::new();
        for piece in Source::open(folder, None)?.pieces() {
            bytes.extend_from_slice(&piece?.bytes);
        }
        Ok(format!("{} bytes, {}", bytes.len(), hash(&bytes)))
    };
    Read::of(read())
}

/// The text of the tokens is beside the folder that is damaged.
fn make_tokens(work: &Work, folder: &Path) -> Result<()> {
    fs::write(folder.join("../text.txt"), text())?;
    match read_tokens(work, folder) {
        Read::Value(_) => Ok(()),
        Read::Error(problem) | Read::Broken(problem) => anyhow::bail!(problem),
    }
}

fn read_tokens(_: &Work, folder: &Path) -> Read {
    Read::of(tokens(&folder.join("../text.txt"), folder))
}

/// The tokens of a text, by way of shards in a folder.
pub(crate) fn tokens(text: &Path, folder: &Path) -> remat::Result<String> {
    let corpus = Corpus::in_shards(&Source::open(text, None)?, &Tokenizer::bytes_with_end(), folder)?;
    let mut bytes = Vec::new();
    for tokens in [&corpus.train, &corpus.held_out] {
        let count = usize::try_from(tokens.len()).unwrap_or(usize::MAX);
        bytes.extend(tokens.read(0, count)?.into_iter().flat_map(i32::to_le_bytes));
    }
    Ok(format!("{} tokens, {}", bytes.len() / 4, hash(&bytes)))
}

fn make_tokenizer(_: &Work, folder: &Path) -> Result<()> {
    fs::copy(Path::new(super::TOKENIZER).join("tokenizer.json"), folder.join("tokenizer.json"))?;
    Ok(fs::write(
        folder.join("tokenizer_config.json"),
        r#"{"eos_token": null, "bos_token": null, "add_bos_token": false}"#,
    )?)
}

fn read_tokenizer(_: &Work, folder: &Path) -> Read {
    let tokenizer = match Tokenizer::open(folder) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return Read::Error(error.message().into()),
    };
    // A text or a token that it does not know is an error, which has no file.
    let tokens = tokenizer.encode(b"To be, or not to be: that is the question.");
    let text = tokens.as_ref().ok().map(|tokens| tokenizer.decode(tokens).is_ok());
    Read::Value(format!("{} {text:?}", tokenizer.fingerprint()))
}
