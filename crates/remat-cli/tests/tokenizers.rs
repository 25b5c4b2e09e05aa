//! Runs whose tokens are those of a tokenizer of Hugging Face, and columns of tables as text.

mod common;

use std::fs;

use common::{error, remat, stdout};
use tempfile::TempDir;

const SMALL: &str = "--layers 1 --width 16 --heads 2 --context 12 --batch 4 --sample 5";
const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../remat-data/tests/data/gpt2");

fn folder() -> TempDir {
    common::folder(&"to be or not to be, ".repeat(60))
}

#[test]
fn a_column_is_named() {
    let at = folder();
    let rows: String = (0..20).map(|i| format!("{{\"id\": {i}, \"body\": \"a line of text\"}}\n")).collect();
    fs::write(at.path().join("a.jsonl"), &rows).unwrap();
    let output = stdout(remat(at.path(), &format!("train {SMALL} --steps 2 --text a.jsonl --column body --save run")));
    assert!(output.contains("text: 280 bytes in a.jsonl; 28 of them are held out"), "{output}");
    // The run knows its column.
    let output = stdout(remat(at.path(), "train --resume run --steps 3"));
    assert!(output.contains("text: 280 bytes in ") && !output.contains("note: the text is not"), "{output}");
    let output = stdout(remat(at.path(), "eval run --text a.jsonl --column body"));
    assert!(output.contains("text: 280 bytes in a.jsonl"), "{output}");
    let message = error(remat(at.path(), "eval run --text a.jsonl"));
    assert_eq!(message, "error: `a.jsonl` line 1: it has no column `text`; its columns are `body` and `id`\n");
    // Tables of the current folder, beside its text.
    let output = stdout(remat(at.path(), "eval run --column body"));
    assert!(output.contains("text: 280 bytes in 1 file of "), "{output}");
}

#[test]
#[cfg(not(feature = "tokenizers"))]
fn a_build_without_tokenizers_says_so() {
    let at = folder();
    let expected = format!(
        "error: `{}/tokenizer.json` cannot be read by this build, which knows bytes alone: build it with the feature `tokenizers`\n",
        std::path::Path::new(TOKENIZER).canonicalize().unwrap().display()
    );
    for command in ["train", "train --print-config"] {
        let output = remat(at.path(), &format!("{command} {SMALL} --tokenizer {TOKENIZER}"));
        assert_eq!(output.status.success(), command.ends_with("config"), "{command}");
        assert!(output.status.success() || error(output) == expected);
    }
}

#[test]
#[cfg(feature = "tokenizers")]
fn tokens_are_those_of_the_tokenizer() {
    use remat_data::Tokenizer;
    let at = folder();
    let tokenizer = Tokenizer::open(TOKENIZER).unwrap();
    let text = fs::read(at.path().join("text.txt")).unwrap();
    let count = tokenizer.encode(&text).unwrap().len();
    let flags = format!("train {SMALL} --tokenizer {TOKENIZER} --learning-rate 0.02 --save-every 5");
    let output = stdout(remat(at.path(), &format!("{flags} --steps 20 --save whole")));
    assert!(output.contains("text: 1,200 bytes in 1 file of ") && output.contains(" tokens; "), "{output}");
    assert!(output.contains(&format!("vocabulary {}", tokenizer.vocabulary())), "{output}");
    // A run that goes on has the same losses.
    let losses = |run: &str| {
        let lines = fs::read_to_string(at.path().join(run).join("metrics.jsonl")).unwrap();
        lines.lines().map(loss).collect::<Vec<f64>>()
    };
    stdout(remat(at.path(), &format!("{flags} --steps 20 --save parts")));
    fs::remove_dir_all(at.path().join("parts/step-000020")).unwrap();
    let resumed = stdout(remat(at.path(), "train --resume parts"));
    assert!(resumed.contains("resuming after step 15") && !resumed.contains("note: the text"), "{resumed}");
    assert_eq!((losses("parts").len(), losses("parts")), (20, losses("whole")));
    // Bits are those of a byte, not of a token.
    let report = stdout(remat(at.path(), "eval whole --text text.txt"));
    let mut words = report.rsplit_once("loss ").unwrap().1.split_whitespace().map(|word| word.trim_matches(','));
    let mut number = || words.next().unwrap().parse::<f64>().unwrap();
    let (loss, bits) = (number(), number());
    // The end of the text may have a token of its own.
    let tokens = (count + usize::from(tokenizer.end_of_text().is_some())) as f64;
    assert!((bits - loss / 2f64.ln() * tokens / 1200.0).abs() < 1e-3, "{report}");
    let written = stdout(remat(at.path(), "generate whole --prompt to --length 5 --temperature 0"));
    assert!(!written.trim().is_empty() || written.ends_with('\n'), "{written}");
    // Weights bring their tokenizer.
    let tuned = stdout(remat(at.path(), "train --from whole --context 12 --batch 4 --sample 5 --steps 2"));
    assert!(tuned.contains(" tokens; "), "{tuned}");
}

