//! `remat bench`, as a user runs it.

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
    let output = bench(
        at.path(),
        &format!("{SMALL} --only none --only nothing --only none --only names(nothere) --only planned {files}"),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("note: Names(nothere): checkpoint: the policy Names(nothere) mentions the name `nothere`"),
        "{text}"
    );
    assert!(text.ends_with("wrote page.memory.html\nwrote table.json\nwrote chart.svg\nwrote page.html\n"), "{text}");
    let read = |name: &str| fs::read_to_string(at.path().join(name)).unwrap();
    let table: Value = serde_json::from_str(&read("table.json")).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["none", "Nothing", "Names(nothere)", "planned"]);
    let planned = |row: usize| rows[row]["planned"].as_u64().unwrap();
    assert!(planned(1) < planned(0) && planned(3) <= planned(1), "{table}");
    assert!(rows[..2].iter().all(|row| row["seconds"].as_f64().unwrap() > 0.0 && row["error"].is_null()), "{table}");
    assert!(rows[2].get("planned").is_none() && rows[2]["error"].is_string(), "{table}");
    assert_eq!(read("chart.svg").matches("<circle").count(), 3);
    assert!(read("page.html").contains("<svg") && read("page.html").contains("<a href=\".&#x2f;page.memory.html\">"));
    let memory = read("page.memory.html");
    assert!(
        memory.contains("\"policies\":[{\"name\":\"none\",") && memory.contains("{\"name\":\"Nothing\","),
        "{memory}"
    );
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

#[test]
fn products_are_measured_beside_the_ceiling() {
    let at = TempDir::new().unwrap();
    let products = |args: &str| remat(at.path(), &format!("bench products --milliseconds 1 --only [64,64] {args}"));
    let text = stdout(products("--dtype f32,i8 --threads 2"));
    for header in
        ["f32  GFLOP/s, threads 1  of ceiling  GFLOP/s, threads 2  of ceiling", "i8  Gop/s, threads 1  of ceiling"]
    {
        assert!(text.contains(header), "{text}");
    }
    assert_eq!(text.matches("small  [64,64] [64,64]").count(), 2, "{text}");
    let lines = stdout(products("--dtype f32,bf16 --threads 2 --json"));
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = records.iter().map(|r| (r["dtype"].as_str().unwrap(), r["threads"].as_u64().unwrap())).collect();
    assert_eq!(seen, [("f32", 1), ("f32", 2), ("bf16", 1), ("bf16", 2)]);
    for record in &records {
        let number = |field: &str| record[field].as_f64().unwrap();
        // How large the share is says more about what else runs than about the command.
        let share = number("gflops") / number("ceiling");
        assert!(share > 0.0 && share.is_finite() && (number("share") - share).abs() < 1e-9 * share, "{record}");
        assert_eq!(record["product"], "[64,64] [64,64]");
    }
    let refused = products("--dtype i32");
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        message.contains("invalid value 'i32' for '--dtype <DTYPE>'") && message.contains("bf16, f16, i8, u8"),
        "{message}"
    );
}
