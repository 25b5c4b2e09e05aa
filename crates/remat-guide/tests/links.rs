//! Links of the guide, of `docs` and of the pages of crates lead to files and headings, the summary of the guide has all of its pages, and its
//! tables have all environment variables, layers, losses and optimizers.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages in a folder with their paths.
fn pages_in(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    pages.sort();
    pages.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The lines of a page outside of blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors of a page: its headings as forges and mdBook spell them.
fn anchors(page: &str) -> HashSet<String> {
    let headings = prose(page).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let slug = |c: char| if c == ' ' { Some('-') } else { Some(c.to_ascii_lowercase()).filter(|&c| kept(c)) };
    headings.map(|heading| heading.chars().filter_map(slug).collect()).collect()
}

/// The targets of links.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(page) {
        // A link may be around code, and code is no link.
        let parts = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        links.extend(parts.map(|(to, _)| to.to_string()));
    }
    links
}

#[test]
fn links_lead_to_files_and_headings() {
    let root = root();
    let mut folders = vec![root.clone(), root.join("docs"), root.join("guide/src")];
    folders.extend(fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path()));
    let mut count = 0;
    for (path, page) in folders.iter().flat_map(|folder| pages_in(folder)) {
        for link in links(&page).into_iter().filter(|link| !link.starts_with("http")) {
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: `{link}` leads nowhere", path.display());
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.contains(anchor), "{}: `{link}` has no such heading", path.display());
            }
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn the_summary_has_each_page() {
    let pages = pages_in(&root().join("guide/src"));
    let (_, summary) = pages.iter().find(|(path, _)| path.ends_with("SUMMARY.md")).unwrap();
    let listed: HashSet<String> = links(summary).into_iter().collect();
    let there = pages.iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned());
    assert_eq!(listed, there.filter(|name| name != "SUMMARY.md").collect());
}

/// The names of environment variables in the strings of a source file.
fn variables(source: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_ascii_uppercase() || c == '_';
    source.split("\"REMAT_").skip(1).filter_map(move |rest| Some(&rest[..rest.find(|c| !is_of_name(c))?]))
}

#[test]
fn the_guide_has_every_environment_variable() {
    /// What a process sets for its own workers.
    const INTERNAL: &str = "AHEAD_JOB";
    fn visit(folder: &Path, to: &mut HashSet<String>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                visit(&entry, to);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                to.extend(variables(&fs::read_to_string(entry).unwrap()).map(str::to_string));
            }
        }
    }
    let mut found = HashSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        visit(&entry.unwrap().path().join("src"), &mut found);
    }
    let page = fs::read_to_string(root().join("guide/src/environment.md")).unwrap();
    // A source that looks for such names has their first letters alone.
    let is_public = |name: &&String| !name.is_empty() && !name.starts_with("TEST_") && *name != INTERNAL;
    assert!(found.contains("THREADS") && found.len() > 10, "{found:?}");
    for name in found.iter().filter(is_public) {
        assert!(page.contains(&format!("`REMAT_{name}`")), "guide/src/environment.md lacks REMAT_{name}");
    }
}

/// The names that a module re-exports from its private modules: those after `pub use`.
fn exports(source: &str) -> Vec<&str> {
    let uses = source.split("\npub use ").skip(1).filter_map(|rest| Some(rest.split_once("::")?.1.split_once(';')?.0));
    uses.flat_map(|names| names.trim_matches(['{', '}']).split(',').map(str::trim)).filter(|n| !n.is_empty()).collect()
}

#[test]
fn tables_have_every_layer_loss_and_optimizer() {
    /// States of optimizers, which `Optimizer::init` makes and nobody names by hand, and the trait itself.
    const STATES: &[&str] = &[
        "Accumulated",
        "Averaged",
        "Factored",
        "Moments",
        "Moments8bit",
        "Momentum",
        "MuonMoments",
        "Optimizer",
        "Parts",
        "Velocity",
    ];
    for (module, page) in [("nn", "models.md"), ("optim", "optimizers.md")] {
        let source = fs::read_to_string(root().join(format!("crates/remat/src/{module}/mod.rs"))).unwrap();
        let text = fs::read_to_string(root().join("guide/src").join(page)).unwrap();
        // What is in listings and their output is not explained.
        let code = prose(&text).flat_map(|line| line.split('`').skip(1).step_by(2));
        let words: HashSet<&str> =
            code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
        let names = exports(&source);
        assert!(names.len() > 15, "{names:?}");
        for name in names.iter().filter(|name| !STATES.contains(name)) {
            assert!(words.contains(name), "guide/src/{page} lacks `{name}` of `{module}`");
        }
    }
}
