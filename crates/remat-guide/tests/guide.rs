//! The guide is what its listings are and print, and its links lead somewhere.
//!
//! In a page a comment stands before each block that comes from elsewhere:
//!
//! - `<!-- listing: start#model -->`: the code between `// ANCHOR: model` and `// ANCHOR_END: model` in `src/listings/start.rs`
//! - `<!-- output: start#train -->`: what that listing prints after the line `== train`
//! - `<!-- output, numbers vary: memory#report -->`: the same, where numbers (and the order of lines) depend on the CPU
//!
//! `BLESS=1 cargo test -p remat-guide` writes these blocks. Shell commands are tested by `crates/remat-cli/tests/guide.rs`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guide")
}

/// The pages with their paths.
fn pages() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(guide().join("src")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
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

/// What listings print: each runs once.
#[derive(Default)]
struct Outputs(HashMap<String, String>);

impl Outputs {
    /// The lines of a part. Locations in the listings have the listing's name only.
    fn part(&mut self, name: &str, part: &str) -> Vec<String> {
        let all = self.0.entry(name.to_string()).or_insert_with(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_remat-guide")).arg(name).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().replace("crates/remat-guide/src/listings/", "")
        });
        let begin = format!("== {part}");
        let lines = all.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| !line.starts_with("== "));
        let lines: Vec<String> = lines.map(|line| line.trim_end().to_string()).collect();
        assert!(!lines.is_empty(), "the listing `{name}` prints nothing as part `{part}`");
        lines
    }
}

/// The words of lines without numbers and units, and without their order.
fn without_numbers(lines: &[String]) -> Vec<String> {
    let is_word =
        |word: &&str| !word.contains(|c: char| c.is_ascii_digit()) && !["B", "KiB", "MiB", ">"].contains(word);
    let mut lines: Vec<String> =
        lines.iter().map(|line| line.split_whitespace().filter(is_word).collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    lines
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
                let printed = outputs.part(name, part);
                if without_numbers(&printed) == without_numbers(&found) { found } else { printed }
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

/// The anchors of a page: its headings as forges and mdBook spell them.
fn anchors(page: &str) -> HashSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let slug = |c: char| if c == ' ' { Some('-') } else { Some(c.to_ascii_lowercase()).filter(|&c| kept(c)) };
    headings.map(|heading| heading.chars().filter_map(slug).collect()).collect()
}

/// The targets of links, without those in blocks of code.
fn links(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut links = Vec::new();
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        if !is_code {
            links
                .extend(line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(to, _)| to.to_string()));
        }
    }
    links
}

#[test]
fn links_lead_to_pages_and_headings() {
    for (path, page) in pages() {
        for link in links(&page).into_iter().filter(|link| !link.starts_with("http")) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: `{link}` leads nowhere", path.display());
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.contains(anchor), "{}: `{link}` has no such heading", path.display());
            }
        }
    }
}

#[test]
fn the_summary_has_each_page() {
    let pages = pages();
    let (_, summary) = pages.iter().find(|(path, _)| path.ends_with("SUMMARY.md")).unwrap();
    let listed: HashSet<String> = links(summary).into_iter().collect();
    let there = pages.iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned());
    assert_eq!(listed, there.filter(|name| name != "SUMMARY.md").collect());
}
