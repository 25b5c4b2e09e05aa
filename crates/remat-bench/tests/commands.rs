//! `remat-bench` as a user runs it, with small sizes.

use std::process::{Command, Output, Stdio};

use remat_testkit::installed;
use serde_json::Value;

const SMALL: &str =
    "--layers 2 --width 8 --heads 2 --hidden 16 --sequence 6 --batch 2 --vocabulary 40 --repeat 2 --threads 1";

/// `remat-bench` with these arguments.
fn bench(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_remat-bench")).args(args.split_whitespace()).output().unwrap()
}

/// What a run that went well printed.
fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

/// The records of a run with `--json`.
fn records(args: &str) -> Vec<Value> {
    stdout(bench(&format!("{args} --json"))).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The line of an error.
fn failure(args: &str) -> String {
    let output = bench(args);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

fn number(record: &Value, field: &str) -> f64 {
    record[field].as_f64().unwrap_or_else(|| panic!("no number `{field}` in {record}"))
}

#[test]
fn the_step_is_measured_in_every_configuration() {
    let records = records(&format!("step {SMALL}"));
    let configurations: Vec<_> =
        records.iter().map(|r| (r["layers_as"].as_str().unwrap(), r["policy"].as_str().unwrap())).collect();
    let policies = ["none", "Dots", "DotsWithNoBatchDims", "Nothing"];
    let expected: Vec<_> =
        ["unroll", "scan"].iter().flat_map(|&layers_as| policies.map(|policy| (layers_as, policy))).collect();
    assert_eq!(configurations, expected);
    for record in &records {
        assert_eq!(number(record, "loss").to_bits(), number(&records[0], "loss").to_bits(), "{record}");
        // The four projections, the two maps of the MLP, the embedding.
        assert_eq!(number(record, "parameters"), (2 * (4 * 8 * 8 + 2 * 8 * 16) + 40 * 8) as f64);
        let arguments = 4.0 * (number(record, "parameters") + 12.0);
        assert_eq!(number(record, "arguments"), arguments, "{record}");
        assert!(number(record, "planned_peak") >= arguments + number(record, "temporaries"), "{record}");
        assert_eq!(number(record, "allocator_peak"), number(record, "planned_peak"), "{record}");
        for time in ["first_s", "step_s", "trace_s", "compile_s", "gflops"] {
            assert!(number(record, time) > 0.0, "{record}");
        }
    }
    let loss = number(&records[0], "loss");
    assert!((loss - 40f64.ln()).abs() < 0.1, "{loss}");
}

#[test]
fn a_device_of_xla_is_checked() {
    let error = failure("device --device cpu");
    assert!(error.contains("cpu is not a device of XLA"), "{error}");
    if installed("a device of XLA", remat_xla::Xla::cpu()).is_none() {
        return;
    }
    let output = bench("device --device xla-cpu --size 32 --repeat 1");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let what: Vec<&str> = lines.iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["device", "scalar", "product", "product"]);
    assert_eq!((lines[0]["name"].as_str(), number(&lines[1], "value")), (Some("xla-cpu:0"), 7.0));
}

#[test]
fn a_checkpoint_needs_less_memory() {
    // Long enough that the residuals of a block outweigh its weights and the tiles that kernels work on.
    let sizes = "--layers 6 --width 32 --heads 2 --hidden 64 --sequence 128 --batch 2 --vocabulary 10 --repeat 1";
    for layers_as in ["unroll", "scan"] {
        let records =
            records(&format!("step {sizes} --layers-as {layers_as} --policy none,nothing --attention plain,fused"));
        let [plain, plain_again, fused, fused_again] = [0, 1, 2, 3].map(|i| number(&records[i], "temporaries"));
        assert!(plain_again < 0.7 * plain && fused_again < 0.7 * fused, "{layers_as}: {records:?}");
        assert!(fused < plain, "{layers_as}: {records:?}");
    }
}

#[test]
fn dtypes_and_policies_as_in_jax_are_taken() {
    // Large enough for the activations, and not the registers of loops, to be what takes memory.
    let sizes =
        "--layers 2 --width 64 --heads 2 --hidden 256 --sequence 64 --batch 2 --vocabulary 256 --repeat 1 --threads 1";
    let records = records(&format!("step {sizes} --layers-as scan --policy dots_with_no_batch_dims --dtype f32,bf16"));
    let [wide, narrow] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&wide["dtype"], &narrow["dtype"]), (&"f32".into(), &"bf16".into()));
    assert!(number(narrow, "planned_peak") < 0.7 * number(wide, "planned_peak"));
    assert!((number(narrow, "loss") - number(wide, "loss")).abs() < 0.05);
}

#[test]
fn the_table_shows_what_differs() {
    let output = stdout(bench(&format!("step {SMALL} --policy none,nothing")));
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("loss and gradient of a GPT: layers 2, width 8, "), "{output}");
    assert_eq!(lines[1], "cpu, f32, threads 1, median of 2 steps, one process each");
    assert!(lines[3].starts_with("policy   layers as  step s  GFLOP/s  planned MiB"), "{output}");
    assert!(lines[4].starts_with("none "), "{output}");
    let last = ["all losses are equal, in every bit", "the allocated peaks are the planned ones, to the byte"];
    assert_eq!(lines[9..], last, "{output}");
}

#[test]
fn arrays_of_which_parts_are_read_are_measured() {
    let records = records("reads --count 3,6 --repeat 1");
    let reads = ["weights", "apart", "steps", "embeddings", "shared", "columns"];
    for read in reads {
        let of: Vec<&Value> = records.iter().filter(|record| record["read"] == read).collect();
        let [few, many] = of[..] else { panic!("{read}: {of:?}") };
        assert_eq!((&few["count"], &many["count"]), (&3.into(), &6.into()), "{read}");
        assert!(number(many, "planned_peak") > number(few, "planned_peak") && number(few, "step_s") > 0.0, "{of:?}");
    }
    assert_eq!(records.len(), 2 * reads.len());
    assert!(stdout(bench("reads --read shared --count 2 --repeat 1 --policy nothing")).contains("shared"));
}

