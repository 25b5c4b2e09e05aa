//! What a run leaves beside its checkpoints: event files that TensorBoard reads, and a page with charts.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{folder, remat, stdout};
use remat_testkit::installed;
use serde_json::Value;

/// Prints the scalars that TensorBoard's own reader finds in a folder.
const READER: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()['scalars']}))
";

/// What TensorBoard reads of a folder. `None` where it is not installed, which is an error where plugins are required: `REMAT_TEST_TENSORBOARD` names
/// the folder of its packages, where they are not Python's own.
fn read(folder: &Path) -> Option<Value> {
    let mut python = Command::new("python3");
    if let Some(packages) = std::env::var_os("REMAT_TEST_TENSORBOARD") {
        python.env("PYTHONPATH", packages);
    }
    let output = python.args(["-c", READER]).arg(folder).output();
    let events = match output {
        Ok(output) if output.status.success() => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    };
    installed("events in TensorBoard (pip install tensorboard)", events)
}

#[test]
fn tensorboard_reads_the_losses_of_a_run_that_went_on() {
    let at = folder(&"to be or not to be, ".repeat(40));
    let sizes = "--layers 1 --width 16 --heads 2 --context 12 --batch 4 --sample 0";
    stdout(remat(at.path(), &format!("train {sizes} --steps 9 --save-every 3 --save run")));
    let run = at.path().join("run");
    // The run ends after step 6, so that three steps are measured again.
    fs::remove_dir_all(run.join("step-000009")).unwrap();
    stdout(remat(at.path(), "train --resume run --sample 0"));
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let expected: Vec<(u64, f32)> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap() as f32))
        .collect();
    assert_eq!(expected.iter().map(|(step, _)| *step).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("<title>run</title>") && page.matches("<svg").count() >= 3);
    assert!(page.contains("<a href=\"memory.html\">"));
    assert!(fs::read_to_string(run.join("memory.html")).unwrap().contains("\"title\":\"a training step of run\""));
    let Some(read) = read(&run) else { return };
    let point = |point: &Value| (point[0].as_u64().unwrap(), point[1].as_f64().unwrap() as f32);
    let losses: Vec<(u64, f32)> = read["loss"].as_array().unwrap().iter().map(point).collect();
    assert_eq!(losses, expected);
    assert!(["tokens_per_second", "gradient_norm"].iter().all(|name| read.get(name).is_some()), "{read}");
    // It rises from zero in one step of nine, none of a tenth, and falls to a tenth of 1e-3.
    let rates: Vec<f32> = read["learning_rate"].as_array().unwrap().iter().map(|at| point(at).1).collect();
    assert_eq!(rates.len(), 9);
    assert!(rates[0] > rates[8] && rates[8] > 1e-4, "{rates:?}");
}
