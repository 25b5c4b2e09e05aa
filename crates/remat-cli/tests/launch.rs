//! `remat launch` as a user runs it.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(nodes: usize, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remat"));
    command.args(["launch", "-n", &nodes.to_string(), "--", "sh", "-c", script]).env_remove("REMAT_THREADS");
    command
}

fn launch(nodes: usize, script: &str) -> Output {
    command(nodes, script).output().unwrap()
}

fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(bytes).lines().map(String::from).collect();
    lines.sort();
    lines
}

#[test]
fn each_process_is_told_who_it_is() {
    let script =
        "echo $REMAT_NODE_ID of $REMAT_NUM_NODES; echo at $REMAT_COORDINATOR with $REMAT_THREADS >&2; printf end";
    let output = launch(11, script);
    assert_eq!(output.status.code(), Some(0));
    let lines = sorted(&output.stdout);
    assert_eq!(lines.len(), 22);
    assert!(lines.contains(&"[ 3] 3 of 11".to_string()) && lines.contains(&"[10] end".to_string()), "{lines:?}");
    let errors = sorted(&output.stderr);
    assert!(
        errors.len() == 11 && errors[0].starts_with("[ 0] at 127.0.0.1:") && errors[0].ends_with(" with 1"),
        "{errors:?}"
    );
}

#[test]
fn the_first_failure_ends_all() {
    let start = Instant::now();
    let output = launch(3, "if [ $REMAT_NODE_ID = 1 ]; then exit 7; fi; sleep 60");
    assert_eq!(output.status.code(), Some(7));
    assert!(start.elapsed() < Duration::from_secs(30));
    let expected = "remat launch: node 1 ended with exit status: 7; the others are ended\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn a_process_that_takes_no_notice_is_killed() {
    let output =
        launch(2, "if [ $REMAT_NODE_ID = 1 ]; then kill -9 $$; fi; trap '' TERM; while true; do sleep 1; done");
    assert_eq!(output.status.code(), Some(137));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.starts_with("remat launch: node 1 ended with signal: 9"), "{error}");
}

#[test]
fn an_interrupt_is_passed_on() {
    let script = "trap 'echo interrupted; exit 130' INT; echo ready; while true; do sleep 0.1; done";
    let mut child = command(2, script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = String::new();
    for _ in 0..2 {
        output.read_line(&mut lines).unwrap();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    output.read_to_string(&mut lines).unwrap();
    assert_eq!(sorted(lines.as_bytes()), ["[0] interrupted", "[0] ready", "[1] interrupted", "[1] ready"]);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn late_output_is_shown() {
    let start = Instant::now();
    let output = launch(2, "(sleep 0.3; echo late; sleep 60) & exit 0");
    assert_eq!(sorted(&output.stdout), ["[0] late", "[1] late"]);
    assert!(start.elapsed() < Duration::from_secs(30), "what processes started is not waited for");
}

/// Nobody reads the output, so that no line can be written.
#[test]
fn interrupts_arrive_while_no_line_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let script = "yes & trap 'touch $FOLDER/interrupted$REMAT_NODE_ID; kill $!; exit 130' INT; \
                  touch $FOLDER/ready$REMAT_NODE_ID; while true; do sleep 0.1; done";
    let mut child = command(2, script).env("FOLDER", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let wait_for = |name: &str| {
        let start = Instant::now();
        while !(0..2).all(|rank| folder.path().join(format!("{name}{rank}")).exists()) {
            assert!(start.elapsed() < Duration::from_secs(30), "{name}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let interrupt =
        || assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    wait_for("ready");
    std::thread::sleep(Duration::from_millis(500));
    interrupt();
    wait_for("interrupted");
    interrupt();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn mistakes_are_errors() {
    let remat = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_remat")).args(args).output().unwrap();
    let output = remat(&["launch", "-n", "2", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(error, "error: cannot run /no/such/command: No such file or directory (os error 2)\n");
    for wrong in [&["launch", "-n", "0", "true"][..], &["launch", "-n", "2"], &["launch", "true"]] {
        assert_eq!(remat(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// The work goes on without a reader, and the exit code is that of the work.
#[test]
fn a_reader_that_ends_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8; do echo more; echo more >&2; sleep 0.05; done; touch $FOLDER/done$REMAT_NODE_ID; exit $CODE";
    for code in [0, 7] {
        let mut command = command(2, script);
        command.env("FOLDER", folder.path()).env("CODE", code.to_string());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(code));
        // The first that fails ends the other.
        let done = |rank: u32| std::fs::remove_file(folder.path().join(format!("done{rank}"))).is_ok();
        let done = [done(0), done(1)];
        assert!(if code == 0 { done == [true; 2] } else { done != [false; 2] }, "{code}: {done:?}");
    }
}

/// Nobody can pass on a signal that kills at once.
#[test]
fn processes_end_with_a_killed_launcher() {
    let folder = tempfile::tempdir().unwrap();
    // Each process has one of its own.
    let script = "sleep 60 & echo $! > $FOLDER/inner$REMAT_NODE_ID; echo $$ > $FOLDER/outer$REMAT_NODE_ID; wait";
    let mut child = command(2, script).env("FOLDER", folder.path()).spawn().unwrap();
    let start = Instant::now();
    let wait_for = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(start.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let names = ["inner0", "outer0", "inner1", "outer1"];
    let number = |name: &str| std::fs::read_to_string(folder.path().join(name)).ok()?.trim().parse::<u32>().ok();
    wait_for(&|| names.iter().all(|name| number(name).is_some()));
    child.kill().unwrap();
    child.wait().unwrap();
    for name in names {
        let process = number(name).unwrap().to_string();
        let is_gone = || {
            let state = Command::new("ps").args(["-o", "stat=", "-p", &process]).output().unwrap().stdout;
            state.is_empty() || state.starts_with(b"Z")
        };
        wait_for(&is_gone);
    }
}
