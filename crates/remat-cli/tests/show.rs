//! `remat show` as a user runs it.

use std::io::Read;
use std::process::{Command, Stdio};

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
    let names = show("--policy names:attn");
    assert!(names.contains("f32[8,24] from the argument block.attn.qkv.weight"), "{names}");
    assert!(names.contains("f32[3,4,8] from the argument x"), "{names}");
    assert!(names.contains("f32[3,4,8] named 'attn' from "), "{names}");
    assert!(!names.contains("output of"), "{names}");
    assert!(show("--policy dots").contains("f32[3,4,32] output of dot_general from "));
    assert!(!show("--policy nothing").contains("named '"));
}

#[test]
fn both_programs_are_printed() {
    for policy in ["none", "everything", "nothing", "offload-names:qkv"] {
        let output = show(&format!("--policy {policy}"));
        assert!(output.contains("--- forward computation:"), "{output}");
        assert!(output.contains("--- backward computation:"), "{output}");
        assert_eq!(output.contains("differentiated=True"), policy != "none", "{output}");
    }
}

#[test]
fn a_wrong_policy_is_one_line() {
    let output = command("--policy every").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let known = "none, nothing, everything, dots, dots-no-batch, offload-dots-no-batch, names, any-names-but, \
                 anything-but, offload-names";
    assert_eq!(error, format!("error: there is no policy `every`; the policies are {known}\n"));
}

#[test]
fn a_reader_that_ends_early_is_no_failure() {
    let mut child = command("--policy dots").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(error, "");
}
