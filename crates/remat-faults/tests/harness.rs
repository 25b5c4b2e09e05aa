//! The harness itself, with the parts that need no `remat` command.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::process::{Command, Output};

fn faults(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat-faults"));
    command.args(["--remat", "/bin/true", "--seed", "3"]).args(arguments.split(' ')).output().unwrap()
}

/// The row of the table that begins with this: what was tried, how much there is, what held.
fn row(output: &Output, beginning: &str) -> (usize, usize, String) {
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text.lines().find_map(|line| line.strip_prefix(beginning)).unwrap_or_else(|| panic!("{output:?}"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let (tried, of) = cells[1].split_once(" of ").unwrap_or((cells[1], "0"));
    let number = |cell: &str| cell.replace(',', "").parse().unwrap();
    (number(tried), number(of), cells[2].into())
}

#[test]
fn a_tokenization_under_faults() {
    let beginning = "| faults at calls | tokenization ";
    let some = faults("--only sweep --seconds 1 --case tokenization");
    let (tried, of, held) = row(&some, beginning);
    assert!(some.status.success() && tried > 0 && of > 100 && held == "all", "{some:?}");
    // One of them again, by its name.
    let one = faults("--only sweep --seconds 1 --case tokenization:0:EIO");
    assert_eq!(row(&one, beginning), (1, of, "all".into()));
}

#[test]
fn damaged_policies() {
    let beginning = "| damaged files | policy (no checksums) ";
    let some = faults("--only damage --seconds 1 --case policy");
    let (tried, _, held) = row(&some, beginning);
    assert!(some.status.success() && tried >= 400 && held == "all", "{some:?}");
    assert_eq!(row(&faults("--only damage --seconds 1 --case policy:7"), beginning), (1, 0, "all".into()));
    let none = faults("--only damage --seconds 1 --case nothing");
    assert_eq!(String::from_utf8_lossy(&none.stderr), "error: there is no such format\n");
}
