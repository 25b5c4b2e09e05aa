//! Runs that are saved, resumed, sampled and evaluated, as a user does it.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{command, error, remat, stdout};
use tempfile::TempDir;

const SMALL: &str = "--layers 1 --width 16 --heads 2 --context 12 --batch 4";

fn folder() -> TempDir {
    common::folder(&"to be or not to be, ".repeat(40))
}

/// Step and loss of each line of measurements.
fn losses(folder: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["tokens_per_second"].as_f64().unwrap() > 0.0);
        (line["step"].as_u64().unwrap(), line["loss"].as_f64().unwrap())
    };
    text.lines().map(line).collect()
}

/// The bytes of the model of a step.
fn model(folder: &Path, step: u32) -> Vec<u8> {
    fs::read(folder.join(format!("step-{step:06}/model.safetensors"))).unwrap()
}

#[test]
fn a_resumed_run_is_the_uninterrupted_one() {
    let at = folder();
    let flags = format!("{SMALL} --learning-rate 0.02 --save-every 7 --sample 0");
    let whole = stdout(remat(at.path(), &format!("train {flags} --steps 30")));
    assert!(whole.ends_with("saved in runs/1, with charts in runs/1/report.html; to go on:\n  remat generate runs/1 --prompt \"fn main\"\n  remat train --resume runs/1 --steps 60\n"), "{whole}");
    let expected = losses(&at.path().join("runs/1"));
    assert_eq!(expected.iter().map(|&(step, _)| step).collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
    // The schedule is that of 30 steps: the run is killed after 21 of them.
    stdout(remat(at.path(), &format!("train {flags} --steps 30 --save parts")));
    let parts = at.path().join("parts");
    fs::remove_dir_all(parts.join("step-000030")).unwrap();
    fs::remove_dir_all(parts.join("step-000028")).unwrap();
    let resumed = stdout(remat(at.path(), "train --resume parts --sample 0"));
    assert!(resumed.contains("resuming after step 21 from parts/step-000021"), "{resumed}");
    assert_eq!(losses(&parts), expected);
    assert_eq!(model(&parts, 30), model(&at.path().join("runs/1"), 30));
    // Another learning rate is another run.
    let note = "note: steps or learning rate differ from the saved run";
    assert!(!resumed.contains(note), "{resumed}");
    let other = stdout(remat(at.path(), "train --resume parts --learning-rate 0.001 --sample 0"));
    assert!(other.contains(note), "{other}");
    // With other steps it goes on further; with none left it says where it is.
    let further = stdout(remat(at.path(), "train --resume parts --steps 33 --sample 0"));
    assert!(further.contains("3 steps in ") && further.contains(note), "{further}");
    assert!(stdout(remat(at.path(), "train --resume parts --steps 33 --sample 0")).contains("0 steps in "));
}

/// A process is killed when a checkpoint is complete, but for its name: the run goes on from there, and no step is lost or measured twice.
#[test]
fn a_checkpoint_without_its_name_is_the_last_one() {
    let at = folder();
    let flags = format!("{SMALL} --save-every 3 --sample 0 --save run");
    stdout(remat(at.path(), &format!("train {flags} --steps 9")));
    let run = at.path().join("run");
    let before = losses(&run);
    fs::rename(run.join("step-000009"), run.join(".step-000009.partial")).unwrap();
    // To show the configuration changes nothing.
    stdout(remat(at.path(), "train --resume run --print-config"));
    assert!(run.join(".step-000009.partial").exists());
    let resumed = stdout(remat(at.path(), "train --resume run --steps 12 --sample 0"));
    assert!(resumed.contains("resuming after step 9 from run/step-000009"), "{resumed}");
    let after = losses(&run);
    assert_eq!(after[..9], before);
    assert_eq!(after.iter().map(|&(step, _)| step).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    // The only one.
    for step in ["step-000006", "step-000009", "step-000012"] {
        fs::rename(run.join(step), run.join(format!(".{step}.partial"))).unwrap();
    }
    fs::remove_dir_all(run.join(".step-000012.partial")).unwrap();
    fs::remove_dir_all(run.join(".step-000006.partial")).unwrap();
    let resumed = stdout(remat(at.path(), "train --resume run --steps 12 --sample 0"));
    assert!(resumed.contains("resuming after step 9 from run/step-000009"), "{resumed}");
    // A folder of other files is left as it is.
    fs::create_dir(at.path().join("other")).unwrap();
    assert!(error(remat(at.path(), "train --resume other")).contains("has no checkpoint"));
    assert_eq!(fs::read_dir(at.path().join("other")).unwrap().count(), 0);
    assert!(error(remat(at.path(), "train --resume none")).contains("has no checkpoint"));
    assert!(!at.path().join("none").exists());
}

/// A line of measurements that is damaged is dropped.
#[test]
fn damaged_measurements_are_no_obstacle() {
    let at = folder();
    stdout(remat(at.path(), &format!("train {SMALL} --steps 3 --sample 0 --save run")));
    let path = at.path().join("run/metrics.jsonl");
    let mut lines = fs::read(&path).unwrap();
    lines[3] = 0xff;
    fs::write(&path, lines).unwrap();
    stdout(remat(at.path(), "train --resume run --steps 5 --sample 0"));
    let steps: Vec<u64> = losses(&at.path().join("run")).into_iter().map(|(step, _)| step).collect();
    assert_eq!(steps, [2, 3, 4, 5]);
}

#[test]
fn a_run_is_sampled_and_evaluated() {
    let at = folder();
    // Sequences of 13 begin at every character of the sentence of 20.
    let small = SMALL.replace("12 --batch 4", "13 --batch 8");
    stdout(remat(at.path(), &format!("train {small} --steps 120 --learning-rate 0.02 --save run --sample 0")));
    let written = |flags: &str| stdout(remat(at.path(), &format!("generate run --length 40 {flags}")));
    let greedy = written("--prompt to --temperature 0");
    assert_eq!(greedy.trim_end_matches('\n').len(), 40);
    assert!("to be or not to be, ".repeat(9).contains(greedy.trim()), "{greedy}");
    assert_eq!(written("--temperature 3 --seed 5"), written("--temperature 3 --seed 5"));
    assert_ne!(written("--temperature 3 --seed 5"), written("--temperature 3 --seed 6"));
    assert_eq!(written("--prompt to --temperature 3 --top-k 1"), greedy);
    let report = stdout(remat(at.path(), "eval run --text text.txt"));
    assert!(report.contains("text: 800 bytes in text.txt"), "{report}");
    let mut words = report.rsplit_once("loss ").unwrap().1.split_whitespace().map(|word| word.trim_matches(','));
    let mut number = || words.next().unwrap().parse::<f64>().unwrap();
    let (loss, bits) = (number(), number());
    assert!(loss < 0.5 && (bits - loss / 2f64.ln()).abs() < 1e-3, "{report}");
    assert!(report.trim_end().ends_with("bits per byte, of 793 tokens"), "{report}");
    // One checkpoint by its own folder.
    assert_eq!(stdout(remat(at.path(), "eval run/step-000120 --text text.txt")), report);
}

/// Of a vocabulary that is larger than the tokenizer's, the model writes the tokens that mean something.
#[test]
fn a_larger_vocabulary_writes_bytes() {
    let at = folder();
    let flags = format!("{SMALL} --vocab 3000 --steps 3 --sample 50 --sample-every 1 --temperature 5");
    let output = stdout(remat(at.path(), &format!("train {flags} --save run")));
    assert!(output.contains("the model continues") && at.path().join("run/report.html").exists(), "{output}");
    let written = |flags: &str| stdout(remat(at.path(), &format!("generate run --length 50 {flags}")));
    for choice in ["--temperature 5", "--top-k 2000", "--top-p 0.99", "--temperature 0"] {
        assert!(!written(choice).is_empty());
    }
}

/// A run does not replace what it has not written.
#[test]
fn files_of_others_are_not_replaced() {
    let at = folder();
    let file = |name: &str| at.path().join("exp").join(name);
    fs::create_dir(at.path().join("exp")).unwrap();
    let flags = format!("{SMALL} --steps 1 --sample 0 --save exp");
    for (name, config) in [("config.toml", " --config exp/config.toml"), ("metrics.jsonl", "")] {
        fs::write(file(name), "# mine\n").unwrap();
        let message = error(remat(at.path(), &format!("train {flags}{config}")));
        let expected = format!("`exp` has a file `{name}` that no run has written");
        assert!(message.contains(&expected), "{message}");
        assert_eq!(fs::read_to_string(file(name)).unwrap(), "# mine\n");
        fs::remove_file(file(name)).unwrap();
    }
    // A run that has ended before its first checkpoint is one.
    stdout(remat(at.path(), &format!("train {flags}")));
    fs::remove_dir_all(file("step-000001")).unwrap();
    let again = stdout(remat(at.path(), &format!("train {flags} --config exp/config.toml")));
    let note = "note: `exp` has a run that ended before its first checkpoint; this run replaces it\n";
    assert!(again.contains(note), "{again}");
    assert_eq!(losses(&at.path().join("exp")).len(), 1);
    assert!(!file("config.toml.new").exists());
}

/// The text of a run that is resumed is found from any folder.
#[test]
fn the_text_of_a_resumed_run_is_kept_as_a_whole_path() {
    let at = folder();
    stdout(remat(at.path(), &format!("train {SMALL} --steps 1 --sample 0 --save run")));
    fs::write(at.path().join("other.txt"), "that is the question: ".repeat(40)).unwrap();
    stdout(remat(at.path(), "train --resume run --text other.txt --steps 2 --sample 0"));
    let there = stdout(remat(&at.path().join("run"), "train --resume ../run --steps 3 --sample 0"));
    assert!(there.contains("other.txt") && !there.contains("is not the one that the run began with"), "{there}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_unicode_is_named_before_training() {
    use std::os::unix::ffi::OsStrExt;
    let at = folder();
    let mut train = command(at.path(), format!("train {SMALL} --steps 1 --sample 0 --save").split_whitespace());
    let message = error(train.arg(std::ffi::OsStr::from_bytes(b"run\xff")).output().unwrap());
    assert_eq!(message, "error: --save: `run\u{fffd}` is not Unicode, and cannot be kept with the run\n");
    // A text in such a folder is trained on by a path that is.
    let odd = at.path().join(std::ffi::OsStr::from_bytes(b"a\xff"));
    fs::create_dir(&odd).unwrap();
    fs::copy(at.path().join("text.txt"), odd.join("text.txt")).unwrap();
    let flags = format!("train {SMALL} --steps 1 --sample 0 --save run");
    let message = error(remat(&odd, &flags));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("a path that is not Unicode cannot be written") && !odd.join("run").exists(), "{message}");
    stdout(remat(&odd, &format!("{flags} --text text.txt")));
    assert!(stdout(remat(&odd, "train --resume run --steps 2 --sample 0")).contains("resuming after step 1"));
}

#[test]
fn mistakes_name_the_folder() {
    let at = folder();
    let flags = format!("{SMALL} --steps 2 --sample 0");
    stdout(remat(at.path(), &format!("train {flags} --save run")));
    let again = error(remat(at.path(), &format!("train {flags} --save run")));
    assert!(again.contains("`run` has a run: resume it with --resume run, or save the new run elsewhere"), "{again}");
    let none = error(remat(at.path(), "generate elsewhere"));
    assert!(none.contains("`elsewhere` has no checkpoint"), "{none}");
    let both = error(remat(at.path(), "train --resume run --width 8"));
    assert!(both.contains("--width is not that of the run, and a run that is resumed keeps it"), "{both}");
    let save = error(remat(at.path(), "train --resume run --save other"));
    assert!(save.contains("--save: a run that is resumed is saved in its own folder"), "{save}");
    let empty = command(at.path(), ["generate", "run", "--prompt", ""]).output().unwrap();
    assert!(error(empty).contains("the prompt is empty"));
    // One checkpoint is not a run: nothing is written into it.
    let one = "is one checkpoint of a run: resume the last one with --resume";
    let inside = at.path().join("run/step-000002");
    let files = |folder: &Path| fs::read_dir(folder).unwrap().count();
    let before = files(&inside);
    let nested = error(remat(at.path(), "train --resume run/step-000002/ --steps 4"));
    assert!(nested.contains(&format!("`run/step-000002/` {one} run\n")), "{nested}");
    let beside = error(remat(&at.path().join("run"), "train --resume step-000002"));
    assert!(beside.contains(&format!("`step-000002` {one} .\n")), "{beside}");
    let within = error(remat(&inside, "train --resume ."));
    let run = at.path().join("run").canonicalize().unwrap();
    assert!(within.contains(&format!("`.` {one} {}\n", run.display())), "{within}");
    assert_eq!(files(&inside), before);
    // A damaged checkpoint is not gone on with.
    let file = at.path().join("run/step-000002/model.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let damaged = error(remat(at.path(), "train --resume run"));
    assert!(damaged.contains("model.safetensors"), "{damaged}");
    // The text is another one.
    fs::write(&file, bytes).unwrap();
    fs::write(at.path().join("text.txt"), "to be or not to be! ".repeat(40)).unwrap();
    let other = stdout(remat(at.path(), "train --resume run --steps 3 --sample 0"));
    assert!(other.contains("note: the text is not the one that the run began with"), "{other}");
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run() {
    let at = folder();
    let output = remat(at.path(), &format!("train {SMALL} --steps 200 --learning-rate 1e30 --save run --sample 0"));
    let message = error(output);
    assert!(message.contains("the loss of step ") && message.contains("a lower --learning-rate may help"), "{message}");
    assert!(message.contains("There is no earlier checkpoint"), "{message}");
    let last = fs::read_to_string(at.path().join("run/metrics.jsonl")).unwrap();
    assert!(last.lines().last().unwrap().contains("\"loss\":null"), "{last}");
    let none = error(remat(at.path(), "train --resume run"));
    assert!(none.contains("`run` has no checkpoint: `remat train` has not written one there, or has ended"), "{none}");
    // The folder has nothing to lose.
    stdout(remat(at.path(), &format!("train {SMALL} --steps 2 --save run --sample 0")));
    assert_eq!(losses(&at.path().join("run")).len(), 2);
}

/// What is trained and not saved is not a success, and the user hears which checkpoint there is.
#[test]
#[cfg(unix)]
fn a_last_save_that_fails_is_an_error() {
    let at = folder();
    stdout(remat(at.path(), &format!("train {SMALL} --sample 0 --save-every 8 --steps 8 --save run")));
    // A link to nothing is in the way of the last checkpoint: a folder does not take its name.
    let run = at.path().join("run");
    let obstacle = run.join("step-000012");
    std::os::unix::fs::symlink("nothing", &obstacle).unwrap();
    let resume = || remat(at.path(), "train --resume run --steps 12 --sample 0");
    let message = error(resume());
    let why = "error: Checkpoints::save: cannot rename `run/.step-000012.partial` to `run/step-000012`: ";
    assert!(message.starts_with(why) && message.lines().count() == 1, "{message}");
    assert!(message.ends_with(". The last checkpoint is run/step-000008\n"), "{message}");
    fs::remove_file(obstacle).unwrap();
    let resumed = stdout(resume());
    assert!(resumed.contains("resuming after step 8 from run/step-000008"), "{resumed}");
    assert_eq!(losses(&run).len(), 12);
}

#[test]
#[cfg(unix)]
fn a_signal_saves_and_says_how_to_go_on() {
    use rustix::process::{Pid, Signal, kill_process};
    let at = folder();
    let mut child =
        command(at.path(), format!("train {SMALL} --steps 4000000 --save run --sample 0").split_whitespace());
    let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (run, started) = (at.path().join("run"), Instant::now());
    while !run.join("step-000500").exists() {
        assert!(started.elapsed() < Duration::from_secs(120), "no checkpoint after two minutes");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let message = error(child.wait_with_output().unwrap());
    assert!(message.contains("stopped after step ") && message.contains("remat train --resume run"), "{message}");
    let step: u32 = message.split("after step ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(run.join(format!("step-{step:06}/state.json")).exists(), "{message}");
    assert_eq!(losses(&run).last().unwrap().0, u64::from(step));
}