#[test]
fn what_is_wrong_is_one_line() {
    let message = failure(&format!("step {SMALL} --policy none,dost"));
    assert_eq!(message, "error: parse: line 1, column 1: unknown policy `dost`; did you mean `Dots`?\n");
    let three = SMALL.replace("heads 2", "heads 3");
    let message = failure(&format!("step {three} --policy none --layers-as scan"));
    assert_eq!(message, "error: 3 heads do not divide a width of 8\n");
    assert_eq!(failure("calls --width 7"), "error: 8 heads do not divide a width of 7\n");
    let native = "error: there is no plugin beside which calls on cpu could be measured\n";
    assert_eq!(failure("calls --device cpu"), native);
    let message = failure(&format!("step {SMALL} --policy names(mlp)"));
    assert!(message.starts_with("error: policy Names(mlp), layers as unroll, attention fused, "), "{message}");
    assert!(message.contains("mentions the name `mlp`") && message.lines().count() == 1, "{message}");
    let message = failure("unet --image 32 --levels 7");
    let halved = "an image of 32 can be halved 5 times, so that there are at most 6 levels, not 7";
    assert_eq!(message, format!("error: {halved}\n"));
    assert_eq!(failure("unet --width 12"), "error: the 8 groups of the norms do not divide a width of 12\n");
}

/// Sizes that no machine has are errors of the arguments, at once.
#[test]
fn absurd_sizes_are_errors() {
    let huge = "18446744073709551615";
    for argument in
        ["step --layers", "step --repeat", "step --threads", "step --batch", "unet --levels", "calls --width"]
    {
        for size in ["0", huge, "10000000000", "-1"] {
            let output = bench(&format!("{argument} {size}"));
            assert_eq!(output.status.code(), Some(2), "{argument} {size}");
            let message = String::from_utf8(output.stderr).unwrap();
            let flag = argument.split(' ').next_back().unwrap();
            assert!(message.contains(flag) || message.contains("unexpected argument '-1'"), "{message}");
        }
    }
}

/// A full disk must not look like success.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for args in [format!("step {SMALL} --policy none --json"), "--help".into()] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat-bench"));
        let output = command.args(args.split_whitespace()).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with("error: cannot write to the standard output: No space left"), "{message}");
    }
}

/// A measurement must not go on when the process that asked for it is gone.
#[test]
fn a_measurement_ends_with_the_process_that_asked() {
    let case = r#"{"work":"step","layers":2,"width":64,"heads":2,"hidden":64,"sequence":64,"batch":2,"vocabulary":64,
        "layers_as":"unroll","attention":"fused","policy":"none","device":"cpu","dtype":"f32","threads":1,"repeat":1000000}"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat-bench"));
    let mut child = command.args(["one", case]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it should still run");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn models_of_images_are_measured() {
    for (model, parameters) in [
        ("resnet --image 32 --batch 2 --classes 10", 23_528_522.0),
        ("unet --image 16 --batch 1 --width 8 --levels 3", 32_819.0),
    ] {
        let records = records(&format!("{model} --repeat 1"));
        let policies: Vec<_> = records.iter().map(|record| record["policy"].as_str().unwrap()).collect();
        assert_eq!(policies, ["none", "Names(conv)", "Nothing"]);
        for record in &records {
            assert_eq!(number(record, "parameters"), parameters);
            assert_eq!(number(record, "loss").to_bits(), number(&records[0], "loss").to_bits(), "{record}");
        }
        // In between it depends on how small the images are.
        let [none, _, nothing] = [0, 1, 2].map(|i| number(&records[i], "temporaries"));
        assert!(nothing < none, "{model}: {none} {nothing}");
    }
}

#[test]
fn scaling_varies_one_size_at_a_time() {
    let small = SMALL.replace("--layers 2", "--layers 4").replace("--threads 1", "--threads 2");
    let output = stdout(bench(&format!("scaling {small}")));
    for line in ["\nby layers\n", "\nby sequence\n", "\nby batch\n", "\nby threads\n", "\ntime grows as layers^"] {
        assert!(output.contains(line), "{output}");
    }
    assert!(output.contains("2 threads are ") && output.contains(" times as fast as 1"), "{output}");
    let records = records(&format!("scaling {small} --by layers,threads"));
    let sizes: Vec<_> = records.iter().map(|r| (number(r, "layers"), number(r, "threads"))).collect();
    assert_eq!(sizes, [(1.0, 2.0), (2.0, 2.0), (4.0, 2.0), (4.0, 1.0), (4.0, 2.0)]);
}

#[test]
fn calls_and_compilations_are_measured() {
    let records = records("calls --layers 3 --width 8 --repeat 1");
    let (calls, compilations) = records.split_at(3);
    for call in calls {
        assert!(number(call, "seconds") > 0.0 && number(call, "seconds") < 1e-3, "{call}");
        assert!(number(call, "allocations") > 0.0, "{call}");
    }
    assert_eq!(compilations.len(), 8);
    for compilation in compilations {
        assert!(number(compilation, "trace_s") > 0.0 && number(compilation, "compile_s") > 0.0, "{compilation}");
    }
    let output = stdout(bench("calls --layers 3 --width 8 --repeat 1"));
    assert!(output.contains("a jitted scalar function") && output.contains("DotsWithNoBatchDims"), "{output}");
}
