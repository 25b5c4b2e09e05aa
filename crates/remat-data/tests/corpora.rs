//! Tokens of texts in memory and in shards, and their batches.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remat::{Error, ErrorKind, Result};
use remat_data::{Batch, Batches, Corpus, Prefetch, Source, TokenCache, TokenStream, TokenUsage, Tokenizer, Tokens};
use tempfile::TempDir;

fn text(content: impl AsRef<[u8]>) -> (TempDir, Source) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    fs::write(&path, content).unwrap();
    let source = Source::open(path, None).unwrap();
    (folder, source)
}

fn all(tokens: &Tokens) -> Vec<i32> {
    tokens.read(0, tokens.len() as usize).unwrap()
}

#[track_caller]
fn message<T>(result: Result<T>, folder: &Path) -> String {
    let Err(error) = result else { panic!("no error") };
    error.message().replace(folder.to_str().unwrap(), "DIR")
}

/// What is in a folder, but for the file that processes lock.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| !path.ends_with(".lock")).collect()
}

/// The only folder in a folder.
fn only(folder: &Path) -> PathBuf {
    let entries = entries(folder);
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].clone()
}

#[test]
fn the_last_tenth_of_each_file_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), (0..100).collect::<Vec<u8>>()).unwrap();
    fs::write(folder.path().join("b.txt"), (100..150).collect::<Vec<u8>>()).unwrap();
    fs::write(folder.path().join("c.txt"), [150]).unwrap();
    let source = Source::open(folder.path(), None).unwrap();
    let corpus = Corpus::in_memory(&source, &Tokenizer::bytes()).unwrap();
    assert_eq!(all(&corpus.train), (0..90).chain(100..145).chain([150]).collect::<Vec<i32>>());
    assert_eq!(all(&corpus.held_out), (90..100).chain(145..150).collect::<Vec<i32>>());
    assert_eq!((corpus.bytes, corpus.documents), (151, 3));
    // With a token that ends documents, each part of one ends with it.
    let corpus = Corpus::in_memory(&source, &Tokenizer::bytes_with_end()).unwrap();
    let end = [256];
    assert_eq!(
        all(&corpus.train),
        (0..90).chain(end).chain(100..145).chain(end).chain([150, 256]).collect::<Vec<i32>>()
    );
    assert_eq!(all(&corpus.held_out), (90..100).chain(end).chain(145..150).chain(end).collect::<Vec<i32>>());
    let mut stream = TokenStream::new(&source, &Tokenizer::bytes_with_end());
    let whole: Vec<Vec<u32>> = stream.by_ref().collect::<Result<_>>().unwrap();
    assert_eq!(whole.concat(), (0..100).chain([256]).chain(100..150).chain([256, 150, 256]).collect::<Vec<u32>>());
    assert_eq!(stream.bytes(), 151);
}

#[test]
fn every_tenth_row_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let rows: String = (0..25).map(|i| format!("{{\"text\": \"{}\"}}\n", char::from(97 + i))).collect();
    fs::write(&path, rows).unwrap();
    let source = Source::open(&path, None).unwrap();
    let corpus = Corpus::in_memory(&source, &Tokenizer::bytes_with_end()).unwrap();
    assert_eq!(all(&corpus.held_out), [106, 256, 116, 256]);
    assert_eq!((corpus.train.len(), corpus.documents), (46, 25));
}

#[test]
fn no_less_than_a_sequence_is_held_out() {
    let (_folder, source) = text((0..100).collect::<Vec<u8>>());
    let both = |context| {
        let divided = Corpus::in_memory(&source, &Tokenizer::bytes()).unwrap().with_context(context);
        divided.map(|corpus| (corpus.train.len(), all(&corpus.held_out))).map_err(|error| error.message().to_string())
    };
    assert_eq!(both(9), Ok((90, (90..100).collect())));
    assert_eq!(both(20), Ok((79, (79..100).collect())));
    assert_eq!(both(49), Ok((50, (50..100).collect())));
    let few =
        "the text has 100 tokens, too few for a context of 50: 102 are needed, half of them to train and half to test";
    assert_eq!(both(50), Err(few.into()));
    assert!(both(usize::MAX).is_err());
}

