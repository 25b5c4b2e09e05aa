//! Text as batches of tokens.

use std::error::Error;
use std::fs;

use remat_data::{Batches, Corpus, Prefetch, Source, Tokenizer};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();

    println!("== source");
    // ANCHOR: source
    let path = folder.join("poems.jsonl");
    fs::write(&path, "{\"title\": \"one\", \"text\": \"Roses are red\"}\n{\"text\": \"violets are blue\"}\n")?;
    // Every line is a document; a folder, a text file and Parquet are opened in the same way.
    let source = Source::open(&path, None)?;
    for piece in source.pieces() {
        println!("{}", String::from_utf8(piece?.bytes)?);
    }
    // ANCHOR_END: source

    println!("== column");
    // ANCHOR: column
    let error = Source::open(&path, Some("title"))?.pieces().find_map(Result::err).expect("a row has no title");
    println!("{}", error.message().replace(&folder.display().to_string(), "."));
    // ANCHOR_END: column

    println!("== batches");
    // ANCHOR: batches
    let book = folder.join("book.txt");
    fs::write(&book, "It was the best of times, it was the worst of times. ".repeat(40))?;
    // `Tokenizer::open("gpt2")` reads a tokenizer.json, with the feature `tokenizers`.
    let tokenizer = Tokenizer::bytes();
    // Tokens are made once and kept in files; `Corpus::in_memory` keeps them in memory.
    let corpus = Corpus::in_shards(&Source::open(&book, None)?, &tokenizer, folder.join("tokens"))?;
    println!("{} tokens to learn, {} held out", corpus.train.len(), corpus.held_out.len());

    let batches = Batches::new(corpus.train, [4, 16], 0)?;
    let batch = batches.get(123)?;
    let first: Vec<u32> = batch.tokens.index(0).to_vec::<i32>()?.into_iter().map(i32::cast_unsigned).collect();
    println!("{}, and the tokens that follow: {}", batch.tokens.aval()?, batch.targets.aval()?);
    println!("{:?}", tokenizer.decode(&first)?);
    // ANCHOR_END: batches

    println!("== prefetch");
    // ANCHOR: prefetch
    // The batches from step 100 on, made by another thread, up to two of them ahead.
    let ahead = Prefetch::new(100, 2, {
        let batches = batches.clone();
        move |step| batches.get(step)
    })?;
    for step in 100..105 {
        let batch = ahead.next()?;
        assert_eq!(batch.tokens.to_vec::<i32>()?, batches.get(step)?.tokens.to_vec::<i32>()?);
    }
    println!("the same batches");
    // ANCHOR_END: prefetch
    Ok(())
}
