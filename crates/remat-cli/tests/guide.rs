//! The shell commands of the guide: each line below `<!-- run -->` is run, with small models and a hundredth of the steps.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The lines of the blocks of a page that are to be run.
fn commands(page: &str) -> Vec<String> {
    let mut blocks = page.split("<!-- run -->\n```sh\n");
    blocks.next();
    blocks.flat_map(|block| block.lines().take_while(|line| *line != "```")).map(String::from).collect()
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
        "train" => [&BATCH[..], &MODEL].concat(),
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

#[test]
fn commands_of_the_guide_run() {
    let folder = TempDir::new().unwrap();
    for (name, text) in [("book.txt", "It was the best of times, "), ("other.txt", "it was the worst of times, ")] {
        fs::write(folder.path().join(name), text.repeat(30)).unwrap();
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guide/src/command.md");
    let commands = commands(&fs::read_to_string(page).unwrap());
    assert!(commands.len() > 8, "{commands:?}");
    for line in commands {
        assert!(line.starts_with("remat "), "{line}");
        let output =
            Command::new(env!("CARGO_BIN_EXE_remat")).args(small(&line)).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line} prints nothing");
    }
}