/// Parts of shards are the tokens of memory, and are told from one another.
#[test]
fn tokens_are_divided_again_in_shards() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let row = |i: usize| format!("{{\"text\": \"{}\"}}\n", "abcdefghijk"[..i + 1].repeat(3));
    for rows in [9, 11] {
        fs::write(&path, (0..rows).map(row).collect::<String>()).unwrap();
        let source = Source::open(&path, None).unwrap();
        let memory = Corpus::in_memory(&source, &Tokenizer::bytes()).unwrap();
        let shards = Corpus::in_shards(&source, &Tokenizer::bytes(), folder.path().join("cache")).unwrap();
        let whole = [all(&memory.train), all(&memory.held_out)].concat();
        for context in [5, 30, 40, 62] {
            let of = |corpus: &Corpus| corpus.clone().with_context(context).unwrap();
            let (memory, shards) = (of(&memory), of(&shards));
            assert_eq!([all(&memory.train), all(&memory.held_out)].concat(), whole);
            assert!(memory.held_out.len() > context as u64);
            assert_eq!(all(&shards.train), all(&memory.train), "{rows} {context}");
            assert_eq!(all(&shards.held_out), all(&memory.held_out), "{rows} {context}");
            assert_eq!(shards.held_out.fingerprint(), memory.held_out.fingerprint());
            assert_ne!(shards.held_out.fingerprint(), shards.train.fingerprint());
            let (len, last) = (shards.held_out.len(), all(&shards.held_out).pop().unwrap());
            assert_eq!(shards.held_out.read(len - 1, 1).unwrap(), [last]);
        }
    }
}

#[test]
fn texts_without_text() {
    let (folder, source) = text("");
    let cache = folder.path().join("cache");
    let expected = "`DIR/a.txt` has no text";
    assert_eq!(message(Corpus::in_memory(&source, &Tokenizer::bytes()), folder.path()), expected);
    assert_eq!(message(Corpus::in_shards(&source, &Tokenizer::bytes(), &cache), folder.path()), expected);
    // Nothing is left of what failed.
    assert_eq!(entries(&cache).len(), 0);
    assert_eq!(TokenStream::new(&source, &Tokenizer::bytes()).count(), 0);
    let tokens = Tokens::new(&[], 256).unwrap();
    assert!(tokens.is_empty());
    assert_eq!(message(tokens.read(0, 1), folder.path()), "tokens 0 to 1 are asked for, and there are 0");
    fs::remove_file(source.path()).unwrap();
    let mut stream = TokenStream::new(&source, &Tokenizer::bytes());
    let error = stream.next().unwrap().unwrap_err();
    assert!(error.message().starts_with("cannot read `") && error.loc().is_some(), "{error}");
    assert!(stream.next().is_none());
}

#[test]
fn shards_have_the_tokens_of_memory() {
    let (folder, source) = text("words and lines\n".repeat(150_000));
    let cache = folder.path().join("cache");
    for tokenizer in [Tokenizer::bytes(), Tokenizer::bytes_with_end()] {
        let expected = Corpus::in_memory(&source, &tokenizer).unwrap();
        let corpus = Corpus::in_shards(&source, &tokenizer, &cache).unwrap();
        assert!(all(&corpus.train) == all(&expected.train) && all(&corpus.held_out) == all(&expected.held_out));
        assert_eq!(corpus.train.fingerprint(), expected.train.fingerprint());
        assert_eq!((corpus.bytes, corpus.documents, corpus.notes.len()), (2_400_000, 1, 0));
        assert_eq!(corpus.train.vocabulary(), tokenizer.vocabulary());
        assert_eq!(corpus.train.read(1_234_567, 5).unwrap(), expected.train.read(1_234_567, 5).unwrap());
    }
    assert_eq!(entries(&cache).len(), 2);
}

