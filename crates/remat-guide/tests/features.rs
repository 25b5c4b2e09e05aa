//! A program that adds another of our crates compiles only what is new: no crate that it has already gets another feature.

use std::collections::BTreeSet;
use std::process::Command;

/// Each package that a program with these of our crates compiles, with its features.
fn compiled(crates: &[&str]) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--edges", "normal,build", "--prefix", "none", "--no-dedupe", "--format", "{p} [{f}]"]);
    for name in crates {
        tree.args(["--package", name]);
    }
    let output = tree.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()).map(String::from).collect()
}

#[test]
fn another_crate_of_ours_compiles_only_what_it_adds() {
    let own = |line: &String| line.starts_with("remat v");
    for crates in [&["remat", "remat-io"][..], &["remat", "remat-data"], &["remat", "remat-io", "remat-data"]] {
        let (before, after) = (compiled(&crates[..crates.len() - 1]), compiled(crates));
        assert!(before.len() > 40 && before.iter().any(own), "{before:?}");
        let changed: Vec<&String> = before.difference(&after).collect();
        assert!(changed.is_empty(), "with {crates:?} these are compiled again: {changed:?}");
    }
}
