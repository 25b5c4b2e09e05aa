//! Folders and files of strangers, and systems that refuse.
#![cfg(unix)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{error, folder, remat, stdout};

const SMALL: &str = "--layers 1 --width 16 --heads 2 --context 12 --batch 4 --sample 0";

/// A folder with a text and a run of 4 steps in `r`.
fn run() -> tempfile::TempDir {
    let at = folder(&"to be or not to be, ".repeat(40));
    stdout(remat(at.path(), &format!("train {SMALL} --steps 4 --save r")));
    at
}

/// A script of the shell in a folder, in which `$REMAT` is the command.
fn script(folder: &Path, script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", script]).env("REMAT", env!("CARGO_BIN_EXE_remat")).stdin(Stdio::null());
    shell.output().unwrap()
}

/// Nothing outside of the folder is written.
#[test]
fn no_link_of_a_run_is_followed() {
    let at = run();
    let run = at.path().join("r");
    let names = [
        "report.html",
        "memory.html",
        "config.toml",
        "metrics.jsonl",
        "config.toml.new",
        "metrics.jsonl.new",
        "report.html.new",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let victim = at.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let link = run.join(name);
        let _ = fs::remove_file(&link);
        symlink(&victim, &link).unwrap();
        stdout(remat(at.path(), &format!("train --resume r --steps {}", 5 + number)));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{name}");
        assert_eq!(fs::symlink_metadata(&link).unwrap().is_symlink(), name.ends_with(".new"), "{name}");
    }
}

/// They would be waited for.
#[test]
fn pipes_and_devices_are_refused() {
    let at = run();
    for name in ["metrics.jsonl", "config.toml", "step-000004/state.json", "step-000004/model.safetensors", ".lock"] {
        let (path, aside) = (at.path().join("r").join(name), at.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let said = error(remat(at.path(), "train --resume r --steps 9"));
        assert!(
            said.contains(&format!("r/{name}` is not a file")) || said.contains("it is not a file"),
            "{name}: {said}"
        );
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    let said = error(remat(at.path(), &format!("train {SMALL} --text /dev/zero")));
    assert_eq!(said, "error: `/dev/zero` is a device, and may have no end\n");
}

/// What a file says is shown, not obeyed, and no more of it than a line or two.
#[test]
fn files_cannot_write_to_the_terminal() {
    let at = folder("text");
    let config =
        |kind: &str| fs::write(at.path().join("config.json"), format!("{{\"model_type\": \"{kind}\"}}")).unwrap();
    config("\\u001b]0;pwned\\u0007");
    let said = error(remat(at.path(), "generate ."));
    assert!(said.contains("type `\u{fffd}]0;pwned\u{fffd}`"), "{said}");
    config(&"x".repeat(1 << 20));
    let said = error(remat(at.path(), "generate ."));
    assert!(said.len() < 3000 && said.contains("characters more"), "{}", said.len());
}

/// Memory is reserved by the weights of a file, not by what its configuration says.
#[test]
fn layers_without_weights_are_an_error() {
    let at = folder("text");
    let config = |layers: u64| {
        let text = format!(
            "{{\"model_type\": \"gpt2\", \"n_layer\": {layers}, \"n_embd\": 8, \"n_head\": 2, \"vocab_size\": 256}}"
        );
        fs::write(at.path().join("config.json"), text).unwrap();
    };
    for layers in [1 << 31, 1_000_000_000_000] {
        config(layers);
        for command in ["eval . --text text.txt", "generate .", "train --model config.json --text text.txt"] {
            let said = error(remat(at.path(), command));
            assert!(
                said.contains(&format!("has `n_layer`: {layers}; at most 10000 is supported")),
                "{command}: {said}"
            );
        }
    }
}

/// What is printed to go on is for a shell.
#[test]
fn commands_to_go_on_are_quoted() {
    let at = folder(&"to be or not to be, ".repeat(40));
    let output = script(at.path(), &format!("\"$REMAT\" train {SMALL} --steps 2 --save \"my 'run\""));
    let output = stdout(output);
    let commands: Vec<&str> = output.lines().filter_map(|line| line.strip_prefix("  remat ")).collect();
    assert_eq!(commands.len(), 2, "{output}");
    for command in commands {
        assert!(
            stdout(script(at.path(), &format!("\"$REMAT\" {command} --sample 0 2>&1 || \"$REMAT\" {command}"))).len()
                > 10
        );
    }
    // Steps that are done are not undone.
    let before = fs::read_to_string(at.path().join("my 'run/config.toml")).unwrap();
    let said = error(script(at.path(), "\"$REMAT\" train --resume \"my 'run\" --steps 3"));
    assert_eq!(said, "error: the run has already done 4 steps: --steps includes these, so 3 is too few\n");
    assert_eq!(fs::read_to_string(at.path().join("my 'run/config.toml")).unwrap(), before);
}

/// The system would end a process that writes more than its limit.
#[test]
fn a_limit_of_files_is_an_error() {
    let at = folder(&"to be or not to be, ".repeat(40));
    // In blocks of 512 or 1024 bytes; a checkpoint is larger.
    let said = error(script(
        at.path(),
        &format!("ulimit -f 16; \"$REMAT\" train {} --steps 2", SMALL.replace("--width 16", "--width 64")),
    ));
    assert!(said.contains("File too large") && said.contains("There is no earlier checkpoint"), "{said}");
}

/// A stack as small as that of some systems suffices for the command.
#[test]
fn a_small_stack_suffices() {
    let at = folder(&"to be or not to be, ".repeat(40));
    stdout(script(at.path(), &format!("ulimit -s 1024; \"$REMAT\" train {SMALL} --steps 2")));
}

/// Progress that cannot be told does not end the work.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_ends_nothing() {
    let at = run();
    stdout(script(at.path(), "\"$REMAT\" generate r --length 3 2>/dev/full"));
    stdout(script(
        at.path(),
        "\"$REMAT\" fit --target cpu --policy none --model gpt2 --batch 1 --context 8 2>/dev/full",
    ));
}

#[test]
fn exit_codes_are_in_the_help() {
    let at = folder("");
    for command in ["", "train", "fit", "launch"] {
        assert!(stdout(remat(at.path(), &format!("{command} --help"))).contains("Exit codes: 0 "), "{command}");
    }
}

/// A text that no memory holds is read as a stream: the command is still at work when it is stopped here, and has taken little.
#[cfg(target_os = "linux")]
#[test]
fn a_text_of_ten_gigabytes_is_never_in_memory() {
    let at = run();
    fs::File::create(at.path().join("big.txt")).unwrap().set_len(10 << 30).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v 600000; exec \"$REMAT\" eval r --text big.txt"]);
    shell.current_dir(at.path()).env("REMAT", env!("CARGO_BIN_EXE_remat")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut command = shell.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(remat_testkit::sized(4, 10)));
    let status = fs::read_to_string(format!("/proc/{}/status", command.id())).unwrap();
    let ended = command.try_wait().unwrap();
    command.kill().unwrap();
    command.wait().unwrap();
    assert_eq!(ended, None, "it has ended by itself");
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    let kibibytes: usize = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kibibytes < 200 << 10, "{kibibytes} KiB");
}
