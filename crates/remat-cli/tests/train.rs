//! `remat train` as a user runs it.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{error, folder, remat};
use remat_testkit::{installed, sized};
use remat_xla::{Platform, Plugin};
use tempfile::TempDir;

const POLICIES: [&str; 8] = [
    "none",
    "Everything",
    "Dots",
    "DotsWithNoBatchDims",
    "Names(attn, up)",
    "Names(attn)",
    "OffloadDotsWithNoBatchDims(host)",
    "Nothing",
];

const SMALL: &str = "--layers 1 --width 16 --heads 2 --context 12 --batch 4";

/// `remat train` with these arguments in this folder.
fn train(folder: &Path, args: &str) -> Output {
    remat(folder, &format!("train {args}"))
}

/// What a run that went well printed.
fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of a run, without what depends on the speed of the machine, and on the runs before it.
fn steady(stdout: &str) -> Vec<String> {
    let lines = stdout.lines().filter(|line| !line.contains(" steps in ") && !line.contains("runs/"));
    lines.map(|line| if line.starts_with("step ") { line.split("  ").take(2).collect() } else { line.into() }).collect()
}

/// The number behind a text.
fn number(stdout: &str, before: &str) -> f64 {
    let at = stdout.find(before).unwrap_or_else(|| panic!("no `{before}` in {stdout}")) + before.len();
    stdout[at..].split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_loss_falls_and_text_is_learnt() {
    let folder = folder(&"to be or not to be, ".repeat(40));
    // Sequences of 13 begin at every character of the sentence of 20.
    let small = SMALL.replace("12 --batch 4", "13 --batch 8");
    let args = format!("{small} --steps 120 --learning-rate 0.02 --sample 20 --temperature 0");
    let output = stdout(train(folder.path(), &args));
    let (before, after) = (number(&output, "before training: "), number(&output, "after training: "));
    assert!((5.0..7.0).contains(&before) && after < 0.5, "{before} {after}");
    assert!(number(&output, "step 1/120  loss ") > number(&output, "step 120/120  loss "));
    assert!(output.contains("text: 800 bytes in 1 file of "), "{output}");
    let sample = output.split("\n\nsaved in ").next().unwrap().lines().last().unwrap();
    assert!("to be or not to be, ".repeat(3).contains(sample), "{sample}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let run =
        |seed: u32| steady(&stdout(train(folder.path(), &format!("{SMALL} --steps 5 --sample 30 --seed {seed}"))));
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[test]
fn every_policy_is_listed_and_gives_the_same_losses() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let run = |policy: &str| {
        let policy = policy.replace(' ', "");
        stdout(train(folder.path(), &format!("{SMALL} --steps 5 --sample 30 --policy {policy}")))
    };
    let unmarked = |output: &str| steady(output).iter().map(|line| line.replacen("> ", "  ", 1)).collect::<Vec<_>>();
    let plain = run("none");
    for policy in POLICIES {
        let output = run(policy);
        assert_eq!(unmarked(&plain), unmarked(&output), "{policy}");
        for listed in POLICIES {
            let mark = if listed == policy { "> " } else { "  " };
            assert!(output.lines().any(|line| line.starts_with(&format!("{mark}{listed} "))), "{listed} in {output}");
        }
    }
    // A policy that is not listed has a row of its own.
    assert!(run("names(qkv)").lines().any(|line| line.starts_with("> Names(qkv) ")));
    let budget = run("budget(2KiB)");
    assert!(budget.lines().any(|line| line.starts_with("> Budget(2KiB) ")), "{budget}");
    assert_eq!(unmarked(&plain).last(), unmarked(&budget).last());
}

#[test]
fn policies_save_less_than_no_checkpoint_and_more_than_nothing() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let output = stdout(train(folder.path(), &format!("{SMALL} --steps 0 --sample 0")));
    let saved = |policy: &str| {
        let line = output.lines().find_map(|line| line.trim_start_matches("> ").trim_start().strip_prefix(policy));
        let (_, kept) = line.unwrap().split_once('%').unwrap();
        kept.split_whitespace().next().unwrap().replace(',', "").parse::<usize>().unwrap()
    };
    // What crosses the border of a checkpoint is kept as it is, also where it would be cheap to compute again.
    assert!(saved("Everything").abs_diff(saved("none")) < saved("none") / 100);
    assert!(saved("none") > saved("Dots "));
    assert!(saved("Dots ") > saved("DotsWithNoBatchDims"));
    assert!(saved("DotsWithNoBatchDims") > saved("Names(attn, up)"));
    assert!(saved("Names(attn, up)") > saved("Names(attn)"));
    assert!(saved("Names(attn)") > saved("Nothing"));
    assert_eq!(saved("OffloadDotsWithNoBatchDims(host)"), saved("Nothing"));
    // The output of attention is one f32 for each feature of each token, and the hidden features are four times as many.
    assert_eq!(saved("Names(attn)") - saved("Nothing"), 4 * 4 * 12 * 16);
    assert_eq!(saved("Names(attn, up)") - saved("Names(attn)"), 4 * 4 * 4 * 12 * 16);
}

#[test]
fn the_peak_of_the_table_is_that_of_the_plan() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let output = stdout(train(folder.path(), &format!("{SMALL} --steps 0 --sample 0")));
    let marked = output.lines().find_map(|line| line.strip_prefix("> Names(attn) ")).unwrap();
    let (_, planned) = output.split_once("a step takes ").unwrap();
    assert!(marked.trim_start().starts_with(planned.split_once(" at its peak").unwrap().0), "{output}");
}

