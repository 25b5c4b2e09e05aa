//! `remat fit` as a user runs it, for this machine.

use std::process::{Command, Output};

use remat_testkit::installed;
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
    if installed("XLA as a target", Plugin::path_of(Platform::Cpu)).is_none() {
        return;
    }
    let rows = rows(&fit("--target xla-cpu,cpu --policy Nothing"));
    let levels: Vec<&str> = rows.iter().map(|row| row[row.len() - 1].as_str()).collect();
    assert_eq!(levels, ["full", "exact"], "{rows:?}");
}

/// The rows of `fit --run` on a device.
fn ran(device: &str, args: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    let output = fit(&format!("--run {device} --dtype f32 --steps 3 --json {} {args}", path.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The weights and tokens are the same on both engines, and the step is that of the table.
#[test]
fn a_step_runs_on_a_device() {
    let native = ran("cpu", "--policy none --policy Nothing");
    let losses = |rows: &serde_json::Value, i: usize| -> Vec<f64> {
        rows[i]["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect()
    };
    let first = losses(&native, 0);
    assert!(first.len() == 4 && (first[0] - 64f64.ln()).abs() < 0.5 && first[3] < first[0], "{first:?}");
    // No policy changes a bit.
    assert_eq!(losses(&native, 1), first);
    let [none, nothing] = [0, 1].map(|i| native[i]["planned_peak"].as_u64().unwrap());
    assert!(none >= nothing && native[0]["step_s"].as_f64().unwrap() > 0.0, "{native}");
    if installed("a step on XLA", Plugin::path_of(Platform::Cpu)).is_none() {
        return;
    }
    let xla = ran("xla-cpu", "--policy Nothing");
    let other = losses(&xla, 0);
    assert!(first.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-4), "{first:?} {other:?}");
    // Nothing is left on the device from step to step.
    let samples = xla[0]["samples"].as_array().unwrap();
    assert!(samples.iter().all(|sample| sample["arrays"] == samples[0]["arrays"]), "{samples:?}");
}

/// Without an optimizer the weights are kept beside the gradient, in the plan of a run as in the table.
#[test]
fn a_step_without_an_optimizer_keeps_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    rows(&fit(&format!("--target cpu --policy none --optimizer none --dtype f32 --json {}", path.display())));
    let table: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let run = ran("cpu", "--policy none --optimizer none");
    assert!(run[0]["planned_peak"].is_u64() && run[0]["planned_peak"] == table["rows"][0]["peak"], "{run} {table}");
}

/// The sequences of a batch are not all of a step that accumulates gradients.
#[test]
fn the_batches_of_a_step_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let [config, path] = ["run.toml", "rows.json"].map(|name| folder.path().join(name));
    let settings = "model = 'llama-tiny'\nlayers = 1\nwidth = 32\nbatch = 2\naccumulate = 3\ncontext = 8\n";
    std::fs::write(&config, settings).unwrap();
    let told = |args: &str| -> (String, serde_json::Value) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        command.arg("fit").args(args.split(' ')).args(["--policy", "none", "--config"]).arg(&config);
        let output = command.arg("--json").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        (String::from_utf8(output.stdout).unwrap(), rows)
    };
    let (text, table) = told("--target cpu");
    assert!(text.contains(", batch 2, 3 batches per step, context 8, "), "{text}");
    assert!(table["batch"] == 2 && table["accumulate"] == 3, "{table}");
    let (text, rows) = told("--run cpu --steps 1");
    assert!(text.contains(" 2 x 3 "), "{text}");
    assert!(rows[0]["batch"] == 2 && rows[0]["accumulate"] == 3, "{rows}");
}

