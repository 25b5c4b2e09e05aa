//! Commands under limits of time and memory, and how they end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::libc::rlim_t;
use nix::sys::ptrace;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The time that a command has, unless it is given another. Machines may be slow and busy: what is awaited here takes seconds at most.
const TIME: Duration = Duration::from_secs(60);

/// The time in which a command has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(30);

/// The bytes of address space that a command may take. A small training run takes less than a tenth of it, most of it for stacks of threads.
pub(crate) const MEMORY: u64 = 4 << 30;

/// The most bytes of an output that are looked at.
const OUTPUT: u64 = 1 << 20;

/// A command with its folder and its variables.
#[derive(Clone)]
pub(crate) struct Job {
    program: PathBuf,
    arguments: Vec<OsString>,
    folder: PathBuf,
    variables: Vec<(OsString, OsString)>,
    time: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Ending {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// After it had taken all of its time and was told to end, by SIGTERM, which no shell makes its background jobs ignore.
    Told,
    /// Killed, since it did not end when it was told to.
    Deaf,
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// What it wrote to standard output and standard error.
    pub(crate) output: String,
}

impl Job {
    /// A command in a folder, in which its caches and temporary files are too. It runs on one thread, so that its calls come in an order.
    pub(crate) fn new(program: &Path, folder: &Path) -> Job {
        let inside = ["HOME", "XDG_CACHE_HOME", "TMPDIR"].map(|name| (name.into(), folder.into()));
        let mut variables = vec![("REMAT_THREADS".into(), "1".into()), ("RUST_BACKTRACE".into(), "0".into())];
        variables.extend(inside);
        Job { program: program.into(), arguments: Vec::new(), folder: folder.into(), variables, time: TIME }
    }

    /// With more arguments.
    pub(crate) fn with<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Job {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With the words of a text as arguments.
    pub(crate) fn words(self, words: &str) -> Job {
        self.with(words.split_whitespace())
    }

    /// With a variable of the environment.
    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Job {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// With another time, after which it is told to end.
    pub(crate) fn within(self, time: Duration) -> Job {
        Job { time, ..self }
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// The command as one types it.
    pub(crate) fn shown(&self) -> String {
        let quoted = |word: &OsString| {
            let text = word.to_string_lossy();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,".contains(c);
            let is_plain = !text.is_empty() && text.chars().all(is_plain);
            let long = text.chars().count() > 200;
            match (is_plain, long) {
                (_, true) => format!("\"$(printf '%.s{}' {{1..{}}})\"", text.chars().next().unwrap_or(' '), text.len()),
                (true, _) => text.into_owned(),
                _ => format!("$'{}'", text.escape_default().to_string().replace('\'', "\\'")),
            }
        };
        let program = self.program.file_name().unwrap_or_default().to_os_string();
        let set =
            self.variables[5..].iter().map(|(name, value)| format!("{}={}", name.to_string_lossy(), quoted(value)));
        set.chain([quoted(&program)]).chain(self.arguments.iter().map(quoted)).collect::<Vec<_>>().join(" ")
    }

    /// Starts the command through [`start`], which sets its limits.
    pub(crate) fn spawn(&self, is_traced: bool, output: &File) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("start").args(is_traced.then_some("--traced")).arg(MEMORY.to_string()).arg(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        command.env_remove("REMAT_DEVICE").envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?).process_group(0);
        command.spawn().context("cannot start a command")
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self) -> Result<Ended> {
        let output = tempfile::tempfile()?;
        let mut child = self.spawn(false, &output)?;
        let watch = Watch::of(&child, self.time);
        let status = child.wait()?;
        Ok(Ended { ending: watch.ending(status), output: text_of(output)? })
    }
}

/// What the hidden command `start` does: it limits its own memory, asks its parent to trace it, and becomes the command.
pub(crate) fn start(is_traced: bool, memory: u64, command: &[OsString]) -> Result<()> {
    setrlimit(Resource::RLIMIT_AS, memory as rlim_t, memory as rlim_t)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    if is_traced {
        ptrace::traceme().context("this system does not allow to trace processes")?;
    }
    let (program, arguments) = command.split_first().context("no command")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start `{}`", program.to_string_lossy()))
}

/// What a command wrote.
pub(crate) fn text_of(mut output: File) -> Result<String> {
    let mut bytes = Vec::new();
    output.rewind()?;
    output.take(OUTPUT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A thread that ends a process, and those that it has started, when its time is over.
pub(crate) struct Watch {
    group: Pid,
    done: Sender<()>,
    thread: JoinHandle<Option<Ending>>,
}

impl Watch {
    pub(crate) fn of(child: &Child, time: Duration) -> Watch {
        let (group, (done, ended)) = (Pid::from_raw(child.id().cast_signed()), channel());
        let thread = thread::spawn(move || {
            let mut ending = None;
            for (time, signal, then) in [(time, Signal::SIGTERM, Ending::Told), (GRACE, Signal::SIGKILL, Ending::Deaf)]
            {
                if ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                // Without a group the process has just ended.
                let _ = killpg(group, signal);
                ending = Some(then);
            }
            ending
        });
        Watch { group, done, thread }
    }

    /// How the process ended, which has this status now. What it has started, and left behind, ends too.
    pub(crate) fn ending(self, status: ExitStatus) -> Ending {
        // An error says that the thread or the group has ended.
        let _ = (self.done.send(()), killpg(self.group, Signal::SIGKILL));
        let by_itself = || status.code().map_or_else(|| Ending::Signal(status.signal().unwrap_or(0)), Ending::Code);
        self.thread.join().ok().flatten().unwrap_or_else(by_itself)
    }
}

impl Ended {
    pub(crate) fn is_success(&self) -> bool {
        self.ending == Ending::Code(0)
    }

    /// What is wrong with how it ended, whatever it was asked to do: a panic, a signal, no end, an error without a message, or control
    /// characters on the terminal. `None` for success and for an error that is reported.
    pub(crate) fn broken(&self) -> Option<String> {
        let line = |word: &str| self.output.lines().find(|line| line.contains(word)).map(str::to_string);
        if let Some(line) = line("panicked at").or_else(|| line("has overflowed its stack")) {
            return Some(line);
        }
        match self.ending {
            Ending::Code(0..=2) => {}
            Ending::Code(code) => return Some(format!("exit code {code}: {}", self.last_line())),
            Ending::Signal(signal) => {
                let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
                return Some(format!("{name}: {}", self.last_line()));
            }
            Ending::Told => return Some("no end within its time".into()),
            Ending::Deaf => return Some("no end when it was told to".into()),
        }
        if !self.is_success() && !self.output.contains("error: ") {
            return Some("an error without a message".into());
        }
        let is_control = |c: &char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
        self.output.chars().find(is_control).map(|c| format!("the control character {c:?} in its output"))
    }

    /// The last line of the output, which is that of an error.
    pub(crate) fn last_line(&self) -> &str {
        self.output.lines().last().unwrap_or_default()
    }
}
