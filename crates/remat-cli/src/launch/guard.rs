//! Ends the processes of a cluster if the command that started them is killed, when it cannot do so itself.
//!
//! The guard is a process of its own, which is told of each process that starts and ends by a line on its standard input. That closes with
//! the command, however it ends.

use std::io::{Write, stdin};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{GRACE, POLL};

/// The hidden command of the guard.
pub(crate) const COMMAND: &str = "launch-guard";

/// The guard of this process's children.
pub(super) struct Guard(ChildStdin);

impl Guard {
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start() -> Result<Guard> {
        let mut command =
            Command::new(std::env::current_exe().context("cannot start the process that ends the others")?);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Signals to the group of the command must not end it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut guard = command.spawn().context("cannot start the process that ends the others")?;
        Ok(Guard(guard.stdin.take().context("the process that ends the others has no input")?))
    }

    /// The process leads a group that is to end with this process.
    pub(super) fn started(&mut self, process: u32) {
        self.tell('+', process);
    }

    /// The process has ended, so that its number may be that of another.
    pub(super) fn ended(&mut self, process: u32) {
        self.tell('-', process);
    }

    fn tell(&mut self, what: char, process: u32) {
        // If somebody has ended the guard, the processes are not guarded.
        let _ = writeln!(self.0, "{what}{process}");
    }
}

/// Runs the guard: when its input closes, the groups of the processes that have not ended are asked to end, and then killed.
pub(crate) fn run() {
    let mut groups: Vec<Pid> = Vec::new();
    for line in stdin().lines().map_while(Result::ok) {
        let pid = line.get(1..).and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
        groups.retain(|group| Some(*group) != pid);
        groups.extend(pid.filter(|_| line.starts_with('+')));
    }
    let send = |groups: &[Pid], signal| {
        for &group in groups {
            // One that has ended needs no signal.
            let _ = kill_process_group(group, signal);
        }
    };
    send(&groups, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while !groups.is_empty() && Instant::now() < deadline {
        thread::sleep(POLL);
        groups.retain(|&group| test_kill_process_group(group).is_ok());
    }
    send(&groups, Signal::KILL);
}
