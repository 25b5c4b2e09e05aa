//! `remat profile`: the time of the steps of the engine.

mod common;

use std::fs;

use common::{error, folder, remat, stdout};
use remat_testkit::installed;
use remat_xla::{Platform, Plugin};
use serde_json::Value;

const SMALL: &str = "profile --layers 2 --width 16 --heads 2 --context 8 --batch 2 --repeat 3";

#[test]
fn a_step_is_profiled() {
    let at = folder("");
    let text = stdout(remat(at.path(), &format!("{SMALL} --policy nothing --trace trace.json")));
    assert!(text.contains("policy nothing: the median of 3 steps\n"), "{text}");
    for part in ["forward ", "recomputed ", "derivative ", "  operation\n", "  line\n", "  dot_general["] {
        assert!(text.contains(part), "{text}: lacks {part}");
    }
    let trace: Value = serde_json::from_str(&fs::read_to_string(at.path().join("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let steps = text.split(" in ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|n| n.parse().ok());
    assert_eq!(Some(events.iter().filter(|event| event["ph"] == "X").count()), steps, "{text}");
}

#[test]
fn mistakes_are_errors() {
    let at = folder("");
    let message = error(remat(at.path(), &format!("{SMALL} --trace missing/trace.json")));
    assert!(message.contains("missing/trace.json"), "{message}");
    let message = error(remat(at.path(), &format!("{SMALL} --policy nonsense")));
    assert!(message.contains("nonsense"), "{message}");
    if installed("profiles on XLA", Plugin::path_of(Platform::Cpu)).is_none() {
        return;
    }
    let message = error(remat(at.path(), &format!("{SMALL} --device xla-cpu")));
    assert!(message.contains("the engine of xla-cpu:0 has no profiles; the native engine has"), "{message}");
}
