//! `remat launch`.

#[cfg(unix)]
mod guard;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use remat_command::arguments::up_to;
use remat_command::command::Exit;
use remat_command::output::Output;

#[cfg(unix)]
pub(crate) use guard::{COMMAND as GUARD, run as guard};

/// How long processes have to end on their own after they are asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How often to check whether a process has ended.
const POLL: Duration = Duration::from_millis(20);

/// How long to wait for more output after all processes have ended, since their children may still write.
const LAST: Duration = Duration::from_secs(1);

/// The most bytes of a line; a longer one is shown as several lines.
const LINE: u64 = 1 << 16;

/// The most lines that wait to be shown. Beyond that the processes wait.
const LINES: usize = 256;

/// Arguments of `remat launch`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Processes to start, all on this machine
    #[arg(short, long, value_parser = up_to(1024))]
    nodes: usize,
    /// The command with its arguments, after `--`: remat launch -n 2 -- ./train --steps 100
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Starts the processes of a cluster, shows their output as long as somebody reads it, and waits until all have ended.
///
/// # Errors
/// If the command cannot be started; the exit code of the first process that fails.
pub(crate) fn run(args: &Args, out: &mut Output<impl Write>) -> Result<()> {
    let (sender, lines) = sync_channel(LINES);
    let processes = Processes::default();
    signals(&processes)?;
    processes.start(args, &sender)?;
    drop(sender);
    match processes.wait(&lines, out)? {
        0 => Ok(()),
        code => Err(Exit(code).into()),
    }
}

/// A line on standard output or standard error from the process of a rank.
struct Line {
    rank: usize,
    is_error: bool,
    text: Vec<u8>,
}

/// The processes. They are killed when this is dropped.
#[derive(Default)]
struct Processes(Arc<Mutex<Group>>);

/// The running and the ended processes. The signal thread shares them, so that a signal arrives even while a line cannot be written.
/// Nothing is written while they are locked.
#[derive(Default)]
struct Group {
    children: Vec<(Child, Option<ExitStatus>)>,
    /// When the processes that still run are killed.
    deadline: Option<Instant>,
    /// The exit code of the first failure.
    code: u8,
    #[cfg(unix)]
    guard: Option<guard::Guard>,
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the process of a rank, with the variables by which `ClusterConfig::from_env` knows it.
fn start(args: &Args, rank: usize, coordinator: &str) -> Result<Child> {
    let threads = thread::available_parallelism().map_or(1, usize::from) / args.nodes;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("REMAT_COORDINATOR", coordinator).env("REMAT_NODE_ID", rank.to_string());
    command.env("REMAT_NUM_NODES", args.nodes.to_string());
    // Each process gets its share of the cores.
    if std::env::var_os("REMAT_THREADS").is_none() {
        command.env("REMAT_THREADS", threads.max(1).to_string());
    }
    // A separate group: a Ctrl-C in a terminal arrives here, and is passed on once.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().with_context(|| format!("cannot run {}", args.command[0].display()))
}

/// Reads lines in a separate thread, until the process closes its output.
fn read(rank: usize, is_error: bool, output: impl Read + Send + 'static, lines: SyncSender<Line>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut text = Vec::new();
            match output.by_ref().take(LINE).read_until(b'\n', &mut text) {
                Ok(1..) if lines.send(Line { rank, is_error, text }).is_ok() => {}
                _ => return,
            }
        }
    });
}

