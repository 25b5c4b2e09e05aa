//! The memory of a control group: a run that starts in it is not killed.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group, which is removed at the end.
struct Group {
    path: PathBuf,
    /// The file of its limit.
    limit: &'static str,
}

impl Group {
    /// A group inside that of this process.
    fn new() -> io::Result<Group> {
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
            let path = Path::new(top).join(path.trim_start_matches('/')).join(format!("remat-{}", std::process::id()));
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
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn a_run_that_fits_a_control_group_is_not_killed_there() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return eprintln!("NOT TESTED in a control group, since none can be made: {error}"),
    };
    let at = common::folder(&"to be or not to be, ".repeat(40));
    let flags = "--layers 1 --width 16 --heads 2 --vocab 16384 --context 32 --batch 4 --steps 2 --sample 0";
    let run = |bytes: usize| {
        fs::write(group.path.join(group.limit), bytes.to_string()).unwrap();
        let procs = group.path.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec \"$REMAT\" train {flags} --save r{bytes}", procs.display());
        let mut shell = Command::new("sh");
        shell.current_dir(at.path()).args(["-c", &script]).env("REMAT", env!("CARGO_BIN_EXE_remat"));
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let needs = said.split(" needs ").nth(1).and_then(|rest| rest.split(" MiB, ").next()?.parse::<f64>().ok());
        match (output.status.code(), needs) {
            (Some(0), _) => Ok(()),
            (Some(1), Some(needs)) if said.contains("the memory of this machine or its control group") => Err(needs),
            (code, _) => panic!("{bytes} bytes: {code:?} {said}"),
        }
    };
    // With most of what it needs it is refused, and not killed: planning takes less.
    let mebibytes = |count: f64| (count * f64::from(1 << 20)) as usize;
    let needs = run(44 << 20).unwrap_err();
    assert!(run(mebibytes(needs - 6.0)).is_err());
    // What it needs differs by a little from run to run. With the least with which it starts, it ends too.
    let started = (-4..=8).find(|more| run(mebibytes(needs + f64::from(*more))).is_ok());
    assert!(started.is_some(), "{needs} MiB");
}