#[test]
fn a_name_without_effect_is_told() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let run = |model: &str, policy: &str| {
        stdout(train(folder.path(), &format!("{SMALL} --model {model} --steps 0 --sample 0 --policy {policy}")))
    };
    let note =
        "note: no backward pass needs the values named `mlp`: without the name, Names(attn, mlp) keeps the same\n";
    for model in ["gpt2-tiny", "llama-tiny"] {
        assert!(run(model, "names(attn,mlp)").contains(note), "{model}");
        let others = ["names(attn)", "any_names_but(qkv)", "none", "names(attn,up)", "everything", "nothing", "dots"];
        for policy in &others[..sized(3, others.len())] {
            assert!(!run(model, policy).contains("no backward pass needs"), "{model} {policy}");
        }
    }
}

#[test]
fn a_folder_without_text_trains_on_the_manual() {
    let folder = TempDir::new().unwrap();
    let output = stdout(train(folder.path(), &format!("{SMALL} --steps 1 --sample 0")));
    assert!(output.starts_with("note: THERE IS NO TEXT in `"), "{output}");
    assert!(output.contains("; --text PATH names another text\ntext: "), "{output}");
    assert!(output.contains(" bytes in the built-in manual; "), "{output}");
}

/// The manual is for folders without text, not for those that cannot be read.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_read_is_an_error() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("gone")).unwrap();
    let script = format!("cd gone; rmdir ../gone; {} train {SMALL} --steps 1", env!("CARGO_BIN_EXE_remat"));
    let output = Command::new("sh").current_dir(folder.path()).args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.starts_with("error: cannot find the current folder: "), "{said}");
    // What is wrong with a file of the folder is said as for one that is named.
    fs::write(folder.path().join("a.jsonl"), "{\"body\": \"x\"}").unwrap();
    let output = train(folder.path(), SMALL);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("it has no column `text`"), "{said}");
}

#[test]
fn tables_beside_text_are_no_surprise() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    fs::write(folder.path().join("a.jsonl"), "{\"text\": \"x\"}").unwrap();
    let args = format!("{SMALL} --steps 1 --sample 0");
    let output = stdout(train(folder.path(), &args));
    assert!(output.starts_with("text: 170 bytes in 1 file of "), "{output}");
    // Who names the folder may have meant the table.
    let output = stdout(train(folder.path(), &format!("{args} --text .")));
    let expected = "note: 1 file of JSON lines or Parquet in `.` is not read, since there is text beside; --column NAME reads such files in place of the text\n";
    assert!(output.starts_with(expected), "{output}");
}

#[test]
fn a_column_of_json_lines_is_text() {
    let folder = TempDir::new().unwrap();
    let rows: String = (0..20).map(|i| format!("{{\"id\": {i}, \"text\": \"a line of text\"}}\n")).collect();
    fs::write(folder.path().join("a.jsonl"), &rows).unwrap();
    let output = stdout(train(folder.path(), &format!("{SMALL} --steps 1 --sample 0 --text a.jsonl")));
    assert!(output.contains("text: 280 bytes in a.jsonl; 28 of them are held out"), "{output}");
    fs::write(folder.path().join("a.jsonl"), rows + "{\"txt\": \"\"}").unwrap();
    let output = train(folder.path(), "--text a.jsonl");
    let expected = "error: `a.jsonl` line 21: it has no column `text`; its columns are `txt`; did you mean `txt`?\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
}

