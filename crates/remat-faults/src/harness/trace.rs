//! The calls that a process makes on the files of a folder, and a fault at one of them.
//!
//! Calls are stopped by `ptrace`, where the system takes them, and not by a preloaded library: `tempfile` makes its calls through `rustix`,
//! which enters the system itself and passes by every library.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::libc::{self, c_long, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::harness::process::{Ended, Job, Watch, text_of};

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Opens a file that is there.
    Open,
    /// Makes a file, a folder or a link, or opens a file to be written.
    Make,
    Read,
    Write,
    Sync,
    Rename,
    Remove,
    Truncate,
    Map,
}

/// A call on a file of the folder.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Whether it has a number of bytes, which may be fewer.
    is_of_bytes: bool,
    /// Whether a signal may interrupt it. Nothing but remote file systems lets that happen to the calls on names and to opening folders.
    is_interruptible: bool,
    pub(crate) path: PathBuf,
}

/// What happens at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The process is killed instead.
    Kill,
    /// The call fails.
    Once(Errno),
    /// The call and all later ones that this error may meet fail.
    FromThenOn(Errno),
    /// The call reads or writes half of its bytes.
    Short,
}

/// All faults, each of which is tried at every call that it may meet.
pub(crate) const FAULTS: [Fault; 7] = [
    Fault::Kill,
    Fault::Once(Errno::ENOSPC),
    Fault::FromThenOn(Errno::ENOSPC),
    Fault::Once(Errno::EIO),
    Fault::FromThenOn(Errno::EIO),
    Fault::Once(Errno::EINTR),
    Fault::Short,
];

impl Fault {
    /// Whether the system may let this happen to a call. A process that is killed before it reads has changed nothing since the call before.
    pub(crate) fn may_meet(self, call: &Call) -> bool {
        use Kind::{Make, Map, Open, Read, Rename, Sync, Truncate, Write};
        match self {
            Fault::Kill => !matches!(call.kind, Open | Read | Map),
            Fault::Once(Errno::ENOSPC) | Fault::FromThenOn(Errno::ENOSPC) => {
                matches!(call.kind, Make | Write | Sync | Rename | Truncate)
            }
            Fault::Once(Errno::EINTR) => call.is_interruptible,
            Fault::Once(_) | Fault::FromThenOn(_) => true,
            Fault::Short => call.is_of_bytes,
        }
    }

    /// Whether a program cannot remove what it leaves unfinished: it is dead, or the disk is.
    pub(crate) fn prevents_removal(self) -> bool {
        matches!(self, Fault::Kill | Fault::FromThenOn(Errno::EIO))
    }

    /// Whether a program has to go on as if nothing had been.
    pub(crate) fn is_to_be_invisible(self) -> bool {
        matches!(self, Fault::Short | Fault::Once(Errno::EINTR))
    }

    /// The word for it in a reproduction.
    pub(crate) fn word(self) -> String {
        match self {
            Fault::Kill => "kill".into(),
            Fault::Once(errno) => format!("{errno:?}"),
            Fault::FromThenOn(errno) => format!("{errno:?}-on"),
            Fault::Short => "short".into(),
        }
    }
}

/// What became of a process, and the calls that it made.
pub(crate) struct Traced {
    pub(crate) ended: Ended,
    pub(crate) calls: Vec<Call>,
}

/// Runs a command with a fault at its call of this number, counted from 0 among those on files of a folder; it is killed at the first from
/// there on that changes something.
pub(crate) fn run(job: &Job, folder: &Path, fault: Option<(usize, Fault)>) -> Result<Traced> {
    let output = tempfile::tempfile()?;
    let child = job.spawn(true, &output)?;
    let main = Pid::from_raw(child.id().cast_signed());
    let watch = Watch::of(&child, job.time());
    let mut tracer =
        Tracer { main, folder, fault, calls: Vec::new(), known: HashSet::from([main]), failing: Vec::new() };
    let status = match waitpid(main, Some(WaitPidFlag::__WALL))? {
        WaitStatus::Stopped(..) => {
            let options = Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_EXITKILL
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK
                | Options::PTRACE_O_TRACEEXEC;
            ptrace::setoptions(main, options)?;
            ptrace::syscall(main, None)?;
            tracer.follow()?
        }
        ended => bail!("{ended:?} before the command began: {}", text_of(output)?),
    };
    let ending = watch.ending(status);
    // The others of the group are gone too, now that it is killed.
    while waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).is_ok() {}
    Ok(Traced { ended: Ended { ending, output: text_of(output)? }, calls: tracer.calls })
}

struct Tracer<'a> {
    main: Pid,
    folder: &'a Path,
    fault: Option<(usize, Fault)>,
    calls: Vec<Call>,
    /// The threads that have been seen.
    known: HashSet<Pid>,
    /// Threads in a call that is not made, and the error that it is to return.
    failing: Vec<(Pid, Errno)>,
}

