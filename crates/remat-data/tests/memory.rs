//! Texts and their tokens may be larger than memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::sync::{Mutex, PoisonError};

use remat_alloc::Counting;
use remat_data::{Batches, Corpus, Source, TokenStream, Tokenizer};
use remat_testkit::sized;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The allocator counts for the whole process: the tests take turns.
static TURNS: Mutex<()> = Mutex::new(());

/// The most bytes during some work, above those before it.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATOR.live();
    ALLOCATOR.reset_peak();
    let done = work();
    (ALLOCATOR.peak() - before, done)
}

/// Also where a file on the disk is much smaller than its text.
#[test]
fn tokens_of_a_large_text_are_read_one_after_the_other() {
    // More than what may be in memory.
    let size = sized(32 << 20, 64 << 20);
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (sparse, compressed) = (folder.path().join("a.txt"), folder.path().join("b.txt.gz"));
    File::create(&sparse).unwrap().set_len(size).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(File::create(&compressed).unwrap(), flate2::Compression::fast());
    io::copy(&mut io::repeat(b'a').take(size), &mut encoder).unwrap();
    encoder.finish().unwrap();
    for path in [sparse, compressed] {
        let source = Source::open(&path, None).unwrap();
        let (most, count) = peak(|| {
            let mut stream = TokenStream::new(&source, &Tokenizer::bytes());
            let tokens: u64 = stream.by_ref().map(|tokens| tokens.unwrap().len() as u64).sum();
            (tokens, stream.bytes())
        });
        assert_eq!(count, (size, size));
        assert!(most < 24 << 20, "{most} bytes for the tokens of {}", path.display());
        let (most, is_larger) = peak(|| source.is_larger_than(size / 2).unwrap());
        assert!(is_larger && most < 4 << 20, "{most} bytes for the size of {}", path.display());
    }
}

/// A few long documents, none of which is held out, are divided again without being read.
#[test]
fn a_part_is_held_out_of_a_large_text() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for _ in 0..9 {
        writeln!(file, "{{\"text\": \"{}\"}}", "to be or not to be, ".repeat(100_000)).unwrap();
    }
    drop(file);
    let source = Source::open(&path, None).unwrap();
    let corpus = Corpus::in_shards(&source, &Tokenizer::bytes(), folder.path().join("cache")).unwrap();
    assert_eq!((corpus.train.len(), corpus.held_out.len()), (18_000_000, 0));
    let (most, corpus) = peak(|| corpus.with_context(64).unwrap());
    assert_eq!((corpus.train.len(), corpus.held_out.len()), (17_999_935, 65));
    assert!(most < 1 << 20, "{most} bytes");
}

#[test]
fn a_large_text_takes_little_memory() {
    const MOST: usize = 16 << 20;
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for i in 0..2_000_000 {
        writeln!(file, "line {i} of a text").unwrap();
    }
    drop(file);
    let source = Source::open(&path, None).unwrap();
    assert!(source.size().unwrap() > 35 << 20);
    let tokenize = || Corpus::in_shards(&source, &Tokenizer::bytes(), folder.path().join("cache")).unwrap();
    let (most, corpus) = peak(tokenize);
    assert!(most < MOST, "{most} bytes to tokenize");
    let (most, ()) = peak(|| {
        let batches = Batches::new(corpus.train, [8, 64], 0).unwrap();
        for step in 0..100 {
            batches.get(step * 500).unwrap();
        }
    });
    assert!(most < 1 << 20, "{most} bytes for batches");
}
