//! A preprocessor for mdBook: pages of the repository that the guide links to become pages of the book, since a site has nothing outside of it.
//!
//! In the repository the guide links to `../../docs/DESIGN.md`, as a reader there needs it. In the book `docs` and the README are a part of their own; a
//! link to any other file of the repository becomes its text.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

/// Where the pages of the guide are.
const GUIDE: &str = "guide/src";

/// Reads what mdBook says of a book, `[context, book]` as JSON, and writes the book with the pages that it lacks.
///
/// # Errors
/// If the input is not that of mdBook 0.5, or a page cannot be read.
pub(crate) fn preprocess(mut input: impl Read, mut output: impl Write) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    input.read_to_string(&mut text)?;
    let (context, mut book): (Value, Value) = serde_json::from_str(&text)?;
    let root = context["root"].as_str().ok_or("mdBook does not say where the book is")?;
    let repository = Path::new(root).parent().ok_or("the book is not in a repository")?;
    let items = book["items"].as_array_mut().ok_or("a book of mdBook 0.5 has items")?;
    let mut wanted = Vec::new();
    for item in items.iter_mut() {
        let Some(chapter) = item.get_mut("Chapter") else { continue };
        if let (Some(content), Some(path)) = (chapter["content"].as_str(), chapter["source_path"].as_str()) {
            chapter["content"] = json!(relinked(content, &Path::new(GUIDE).join(path), &mut wanted));
        }
    }
    let mut pages = BTreeMap::new();
    while let Some(path) = wanted.pop() {
        if let Entry::Vacant(page) = pages.entry(path) {
            let content = fs::read_to_string(repository.join(page.key()))?;
            let content = relinked(&content, page.key(), &mut wanted);
            page.insert(content);
        }
    }
    items.push(json!({"PartTitle": "The repository"}));
    for (path, content) in pages {
        let title = content.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
        let at = in_book(&path).unwrap_or(path);
        items.push(json!({"Chapter": {
            "name": title, "content": content, "number": null, "sub_items": [], "path": at, "source_path": at, "parent_names": []
        }}));
    }
    Ok(writeln!(output, "{book}")?)
}

/// Where a page of the repository is in the book; `None` if it has none.
fn in_book(path: &Path) -> Option<PathBuf> {
    if path == Path::new("README.md") {
        // mdBook would make it the first page.
        return Some("docs/REPOSITORY.md".into());
    }
    let is_page = path.extension().is_some_and(|e| e == "md");
    path.strip_prefix(GUIDE)
        .ok()
        .or_else(|| path.starts_with("docs").then_some(path))
        .filter(|_| is_page)
        .map(Path::to_path_buf)
}

/// A page with its links as they are in the book. Pages outside of the guide that it links to are added to `wanted`.
fn relinked(page: &str, path: &Path, wanted: &mut Vec<PathBuf>) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        lines.push(if is_code { line.to_string() } else { relinked_line(line, path, wanted) });
    }
    lines.join("\n") + "\n"
}

fn relinked_line(line: &str, path: &Path, wanted: &mut Vec<PathBuf>) -> String {
    let (mut done, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("](") {
        let Some((link, behind)) = after.split_once(')') else { break };
        done.push_str(before);
        let (file, anchor) = link.find('#').map_or((link, ""), |at| link.split_at(at));
        let is_outside = link.contains("://") || file.is_empty();
        let target = normal(&path.with_file_name("").join(file));
        match in_book(&target) {
            _ if is_outside => done.push_str(&format!("]({link})")),
            Some(at) => {
                if !target.starts_with(GUIDE) {
                    wanted.push(target);
                }
                let up = if in_book(path).is_some_and(|own| own.starts_with("docs")) { "../" } else { "" };
                done.push_str(&format!("]({up}{}{anchor})", at.display()));
            }
            // Its text stays.
            None => {
                if let Some(open) = done.rfind('[') {
                    done.remove(open);
                }
            }
        }
        rest = behind;
    }
    done + rest
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        if component == Component::ParentDir {
            normal.pop();
        } else {
            normal.push(component);
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_of_the_book() {
        let mut wanted = Vec::new();
        let mut relinked = |line: &str, path: &str| relinked_line(line, Path::new(path), &mut wanted);
        let guide = "guide/src/start.md";
        assert_eq!(relinked("a [b](layers.md#c) d", guide), "a [b](layers.md#c) d");
        assert_eq!(relinked("[b](https://a.b/c.md), [c](#d)", guide), "[b](https://a.b/c.md), [c](#d)");
        assert_eq!(
            relinked("see [`DESIGN`](../../docs/DESIGN.md#a) and [x](../../README.md)", guide),
            "see [`DESIGN`](docs/DESIGN.md#a) and [x](docs/REPOSITORY.md)"
        );
        assert_eq!(
            relinked("[the code](../../crates/remat/src/lib.rs), [x](start.md)", guide),
            "the code, [x](start.md)"
        );
        assert_eq!(
            relinked("[a](FITTING.md) [b](../guide/src/start.md)", "docs/DESIGN.md"),
            "[a](../docs/FITTING.md) [b](../start.md)"
        );
        assert_eq!(relinked("`a[0](b` and more", "docs/DESIGN.md"), "`a[0](b` and more");
        assert_eq!(wanted, ["docs/DESIGN.md", "README.md", "docs/FITTING.md"].map(PathBuf::from));
    }

    #[test]
    fn a_book_has_all_that_it_links_to() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guide").canonicalize().unwrap();
        let chapter = |name: &str| {
            let content = fs::read_to_string(root.join("src").join(name)).unwrap();
            json!({"Chapter": {"content": content, "source_path": name, "path": name}})
        };
        let input =
            json!([{"root": root}, {"items": [chapter("introduction.md"), "Separator", chapter("policies.md")]}]);
        let mut output = Vec::new();
        preprocess(input.to_string().as_bytes(), &mut output).unwrap();
        let book: Value = serde_json::from_slice(&output).unwrap();
        let items = book["items"].as_array().unwrap();
        let paths: Vec<&str> = items.iter().filter_map(|item| item["Chapter"]["path"].as_str()).collect();
        assert!(paths.contains(&"docs/DESIGN.md") && paths.contains(&"docs/PERFORMANCE.md"), "{paths:?}");
        for item in items.iter().filter(|item| item["Chapter"].is_object()) {
            let content = item["Chapter"]["content"].as_str().unwrap();
            assert!(!content.contains("](../../") && !content.contains("](crates/"), "{}", item["Chapter"]["path"]);
        }
        assert!(preprocess(&b"[{}, {}]"[..], Vec::new()).is_err());
    }
}