/// The error is a row, with the bytes that are needed, and the process goes on with the next batch.
#[test]
fn a_step_that_does_not_fit_is_followed_by_one_that_does() {
    let folder = tempfile::tempdir().unwrap();
    let (config, path) = (folder.path().join("config.json"), folder.path().join("rows.json"));
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args([
        "fit",
        "--run",
        "cpu",
        "--policy",
        "Nothing",
        "--context",
        "8",
        "--run-batch",
        "4096",
        "--run-batch",
        "2",
    ]);
    command.arg("--model").arg(&config).arg("--json").arg(&path).env("REMAT_MEMORY_LIMIT", "2MiB");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.contains("and the limit is 2.00 MiB"), "{error}");
    assert!(
        rows[0]["step_s"].is_null() && rows[1]["error"].is_null() && rows[1]["step_s"].as_f64().unwrap() > 0.0,
        "{rows}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("note: Nothing, batch 4096: "), "{text}");
}

#[test]
fn a_step_does_not_run_on_a_device_that_is_not_there() {
    let output = fit("--run no-such-device --policy none");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("note: none, batch 2: ") && text.contains("no-such-device"), "{text}");
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
    assert!(error.starts_with("error: unknown target `xla-gpu`; did you mean `xla-cpu`?"), "{error}");
}

/// What cannot be compiled, written or asked for is an error before anything is compiled.
#[test]
fn mistakes_are_found_before_compilations() {
    for (args, expected) in [
        (
            "--target tpu-v5e:3x3 --batch 9",
            "tpu-v5e has no slice of 3x3; the sizes of slices are powers of two up to 16",
        ),
        ("--target tpu-v5e:16x32 --batch 512", "tpu-v5e has no slice of 16x32"),
        ("--target cpu --context 8 --json /no/such/folder/rows.json", "/no/such/folder/rows.json: No such file"),
        ("--run cpu --policy none --model gpt2-tiny --json /no/such/rows.json", "/no/such/rows.json: No such file"),
        ("--target cpu --model gpt2 --context 4096", "gpt2 has 1024 positions, fewer than the 4096 of --context"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_remat")).arg("fit").args(args.split(' ')).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}: {error}");
        assert!(
            error.starts_with("error: ") && error.contains(expected) && output.stdout.is_empty(),
            "{args}: {error}"
        );
    }
}

/// Weights of f32 beside activations of bf16, as training usually has them.
#[test]
fn weights_may_have_another_dtype_than_activations() {
    let output = fit("--target cpu --policy Names(qkv) --policy OffloadNames(qkv) --dtype bf16 --parameters f32");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.contains(" of f32 (llama, layers 2, ") && text.contains("), computed in bf16, batch 2"), "{text}");
    let of = |dtype: &str| {
        let all = rows(&fit(&format!("--target cpu --policy none --dtype bf16 --parameters {dtype}")));
        all[0][3..5].to_vec()
    };
    // Bytes of parameters, twice as many.
    assert_ne!(of("f32"), of("bf16"));
    assert_eq!(rows(&output).len(), 2, "{text}");
    assert!(text.contains("OffloadNames(qkv)"), "{text}");
}

/// `remat fit` measures the step that `remat train` runs: for this machine both name the same peak, to the byte.
#[test]
fn the_step_is_that_of_training() {
    let folder = tempfile::tempdir().unwrap();
    let [config, by_fit, by_bench] = ["run.toml", "fit.json", "bench.json"].map(|name| folder.path().join(name));
    let json = |path: &std::path::Path| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        let output = command.args(args).arg("--config").arg(&config).output().unwrap();
        assert!(output.status.success(), "{args:?} {}", String::from_utf8_lossy(&output.stderr));
    };
    for (settings, policy) in [
        ("", "none"),
        ("", "Names(attn)"),
        ("model = 'llama-tiny'\nlayers-as = 'scan'\ndtype = 'bf16'", "Nothing"),
        ("model = 'llama-tiny'\noptimizer = 'adafactor'\nclip-norm = 0", "Dots"),
        ("dtype = 'f16'\naccumulate = 2\nclip-value = 0.5\noptimizer = 'sgd'", "Names(attn, up)"),
        ("lora = 2\nlayers-as = 'scan'\ncontext = 32", "DotsWithNoBatchDims"),
    ] {
        std::fs::write(&config, format!("layers = 3\nwidth = 32\nbatch = 4\n{settings}\n")).unwrap();
        run(&["fit", "--target", "cpu", "--policy", policy, "--json", by_fit.to_str().unwrap()]);
        run(&["bench", "policies", "--only", policy, "--repeat", "1", "--json", by_bench.to_str().unwrap()]);
        let (fit, bench) = (json(&by_fit)["rows"][0]["peak"].clone(), json(&by_bench)["rows"][0]["planned"].clone());
        assert!(fit.as_u64().is_some() && fit == bench, "{settings} {policy}: {fit} {bench}");
    }
}