#[test]
fn mistakes_are_one_line() {
    let folder = folder("just a little text");
    fs::write(folder.path().join("empty.txt"), "").unwrap();
    fs::create_dir(folder.path().join("none")).unwrap();
    let message = |args: &str| {
        let output = train(folder.path(), args);
        assert_eq!(output.status.code(), Some(1), "{args}");
        String::from_utf8(output.stderr).unwrap()
    };
    let cases = [
        ("--text nowhere.txt", "there is no file or folder `nowhere.txt`"),
        ("--text empty.txt", "`empty.txt` has no text"),
        (
            "--text none",
            "`none` has no text: no .rs, .md, .toml, .txt, .jsonl, .ndjson, .parquet file with anything in it",
        ),
        (
            "--text text.txt --context 9",
            "the text has 18 tokens, too few for a context of 9: 20 are needed, half of them to train and half to test",
        ),
        ("--policy dost", "parse: line 1, column 1: unknown policy `dost`; did you mean `Dots`?"),
        ("--policy names", "parse: line 1, column 6: expected `(`, found the end"),
        (
            "--context 8 --policy names(atn)",
            "checkpoint: the policy Names(atn) mentions the name `atn`, which no value in the region has; did you mean \
             `attn`?",
        ),
        ("--context 8 --width 30 --heads 4", "nn::Attention::init: 4 heads do not divide 30 features"),
        (
            "--batch 16000000 --context 4096",
            "a step of 16,000,000 sequences of 4,096 tokens is too large: at most 134,217,728 tokens together",
        ),
    ];
    for (args, expected) in cases {
        assert_eq!(message(args), format!("error: {expected}\n"), "{args}");
    }
}

/// Numbers that cannot be meant are errors of the arguments: before the training, and naming the argument.
#[test]
fn absurd_arguments_are_errors() {
    let folder = folder("just a little text");
    let cases = [
        ("--learning-rate NaN", "must be a number from 0 to 3.4028235e38"),
        ("--learning-rate -1", "must be a number from 0 to 3.4028235e38"),
        ("--learning-rate 1e308", "must be a number from 0 to 3.4028235e38"),
        ("--temperature=-1", "must be a number from 0 to 3.4028235e38"),
        ("--temperature 1e300", "must be a number from 0 to 3.4028235e38"),
        ("--seed -1", "invalid digit found in string"),
        ("--context 18446744073709551615", "18446744073709551615 is not in 1..=16777216"),
        ("--batch 1000000000", "1000000000 is not in 1..=16777216"),
        ("--layers 18446744073709551615", "18446744073709551615 is not in 1..=10000"),
        ("--layers 0", "0 is not in 1..=10000"),
    ];
    for (args, why) in cases {
        let output = train(folder.path(), args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {message}");
        let flag = args.split([' ', '=']).next().unwrap();
        assert!(message.contains(flag) && message.contains(why), "{args}: {message}");
    }
}

/// What is wrong with the environment is said before anything is printed.
#[test]
fn a_wrong_environment_is_an_error_at_once() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let cases = [
        ("REMAT_MEMORY_LIMIT", "abc", "compile: REMAT_MEMORY_LIMIT is 'abc' and must be a number of bytes"),
        (
            "REMAT_MATMUL_PRECISION",
            "fast",
            "compile: REMAT_MATMUL_PRECISION is 'fast' and must be `default`, `highest` or `high`",
        ),
        (
            "REMAT_MAX_CPU_ISA",
            "avx",
            "compile: REMAT_MAX_CPU_ISA is 'avx' and must be `baseline`, `avx2`, `avx512`, `amx` or `neon-dot`",
        ),
        ("REMAT_ALGORITHM", "conv=fast", "compile: REMAT_ALGORITHM is 'conv=fast' and must be `FAMILY=ALGORITHM`"),
        ("REMAT_THREADS", "abc", "threads: REMAT_THREADS must be a number of threads"),
        ("REMAT_THREADS", "18446744073709551615", "threads: "),
        ("REMAT_THREADS", "4294967296", "threads: "),
    ];
    for (variable, value, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        command.current_dir(folder.path()).arg("train").args(SMALL.split(' ')).env(variable, value);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{variable}={value}: {message}");
        assert!(message.starts_with(&format!("error: {expected}")), "{variable}={value}: {message}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{variable}={value}");
    }
    // Empty means not set, for both.
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.current_dir(folder.path()).arg("train").args(SMALL.split(' ')).args(["--steps", "1", "--sample", "0"]);
    let output =
        command.env("REMAT_THREADS", "").env("REMAT_MEMORY_LIMIT", "").env("REMAT_MAX_CPU_ISA", "").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A step that does not fit into memory is an error with the bytes, before it runs.
#[test]
fn a_step_that_does_not_fit_is_an_error() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.current_dir(folder.path()).arg("train").args(SMALL.split(' ')).env("REMAT_MEMORY_LIMIT", "100KiB");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.starts_with("error: training needs ") && message.contains("REMAT_MEMORY_LIMIT, 100.00 KiB"),
        "{message}"
    );
}

