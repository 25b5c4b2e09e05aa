//! The shell commands of the guide: each line below `<!-- run -->` is run, with small models and a hundredth of the steps. Those below
//! `<!-- run with tokenizers -->` are run where the command is built with this feature.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use remat::nn::{Gpt2, Gpt2Config};
use remat::{DType, random};
use remat_io::huggingface;
use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(repository().join("guide/src").join(name)).unwrap()
}

/// The lines of the blocks of a page that are to be run by this build.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for part in page.split("<!-- run").skip(1) {
        let (which, block) = part.split_once(" -->\n```sh\n").unwrap_or_else(|| panic!("{part}"));
        let is_run = match which.trim() {
            "" => true,
            "with tokenizers" => cfg!(feature = "tokenizers"),
            "with parquet" => cfg!(feature = "parquet"),
            // Compared with its output by a test of its own.
            "as it is" => false,
            other => panic!("`{other}` is no feature"),
        };
        commands.extend(block.lines().take_while(|line| *line != "```" && is_run).map(String::from));
    }
    commands
}

/// The words of a line, of which those in double quotes are one.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(i, part)| if i % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .map(String::from)
        .collect()
}

const BATCH: [(&str, &str); 2] = [("--batch", "2"), ("--sample", "4")];
const MODEL: [(&str, &str); 4] = [("--layers", "1"), ("--width", "16"), ("--heads", "2"), ("--context", "12")];

/// The arguments for a test: few steps, and a small model where the line begins a run.
fn small(line: &str) -> Vec<String> {
    let mut args = words(line).split_off(1);
    if let Some(at) = args.iter().position(|arg| arg == "--steps") {
        args[at + 1] = (args[at + 1].parse::<usize>().unwrap() / 100).to_string();
    }
    // The sizes of a model that is there are its own.
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let sizes = match args[0].as_str() {
        "train" if has("--resume") => Vec::new(),
        "train" if has("--from") => BATCH.to_vec(),
        "train" | "bench" => [&BATCH[..], &MODEL].concat(),
        _ => Vec::new(),
    };
    for (flag, size) in sizes {
        match args.iter().position(|arg| arg == flag) {
            Some(at) => args[at + 1] = size.to_string(),
            None => args.extend([flag.to_string(), size.to_string()]),
        }
    }
    args
}

/// A folder with what the pages take for granted.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (best, worst) = ("It was the best of times, ".repeat(30), "it was the worst of times, ".repeat(30));
    fs::create_dir(at("notes")).unwrap();
    for (name, text) in [("book.txt", &best), ("other.txt", &worst), ("notes/today.md", &best)] {
        fs::write(at(name), text).unwrap();
    }
    fs::write(at("lines.jsonl"), format!("{{\"text\": \"{best}\", \"body\": \"{worst}\"}}\n").repeat(10)).unwrap();
    let data = repository().join("crates/remat-data/tests/data");
    fs::copy(data.join("snappy.parquet"), at("table.parquet")).unwrap();
    fs::create_dir(at("words")).unwrap();
    fs::copy(data.join("gpt2/tokenizer.json"), at("words/tokenizer.json")).unwrap();
    // Without a tokenizer, since its tokens are bytes.
    let config = Gpt2Config {
        vocab_size: 256,
        n_positions: 16,
        n_embd: 16,
        n_layer: 1,
        n_head: 2,
        eos_token_id: Vec::new(),
        ..Gpt2Config::default()
    };
    huggingface::save(at("gpt2"), &Gpt2::init(random::key(0), &config, DType::F32), &config).unwrap();
    folder
}

fn run(folder: &TempDir, line: &str, args: Vec<String>) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_remat")).args(args).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn commands_of_the_guide_run() {
    for (name, least) in [("command.md", 9), ("text.md", 5), ("hugging_face.md", 9), ("measuring.md", 2)] {
        let folder = folder();
        let commands = commands(&page(name));
        assert!(commands.len() >= least, "{name}: {commands:?}");
        for line in commands {
            assert!(line.starts_with("remat "), "{line}");
            assert!(!run(&folder, &line, small(&line)).is_empty(), "{line} prints nothing");
        }
    }
}

/// The policy and the planned peak of each row of a table, in KiB.
fn planned(table: &str) -> Vec<(String, f64)> {
    let mut lines = table.lines().skip_while(|line| !line.starts_with("policy "));
    let header = lines.next().unwrap();
    let end = header.find("planned peak").unwrap() + "planned peak".len();
    let rows = lines.take_while(|line| !line.is_empty());
    rows.map(|row| {
        let words: Vec<&str> = row[..end].split_whitespace().collect();
        let (name, unit) = (row.split("  ").next().unwrap(), words[words.len() - 1]);
        let number: f64 = words[words.len() - 2].parse().unwrap();
        (name.to_string(), if unit == "MiB" { 1024.0 * number } else { number })
    })
    .collect()
}

/// Times depend on the machine, and peaks a little on the instructions of its CPU. The table is of steps that take long in a build for
/// tests, so that rows are those of a smaller model, and peaks are what a run of the same sizes plans.
#[test]
fn the_table_of_policies_is_that_of_the_guide() {
    let page = page("measuring.md");
    let block = |mark: &str| page.split_once(mark).unwrap().1.split("```").next().unwrap();
    let line = block("<!-- run as it is -->\n```sh\n").trim();
    let shown = planned(block("<!-- its output -->\n```text\n"));
    let folder = folder();
    let printed = planned(&run(&folder, line, small(&format!("{line} --repeat 1"))));
    let names = |rows: &[(String, f64)]| rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&shown), names(&printed));

    let flags = line.strip_prefix("remat bench policies ").unwrap();
    let peaks = ["none", "Dots", "Names(attn)", "Nothing"].map(|policy| {
        let args =
            words(&format!("train --text book.txt {flags} --policy \"{policy}\" --steps 0 --sample 0 --save runs"));
        let said = run(&folder, policy, args);
        fs::remove_dir_all(folder.path().join("runs")).unwrap();
        let (_, peak) = said.split_once("a step takes ").unwrap_or_else(|| panic!("{said}"));
        let peak = 1024.0 * peak.split_once(" MiB at its peak").unwrap().0.parse::<f64>().unwrap();
        let of_page = shown.iter().find(|row| row.0 == policy).unwrap().1;
        assert!((peak - of_page).abs() < 0.1 * of_page, "{policy}: {of_page} KiB shown, {peak} planned");
        peak
    });
    // The engine computes cheap values again under every policy, so that `Dots` need not be below `none`. What `Names(attn)` keeps is little
    // beside what the backward pass of a layer needs, so that either of the last two may be the lower.
    let [none, dots, names, nothing] = peaks;
    assert!(none.min(dots) > 1.5 * names.max(nothing) && nothing < 1.01 * names, "{peaks:?}");
}
