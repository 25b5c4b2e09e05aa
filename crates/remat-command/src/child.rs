//! Measurements in separate processes, so that none leaves memory or warm caches to the next.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Asks another process of this program a question. The process is started with these arguments, gets the question as JSON, and must call
/// [`answer`].
///
/// # Errors
/// The error of that process, or how it ended.
pub fn ask<Q: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    question: &Q,
    environment: &[(&str, String)],
) -> Result<A> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).arg(serde_json::to_string(question)?);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // The child ends when this pipe closes, and so with this process, however that ends.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    let output = child.wait_with_output()?;
    drop(pipe);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        match said.trim().strip_prefix("error: ") {
            Some(message) => bail!("{message}"),
            None => bail!("ended with {}\n{}", output.status, said.trim()),
        }
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Answers the question of the process that started this one, and ends with it.
///
/// # Errors
/// If the text is not a question, or the error of `to`; if the answer cannot be written.
pub fn answer<Q: DeserializeOwned, A: Serialize>(
    question: &str,
    out: &mut impl Write,
    to: impl FnOnce(Q) -> Result<A>,
) -> Result<()> {
    let (started, wait) = mpsc::channel();
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let _ = started.send(());
        // This pipe has no data; it closes when the process at its other end does.
        let _ = stdin.read(&mut [0]);
        std::process::exit(1);
    });
    // Allocations of the starting thread must not count as those of the measurement.
    wait.recv()?;
    let question = serde_json::from_str(question)?;
    Ok(writeln!(out, "{}", serde_json::to_string(&to(question)?)?)?)
}
