//! `remat fit` as a user runs it, for this machine.

use std::process::{Command, Output};

use remat_xla::{Platform, Plugin};

/// A decoder that is traced in no time.
const CONFIG: &str = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2,
    "intermediate_size": 32, "vocab_size": 64}"#;

/// Runs the command for a small model, where no device has the name of the default one.
fn fit(args: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(["fit", "--batch", "2", "--context", "8", "--model"]).arg(&config).args(args.split(' '));
    command.env("REMAT_DEVICE", "no-such-device").output().unwrap()
}

/// The rows of the table, by words.
fn rows(output: &Output) -> Vec<Vec<String>> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let is_row = |line: &&str| line.contains(" yes ") || line.contains(" no ");
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect();
    text.lines().filter(is_row).map(words).collect()
}

#[test]
fn this_machine_needs_neither_a_plugin_nor_the_default_device() {
    let rows = rows(&fit("--target cpu --policy none --policy Nothing"));
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in &rows {
        assert_eq!(row.last().map(String::as_str), Some("exact"), "{row:?}");
    }
}

#[test]
fn model_and_state_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    rows(&fit(&format!("--target cpu --policy none --optimizer adamw --dtype f32 --json {}", path.display())));
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let row = json.as_array().or_else(|| json["rows"].as_array()).unwrap()[0].clone();
    let [peak, parameters, optimizer] = ["peak", "parameters", "optimizer"].map(|name| row[name].as_u64().unwrap());
    assert!(optimizer > parameters && peak >= parameters + optimizer, "{row}");
    // New parameters and moments take the memory of the old ones: beside these there are temporaries, and less than the model once more.
    let [activations, temporaries] = ["activations", "temporaries"].map(|name| row[name].as_u64().unwrap());
    assert_eq!(peak, parameters + optimizer + activations, "{row}");
    assert!(activations < temporaries + parameters, "{row}");
}

#[test]
fn the_largest_batch_is_looked_for() {
    let rows = rows(&fit("--target cpu --policy none --largest-batch"));
    let batch: usize = rows[0][rows[0].len() - 2].replace(',', "").parse().unwrap();
    assert!(batch > 2, "{rows:?}");
}

#[test]
fn xla_on_this_machine_is_a_target_of_its_own() {
    if let Err(error) = Plugin::path_of(Platform::Cpu) {
        assert!(std::env::var_os("REMAT_REQUIRE_PLUGINS").is_none(), "{error}");
        eprintln!("\nNOT TESTED: {error}\n");
        return;
    }
    let rows = rows(&fit("--target xla-cpu,cpu --policy Nothing"));
    let levels: Vec<&str> = rows.iter().map(|row| row[row.len() - 1].as_str()).collect();
    assert_eq!(levels, ["full", "exact"], "{rows:?}");
}

/// All targets need the compilers of all chips.
#[test]
fn all_targets_are_refused_where_a_plugin_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.env_clear().env("HOME", folder.path());
    let output = command.args("fit --target cpu,all --policy none --time-limit 1".split(' ')).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("remat plugin install tpu"), "{error}");
}

#[test]
fn unknown_targets_are_errors_with_a_hint() {
    let output = fit("--target xla-gpu");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.starts_with("error: unknown chip `xla-gpu`") && error.contains("also cpu, xla-cpu and all"),
        "{error}"
    );
}

/// The checks that need no plugin are made, and those that do fail.
#[test]
fn a_self_test_without_plugins_fails() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(["fit", "--self-test"]).env("XDG_CACHE_HOME", cache.path()).env("HOME", cache.path());
    for name in ["CPU", "CUDA", "TPU"] {
        command.env(format!("REMAT_PJRT_PLUGIN_{name}"), "/no/such/plugin.so");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("\nok      a small step for cpu: temporaries "), "{text}");
    for target in ["xla-cpu", "tpu-v5e", "h200"] {
        assert!(text.contains(&format!("\nFAILED  a small step for {target}: ")), "{text}");
    }
}
