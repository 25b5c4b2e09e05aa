//! The test of layers: a module uses only modules of its own layer and of those above it in the list.
//!
//! The list is in the documentation of the crate's root, so that what readers are told is what is tested: numbered lines,
//! each with the names of modules in backticks up to a colon. A package with a library and a command has two roots and two
//! lists, and a module belongs to the root that lists it; those of the command use the library by its name.
//!
//! ```text
//! //! 1. `dtype`, [`aval`](Aval): values
//! //! 2. `ops`, `jaxpr`: programs
//! ```

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The uses that go from a layer to a later one, and the modules that no layer lists, in a crate's `src` directory. Files
/// called `tests.rs` may use anything: tests of a module may need what is built on it.
///
/// # Errors
/// If a file cannot be read.
pub fn faults(src: impl AsRef<Path>) -> io::Result<Vec<String>> {
    let src = src.as_ref();
    let mut files = Vec::new();
    let mut todo = vec![src.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let path: PathBuf = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(src).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                files.push((name, fs::read_to_string(&path)?));
            }
        }
    }
    files.sort();
    Ok(faults_of(&files))
}

/// What the root of a library or of a command says about its modules.
struct Root {
    /// The number of the layer of each module.
    layers: HashMap<String, usize>,
    /// The module of each name that the root re-exports.
    owners: HashMap<String, String>,
}

/// As [`faults`], of files by their paths below `src`.
fn faults_of(files: &[(String, String)]) -> Vec<String> {
    let roots: Vec<Root> = ["lib.rs", "main.rs"]
        .iter()
        .filter_map(|root| files.iter().find(|(path, _)| path == root))
        .map(|(_, text)| Root { layers: listed_layers(text), owners: owners(text, files) })
        .collect();
    let mut faults = Vec::new();
    for (path, text) in files {
        let module = module_of(path);
        if matches!(module, "lib" | "main") || path.ends_with("/tests.rs") {
            continue;
        }
        let listed = roots.iter().find_map(|root| Some((root, *root.layers.get(module)?)));
        let Some((root, layer)) = listed else {
            faults.push(format!("{path}: no layer lists `{module}`"));
            continue;
        };
        for (line, name) in uses(text) {
            let target = root.owners.get(name).map_or(name, |owner| owner.as_str());
            if root.layers.get(target).is_some_and(|&other| other > layer) {
                faults.push(format!("{path}:{line}: `{module}` of layer {layer} uses `{name}` of `{target}` below it"));
            }
        }
    }
    faults
}

/// The module of a file: the first part of its path.
fn module_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// The number of the layer of each module.
fn listed_layers(root: &str) -> HashMap<String, usize> {
    let mut layers = HashMap::new();
    for line in root.lines().filter_map(|l| l.strip_prefix("//! ")) {
        let Some((number, rest)) = line.split_once(". ") else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        let names = rest.split_once(": ").map_or(rest, |(names, _)| names);
        layers.extend(names.split('`').skip(1).step_by(2).map(|name| (name.to_string(), number)));
    }
    layers
}

/// The module of each name that the root re-exports.
fn owners(root: &str, files: &[(String, String)]) -> HashMap<String, String> {
    let mut owners = HashMap::new();
    for statement in code(root).split(';') {
        let Some((_, path)) = statement.split_once("use ") else { continue };
        let path = path.trim();
        let path = path.strip_prefix("crate::").unwrap_or(path);
        let Some((module, names)) = path.split_once("::") else { continue };
        if names.trim() == "*" {
            let own = files.iter().filter(|(path, _)| module_of(path) == module);
            owners.extend(own.flat_map(|(_, text)| declared(text)).map(|name| (name, module.to_string())));
        } else {
            owners.extend(words(names).map(|name| (name.to_string(), module.to_string())));
        }
    }
    owners
}

/// The names of the public items that a file declares.
fn declared(text: &str) -> Vec<String> {
    let kinds = ["struct", "enum", "trait", "type", "fn", "const", "static", "union"];
    let mut names = Vec::new();
    for line in text.lines().filter_map(|l| l.trim_start().strip_prefix("pub ")) {
        let mut words = words(line).skip_while(|w| matches!(*w, "const" | "async") && line.contains(" fn "));
        if words.next().is_some_and(|w| kinds.contains(&w)) {
            names.extend(words.next().map(str::to_string));
        }
    }
    names
}

/// The first names after `crate::`, with their lines.
fn uses(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find("crate::") {
        let start = at + next;
        at = start + "crate::".len();
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line = text[..start].matches('\n').count() + 1;
        let is_comment = text[line_start..start].trim_start().starts_with("//");
        if is_comment || text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at..];
        if !rest.starts_with('{') {
            found.extend(words(rest).next().map(|name| (line, name)));
            continue;
        }
        // The first word after the outermost brace and after each comma that is in no inner brace.
        let (mut depth, mut wanted) = (0, false);
        for (i, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if depth == 1 && (i == 0 || c == ',') {
                wanted = true;
            } else if wanted && (c.is_alphabetic() || c == '_') {
                found.extend(words(&rest[i..]).next().map(|name| (line, name)));
                wanted = false;
            }
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

/// The text without lines that are comments.
fn code(text: &str) -> String {
    text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let root =
            "//! 1. `base`, [`also`](Also): first\n//! 2. `top`: last\n\npub use base::{A, B};\npub use top::*;\n";
        let root = ("lib.rs", root);
        let files = files.iter().chain([&root]);
        files.map(|(path, text)| (path.to_string(), text.to_string())).collect()
    }

    #[test]
    fn downward_uses_are_allowed() {
        let files = files(&[
            ("base.rs", "use crate::{also::X, B};\n// crate::top\n"),
            ("also/inner.rs", "use crate::A;"),
            ("top/mod.rs", "use crate::{A, base::{self, Z}};\npub struct T;"),
            ("also/tests.rs", "use crate::top::T;"),
        ]);
        assert_eq!(faults_of(&files), Vec::<String>::new());
    }

    /// The command's modules are apart from the library's, even where names are the same.
    #[test]
    fn a_command_beside_a_library_has_layers_of_its_own() {
        let files = files(&[
            ("main.rs", "//! 1. `early`: first\n//! 2. `late`, `main`: last\n\nuse late::go;"),
            ("late.rs", "use crate::early::E;\nuse the_library::top::T;"),
            ("early.rs", "use crate::{A, late::L};\nuse crate::top::T;"),
            ("base.rs", ""),
        ]);
        assert_eq!(faults_of(&files), ["early.rs:1: `early` of layer 1 uses `late` of `late` below it"]);
    }

    #[test]
    fn upward_uses_and_unlisted_modules_are_found() {
        let files = files(&[
            ("also/inner.rs", "use crate::{\n    A,\n    T,\n};\nfn f() { crate::top::g(); pub(crate) fn x() {} }"),
            ("base.rs", "use crate::{also::{X, Y}, top};"),
            ("stray.rs", ""),
            ("top/mod.rs", "pub struct T;"),
        ]);
        assert_eq!(
            faults_of(&files),
            [
                "also/inner.rs:1: `also` of layer 1 uses `T` of `top` below it",
                "also/inner.rs:5: `also` of layer 1 uses `top` of `top` below it",
                "base.rs:1: `base` of layer 1 uses `top` of `top` below it",
                "stray.rs: no layer lists `stray`",
            ]
        );
    }
}
