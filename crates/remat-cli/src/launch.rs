//! `remat launch`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use remat_cli::arguments::up_to;
use remat_cli::command::Exit;

/// How long processes have to end by themselves once they are asked to.
const GRACE: Duration = Duration::from_secs(5);

/// How often it is looked whether a process has ended.
const POLL: Duration = Duration::from_millis(20);

/// Bytes of a line at most; a longer one is shown as several.
const LINE: u64 = 1 << 16;

/// Arguments of `remat launch`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Processes to start, all on this machine
    #[arg(short, long, value_parser = up_to(1024))]
    nodes: usize,
    /// The command, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Starts the processes of a cluster, shows what they print, and waits until all have ended.
///
/// # Errors
/// If the command cannot be started; the exit code of the first process that fails.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<()> {
    let (sender, events) = channel();
    signals(&sender)?;
    let mut processes = start(args, &sender)?;
    drop(sender);
    match processes.wait(&events, out)? {
        0 => Ok(()),
        code => {
            out.flush()?;
            Err(Exit(code).into())
        }
    }
}

/// What the processes do.
enum Event {
    /// A line on the standard output, or on the standard error, of the process of a rank.
    Line { rank: usize, is_error: bool, line: Vec<u8> },
    /// This process was sent a signal.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no signals"))]
    Signal(i32),
}

/// The processes that run, and those that have ended. They are killed when this is dropped.
struct Processes {
    children: Vec<(Child, Option<ExitStatus>)>,
    /// When those that still run are killed.
    deadline: Option<Instant>,
    /// The exit code of the first failure.
    code: u8,
}

/// Starts a process for each rank, with the variables by which `ClusterConfig::from_env` knows it.
fn start(args: &Args, events: &Sender<Event>) -> Result<Processes> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let coordinator = free.context("no port is free")?.to_string();
    let mut processes = Processes { children: Vec::new(), deadline: None, code: 0 };
    let threads = thread::available_parallelism().map_or(1, usize::from) / args.nodes;
    for rank in 0..args.nodes {
        let mut command = Command::new(&args.command[0]);
        command.args(&args.command[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("REMAT_COORDINATOR", &coordinator).env("REMAT_NODE_ID", rank.to_string());
        command.env("REMAT_NUM_NODES", args.nodes.to_string());
        // Each process has its share of the cores.
        if std::env::var_os("REMAT_THREADS").is_none() {
            command.env("REMAT_THREADS", threads.max(1).to_string());
        }
        // A group of its own: a Ctrl-C in a terminal comes here, and is passed on once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", args.command[0].display()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        processes.children.push((child, None));
        if let (Some(stdout), Some(stderr)) = (stdout, stderr) {
            read(rank, false, stdout, events.clone());
            read(rank, true, stderr, events.clone());
        }
    }
    Ok(processes)
}

/// Reads lines in a thread of its own, until the process has closed its output.
fn read(rank: usize, is_error: bool, output: impl Read + Send + 'static, events: Sender<Event>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            match output.by_ref().take(LINE).read_until(b'\n', &mut line) {
                Ok(1..) if events.send(Event::Line { rank, is_error, line }).is_ok() => {}
                _ => return,
            }
        }
    });
}

/// Tells of signals that ask this process to end.
#[cfg(unix)]
fn signals(events: &Sender<Event>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("no signals")?;
    let events = events.clone();
    thread::spawn(move || {
        // Nobody listens once all processes have ended.
        signals.forever().take_while(|&signal| events.send(Event::Signal(signal)).is_ok()).for_each(drop);
    });
    Ok(())
}

#[cfg(not(unix))]
fn signals(_: &Sender<Event>) -> Result<()> {
    Ok(())
}

impl Processes {
    /// Shows lines until all processes have ended; the exit code of the first that failed.
    fn wait(&mut self, events: &Receiver<Event>, out: &mut impl Write) -> Result<u8> {
        let width = (self.children.len() - 1).to_string().len();
        let mut error = anstream::stderr();
        loop {
            let event = events.recv_timeout(POLL);
            let is_quiet = event.is_err();
            if matches!(event, Err(RecvTimeoutError::Disconnected)) {
                thread::sleep(POLL);
            }
            match event {
                Ok(Event::Line { rank, is_error, line }) => {
                    let text = line.strip_suffix(b"\n").unwrap_or(&line);
                    let to: &mut dyn Write = if is_error { &mut error } else { out };
                    write!(to, "[{rank:width$}] ")?;
                    to.write_all(text)?;
                    to.write_all(b"\n")?;
                    to.flush()?;
                }
                Ok(Event::Signal(number)) => self.stop(number, exit_code_of(number)),
                Err(_) => {}
            }
            self.reap(&mut error)?;
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.kill();
            }
            // What the processes started may have their output still, and is not waited for.
            if is_quiet && self.children.iter().all(|(_, status)| status.is_some()) {
                return Ok(self.code);
            }
        }
    }

    /// Notes which processes have ended; the first failure ends all.
    fn reap(&mut self, error: &mut impl Write) -> Result<()> {
        for rank in 0..self.children.len() {
            let (child, status) = &mut self.children[rank];
            if status.is_some() {
                continue;
            }
            *status = child.try_wait().context("a process cannot be waited for")?;
            let Some(ended) = *status else { continue };
            if !ended.success() && self.code == 0 {
                let others = if self.children.iter().any(|(_, status)| status.is_none()) {
                    "; the others are ended"
                } else {
                    ""
                };
                writeln!(error, "remat launch: node {rank} ended with {ended}{others}")?;
                self.stop(TERM, code(ended));
            }
        }
        Ok(())
    }

    /// Sends a signal to all processes that run, and gives them some time.
    fn stop(&mut self, signal: i32, code: u8) {
        if self.code == 0 {
            self.code = code;
        }
        self.deadline.get_or_insert(Instant::now() + GRACE);
        self.send(signal);
    }

    fn kill(&mut self) {
        self.send(KILL);
    }

    #[cfg(unix)]
    fn send(&mut self, signal: i32) {
        use rustix::process::{Pid, Signal, kill_process_group};
        for (child, _) in self.children.iter().filter(|(_, status)| status.is_none()) {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // One that has ended by itself needs no signal.
                let _ = kill_process_group(Pid::from_child(child), signal);
            }
        }
    }

    #[cfg(not(unix))]
    fn send(&mut self, _: i32) {
        for (child, _) in self.children.iter_mut().filter(|(_, status)| status.is_none()) {
            // One that has ended by itself need not be killed.
            let _ = child.kill();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
        for (child, _) in self.children.iter_mut().filter(|(_, status)| status.is_none()) {
            // There is nobody to tell.
            let _ = child.wait();
        }
    }
}

/// The signal that asks a process to end.
const TERM: i32 = 15;

/// The signal that ends a process.
const KILL: i32 = 9;

/// The exit code that shells give to a process that a signal has ended.
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
