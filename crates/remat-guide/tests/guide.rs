//! The guide and the README are what their listings are and print.
//!
//! In a page a comment stands before each block that comes from elsewhere:
//!
//! - `<!-- listing: start#model -->`: the code between `// ANCHOR: model` and `// ANCHOR_END: model` in `src/listings/start.rs`
//! - `<!-- output: start#train -->`: what that listing prints after the line `== train`
//! - `<!-- output, numbers vary: memory#report -->`: the same, where numbers (and the order of lines) depend on the instructions of the CPU. The
//!   page has those of AVX2, and a CPU without it prints numbers near them; the listing asserts how they are related, so that what the page
//!   says of them is true on the reader's CPU
//!
//! `BLESS=1 cargo test -p remat-guide` writes these blocks. Shell commands are tested by `crates/remat-cli/tests/guide.rs`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guide")
}

/// The pages with their paths: those of the guide, and the README.
fn pages() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(guide().join("src")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.push(guide().join("../README.md"));
    pages.sort();
    pages.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The lines of a part of a listing, without the indentation that they share.
fn code(name: &str, part: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/listings/{name}.rs"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (begin, end) = (format!("// ANCHOR: {part}"), format!("// ANCHOR_END: {part}"));
    let lines = text.lines().skip_while(|line| line.trim() != begin).skip(1);
    let lines: Vec<&str> = lines.take_while(|line| line.trim() != end).collect();
    assert!(!lines.is_empty(), "{} has no part `{part}`", path.display());
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let shared = lines.iter().filter(|line| !line.is_empty()).map(indent).min().unwrap_or(0);
    lines.iter().map(|line| line.get(shared..).unwrap_or("").to_string()).collect()
}

/// Whether a listing asserts something between the line that begins the output of a part and the next such line.
fn asserts(name: &str, part: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/listings/{name}.rs"));
    let text = fs::read_to_string(path).unwrap();
    let (_, of_part) = text.split_once(&format!("println!(\"== {part}\");")).unwrap();
    of_part.split("println!(\"== ").next().is_some_and(|code| code.contains("assert"))
}

/// What listings print: each runs once.
#[derive(Default)]
struct Outputs(HashMap<String, String>);

impl Outputs {
    /// The lines of a part. Locations in the listings have the listing's name only.
    fn part(&mut self, name: &str, part: &str) -> Vec<String> {
        let all = self.0.entry(name.to_string()).or_insert_with(|| {
            // Plans depend on the number of threads and on the instructions: what is printed is that of most CPUs.
            let printed = |isa: &str| {
                let mut listing = Command::new(env!("CARGO_BIN_EXE_remat-guide"));
                let output =
                    listing.arg(name).env("REMAT_THREADS", "2").env("REMAT_MAX_CPU_ISA", isa).output().unwrap();
                assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8(output.stdout).unwrap()
            };
            // What a listing asserts holds with all instructions of this CPU, too.
            if remat_testkit::sized(false, true) {
                printed("");
            }
            printed("avx2").replace("crates/remat-guide/src/listings/", "")
        });
        let begin = format!("== {part}");
        let lines = all.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| !line.starts_with("== "));
        let lines: Vec<String> = lines.map(|line| line.trim_end().to_string()).collect();
        assert!(!lines.is_empty(), "the listing `{name}` prints nothing as part `{part}`");
        lines
    }
}

/// A line as words, and the numbers between them: bytes where a unit follows.
fn taken_apart(line: &str) -> (String, Vec<f64>) {
    let (mut words, mut numbers) = (Vec::new(), Vec::<f64>::new());
    let mut was_number = false;
    for word in line.split_whitespace() {
        let unit =
            ["B", "KiB", "MiB", "GiB"].iter().position(|unit| *unit == word.trim_end_matches([',', ';', '.', ')']));
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        match (unit, digits.parse()) {
            (Some(power), _) if was_number => *numbers.last_mut().unwrap() *= 1024f64.powi(power as i32),
            // A type or a line of code has digits too.
            (_, Ok(number)) if word.trim_start_matches(['-', '(']).starts_with(|c: char| c.is_ascii_digit()) => {
                numbers.push(number)
            }
            // Marks the change that helps most.
            _ if word == ">" => {}
            _ => words.push(word),
        }
        was_number = digits.parse::<f64>().is_ok();
    }
    (words.join(" "), numbers)
}