/// A temperature near zero is greedy: no byte becomes more likely by rounding.
#[test]
fn a_temperature_near_zero_is_greedy() {
    let folder = folder(&"to be or not to be, ".repeat(40));
    let sample = |temperature: &str| {
        let args = format!("{SMALL} --steps 5 --sample 30 --temperature {temperature}");
        stdout(train(folder.path(), &args)).split("\n\nsaved in ").next().unwrap().lines().last().unwrap().to_string()
    };
    let greedy = sample("0");
    let temperatures = ["1e-300", "1e-38", "1e-45", "1e-30", "1e-10"];
    for temperature in &temperatures[..sized(2, temperatures.len())] {
        assert_eq!(sample(temperature), greedy, "{temperature}");
    }
}

/// Files and folders that cannot be read are left out of a folder, with a note.
#[cfg(unix)]
#[test]
fn unreadable_files_are_noted() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    symlink("nowhere", folder.path().join("link.txt")).unwrap();
    // The superuser may read everything.
    let is_closed = fs::read_dir(&closed).is_err();
    let output = stdout(train(folder.path(), &format!("{SMALL} --steps 0 --sample 0")));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(output.starts_with("note: cannot read `"), is_closed, "{output}");
}

#[test]
fn training_on_xla_gives_the_loss_of_the_native_engine() {
    let folder = folder(&"to be or not to be, ".repeat(40));
    let args = format!("{SMALL} --steps 20 --learning-rate 0.01 --sample 5 --temperature 0");
    let here = stdout(train(folder.path(), &args));
    let there = train(folder.path(), &format!("{args} --device xla-cpu"));
    if installed("training on XLA", Plugin::path_of(Platform::Cpu)).is_none() {
        return assert!(error(there).contains("remat plugin install cpu"));
    }
    let there = stdout(there);
    let losses = |text: &str| ["before training: ", "after training: "].map(|before| number(text, before));
    for (here, there) in losses(&here).into_iter().zip(losses(&there)) {
        assert!((here - there).abs() < 1e-3, "{here} {there}");
    }
}

#[test]
fn an_unknown_device_is_an_error() {
    let folder = folder(&"to be or not to be, ".repeat(40));
    let output = train(folder.path(), "--device gpu");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.starts_with("error: device: unknown device 'gpu'; "), "{said}");
}

/// Who leaves a pager does not end the run: it is saved, its records say what happened, and its exit code is its own.
#[test]
fn a_reader_that_ends_does_not_end_the_run() {
    let folder = folder(&"abcdefghij klmno\n".repeat(10));
    let run = |more: &str| {
        let args = format!("train {SMALL} --steps 40 --eval-every 10 --sample 3 {more}");
        let mut command = common::command(folder.path(), args.split(' '));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("text: "), "{first}");
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run("--save r");
    assert_eq!(said, "note: the output is no longer read; the run goes on without it, and is saved in r\n");
    assert_eq!(code, Some(0));
    assert!(folder.path().join("r/step-000040").exists() && folder.path().join("r/report.html").exists());
    let records = fs::read_to_string(folder.path().join("r/metrics.jsonl")).unwrap();
    let note = "\"note\":\"the output is no longer read; the run goes on without it\"";
    assert_eq!(records.matches(note).count(), 1, "{records}");
    // It is the code of the work.
    let (code, said) = run("--save s --learning-rate 3e38 --clip-norm 0");
    assert!(code == Some(1) && said.contains("a lower --learning-rate may help"), "{said}");
}