#[test]
fn shards_are_made_again_when_the_text_changes_or_they_are_damaged() {
    let (folder, source) = text("0123456789".repeat(10));
    let (cache, bytes) = (folder.path().join("cache"), Tokenizer::bytes());
    let open = || Corpus::in_shards(&source, &bytes, &cache).unwrap();
    open();
    let shards = only(&cache);
    let (train, index) = (shards.join("train-00000.tokens"), shards.join("index.json"));
    let good = fs::read(&train).unwrap();
    assert_eq!(good.len(), 56 + 2 * 90);
    let mut expected = vec![vec![]];
    let notes = |corpus: Corpus| {
        corpus.notes.iter().map(|note| note.replace(shards.to_str().unwrap(), "DIR")).collect::<Vec<String>>()
    };
    let again = |what: &str| vec![format!("the text is tokenized again: `DIR{what}")];
    let mut found = vec![notes(open())];
    let mut damaged = |change: &dyn Fn(&mut Vec<u8>), what: &str| {
        let mut file = good.clone();
        change(&mut file);
        fs::write(&train, file).unwrap();
        found.push(notes(open()));
        expected.push(again(what));
        assert!(fs::read(&train).unwrap() == good);
    };
    damaged(&|file| file[70] ^= 1, "/train-00000.tokens` is damaged: its checksum does not match");
    damaged(
        &|file| file.truncate(100),
        "/train-00000.tokens` is cut off or damaged: it is said to have 90 tokens, and has 100 bytes",
    );
    damaged(&|file| file.truncate(10), "/train-00000.tokens` is cut off: it has 10 bytes");
    damaged(&|file| file[0] = 0, "/train-00000.tokens` is not a shard of tokens");
    damaged(&|file| file[8] = 9, "/train-00000.tokens` has version 9 of the format, and this program reads version 1");
    damaged(&|file| file[12] = 3, "/train-00000.tokens` is damaged: its tokens are said to have 3 bytes");
    damaged(&|file| file[24] ^= 1, "/train-00000.tokens` has tokens of another tokenizer");
    damaged(&|file| file[32] ^= 1, "/train-00000.tokens` has tokens of another text, or of this one before it changed");
    fs::write(&index, "{").unwrap();
    expected.push(again("/index.json` is damaged: EOF while parsing an object at line 1 column 1"));
    found.push(notes(open()));
    // One digit: no training tokens at all.
    let numbers = fs::read_to_string(&index).unwrap();
    fs::write(&index, numbers.replace("\"train\": 1", "\"train\": 0")).unwrap();
    expected.push(again("/index.json` is damaged: its checksum is that of other numbers"));
    found.push(notes(open()));
    fs::remove_file(shards.join("held-out-00000.tokens")).unwrap();
    let missing = "cannot read `DIR/held-out-00000.tokens`: No such file or directory (os error 2)";
    expected.push(vec![format!("the text is tokenized again: {missing}")]);
    found.push(notes(open()));
    fs::write(source.path(), "another text").unwrap();
    expected.push(again("` has the tokens of the text before it changed"));
    found.push(notes(open()));
    assert_eq!(found, expected);
    assert_eq!(open().bytes, 12);
    // Another tokenizer has a folder of its own.
    Corpus::in_shards(&source, &Tokenizer::bytes_with_end(), &cache).unwrap();
    assert_eq!(entries(&cache).len(), 2);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = message(Corpus::in_shards(&source, &bytes, &file), folder.path());
    assert_eq!(error, "cannot make the folder `DIR/file`: File exists (os error 17)");
}

#[test]
fn a_text_that_changed_is_tokenized_again_though_size_and_time_are_those_before() {
    let (folder, source) = text("0123456789");
    let cache = folder.path().join("cache");
    let tokens = || {
        File::options().append(true).open(source.path()).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        all(&Corpus::in_shards(&source, &Tokenizer::bytes(), &cache).unwrap().train)
    };
    assert_eq!(tokens(), (48..57).collect::<Vec<i32>>());
    fs::write(source.path(), "abcdefghij").unwrap();
    assert_eq!(tokens(), (97..106).collect::<Vec<i32>>());
}

#[test]
fn several_runs_on_a_text_that_changed() {
    let (folder, source) = text("0");
    let (path, cache) = (folder.path().join("a.txt"), folder.path().join("cache"));
    for round in 1..20 {
        fs::write(&path, "0123456789".repeat(round)).unwrap();
        let run = || Corpus::in_shards(&source, &Tokenizer::bytes(), &cache).map(|corpus| all(&corpus.train).len());
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
            for length in runs.into_iter().map(|run| run.join().unwrap()) {
                assert_eq!(length.unwrap(), 9 * round);
            }
        });
        only(&cache);
    }
}

/// At once, and not what another process writes: it has locked its folder.
#[test]
fn what_killed_runs_have_left_is_deleted() {
    let (folder, source) = text("0123456789");
    let cache = TokenCache::new(folder.path().join("cache"));
    assert_eq!((cache.usage(), cache.clear().unwrap()), (TokenUsage::default(), TokenUsage::default()));
    let left = |name: &str| {
        let folder = cache.folder().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("train-00000.tokens"), [0; 100]).unwrap();
        folder
    };
    let (killed, writing, other) = (left(".tokensOld"), left(".tokensNew"), left("photos"));
    let lock = File::open(&writing).unwrap();
    lock.lock().unwrap();
    assert_eq!(cache.usage(), TokenUsage { texts: 0, bytes: 200 });
    Corpus::in_shards(&source, &Tokenizer::bytes(), cache.folder()).unwrap();
    assert!(!killed.exists() && writing.exists() && other.exists());
    let shards = TokenUsage { texts: 1, bytes: cache.usage().bytes - 100 };
    assert_eq!(cache.clear().unwrap(), shards);
    assert_eq!(cache.usage(), TokenUsage { texts: 0, bytes: 100 });
    assert!(writing.exists() && other.exists());
    drop(lock);
    assert_eq!(cache.clear().unwrap(), TokenUsage { texts: 0, bytes: 100 });
    assert!(!writing.exists() && other.exists());
}

