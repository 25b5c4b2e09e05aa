//! `remat bench policies`, as a user runs it.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{folder, remat, stdout};
use serde_json::Value;
use tempfile::TempDir;

const SMALL: &str = "--layers 2 --width 32 --heads 2 --context 32 --batch 16 --repeat 2";

fn bench(folder: &Path, args: &str) -> Output {
    remat(folder, &format!("bench policies {args}"))
}

#[test]
fn each_policy_has_its_time_and_its_memory() {
    let at = TempDir::new().unwrap();
    let files = "--json table.json --svg chart.svg --html page.html";
    let output =
        bench(at.path(), &format!("{SMALL} --only none --only nothing --only none --only names(nothere) {files}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("note: Names(nothere): checkpoint: the policy Names(nothere) mentions the name `nothere`"),
        "{text}"
    );
    assert!(text.ends_with("wrote table.json\nwrote chart.svg\nwrote page.html\n"), "{text}");
    let read = |name: &str| fs::read_to_string(at.path().join(name)).unwrap();
    let table: Value = serde_json::from_str(&read("table.json")).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "Nothing", "Names(nothere)"]);
    let planned = |row: usize| rows[row]["planned"].as_u64().unwrap();
    assert!(planned(1) < planned(0), "{table}");
    assert!(rows[..2].iter().all(|row| row["seconds"].as_f64().unwrap() > 0.0 && row["error"].is_null()), "{table}");
    assert!(rows[2].get("planned").is_none() && rows[2]["error"].is_string(), "{table}");
    assert_eq!(read("chart.svg").matches("<circle").count(), 2);
    assert!(read("page.html").contains("<svg"));
}

#[test]
fn the_model_of_another_run_is_measured() {
    let at = folder(&"to be or not to be, ".repeat(40));
    let sizes = "--layers 1 --width 24 --heads 2 --context 12 --batch 2";
    stdout(remat(at.path(), &format!("train {sizes} --steps 1 --sample 0 --save run")));
    let output = bench(at.path(), "--from run --context 12 --batch 2 --repeat 1 --only none");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("gpt2, layers 1, width 24, "), "{text}");
}

#[test]
fn mistakes_are_said_before_anything_is_measured() {
    let at = TempDir::new().unwrap();
    let error = |args: &str| {
        let output = bench(at.path(), args);
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error("--only nothign").contains("did you mean `Nothing`?"), "{}", error("--only nothign"));
    assert!(error("--widht 3").contains("--width"), "{}", error("--widht 3"));
    assert!(error("--repeat 0").contains("--repeat"), "{}", error("--repeat 0"));
}