/// Passes on signals that ask this process to end. At the second one it ends at once.
#[cfg(unix)]
fn signals(processes: &Processes) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let group = processes.0.clone();
    thread::spawn(move || {
        let mut is_first = true;
        for signal in signals.forever() {
            let mut group = lock(&group);
            if !std::mem::take(&mut is_first) {
                group.send(KILL);
                std::process::exit(exit_code_of(signal).into());
            }
            group.stop(signal, exit_code_of(signal));
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn signals(_: &Processes) -> Result<()> {
    Ok(())
}

impl Processes {
    /// Starts all processes, and reads their output.
    fn start(&self, args: &Args, lines: &SyncSender<Line>) -> Result<()> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let coordinator = free.context("no port is free")?.to_string();
        #[cfg(unix)]
        {
            lock(&self.0).guard = Some(guard::Guard::start()?);
        }
        for rank in 0..args.nodes {
            let mut group = lock(&self.0);
            // A signal has already arrived.
            if group.deadline.is_some() {
                break;
            }
            let mut child = start(args, rank, &coordinator)?;
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            #[cfg(unix)]
            if let Some(guard) = &mut group.guard {
                guard.started(child.id());
            }
            group.children.push((child, None));
            drop(group);
            if let (Some(stdout), Some(stderr)) = (stdout, stderr) {
                read(rank, false, stdout, lines.clone());
                read(rank, true, stderr, lines.clone());
            }
        }
        Ok(())
    }

    /// Shows lines until all processes have ended. Returns the exit code of the first that failed.
    fn wait(&self, lines: &Receiver<Line>, out: &mut Output<impl Write>) -> Result<u8> {
        let width = lock(&self.0).children.len().saturating_sub(1).to_string().len();
        let mut error = Output::new(anstream::stderr());
        // How long lines were waited for since all processes have ended; writing them may take any time.
        let mut waited = Duration::ZERO;
        loop {
            let start = Instant::now();
            let line = lines.recv_timeout(POLL);
            let took = start.elapsed();
            let are_read = matches!(line, Err(RecvTimeoutError::Disconnected));
            if let Ok(Line { rank, is_error, text }) = line {
                let to: &mut dyn Write = if is_error { &mut error } else { out };
                write!(to, "[{rank:width$}] ")?;
                to.write_all(text.strip_suffix(b"\n").unwrap_or(&text))?;
                to.write_all(b"\n")?;
                to.flush()?;
            }
            let mut group = lock(&self.0);
            let failure = group.reap()?;
            let is_late = group.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_late {
                group.send(KILL);
            }
            let (have_ended, code) = (group.children.iter().all(|(_, status)| status.is_some()), group.code);
            drop(group);
            if let Some(failure) = failure {
                writeln!(error, "remat launch: {failure}")?;
            }
            if have_ended {
                if are_read || is_late || waited >= LAST {
                    return Ok(code);
                }
                waited += took;
            } else if are_read {
                thread::sleep(POLL);
            }
        }
    }
}

impl Group {
    /// Records processes that have ended. The first failure, which it returns, ends all others.
    fn reap(&mut self) -> Result<Option<String>> {
        let mut failure = None;
        for rank in 0..self.children.len() {
            let (child, status) = &mut self.children[rank];
            if status.is_some() {
                continue;
            }
            *status = child.try_wait().context("cannot wait for a process")?;
            let Some(ended) = *status else { continue };
            #[cfg(unix)]
            if let Some(guard) = &mut self.guard {
                guard.ended(child.id());
            }
            if !ended.success() && self.code == 0 {
                let others = if self.children.iter().any(|(_, status)| status.is_none()) {
                    "; the others are ended"
                } else {
                    ""
                };
                failure = Some(format!("node {rank} ended with {ended}{others}"));
                self.stop(TERM, code(ended));
            }
        }
        Ok(failure)
    }

    /// Sends a signal to all running processes, and gives them some time.
    fn stop(&mut self, signal: i32, code: u8) {
        if self.code == 0 {
            self.code = code;
        }
        self.deadline.get_or_insert(Instant::now() + GRACE);
        self.send(signal);
    }

    #[cfg(unix)]
    fn send(&mut self, signal: i32) {
        use rustix::process::{Pid, Signal, kill_process_group};
        for (child, _) in self.children.iter().filter(|(_, status)| status.is_none()) {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // A process that has ended needs no signal.
                let _ = kill_process_group(Pid::from_child(child), signal);
            }
        }
    }

    #[cfg(not(unix))]
    fn send(&mut self, _: i32) {
        for (child, _) in self.children.iter_mut().filter(|(_, status)| status.is_none()) {
            // A process that has ended need not be killed.
            let _ = child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let mut group = lock(&self.0);
        group.send(KILL);
        for (child, _) in group.children.iter_mut().filter(|(_, status)| status.is_none()) {
            // The exit status is not needed.
            let _ = child.wait();
        }
    }
}

/// The signal that asks a process to end.
const TERM: i32 = 15;

/// The signal that ends a process.
const KILL: i32 = 9;

/// The exit code that shells use for a process ended by a signal.
fn exit_code_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(1)
}

/// The exit code of a process that has failed.
fn code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return exit_code_of(signal);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).filter(|&code| code > 0).unwrap_or(1)
}