#[test]
fn a_shard_that_changes_while_it_is_used() {
    let (folder, source) = text("0123456789".repeat(10));
    let cache = folder.path().join("cache");
    let corpus = Corpus::in_shards(&source, &Tokenizer::bytes(), &cache).unwrap();
    let path = only(&cache).join("train-00000.tokens");
    let mut file = fs::read(&path).unwrap();
    file[57] = 0xff;
    fs::write(&path, &file).unwrap();
    let message = message(corpus.train.read(0, 2), &only(&cache));
    assert_eq!(message, "`DIR/train-00000.tokens` is damaged: it has the token 65328, and the vocabulary has 256");
    fs::write(&path, &file[..60]).unwrap();
    assert_eq!(corpus.train.read(5, 2).unwrap_err().kind(), ErrorKind::Io);
}

/// The first tokens of the sequences of a batch.
fn firsts(batch: &Batch) -> Vec<i32> {
    batch.tokens.index((.., 0)).to_vec().unwrap()
}

#[test]
fn each_window_once_in_an_epoch() {
    let tokens = Tokens::new(&(0..1003).collect::<Vec<u32>>(), 1 << 17).unwrap();
    let batches = Batches::new(tokens, [4, 10], 7).unwrap();
    assert_eq!(batches.windows(), 99);
    let order: Vec<i32> = (0..99).flat_map(|step| firsts(&batches.get(step).unwrap())).collect();
    let mut orders = BTreeSet::new();
    for epoch in order.chunks(99) {
        let offset = epoch.iter().min().copied().unwrap();
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..99).map(|i| 10 * i + offset).collect::<Vec<i32>>());
        orders.insert(epoch);
    }
    assert_eq!(orders.len(), 4);
}

/// Epochs begin at all offsets equally often, whatever the number of tokens, and windows are cut at every token; an epoch has each token once, but for
/// less than two windows at the ends.
#[test]
fn epochs_begin_at_all_offsets() {
    let context = 8;
    for len in [9, 10, 15, 16, 17, 23, 24, 25, 40, 41, 47] {
        let tokens = Tokens::new(&(0..len).collect::<Vec<u32>>(), 1 << 17).unwrap();
        let batches = Batches::new(tokens, [1, context], 5).unwrap();
        let windows = batches.windows();
        let mut offsets = std::collections::BTreeMap::new();
        for epoch in 0..400 {
            let batch = |window| batches.get(epoch * windows + window).unwrap().tokens.to_vec::<i32>().unwrap();
            let mut seen: Vec<i32> = (0..windows).flat_map(batch).collect();
            seen.sort_unstable();
            let (first, last) = (seen[0], seen[seen.len() - 1]);
            assert_eq!(seen, (first..=last).collect::<Vec<i32>>(), "{len}");
            // The last token is a target alone.
            let left_out = first + len as i32 - 1 - last;
            assert!((1..2 * context as i32).contains(&left_out), "{len}: {first} to {last}");
            *offsets.entry(first).or_insert(0) += 1;
        }
        let possible = len as usize - context * windows as usize;
        assert!(possible >= context || windows == 1, "{len}");
        let expected = 400.0 / possible as f64;
        assert_eq!(offsets.len(), possible, "{len}: {offsets:?}");
        // Six standard deviations.
        let is_near = |&count: &i32| (f64::from(count) - expected).abs() < 6.0 * expected.sqrt();
        assert!(offsets.values().all(is_near), "{len}: {offsets:?}");
    }
}

