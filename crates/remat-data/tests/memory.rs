//! Texts and their tokens may be larger than memory.

use std::fs::File;
use std::io::{BufWriter, Write};

use remat_alloc::Counting;
use remat_data::{Batches, Corpus, Source, Tokenizer};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

#[test]
fn a_large_text_takes_little_memory() {
    const MOST: usize = 16 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for i in 0..2_000_000 {
        writeln!(file, "line {i} of a text").unwrap();
    }
    drop(file);
    let source = Source::open(&path, None).unwrap();
    assert!(source.size().unwrap() > 35 << 20);
    let before = ALLOCATOR.live();
    ALLOCATOR.reset_peak();
    let corpus = Corpus::in_shards(&source, &Tokenizer::bytes(), folder.path().join("cache")).unwrap();
    let peak = ALLOCATOR.peak() - before;
    assert!(peak < MOST, "{peak} bytes to tokenize");
    ALLOCATOR.reset_peak();
    let batches = Batches::new(corpus.train, [8, 64], 0).unwrap();
    for step in 0..100 {
        batches.get(step * 500).unwrap();
    }
    let peak = ALLOCATOR.peak() - before;
    assert!(peak < 1 << 20, "{peak} bytes for batches");
}
