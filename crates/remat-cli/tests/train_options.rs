//! What a training run can be asked for: configurations, limits of memory, precision, adapters, weights of others.

mod common;

use std::fs;
use std::path::Path;

use common::{error, remat, stdout};
use tempfile::TempDir;

const SMALL: &str = "--layers 1 --width 16 --heads 2 --context 12 --batch 4";

fn folder() -> TempDir {
    common::folder(&"to be or not to be, ".repeat(40))
}

/// The numbers behind a text.
fn numbers(output: &str, before: &str) -> Vec<f64> {
    let number = |part: &str| part.split_whitespace().next().unwrap().parse().unwrap();
    output.split(before).skip(1).map(number).collect()
}

fn measured(run: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_file_says_what_flags_say() {
    let at = folder();
    let file = "text = 'text.txt'\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 12\nbatch = 4\nsteps = 3\nsample = 0\nsave = \"a\"\n";
    fs::write(at.path().join("run.toml"), file).unwrap();
    let by_file = stdout(remat(at.path(), "train --config run.toml"));
    let by_flags = stdout(remat(at.path(), &format!("train --text text.txt {SMALL} --steps 3 --sample 0 --save b")));
    let losses = |output: &str| numbers(output, "held-out loss after training: ");
    assert_eq!(losses(&by_file), losses(&by_flags));
    // A flag holds in place of a line, and the whole configuration can be printed and kept.
    let printed = stdout(remat(at.path(), "train --config run.toml --steps 5 --print-config"));
    assert!(printed.contains("\nsteps = 5\n") && printed.contains("\nwidth = 16\n"), "{printed}");
    assert!(printed.contains("\n# kv-heads =\n") && printed.contains("\noptimizer = \"adamw\"\n"), "{printed}");
    let kept = fs::read_to_string(at.path().join("a/config.toml")).unwrap();
    assert!(kept.contains("\nsteps = 3\n"), "{kept}");
    // A run that is resumed may be given its own file.
    stdout(remat(at.path(), "train --resume a --config a/config.toml --steps 4"));
    fs::write(at.path().join("bad.toml"), "steps = 3\n\nwidht = 16\n").unwrap();
    let message = error(remat(at.path(), "train --config bad.toml"));
    assert_eq!(message, "error: `bad.toml`, line 3: `widht` is not a setting; did you mean `width`?\n");
    let message = error(remat(at.path(), "train --config none.toml"));
    assert!(message.starts_with("error: cannot read `none.toml`: "), "{message}");
}

#[test]
fn what_does_not_fit_is_said_before_it_begins() {
    let at = folder();
    let flags = "--layers 1 --width 32 --heads 2 --context 200 --batch 8 --policy none --steps 3 --sample 0";
    let output = stdout(remat(at.path(), &format!("train {flags} --save free")));
    let peak = output.lines().find(|line| line.starts_with("a step takes ")).unwrap();
    for part in ["parameters", "optimizer state", "gradients", "activations"] {
        assert!(peak.contains(part), "{peak}");
    }
    // The program itself takes some tens of MiB.
    let output = remat(at.path(), &format!("train {flags} --save run --memory-limit 20MiB"));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    let message = error(output);
    assert!(
        message.starts_with("error: training needs ") && message.contains(" more than the memory limit, 20.00 MiB"),
        "{message}"
    );
    assert!(message.contains("; model, optimizer and batch alone take "), "{message}");
    assert!(message.contains("; with --") || message.contains("nothing that was tried"), "{message}");
    assert!(table.contains("--policy Nothing") && table.contains("--accumulate 2 --batch 4"), "{table}");
    assert!(!at.path().join("run").exists());
    let large = stdout(remat(at.path(), &format!("train {flags} --memory-limit 4GiB")));
    assert!(large.contains("3 steps in "), "{large}");
    let message = error(remat(at.path(), "train --memory-limit 4GB"));
    assert!(message.contains("must be a number of bytes such as 500000, 512MiB or 1.5GiB"), "{message}");
}

/// The most bytes that a run had resident, which has to go well.
#[cfg(target_os = "linux")]
fn resident(folder: &Path, args: &str) -> usize {
    let mut child = common::command(folder, args.split_whitespace()).spawn().unwrap();
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let high = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = peak.max(high.map_or(0, |high| high.parse::<usize>().unwrap() << 10));
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    assert!(status.success());
    assert!(peak > 0);
    peak
}

/// Values are computed again until a step fits, and the run stays below the limit with the process itself, in which the plan is made.
#[cfg(target_os = "linux")]
#[test]
fn a_step_that_does_not_fit_computes_values_again() {
    let at = folder();
    let flags = "train --layers 2 --width 32 --heads 2 --context 200 --batch 160 --policy none --steps 1 --sample 0 --eval-every 0";
    let free = stdout(remat(at.path(), &format!("{flags} --save free")));
    // The most that the process had in memory.
    let resident = |output: &str| -> usize {
        let line = output.lines().find(|line| line.starts_with("step 1/1 ")).unwrap();
        let before = line.split(" MiB").next().unwrap().split_whitespace().last().unwrap();
        before.parse::<f64>().unwrap() as usize
    };
    let limit = resident(&free) - 16;
    let output = stdout(remat(at.path(), &format!("{flags} --save run --memory-limit {limit}MiB --plan step.plan")));
    let line = output.lines().find(|line| line.starts_with("to stay within the memory limit, ")).unwrap();
    assert!(line.contains(" MiB instead of 1") && line.ends_with(" % more time by the cost model"), "{line}");
    let losses = |output: &str| numbers(output, "held-out loss after training: ");
    assert_eq!(losses(&output), losses(&free));
    assert!(resident(&output) <= limit, "{output}");
    let written = fs::read_to_string(at.path().join("step.plan")).unwrap();
    assert!(written.starts_with("remat plan 1\nversion ") && written.contains("\nsteps form "), "{written}");
}

/// A limit in bytes for what is planned to need this many MiB: the programs, their compilation and the process itself differ by a little from run to run.
#[cfg(target_os = "linux")]
fn limit(planned: f64) -> usize {
    (planned as usize + 16) << 20
}

/// Losses of held-out text and samples on the way take no memory beside that of a step: together they would be a step's once more.
#[cfg(target_os = "linux")]
#[test]
fn evaluation_and_samples_stay_below_the_limit() {
    let at = folder();
    fs::write(at.path().join("text.txt"), "to be or not to be, ".repeat(1_100)).unwrap();
    let flags = "train --layers 1 --width 32 --heads 2 --vocab 8192 --context 1024 --batch 1 --policy Nothing --steps 3 --eval-every 1 --sample-every 1 --sample 3";
    let refused = remat(at.path(), &format!("{flags} --memory-limit 4MiB"));
    let output = String::from_utf8(refused.stdout.clone()).unwrap();
    let line = output.lines().find(|line| line.starts_with("the loss of held-out text takes ")).unwrap();
    let planned: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [evaluation, sample, most] = planned[..] else { panic!("{line}") };
    assert!(line.contains(" MiB, a sample ") && evaluation > 32.0 && sample > 4.0 && most >= evaluation, "{line}");
    let said = error(refused);
    let needs: f64 = said.split(" needs ").nth(1).unwrap().split(" MiB").next().unwrap().parse().unwrap();
    let limit = limit(needs);
    let peak = resident(at.path(), &format!("{flags} --save run --memory-limit {limit}"));
    assert!(peak <= limit, "{} MiB of {} MiB", peak >> 20, limit >> 20);
}

/// What the fit check proposes fits indeed, with the loss of held-out text before the first step.
#[cfg(target_os = "linux")]
#[test]
fn a_run_in_parts_stays_below_its_limit() {
    let at = folder();
    fs::write(at.path().join("text.txt"), "to be or not to be, ".repeat(2_200)).unwrap();
    let flags = "--layers 1 --width 32 --heads 2 --vocab 2048 --context 256 --policy none --steps 1 --sample 0";
    let refused = remat(at.path(), &format!("train {flags} --batch 16 --memory-limit 4MiB"));
    let table = String::from_utf8(refused.stdout).unwrap();
    let row = table.lines().find(|line| line.contains(" --accumulate 16 --batch 1  ")).unwrap();
    let needs: f64 = row.split(" MiB").next().unwrap().split_whitespace().last().unwrap().parse().unwrap();
    let limit = limit(needs);
    let parts = format!("train {flags} --batch 1 --accumulate 16 --save run --memory-limit {limit}");
    let peak = resident(at.path(), &parts);
    assert!(peak <= limit, "{} MiB of {} MiB: {row}", peak >> 20, limit >> 20);
}

#[test]
fn held_out_text_is_tested_and_sampled_on_the_way() {
    let at = folder();
    let flags = format!("train {SMALL} --steps 9 --eval-every 4 --sample-every 3 --sample 10 --save run");
    let output = stdout(remat(at.path(), &flags));
    assert_eq!(numbers(&output, "held-out loss after step 4: ").len(), 1, "{output}");
    assert_eq!(output.matches("the model writes:").count(), 2, "{output}");
    let lines = measured(&at.path().join("run"));
    let tested: Vec<u64> =
        lines.iter().filter(|line| line["held_out_loss"].is_f64()).map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(tested, [4, 8]);
    assert!(lines.iter().all(|line| line["flops_per_second"].as_f64().unwrap() > 0.0));
}

#[test]
fn adapters_are_trained_resumed_and_merged() {
    let at = folder();
    stdout(remat(at.path(), &format!("train {SMALL} --steps 60 --learning-rate 0.02 --sample 0 --save base")));
    let tuned = stdout(remat(
        at.path(),
        "train --from base --lora 2 --context 12 --steps 6 --save-every 3 --sample 0 --save tuned",
    ));
    let before = numbers(&tuned, "held-out loss before training: ")[0];
    assert!(before < 2.0, "{tuned}");
    let expected = measured(&at.path().join("tuned"));
    fs::remove_dir_all(at.path().join("tuned/step-000006")).unwrap();
    stdout(remat(at.path(), "train --resume tuned --sample 0"));
    let losses = |lines: &[serde_json::Value]| lines.iter().map(|line| line["loss"].clone()).collect::<Vec<_>>();
    assert_eq!(losses(&measured(&at.path().join("tuned"))), losses(&expected));
    stdout(remat(at.path(), "generate tuned --length 5"));
    stdout(remat(at.path(), "eval tuned --text text.txt"));
    let message = error(remat(at.path(), "train --from base --width 8"));
    assert!(message.contains("--from takes the model and its sizes from `base`"), "{message}");
    let message = error(remat(at.path(), "train --from base --context 13"));
    assert!(message.contains("--context 13 is more than the 12 positions that the model has"), "{message}");
    let message = error(remat(at.path(), "train --from base --context 12 --lora 2 --lora-maps **.q"));
    assert!(message.contains("the pattern `**.q` matches no linear map of the model"), "{message}");
}

#[test]
fn a_run_in_f16_goes_on_with_its_scale() {
    let at = folder();
    let flags = format!("train {SMALL} --dtype f16 --layers-as scan --steps 6 --save-every 3 --sample 0");
    stdout(remat(at.path(), &format!("{flags} --save run")));
    let expected = measured(&at.path().join("run"));
    assert!(expected.iter().all(|line| line["skipped_steps"].is_f64()));
    fs::remove_dir_all(at.path().join("run/step-000006")).unwrap();
    stdout(remat(at.path(), "train --resume run --sample 0"));
    let losses = |lines: &[serde_json::Value]| lines.iter().map(|line| line["loss"].clone()).collect::<Vec<_>>();
    assert_eq!(losses(&measured(&at.path().join("run"))), losses(&expected));
}

/// Runs of versions that had other settings are not read, and say so.
#[test]
fn a_run_of_another_version_is_an_error() {
    let at = folder();
    stdout(remat(at.path(), &format!("train {SMALL} --steps 1 --sample 0 --save run")));
    let progress = remat_io::Progress {
        step: 1,
        seed: 0,
        data: serde_json::json!({"bytes": 1, "crc32": 1}),
        config: serde_json::json!({"layers": 1}),
    };
    let model = vec![remat::Tensor::from(1.0f32)];
    let mut checkpoints = remat_io::Checkpoints::open(at.path().join("old")).unwrap();
    checkpoints.save(remat_io::Snapshot::new(&progress).unwrap().with("model", &model).unwrap()).unwrap();
    checkpoints.finish().unwrap();
    let message = error(remat(at.path(), "generate old"));
    assert!(message.contains("was written by another version of remat, or not by `remat train`"), "{message}");
}
