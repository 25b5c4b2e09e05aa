//! Text from files: what comes, in which pieces, and every way in which files can be wrong.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use remat::Result;
use remat_data::{Piece, Source};
use tempfile::TempDir;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn pieces(path: impl AsRef<Path>, column: Option<&str>) -> Result<Vec<Piece>> {
    Source::open(path, column)?.pieces().collect()
}

/// The documents, each in one piece.
fn documents(path: impl AsRef<Path>, column: Option<&str>) -> Result<Vec<String>> {
    let mut all = vec![Vec::new()];
    for piece in pieces(path, column)? {
        all.last_mut().unwrap().extend(piece.bytes);
        if piece.ends {
            all.push(Vec::new());
        }
    }
    assert_eq!(all.pop(), Some(Vec::new()));
    Ok(all.into_iter().map(|text| String::from_utf8(text).unwrap()).collect())
}

#[track_caller]
fn message<T>(result: Result<T>, folder: &TempDir) -> String {
    let Err(error) = result else { panic!("no error") };
    error.message().replace(folder.path().to_str().unwrap(), "DIR")
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn text_files_of_a_folder_come_in_order_without_hidden_and_built_ones() {
    let files: [(&str, &[u8]); 10] = [
        ("run/config.toml", b"x"),
        ("run/metrics.jsonl", b"{}"),
        ("b.md", b"2"),
        ("a/z.rs", b"1"),
        ("a/image.png", b"x"),
        ("target/x.rs", b"x"),
        (".git/x.txt", b"x"),
        ("c.TXT.gz", &gzipped(b"3")),
        ("empty.txt", b""),
        ("config.json", b"{}"),
    ];
    let folder = folder(&files);
    assert_eq!(documents(folder.path(), None).unwrap(), ["1", "2", "3"]);
    let source = Source::open(folder.path(), None).unwrap();
    assert_eq!(source.description(), format!("3 files of {}", folder.path().display()));
    assert_eq!((source.files().len(), source.notes().len()), (3, 0));
    assert_eq!(source.size().unwrap(), 2 + gzipped(b"3").len() as u64);
}

#[test]
fn tables_beside_text_are_read_when_a_column_is_named() {
    let files: [(&str, &[u8]); 2] = [("README.md", b"about"), ("data/a.jsonl", b"{\"text\": \"x\", \"body\": \"y\"}")];
    let folder = folder(&files);
    let source = Source::open(folder.path(), None).unwrap();
    assert!(source.notes().is_empty());
    assert_eq!(source.tables_left_out(), 1);
    assert_eq!(documents(folder.path(), None).unwrap(), ["about"]);
    assert_eq!(documents(folder.path(), Some("body")).unwrap(), ["y"]);
    fs::remove_file(folder.path().join("README.md")).unwrap();
    assert_eq!(documents(folder.path(), None).unwrap(), ["x"]);
}

#[test]
fn folders_and_files_that_are_not_there() {
    let folder = folder(&[("sub/empty.txt", b""), ("text/a.txt", b"a")]);
    let path = |name: &str| folder.path().join(name);
    assert_eq!(message(Source::open(path("none"), None), &folder), "there is no file or folder `DIR/none`");
    assert_eq!(
        message(Source::open(path("sub"), None), &folder),
        "`DIR/sub` has no text: no .rs, .md, .toml, .txt, .jsonl, .ndjson, .parquet file with anything in it"
    );
    assert_eq!(
        message(Source::open(path("text"), Some("text")), &folder),
        "`DIR/text` has no files with columns: no .jsonl, .ndjson, .parquet file"
    );
    assert!(Source::find(path("sub")).unwrap().is_none());
    assert_eq!(message(Source::find(path("none")), &folder), "there is no file or folder `DIR/none`");
    assert_eq!(Source::find(path("text")).unwrap().unwrap().files(), [path("text/a.txt")]);
    let file = path("text/a.txt");
    let expected = "`DIR/text/a.txt` is read as text, which has no columns";
    assert_eq!(message(Source::open(&file, Some("text")), &folder), expected);
    let source = Source::open(&file, None).unwrap();
    fs::remove_file(&file).unwrap();
    let gone = "cannot read `DIR/text/a.txt`: No such file or directory (os error 2)";
    assert_eq!(message(source.pieces().collect::<Result<Vec<_>>>(), &folder), gone);
    assert_eq!(source.pieces().count(), 1);
    assert_eq!(message(source.fingerprint(), &folder), gone);
}

/// A folder whose only text cannot be read is not one without text.
#[cfg(unix)]
#[test]
fn a_folder_of_text_that_cannot_be_read_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder(&[("a.txt", b"a")]);
    let file = folder.path().join("a.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o0)).unwrap();
    // The superuser may read everything.
    if fs::read(&file).is_err() {
        let expected = "cannot read `DIR/a.txt`: Permission denied (os error 13)";
        assert_eq!(message(Source::find(folder.path()), &folder), expected);
        assert_eq!(message(Source::open(folder.path(), None), &folder), expected);
    }
}

#[test]
fn long_documents_come_in_pieces_that_are_whole_lines() {
    let line = "some words of a line\n";
    let text = line.repeat(150_000);
    let row = serde_json::json!({ "text": text }).to_string();
    let files: [(&str, &[u8]); 4] = [
        ("a.txt", text.as_bytes()),
        ("a.jsonl", row.as_bytes()),
        ("a.txt.gz", &gzipped(text.as_bytes())),
        ("a.txt.zst", &[zstandard(&text.as_bytes()[..1000]), zstandard(&text.as_bytes()[1000..])].concat()),
    ];
    let folder = folder(&files);
    let expected = pieces(folder.path().join("a.txt"), None).unwrap();
    assert_eq!(expected.len(), 4);
    for (i, piece) in expected.iter().enumerate() {
        assert!(piece.bytes.len() <= 1 << 20 && piece.bytes.ends_with(b"line\n"));
        assert_eq!(piece.ends, i == 3);
    }
    for (name, _) in &files[1..] {
        assert!(pieces(folder.path().join(name), None).unwrap() == expected, "{name}");
    }
    assert_eq!(documents(folder.path().join("a.txt"), None).unwrap(), [text]);
}

#[test]
fn text_without_lines_and_spaces_is_cut_between_characters() {
    let folder = folder(&[("a.txt", "\u{20ac}".repeat(1 << 20).as_bytes()), ("b.txt", &[0x80; 2_500_000])]);
    let of = |name: &str| pieces(folder.path().join(name), None).unwrap();
    let euros = of("a.txt");
    assert!(euros.iter().all(|piece| std::str::from_utf8(&piece.bytes).is_ok()));
    assert_eq!(euros.iter().map(|piece| piece.bytes.len()).sum::<usize>(), 3 << 20);
    // What is not UTF-8 comes as it is.
    assert_eq!(of("b.txt").iter().map(|piece| piece.bytes.len()).collect::<Vec<_>>(), [1 << 20, 1 << 20, 402_848]);
}

#[test]
fn lines_and_arrays_of_json() {
    let lines = "\n{\"text\": \"a\\nb\", \"n\": {\"text\": [\"}\"]}}\r\n\n{\"text\": null}\n{\"text\": \"\"}\n{\"t\": 1, \"text\": \"c\"}";
    let array = "\u{20} [\n{\"text\": \"a\\nb]\\\"\"},\n {\"text\": \"{\"} , {\"text\": \"c\"}\n]\n";
    let folder = folder(&[("a.jsonl", lines.as_bytes()), ("b.json", array.as_bytes()), ("c.json", b" [ ] ")]);
    let of = |name: &str| documents(folder.path().join(name), None).unwrap();
    assert_eq!(of("a.jsonl"), ["a\nb", "c"]);
    assert_eq!(of("b.json"), ["a\nb]\"", "{", "c"]);
    assert_eq!(of("c.json"), Vec::<String>::new());
}

#[test]
fn errors_of_json_name_the_line() {
    let error = |content: &[u8], column: Option<&str>| {
        let folder = folder(&[("a.json", content)]);
        message(pieces(folder.path().join("a.json"), column), &folder)
    };
    assert_eq!(
        error(b"{\"text\": \"a\"}\n\n{\"texts\": 1, \"id\": 2}\n", None),
        "`DIR/a.json` line 3: it has no column `text`; its columns are `id` and `texts`; did you mean `texts`?"
    );
    assert_eq!(error(b"{\"text\": 3}", None), "`DIR/a.json` line 1: column `text` is a number, not text");
    assert_eq!(error(b"{\"text\": [\"a\"]}", None), "`DIR/a.json` line 1: column `text` is an array, not text");
    assert_eq!(error(b"{\"a\": {}}", Some("a")), "`DIR/a.json` line 1: column `a` is an object, not text");
    assert_eq!(error(b"{\"a\": true}", Some("a")), "`DIR/a.json` line 1: column `a` is a boolean, not text");
    assert_eq!(
        error(b"{\"text\": \"a\"}\n{\"text\": \"a\n", None),
        "`DIR/a.json` line 2, byte 11: control character (\\u0000-\\u001F) found while parsing a string"
    );
    assert_eq!(error(b"plain words", None), "`DIR/a.json` line 1, byte 1: expected value");
    assert_eq!(
        error(b"[{\"text\": \"a\"},\n{\"text\": \"b\"", None),
        "`DIR/a.json` line 2: the array ends inside an element"
    );
    // Bytes are those of the line in the file, also where an element of an array begins in the middle of it or has several.
    for (content, position) in [
        ("  {\"text\": x}", "line 1, byte 12: expected value"),
        ("[{\"text\": \"a\"},\n {\"text\": x}]", "line 2, byte 11: expected value"),
        ("[{\"text\": \"a\"},\n {\"text\":\n  x}]", "line 3, byte 3: expected value"),
        ("[{\"id\": 1,\n \"text\": \"\\ud800\"}]", "line 2, byte 17: unexpected end of hex escape"),
    ] {
        assert_eq!(error(content.as_bytes(), None), format!("`DIR/a.json` {position}"));
    }
    let bytes = error(b"{\"text\": \"a\xff\"}", None);
    assert!(bytes.starts_with("`DIR/a.json` line 1, byte ") && bytes.contains("invalid unicode"), "{bytes}");
}

#[test]
fn compressed_files_that_are_damaged() {
    let long = b"some text that is not very short".repeat(100);
    let (gz, zst) = (gzipped(&long), zstandard(&long));
    let folder =
        folder(&[("a.txt.gz", &gz[..gz.len() - 12]), ("b.txt.zst", &zst[..zst.len() - 12]), ("c.jsonl.gz", b"{}")]);
    for (name, what) in [("a.txt.gz", "read `DIR"), ("b.txt.zst", "read `DIR"), ("c.jsonl.gz", "read line 1 of `DIR")] {
        let error = message(pieces(folder.path().join(name), None), &folder);
        assert!(error.starts_with(&format!("cannot {what}/{name}`: ")), "{error}");
    }
}

#[test]
fn frames_of_zstandard_that_are_skipped() {
    let skippable = |magic: u8, length: u32, content: &[u8]| {
        [&[magic, 0x2a, 0x4d, 0x18], length.to_le_bytes().as_slice(), content].concat()
    };
    let (first, last) = (skippable(0x50, 0, b""), skippable(0x5f, 9, b"an index."));
    let whole = [&first, &last, &zstandard(b"some "), &last, &zstandard(b"text"), &first].map(Vec::as_slice).concat();
    let cut = [zstandard(b"some "), skippable(0x5f, 10, b"an index.")].concat();
    let folder = folder(&[("a.txt.zst", &whole), ("b.txt.zst", &cut), ("c.txt.zst", &last)]);
    let of = |name: &str| documents(folder.path().join(name), None);
    assert_eq!(of("a.txt.zst").unwrap(), ["some text"]);
    assert_eq!(message(of("b.txt.zst"), &folder), "cannot read `DIR/b.txt.zst`: it ends inside a skippable frame");
    assert_eq!(of("c.txt.zst").unwrap(), Vec::<String>::new());
}

#[test]
fn bytes_of_zstandard_that_are_flipped() {
    let numbers = |seed: u32| (0..5000u32).map(move |i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8);
    // Random bytes are kept as they are in the frame, where nothing but its checksum protects them; its last 4 bytes are the checksum.
    let content: Vec<u8> = numbers(7).collect();
    let frame = zstandard(&content);
    for (at, next) in [(frame.len() - 1, &b""[..]), (frame.len() / 2, b""), (frame.len() / 2, &zstandard(b"more"))] {
        let mut damaged = frame.clone();
        damaged[at] ^= 1;
        damaged.extend(next);
        let folder = folder(&[("a.txt.zst", &damaged)]);
        let error = message(pieces(folder.path().join("a.txt.zst"), None), &folder);
        assert_eq!(error, "cannot read `DIR/a.txt.zst`: the checksum of a frame does not match");
    }
}

#[test]
fn a_changed_file_has_another_fingerprint() {
    let folder = folder(&[("a.txt", b"a"), ("b.txt", b"b")]);
    let of = || Source::open(folder.path(), None).unwrap().fingerprint().unwrap();
    let first = of();
    assert_eq!(of(), first);
    let file = File::options().write(true).open(folder.path().join("a.txt")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let second = of();
    assert_ne!(second, first);
    let times = [1u64, 2].map(|seconds| {
        file.set_modified(std::time::SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(seconds)).unwrap();
        of()
    });
    assert!(times[0] != times[1] && times[0] != second);
    let third = of();
    fs::rename(folder.path().join("b.txt"), folder.path().join("c.txt")).unwrap();
    assert_ne!(of(), third);
}

/// As `cp -p`, `rsync -t` and `tar` do it.
#[test]
fn a_change_is_noticed_whose_size_and_time_are_those_before() {
    let folder = folder(&[("a.txt", b"a")]);
    let path = folder.path().join("a.txt");
    // Small, and so large that its content is not read as a whole.
    for size in [1, 9 << 20] {
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(size).unwrap();
        let of = || {
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            Source::open(&path, None).unwrap().fingerprint().unwrap()
        };
        let mut found = vec![of()];
        for at in [0, size - 1] {
            let bytes = [fs::read(&path).unwrap()[at as usize] + 1];
            write_at(&file, &bytes, at);
            found.push(of());
        }
        let different: std::collections::BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(different.len(), 3, "{size}: {found:?}");
    }
}

fn write_at(mut file: &File, bytes: &[u8], at: u64) {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

/// Whatever their size on the disk.
#[test]
fn sizes_of_compressed_files_are_those_of_their_text() {
    let text = "to be or not to be, ".repeat(100_000);
    let folder = folder(&[("a.txt.gz", &gzipped(text.as_bytes())), ("b.txt", b"0123456789")]);
    let source = Source::open(folder.path(), None).unwrap();
    assert!(source.size().unwrap() < 100_000);
    let at = |bytes| source.is_larger_than(bytes).unwrap();
    assert_eq!([0, 100_000, 2_000_009, 2_000_010].map(at), [true, true, true, false]);
    let plain = Source::open(folder.path().join("b.txt"), None).unwrap();
    assert_eq!([9, 10].map(|bytes| plain.is_larger_than(bytes).unwrap()), [true, false]);
    let path = folder.path().join("a.txt.gz");
    fs::write(&path, &gzipped(text.as_bytes())[..100]).unwrap();
    let cut = Source::open(&path, None).unwrap().is_larger_than(1 << 20);
    assert!(cut.is_err_and(|error| error.message().starts_with("cannot read `") && error.loc().is_some()));
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::*;

    fn data(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
    }

    #[test]
    fn rows_of_files_that_arrow_wrote() {
        let expected: Vec<String> = (0..1000).filter(|i| i % 7 != 0).map(|i| format!("row {i} of a table")).collect();
        assert_eq!(documents(data("snappy.parquet"), None).unwrap(), expected);
        assert_eq!(documents(data("gzip.parquet"), Some("text")).unwrap(), expected);
        if cfg!(feature = "parquet-zstd") {
            assert_eq!(documents(data("zstd.parquet"), None).unwrap(), expected);
        } else {
            let error = documents(data("zstd.parquet"), None).unwrap_err();
            assert!(error.message().contains("(build with the feature `parquet-zstd`)"), "{error}");
        }
    }

    #[test]
    fn errors_name_column_and_row() {
        let folder = folder(&[("a.parquet", b"PAR1 no more")]);
        let ending = |name: &str, column: &str| {
            let error = pieces(data(name), Some(column)).unwrap_err().message().to_string();
            error.split_once("` ").unwrap().1.to_string()
        };
        assert_eq!(
            ending("snappy.parquet", "txt"),
            "has no column `txt`; its columns are `id`, `text` and `tags.list.element`; did you mean `text`?"
        );
        assert_eq!(ending("snappy.parquet", "id"), "column `id` has elements of type INT64, not text");
        assert_eq!(ending("snappy.parquet", "tags.list.element"), "column `tags.list.element` has lists, not text");
        let expected = "row 1: column `text` is not UTF-8: invalid utf-8 sequence of 1 bytes from index 1";
        assert_eq!(ending("not-utf8.parquet", "text"), expected);
        let error = message(pieces(folder.path().join("a.parquet"), None), &folder);
        assert!(error.starts_with("`DIR/a.parquet` is damaged: "), "{error}");
        // A file that is cut off in the middle of a page: the footer is put behind the half of it.
        let whole = fs::read(data("gzip.parquet")).unwrap();
        let mut damaged = whole.clone();
        damaged[40..120].fill(0x5a);
        let path = folder.path().join("b.parquet");
        fs::write(&path, damaged).unwrap();
        let error = message(pieces(&path, None), &folder);
        assert!(error.starts_with("`DIR/b.parquet` cannot be read at row 0: "), "{error}");
    }

    /// The crate that reads them panics at some.
    #[test]
    fn files_that_are_damaged() {
        let folder = folder(&[]);
        let whole = fs::read(data("gzip.parquet")).unwrap();
        let path = folder.path().join("a.parquet");
        let mut errors = 0;
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, damaged).unwrap();
            errors += usize::from(pieces(&path, None).is_err());
        }
        assert!(errors > whole.len() / 10, "{errors} of {}", whole.len());
    }

    /// A file whose metadata was damaged: of 1000 rows in groups of 400, 400 and 200.
    #[test]
    fn other_numbers_of_rows_than_the_file_says() {
        let folder = folder(&[]);
        let whole = fs::read(data("snappy.parquet")).unwrap();
        let path = folder.path().join("a.parquet");
        // Thrift writes 1000 as 0xd0 0x0f, and 400 as 0xa0 0x06: of the file, of the last group, and of a page in the second group.
        let cases: [(&[u8], u8, &str); 3] = [
            (b"\x16\xd0\x0f", 0xce, "row 1000: Parquet error: the file ends, and is said to have 999 rows"),
            (
                b"\x16\xa4\x5e\x16\x90\x03",
                0x92,
                "row 1000: Parquet error: the row group ends, and is said to go on to row 1001",
            ),
            (
                b"\x15\xf8\x06\x15\xb4\x06\x2c\x15\xa0\x06",
                0x9e,
                "row 799: Parquet error: the row group ends, and is said to go on to row 800",
            ),
        ];
        for (place, byte, expected) in cases {
            let at = whole.windows(place.len()).rposition(|bytes| bytes == place).unwrap() + place.len() - 2;
            let mut damaged = whole.clone();
            damaged[at] = byte;
            fs::write(&path, damaged).unwrap();
            assert_eq!(message(pieces(&path, None), &folder), format!("`DIR/a.parquet` cannot be read at {expected}"));
        }
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_without_the_feature() {
    let folder = folder(&[("a.parquet", b"PAR1")]);
    let _: PathBuf = folder.path().into();
    assert_eq!(
        message(pieces(folder.path().join("a.parquet"), None), &folder),
        "`DIR/a.parquet` is Parquet, which this build does not read: build it with the feature `parquet`"
    );
}
