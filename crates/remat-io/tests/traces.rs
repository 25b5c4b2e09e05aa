//! Profiles as files of other programs.

use std::fs;

use remat::{DType, Tensor, grad, jit};
use remat_io::save_trace;
use serde_json::Value;

#[test]
fn traces_are_json_with_an_event_for_each_step_and_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let (_, profile) = jit(grad(|x: &Tensor| x.sin().exp().sum(..))).profile(Tensor::ones([64], DType::F32)).unwrap();
    save_trace(&path, &profile).unwrap();
    let trace: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count();
    assert_eq!((of("X"), of("C"), of("M")), (profile.steps.len(), profile.steps.len(), 3));
    let first = events.iter().find(|event| event["ph"] == "X").unwrap();
    assert!(first["args"]["line"].as_str().unwrap().contains("traces.rs:"));
    let error = save_trace(folder.path().join("missing/trace.json"), &profile).unwrap_err();
    assert!(error.message().contains("missing"), "{error}");
}
