//! The memory of a control group: a run that starts in it is not killed.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use remat_testkit::{not_tested, sized};

/// A control group, which is removed at the end.
struct Group {
    path: PathBuf,
    /// The file of its limit.
    limit: &'static str,
}

impl Group {
    /// A group inside that of this process.
    fn new(name: &str) -> io::Result<Group> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
            let (top, limit) = match kinds {
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                "" => ("/sys/fs/cgroup", "memory.max"),
                _ => continue,
            };
            let path =
                Path::new(top).join(path.trim_start_matches('/')).join(format!("remat-{name}-{}", std::process::id()));
            let made = fs::create_dir(&path).and_then(|()| fs::metadata(path.join(limit)));
            match made {
                Ok(_) => return Ok(Group { path, limit }),
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    failed = error;
                }
            }
        }
        Err(failed)
    }

    /// What comes of `remat` in the group, with this limit.
    fn remat(&self, bytes: usize, folder: &Path, args: &str) -> Output {
        fs::write(self.path.join(self.limit), bytes.to_string()).unwrap();
        let script = format!("echo $$ > {} && exec \"$REMAT\" {args}", self.path.join("cgroup.procs").display());
        let mut shell = Command::new("sh");
        shell.current_dir(folder).args(["-c", &script]).env("REMAT", env!("CARGO_BIN_EXE_remat"));
        shell.output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// The number of mebibytes after these words.
fn mebibytes_after(text: &str, words: &str) -> Option<f64> {
    text.split(words).nth(1)?.split(" MiB").next()?.parse().ok()
}

fn bytes(mebibytes: f64) -> usize {
    (mebibytes * f64::from(1 << 20)) as usize
}

#[test]
fn a_run_that_fits_a_control_group_is_not_killed_there() {
    let group = match Group::new("train") {
        Ok(group) => group,
        Err(error) => return not_tested("a control group", &error),
    };
    let at = common::folder(&"to be or not to be, ".repeat(40));
    let flags = "--layers 1 --width 16 --heads 2 --vocab 16384 --context 32 --batch 4 --steps 2 --sample 0";
    let run = |limit: usize| {
        let output = group.remat(limit, at.path(), &format!("train {flags} --save r{limit}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match (output.status.code(), mebibytes_after(&said, " needs ")) {
            (Some(0), _) => Ok(()),
            (Some(1), Some(needs)) if said.contains("the memory of this machine or its control group") => Err(needs),
            (code, _) => panic!("{limit} bytes: {code:?} {said}"),
        }
    };
    // With most of what it needs it is refused, and not killed: planning takes less.
    let needs = run(44 << 20).unwrap_err();
    assert!(run(bytes(needs - 6.0)).is_err());
    // What it needs differs by a little from run to run. With the least with which it starts (to 2 MiB in a quick run), it
    // ends too.
    let started = (-4..=8).step_by(sized(2, 1)).find(|more| run(bytes(needs + f64::from(*more))).is_ok());
    assert!(started.is_some(), "{needs} MiB");
}

/// The memory of the process counts beside that of its programs, as in training.
#[test]
fn a_model_that_is_evaluated_in_a_control_group_is_not_killed_there() {
    let group = match Group::new("eval") {
        Ok(group) => group,
        Err(error) => return not_tested("a control group", &error),
    };
    let at = common::folder(&"to be or not to be, ".repeat(80));
    let flags = "--layers 1 --width 16 --heads 2 --vocab 16384 --context 32 --batch 1 --steps 1 --sample 0";
    common::stdout(common::remat(at.path(), &format!("train {flags} --save run")));
    let run = |limit: usize| {
        let output = group.remat(limit, at.path(), "eval run --batch 32 --text text.txt");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let program = mebibytes_after(&said, "the program needs ");
        match (output.status.code(), program, mebibytes_after(&said, "the process itself takes ")) {
            (Some(0), ..) => Ok(()),
            (Some(1), Some(program), Some(process)) => Err((program, process)),
            (code, ..) => panic!("{limit} bytes: {code:?} {said}"),
        }
    };
    let (program, process) = run(60 << 20).unwrap_err();
    // The program alone would fit.
    assert!(process > 12.0 && run(bytes(program + 4.0)).is_err(), "{program} MiB beside {process} MiB");
    // The last batch is smaller, and its program takes no memory beside that of the others.
    let started = (-12..=8).step_by(sized(2, 1)).find(|more| run(bytes(program + process + f64::from(*more))).is_ok());
    assert!(started.is_some(), "{program} MiB beside {process} MiB");
}
