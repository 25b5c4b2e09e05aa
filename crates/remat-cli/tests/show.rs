//! `remat show` as a user runs it.

use std::io::Read;
use std::process::{Command, Stdio};

use remat_testkit::installed;
use remat_xla::{Platform, Plugin};

/// What `remat show` prints for a small model.
fn show(args: &str) -> String {
    let output = command(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn command(args: &str) -> Command {
    let small = "show --width 8 --heads 2 --context 4 --batch 3";
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(small.split(' ')).args(args.split_whitespace());
    command
}

#[test]
fn residuals_follow_the_policy() {
    let names = show("--policy names(attn)");
    assert!(names.contains("f32[8,24] from the argument block.attn.qkv.weight"), "{names}");
    assert!(names.contains("f32[3,4,8] from the argument x"), "{names}");
    assert!(names.contains("f32[3,4,8] named 'attn' from "), "{names}");
    assert!(!names.contains("output of"), "{names}");
    assert!(show("--policy dots").contains("f32[3,4,32] output of dot_general from "));
    assert!(!show("--policy nothing").contains("named '"));
    // Six numbers for each token fit, which are sums over its features; a value with all features does not.
    let budget = show("--policy budget(383)");
    assert!(budget.contains("policy=Budget(383)") && budget.contains("; 288 B in 6 intermediates"), "{budget}");
}

#[test]
fn memory_is_written_as_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let [page, program] = ["page.html", "program.txt"].map(|name| folder.path().join(name));
    let said = show(&format!("--policy dots --html {}", page.display()));
    assert!(said.starts_with("wrote the memory of the gradient of a block under the policy "), "{said}");
    let block = std::fs::read_to_string(&page).unwrap();
    assert!(block.contains("\"block/mlp\""), "{said}");
    std::fs::write(&program, "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_remat")).arg("show").args([&program]).arg("--html").arg(&page).output();
    assert!(output.unwrap().status.success());
    let data = std::fs::read_to_string(&page).unwrap();
    assert!(data.contains("\"sin\"") && data.contains("program.txt"));
    let refused = command(&format!("--steps --html {}", page.display())).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be used with"));
}

#[test]
fn both_programs_are_printed() {
    for policy in ["none", "everything", "nothing", "save_and_offload_names((),(qkv),host)"] {
        let output = show(&format!("--policy {policy}"));
        assert!(output.contains("--- forward computation:"), "{output}");
        assert!(output.contains("--- backward computation:"), "{output}");
        assert_eq!(output.contains("differentiated=True"), policy != "none", "{output}");
    }
}

#[test]
fn the_program_is_printed_after_each_pass() {
    let output = show("--policy names(attn) --passes");
    let headings: Vec<&str> = output.lines().filter(|line| line.starts_with("== ")).collect();
    assert_eq!(headings.first(), Some(&"== traced"));
    assert_eq!(headings.last().and_then(|line| line.split(':').next()), Some("== after sink"));
    assert!(
        output.contains(
            "\n== after inline: calls and regions become one list of equations, names become labels, scans are unrolled as asked for\n{ lambda"
        )
    );
    assert!(output.contains("\n== after one_memory: the engine has one memory, so transfers are dropped\nno change\n"));
    // Regions are there until they are inlined, names to the end.
    let [before, after] = output.split("== after inline").collect::<Vec<_>>()[..] else { panic!("{output}") };
    assert!(before.contains("= checkpoint[") && !after.contains("= checkpoint["), "{output}");
    assert!(after.contains("_:f32[3,4,8] = name[name=attn]"), "{output}");
}

#[test]
fn steps_are_printed_with_their_memory() {
    let output = show("--policy nothing --steps");
    let steps = output.strip_prefix("== steps\n{ steps[arena=").unwrap();
    assert!(steps.contains("= dot_general[small]["), "{steps}");
    assert!(steps.contains("  loop[rows="), "{steps}");
    assert!(steps.contains("]@0 = "), "{steps}");
    // After the passes, where both are asked for.
    assert!(show("--policy nothing --steps --passes").ends_with(&output));
}

#[test]
fn a_wrong_policy_is_one_line() {
    let output = command("--policy every").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let known = "Nothing, Everything, Dots, DotsWithNoBatchDims, Names, AnyNamesBut, AnythingBut, \
                 OffloadDotsWithNoBatchDims, OffloadNames, SaveAndOffloadNames, Budget, Or, And, First, Not, Must, Prefer, Custom";
    assert_eq!(error, format!("error: parse: line 1, column 1: unknown policy `every`; the policies are {known}\n"));
}

/// A full disk must not look like success.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let train = "train --layers 1 --width 8 --heads 2 --context 4 --batch 3 --steps 1";
    for args in ["show --width 8 --heads 2 --context 4 --batch 3", train, "--help", "show --help", "--version"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
        let output = command.current_dir(&folder).args(args.split_whitespace()).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}");
        let error = String::from_utf8(output.stderr).unwrap();
        // Training goes on without output, says so, and is saved.
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: cannot write to the standard output: No space left"), "{args}: {error}");
        assert_eq!(error.lines().count(), 1 + usize::from(args == train), "{error}");
    }
    // Where errors cannot be written either, the exit code says it.
    let failed = command("--policy every").stderr(full()).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn nothing_is_printed_before_an_error() {
    let output = command("--policy names(nobody)").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    assert!(String::from_utf8(output.stderr).unwrap().contains("the policy Names(nobody) mentions the name `nobody`"));
}

#[test]
fn a_reader_that_ends_early_is_not_a_failure() {
    let mut child = command("--policy dots").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(error, "");
}

#[test]
fn moves_have_gains_reasons_and_lines() {
    let output = Command::new(env!("CARGO_BIN_EXE_remat")).args(["show", "--moves"]).output().unwrap();
    let moves = String::from_utf8(output.stdout).unwrap();
    assert!(moves.starts_with("== moves\n"), "{moves}");
    let [kinds, values]: [Vec<&str>; 2] =
        [false, true].map(|is_value| moves.lines().skip(1).filter(|line| line.starts_with("  ") == is_value).collect());
    assert!(!kinds.is_empty() && kinds.len() == values.len(), "{moves}");
    assert!(kinds.iter().all(|line| line.contains(" made: ") || line.contains(" refused: ")), "{moves}");
    assert!(values.iter().any(|line| line.contains(".rs:")), "{moves}");
}

/// The engine of the device makes the steps.
#[test]
fn the_steps_are_those_of_the_device() {
    assert_eq!(show("--steps --device cpu"), show("--steps"));
    let error = |args: &str| String::from_utf8(command(args).output().unwrap().stderr).unwrap();
    assert!(
        error("--device cpu").starts_with("error: --device goes with --passes, --steps or --moves"),
        "{}",
        error("--device cpu")
    );
    let refused = error("--html page.html --device xla-cpu");
    assert!(refused.starts_with("error: --html is for the native engine, and --device is xla-cpu"), "{refused}");
    assert!(error("--steps --device gpu").contains("did you mean `cuda`?"), "{}", error("--steps --device gpu"));
    if installed("steps of XLA", Plugin::path_of(Platform::Cpu)).is_some() {
        assert!(show("--steps --device xla-cpu").contains("stablehlo.dot_general"));
    }
}