/// The names of models are those of `remat train`, the small ones included.
#[test]
fn commands_know_the_same_models() {
    for model in ["gpt2-tiny", "llama-tiny"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        let output = command.args(["fit", "--target", "cpu", "--policy", "none", "--model", model]).output().unwrap();
        assert_eq!(rows(&output).len(), 1);
    }
    for command in ["fit", "bench policies", "plan", "profile"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_remat"));
        let output = run.args(command.split(' ')).args(["--model", "lama-3b"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.ends_with("nor a folder with one; did you mean `llama-3b`?\n"), "{command}: {error}");
    }
}

/// A script can tell whether there is an answer.
#[cfg(unix)]
#[test]
fn without_an_answer_the_exit_code_is_not_zero() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (config, json) = (folder.path().join("config.json"), folder.path().join("rows.json"));
    std::fs::write(&config, CONFIG).unwrap();
    let worker = folder.path().join("worker");
    std::fs::write(&worker, "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args("fit --batch 2 --context 8 --target xla-cpu --policy none --model".split(' ')).arg(&config);
    command.arg("--json").arg(&json).env("REMAT_WORKER", &worker).env("REMAT_PJRT_PLUGIN_CPU", &worker);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("it is not known whether a policy fits: no program was compiled"), "{text}");
    let rows: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert!(rows["rows"][0]["fits"].is_null(), "{rows}");
}

/// A full disk behind the standard error ends nothing.
#[cfg(target_os = "linux")]
#[test]
fn progress_that_cannot_be_written_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args("fit --batch 2 --context 8 --target cpu --policy none --model".split(' ')).arg(&config);
    let output = command.stderr(std::fs::File::create("/dev/full").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

/// After a signal the table has the rows that are done; a killed command leaves no files.
#[cfg(unix)]
#[test]
fn a_command_that_is_stopped_prints_what_it_has() {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.json");
    std::fs::write(&config, CONFIG).unwrap();
    // A compiler that takes long, and ends with the command as workers do.
    let worker = folder.path().join("worker");
    std::fs::write(&worker, "#!/bin/sh\ncat > /dev/null\n").unwrap();
    std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args("fit --batch 2 --context 8 --target cpu,xla-cpu --policy none --model".split(' ')).arg(&config);
    command.env("REMAT_WORKER", &worker).env("REMAT_PJRT_PLUGIN_CPU", &worker).env("TMPDIR", folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_compiling = || {
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("remat-ahead"))
    };
    let started = Instant::now();
    while !is_compiling() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The row of the native engine is done about then.
    std::thread::sleep(Duration::from_secs(3));
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let (text, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(128 + 15), "{text}{told}");
    assert!(text.contains("cpu has") && text.contains("exact") && !text.contains("xla-cpu has"), "{text}{told}");
    assert!(!is_compiling(), "the folder of the job is left");
}

/// The worker of a killed command removes the folder of its job.
#[cfg(unix)]
#[test]
fn a_killed_command_leaves_no_folder() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("remat-ahead-1-0");
    std::fs::create_dir(&job).unwrap();
    // The worker waits for the job, which is a pipe that nobody writes.
    assert!(Command::new("mkfifo").arg(job.join("job")).status().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    let mut worker = command.env("REMAT_AHEAD_JOB", &job).stdin(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(worker.stdin.take());
    let started = Instant::now();
    while job.exists() && started.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let is_left = job.exists();
    let _ = worker.kill();
    let _ = worker.wait();
    assert!(!is_left);
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