#[test]
fn batches_depend_on_seed_and_step_alone() {
    let (folder, source) = text((0..200).collect::<Vec<u8>>());
    let tokenizer = Tokenizer::bytes();
    let memory = Corpus::in_memory(&source, &tokenizer).unwrap().train;
    let shards = Corpus::in_shards(&source, &tokenizer, folder.path().join("cache")).unwrap().train;
    let of = |tokens: &Tokens, seed| Batches::new(tokens.clone(), [4, 16], seed).unwrap();
    let direct = of(&memory, 1);
    let expected: Vec<Vec<i32>> = (0..40).map(|step| direct.get(step).unwrap().tokens.to_vec().unwrap()).collect();
    for (first, ahead) in [(0, 0), (7, 1), (31, 5)] {
        let batches = of(&shards, 1);
        let prefetch = Prefetch::new(first, ahead, move |step| batches.get(step)).unwrap();
        for step in first..40 {
            assert_eq!(prefetch.next().unwrap().tokens.to_vec::<i32>().unwrap(), expected[step as usize]);
        }
    }
    assert_ne!(of(&memory, 2).get(0).unwrap().tokens.to_vec::<i32>().unwrap(), expected[0]);
    assert!(direct.get(u64::MAX).is_ok());
}

#[test]
fn tokens_are_in_the_vocabulary() {
    for (token, vocabulary) in [(4, 4), (65_539, 10), (u32::MAX, 1 << 17), (0, 0)] {
        let error = Tokens::new(&[token], vocabulary).unwrap_err();
        assert_eq!(error.message(), format!("there is no token {token}: the vocabulary has {vocabulary}"));
        assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line!() - 2));
    }
    assert_eq!(Tokens::new(&[65_535], 1 << 16).unwrap().read(0, 1).unwrap(), [65_535]);
    assert!(Tokens::new(&[], 0).unwrap().is_empty());
    assert!(Tokens::new(&[1], 2).unwrap().read(0, 2).unwrap_err().loc().is_some());
}

#[test]
fn batches_that_are_no_batches() {
    let tokens = Tokens::new(&[1, 2, 3], 4).unwrap();
    let error = |context, batch| {
        let error = Batches::new(tokens.clone(), [batch, context], 0).unwrap_err();
        assert!(error.loc().is_some());
        error.message().to_string()
    };
    assert_eq!(error(0, 1), "a batch of 1 sequences of 0 tokens is empty");
    assert_eq!(error(1, 0), "a batch of 0 sequences of 1 tokens is empty");
    assert_eq!(error(3, 1), "there are 3 tokens, too few for a context of 3 and the token that follows");
    // With one token more than the context there is one window, which every row of every batch has.
    let batches = Batches::new(tokens, [3, 2], 0).unwrap();
    let batch = batches.get(5).unwrap();
    assert_eq!(batch.tokens.to_vec::<i32>().unwrap(), [1, 2, 1, 2, 1, 2]);
    assert_eq!(batch.targets.to_vec::<i32>().unwrap(), [2, 3, 2, 3, 2, 3]);
}

#[test]
fn batches_in_order_hold_each_token_and_the_next() {
    let bytes: Vec<u32> = b"abcdefgh".iter().map(|&byte| byte.into()).collect();
    let of = |context, batch| Batches::new(Tokens::new(&bytes, 256).unwrap(), [batch, context], 0).unwrap().in_order();
    let cut: Vec<Batch> = of(3, 2).collect::<Result<_>>().unwrap();
    assert_eq!(cut.len(), 1);
    assert_eq!(cut[0].tokens.to_vec::<i32>().unwrap(), b"abcdef".map(i32::from));
    assert_eq!(cut[0].targets.to_vec::<i32>().unwrap(), b"bcdefg".map(i32::from));
    assert_eq!(of(2, 1).count(), 3);
    assert_eq!(of(2, 2).map(|batch| batch.unwrap().tokens.dims::<2>().unwrap()[0]).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(of(7, usize::MAX).count(), 1);
}

#[test]
fn prefetching_is_bounded_passes_errors_on_and_stops() {
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let ahead = Prefetch::new(0, 2, move |step| {
        count.fetch_add(1, Ordering::SeqCst);
        if step == 5 { Err(Error::new(ErrorKind::Io, "test", "the disk is gone")) } else { Ok(step) }
    })
    .unwrap();
    assert_eq!(ahead.next().unwrap(), 0);
    std::thread::sleep(Duration::from_millis(200));
    // One was taken, two wait, and one is in the hands of the thread.
    assert!(made.load(Ordering::SeqCst) <= 4);
    for step in 1..5 {
        assert_eq!(ahead.next().unwrap(), step);
    }
    assert_eq!(ahead.next().unwrap_err().message(), "the disk is gone");
    let over = ahead.next().unwrap_err();
    assert_eq!(over.message(), "there are no more values: the function has given an error, or panicked");
    assert!(over.loc().is_some());
    // The thread of one that is dropped ends, though nobody takes what it has made.
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    drop(Prefetch::new(0, 1, move |_| Ok(held.clone())).unwrap());
    assert_eq!(weak.strong_count(), 0);
}