/// Whether lines are the same but for their order and for numbers that are off by at most a quarter, or by 2 % of the largest one. Scratch memory
/// depends on the CPU, and is no part of a peak at which none is in use.
fn are_near(one: &[String], other: &[String]) -> bool {
    let sorted = |lines: &[String]| {
        let lines =
            lines.iter().filter(|line| !line.trim_start().starts_with("scratch ") && !line.contains("scratch of "));
        let mut parts: Vec<_> = lines.map(|line| taken_apart(line)).collect();
        parts.sort_by(|a, b| a.partial_cmp(b).unwrap());
        parts
    };
    let (one, other) = (sorted(one), sorted(other));
    let largest = one.iter().flat_map(|(_, numbers)| numbers).copied().fold(0.0, f64::max);
    let near = |(&a, &b): (&f64, &f64)| {
        // Bytes beside bytes, and shares beside shares.
        let slack = if a.max(b) <= 100.0 { 5.0 } else { 0.02 * largest };
        (a - b).abs() <= slack.max(0.25 * a.max(b))
    };
    one.len() == other.len()
        && one
            .iter()
            .zip(&other)
            .all(|((words, a), (others, b))| words == others && a.len() == b.len() && a.iter().zip(b).all(near))
}

/// The page as it has to be.
fn checked(path: &Path, page: &str, outputs: &mut Outputs) -> String {
    let mut checked = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        checked.push(line.to_string());
        if line.starts_with("```rust") {
            panic!("{}: a block of Rust without a listing: it is not tested", path.display());
        }
        let comment = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let Some((kind, (name, part))) =
            comment.and_then(|c| c.split_once(": ")).and_then(|(k, of)| Some((k, of.split_once('#')?)))
        else {
            continue;
        };
        let fence = if kind == "listing" { "```rust" } else { "```text" };
        // A comment without its block is a block that is not yet there.
        let mut found: Vec<String> = Vec::new();
        if lines.next_if_eq(&fence).is_some() {
            found.extend(lines.by_ref().take_while(|line| *line != "```").map(String::from));
        }
        let wanted = match kind {
            "listing" => code(name, part),
            "output" => outputs.part(name, part),
            "output, numbers vary" => {
                assert!(asserts(name, part), "the listing `{name}` asserts nothing of the numbers of part `{part}`");
                let printed = outputs.part(name, part);
                if are_near(&printed, &found) { found } else { printed }
            }
            _ => panic!("{}: a block of unknown kind `{kind}`", path.display()),
        };
        checked.push(fence.to_string());
        checked.extend(wanted);
        checked.push("```".to_string());
    }
    checked.join("\n") + "\n"
}

#[test]
fn listings_and_their_output_are_in_the_guide() {
    let mut outputs = Outputs::default();
    for (path, page) in pages() {
        let expected = checked(&path, &page, &mut outputs);
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, expected).unwrap();
        } else if let Some((is, wanted)) = page.lines().zip(expected.lines()).find(|(is, wanted)| is != wanted) {
            panic!("{}: `{is}` has to be `{wanted}`; BLESS=1 writes it", path.display());
        } else {
            assert_eq!(page, expected, "{}", path.display());
        }
    }
}

#[test]
fn numbers_that_vary_are_near() {
    let near = |one: &str, other: &str| {
        are_near(&[one.into(), "peak 40.00 MiB".into()], &[other.into(), "peak 41.00 MiB".into()])
    };
    assert!(near("  activations   36.11 MiB   78 %", "activations 34.90 MiB 76 %"));
    assert!(near("overhead 426.66 KiB 1 %", "overhead 0.52 MiB 0 %"));
    assert!(near("> policy Dots 43.83 MiB -6 %, 1 % more", "policy Dots 42.00 MiB -4 %, 1 % more"));
    assert!(!near("activations 36.11 MiB 78 %", "activations 18.11 MiB 78 %"));
    assert!(!near("activations 36.11 MiB 78 %", "activations 36.11 MiB 7 %"));
    assert!(!near("saved 36.11 MiB", "kept 36.11 MiB") && !near("saved 36.11 MiB", "saved"));
    assert!(!near("f32[8,128,512] mul", "f32[8,128,256] mul"));
}