/// A run has all that it needs in its folder.
#[test]
#[cfg(feature = "tokenizers")]
fn a_run_keeps_its_tokenizer() {
    let at = folder();
    let path = |name: &str| at.path().join(name);
    let other = std::path::Path::new(TOKENIZER).with_file_name("bert").join("tokenizer.json");
    fs::create_dir(path("given")).unwrap();
    for entry in fs::read_dir(TOKENIZER).unwrap() {
        let entry = entry.unwrap().path();
        fs::copy(&entry, path("given").join(entry.file_name().unwrap())).unwrap();
    }
    let given = fs::read(path("given/tokenizer.json")).unwrap();
    let flags = format!("train {SMALL} --tokenizer given --text text.txt --steps 6 --save-every 3 --save run");
    stdout(remat(at.path(), &flags));
    assert_eq!(fs::read(path("run/tokenizer.json")).unwrap(), given);
    let losses = || fs::read_to_string(path("run/metrics.jsonl")).unwrap().lines().map(loss).collect::<Vec<f64>>();
    let expected = losses();
    // The one that was given is another now, then it is gone.
    fs::copy(&other, path("given/tokenizer.json")).unwrap();
    let written = stdout(remat(at.path(), "generate run --prompt to --length 5"));
    fs::rename(path("given"), path("moved")).unwrap();
    for folder in ["run", "run/step-000006"] {
        let args = format!("generate {folder} --prompt to --length 5");
        assert_eq!(stdout(remat(at.path(), &args)), written);
    }
    stdout(remat(at.path(), "eval run --text text.txt"));
    fs::remove_dir_all(path("run/step-000006")).unwrap();
    stdout(remat(at.path(), "train --resume run"));
    assert_eq!(losses(), expected);
    stdout(remat(at.path(), "train --from run --context 12 --batch 4 --text text.txt --steps 1 --save next"));
    assert_eq!(fs::read(path("next/tokenizer.json")).unwrap(), given);
    // A copy that changed means other tokens.
    fs::copy(&other, path("run/tokenizer.json")).unwrap();
    for args in ["generate run", "eval run --text text.txt", "train --resume run --steps 9", "train --from run"] {
        let said = error(remat(at.path(), args));
        let expected = "error: `run/tokenizer.json` is not the tokenizer that the run was trained with: its tokens would mean something else\n";
        assert_eq!(said, expected, "{args}");
    }
    // Without a copy it is the one that was given.
    fs::remove_file(path("run/tokenizer.json")).unwrap();
    let said = error(remat(at.path(), "generate run"));
    assert!(said.contains("cannot read `") && said.contains("given`"), "{said}");
    fs::create_dir(path("given")).unwrap();
    fs::write(path("given/tokenizer.json"), &given).unwrap();
    stdout(remat(at.path(), "train --resume run --steps 7"));
    assert_eq!(fs::read(path("run/tokenizer.json")).unwrap(), given);
    // The copy replaces nobody's file.
    let said = error(remat(at.path(), &flags.replace("--save run", "--save moved")));
    assert!(said.contains("`moved` has a file `tokenizer.json` that no run has written"), "{said}");
}

/// Its tokens are kept in files by the size of the text, not by that of the file.
#[test]
#[cfg(feature = "tokenizers")]
fn a_large_text_in_a_small_file() {
    let at = folder();
    let file = fs::File::create(at.path().join("a.txt.gz")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, "to be or not to be,\n".repeat(220_000).as_bytes()).unwrap();
    assert!(encoder.finish().unwrap().metadata().unwrap().len() < 1 << 20);
    let small = format!("train {SMALL} --text a.txt.gz --tokenizer {TOKENIZER} --steps 1 --save run");
    let remat = |args: &str| {
        let output = common::command(at.path(), args.split_whitespace()).env("XDG_CACHE_HOME", at.path()).output();
        stdout(output.unwrap())
    };
    assert!(remat(&small).contains("text: 4,400,000 bytes in a.txt.gz, "));
    let shown = remat("cache show");
    assert!(shown.contains("\n1 tokenized text, "), "{shown}");
}

/// One line, without the panic of the crate that reads it.
#[test]
#[cfg(feature = "tokenizers")]
fn a_damaged_tokenizer_is_an_error() {
    let at = folder();
    fs::create_dir(at.path().join("damaged")).unwrap();
    fs::write(at.path().join("damaged/tokenizer.json"), r#"{"decoder":{"type":"#).unwrap();
    let output = remat(at.path(), &format!("train {SMALL} --tokenizer damaged --steps 1"));
    assert_eq!(output.status.code(), Some(1));
    let said = error(output);
    assert!(said.contains("damaged/tokenizer.json` is not a `tokenizer.json` of Hugging Face: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[cfg(feature = "tokenizers")]
fn loss(line: &str) -> f64 {
    serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64().unwrap()
}

#[test]
#[cfg(feature = "tokenizers")]
fn a_model_has_room_for_the_tokens() {
    let at = folder();
    let vocabulary = remat_data::Tokenizer::open(TOKENIZER).unwrap().vocabulary();
    let message = error(remat(at.path(), &format!("train {SMALL} --tokenizer {TOKENIZER} --vocab 200")));
    let expected = format!("error: a vocabulary of 200 is too small: the tokenizer has {vocabulary} tokens\n");
    assert_eq!(message, expected);
    let message = error(remat(at.path(), &format!("train {SMALL} --tokenizer none.json")));
    assert!(message.starts_with("error: cannot read `none.json`: "), "{message}");
}