impl Tracer<'_> {
    /// Lets the process run from call to call until it ends.
    fn follow(&mut self) -> Result<ExitStatus> {
        loop {
            // Only the children of this thread: others trace other commands.
            let (thread, signal) = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD))? {
                WaitStatus::Exited(thread, code) if thread == self.main => return Ok(ExitStatus::from_raw(code << 8)),
                WaitStatus::Signaled(thread, signal, _) if thread == self.main => {
                    return Ok(ExitStatus::from_raw(signal as i32));
                }
                WaitStatus::PtraceSyscall(thread) => {
                    match self.at_call(thread) {
                        // It was killed meanwhile.
                        Err(error) if error.downcast_ref() == Some(&Errno::ESRCH) => {}
                        other => other?,
                    }
                    (thread, None)
                }
                // Each new thread stops once.
                WaitStatus::Stopped(thread, Signal::SIGSTOP) if self.known.insert(thread) => (thread, None),
                WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
                WaitStatus::PtraceEvent(thread, ..) => (thread, None),
                _ => continue,
            };
            match ptrace::syscall(thread, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A thread enters a call or leaves it.
    fn at_call(&mut self, thread: Pid) -> Result<()> {
        let is_entry = ptrace::syscall_info(thread)?.op == libc::PTRACE_SYSCALL_INFO_ENTRY;
        let mut registers = ptrace::getregs(thread)?;
        if !is_entry {
            if let Some(at) = self.failing.iter().position(|&(failing, _)| failing == thread) {
                let (_, errno) = self.failing.swap_remove(at);
                registers.rax = (-i64::from(errno as i32)).cast_unsigned();
                ptrace::setregs(thread, registers)?;
            }
            return Ok(());
        }
        let Some(call) = call(thread, &registers).filter(|call| call.path.starts_with(self.folder)) else {
            return Ok(());
        };
        let number = self.calls.len();
        self.calls.push(call.clone());
        let Some((at, fault)) = self.fault else { return Ok(()) };
        let is_met = number == at || (number > at && !matches!(fault, Fault::Once(_) | Fault::Short));
        if !is_met || !fault.may_meet(&call) {
            return Ok(());
        }
        match fault {
            Fault::Kill => kill(self.main, Signal::SIGKILL)?,
            Fault::Once(errno) | Fault::FromThenOn(errno) => {
                // There is no call of this number, so that none is made.
                registers.orig_rax = u64::MAX;
                self.failing.push((thread, errno));
                ptrace::setregs(thread, registers)?;
            }
            Fault::Short => {
                registers.rdx /= 2;
                ptrace::setregs(thread, registers)?;
            }
        }
        Ok(())
    }
}

/// The call that a thread is about to make, if it is one on files.
fn call(thread: Pid, registers: &user_regs_struct) -> Option<Call> {
    let [a, b, c, d, e] = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8];
    let opens = |flags: u64| {
        let writes = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT).cast_unsigned();
        if flags & u64::from(writes) == 0 { Kind::Open } else { Kind::Make }
    };
    let is_folder = |flags: u64| flags & u64::from(libc::O_DIRECTORY.cast_unsigned()) != 0;
    let at = |folder: u64, path: u64| path_at(thread, folder, path);
    // The number of the current folder, where a call takes none.
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let (kind, path) = match c_long::try_from(registers.orig_rax).ok()? {
        libc::SYS_open => (opens(b), at(here, a)),
        libc::SYS_openat => (opens(c), at(a, b)),
        libc::SYS_creat | libc::SYS_mkdir => (Kind::Make, at(here, a)),
        libc::SYS_mkdirat => (Kind::Make, at(a, b)),
        libc::SYS_link | libc::SYS_symlink => (Kind::Make, at(here, b)),
        libc::SYS_linkat => (Kind::Make, at(c, d)),
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv => (Kind::Read, descriptor(thread, a)),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_sendfile => {
            (Kind::Write, descriptor(thread, a))
        }
        libc::SYS_copy_file_range => (Kind::Write, descriptor(thread, c)),
        libc::SYS_fsync | libc::SYS_fdatasync => (Kind::Sync, descriptor(thread, a)),
        libc::SYS_rename => (Kind::Rename, at(here, a)),
        libc::SYS_renameat | libc::SYS_renameat2 => (Kind::Rename, at(a, b)),
        libc::SYS_unlink | libc::SYS_rmdir => (Kind::Remove, at(here, a)),
        libc::SYS_unlinkat => (Kind::Remove, at(a, b)),
        libc::SYS_truncate => (Kind::Truncate, at(here, a)),
        libc::SYS_ftruncate | libc::SYS_fallocate => (Kind::Truncate, descriptor(thread, a)),
        libc::SYS_mmap => (Kind::Map, descriptor(thread, e)),
        _ => return None,
    };
    let number = registers.orig_rax.cast_signed();
    let is_of_bytes =
        [libc::SYS_read, libc::SYS_pread64, libc::SYS_write, libc::SYS_pwrite64].contains(&number) && c > 1;
    let is_interruptible = match number {
        libc::SYS_open => !is_folder(b),
        libc::SYS_openat => !is_folder(c),
        _ => matches!(kind, Kind::Read | Kind::Write | Kind::Sync | Kind::Truncate),
    };
    Some(Call { kind, is_of_bytes, is_interruptible, path: path? })
}

/// The path of an open file.
fn descriptor(thread: Pid, number: u64) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{thread}/fd/{}", i32::try_from(number).ok()?)).ok()
}

/// The path at an address of the process, which may be relative to an open folder.
fn path_at(thread: Pid, folder: u64, address: u64) -> Option<PathBuf> {
    let mut bytes = vec![0; libc::PATH_MAX.cast_unsigned() as usize];
    let read = File::open(format!("/proc/{thread}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    let path = std::str::from_utf8(bytes[..read].split(|&byte| byte == 0).next()?).ok()?;
    // The number is a C int: its upper half may be anything.
    let folder = match folder as u32 as i32 {
        libc::AT_FDCWD => fs::read_link(format!("/proc/{thread}/cwd")).ok()?,
        number => fs::read_link(format!("/proc/{thread}/fd/{number}")).ok()?,
    };
    Some(folder.join(path))
}
