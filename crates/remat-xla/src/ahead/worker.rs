//! The worker process that compiles: how it is started, and how it runs a job.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remat_ir::{Error, ErrorKind, Result};
use tempfile::{Builder, TempDir};

use super::AheadOptions;
use super::job::{Answer, ChipMemory, Job, PluginDescription, Task};
use crate::pjrt::{Client, Library, Topology};
use crate::{Chip, Platform, tpu};

/// The environment variable with the folder of a worker's job.
const JOB: &str = "REMAT_AHEAD_JOB";

/// The environment variable with the program of workers.
const WORKER: &str = "REMAT_WORKER";

/// Whether this program serves as its own worker.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Whether all compilations are to end.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Lets the program compile ahead of time in copies of itself; call it first in `main`. In such a copy it compiles and ends the process,
/// otherwise it returns at once. Without this call, the command `remat` is used for compiling.
///
/// ```
/// remat_xla::serve_ahead();
/// println!("this is the program, and not a worker of it");
/// ```
pub fn serve_ahead() {
    SERVES.store(true, Ordering::Relaxed);
    let Some(folder) = env::var_os(JOB).map(PathBuf::from) else { return };
    // The parent has the other end of standard input. When it closes, the parent has ended: the answer is no longer needed, and nobody else
    // removes the folder.
    let job = folder.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = fs::remove_dir_all(job);
        std::process::exit(1);
    });
    let answer = Job::read(&folder).and_then(|job| serve(&job));
    // Without an answer the parent reports how the process ended.
    let code = i32::from(Answer::write(answer, &folder).is_err());
    std::process::exit(code);
}

/// Ends all ahead-of-time compilations of this process: those that are running fail, and so do later ones. For a program that has been told
/// to end, but still reports what it has found.
///
/// ```
/// use remat_xla::{AheadOptions, Platform, describe_plugin, stop_ahead};
/// stop_ahead();
/// let options = AheadOptions { plugin: Some("plugin.so".into()), worker: Some("true".into()), ..AheadOptions::default() };
/// assert_eq!(describe_plugin(Platform::Cpu, &options).unwrap_err().message(), "stopped");
/// ```
pub fn stop_ahead() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Does a job in this process.
fn serve(job: &Job) -> Result<Answer> {
    let library = Library::open(&job.plugin)?;
    let Task::Compile { topology, capacity, options, module } = &job.task else {
        return describe(job, library).map(Answer::Description);
    };
    let Some(topology) = topology else {
        let client = Client::new(library, &[])?;
        return Ok(Answer::Memory(ChipMemory::new(client.memory_of(module, options)?, *capacity)));
    };
    library.expect_ahead()?;
    let named: Vec<(&str, &str)> = topology.options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let topology = Topology::new(library, &topology.name, &named)?;
    // A GPU reports its whole memory, of which the driver takes a part.
    let told = topology.devices()?.first().and_then(|device| device.memory).filter(|_| job.platform == Platform::Tpu);
    let capacity = told.unwrap_or(*capacity);
    Ok(Answer::Memory(ChipMemory::new(topology.compile(module, options)?, capacity)))
}

/// The description of a plugin. Failing functions are part of it.
fn describe(job: &Job, library: Library) -> Result<PluginDescription> {
    let (major, minor) = library.version();
    let attributes = library.attributes()?;
    let attribute = |name: &str| attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    // Without this option, the plugin for GPUs takes most of their memory.
    let flags: &[(&str, bool)] = if job.platform == Platform::Gpu { &[("preallocate", false)] } else { &[] };
    let client = Client::with_flags(library, flags);
    let ahead = library.expect_ahead().and_then(|()| {
        let Some(chip) = Chip::all().iter().find(|chip| chip.platform == job.platform) else {
            let message = "the plugin compiles only for this machine";
            return Err(Error::new(ErrorKind::Argument, "ahead", message));
        };
        let topology = chip.topology(&chip.slice(1)?)?;
        let options: Vec<(&str, &str)> = topology.options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Topology::new(library, &topology.name, &options)
    });
    let platform = match (&client, &ahead) {
        (Ok(client), _) => client.platform_version().unwrap_or_default(),
        // For GPUs it would be the given description of a chip.
        (Err(_), Ok(topology)) if job.platform == Platform::Tpu => topology.platform_version().unwrap_or_default(),
        (Err(_), _) => String::new(),
    };
    Ok(PluginDescription {
        path: job.plugin.clone(),
        api: format!("{major}.{minor}"),
        stablehlo: attribute("stablehlo_current_version").unwrap_or_default(),
        devices: client.map(|client| client.num_devices()).map_err(|error| error.message().to_string()),
        platform,
        ahead: ahead.map(drop).map_err(|error| error.message().to_string()),
    })
}

/// Runs a job in a worker.
pub(super) fn run(job: &Job, options: &AheadOptions) -> Result<Answer> {
    if STOPPED.load(Ordering::Relaxed) {
        return Err(failed("stopped".to_string()));
    }
    let program = program(options)?;
    let folder = Folder::new()?;
    job.write(folder.path())?;
    let log = folder.path().join("log");
    let failed = |error: std::io::Error| failed(format!("{}: {error}", program.display()));
    let mut worker = command(&program, job)
        .env(JOB, folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(File::create(&log).map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = worker.try_wait().map_err(failed)? {
            break status;
        }
        let is_stopped = STOPPED.load(Ordering::Relaxed);
        if is_stopped || is_over(started.elapsed(), options.time_limit, || processor_time(worker.id())) {
            // It may have ended on its own in the meantime.
            let _ = worker.kill();
            worker.wait().map_err(failed)?;
            let seconds = options.time_limit.as_secs_f64();
            let why =
                if is_stopped { "stopped".to_string() } else { format!("the compiler took longer than {seconds} s") };
            return Err(self::failed(why));
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    };
    Answer::read(job, folder.path()).unwrap_or_else(|| Err(crashed(&program, status, &log)))
}

/// Whether a worker has used up its time. Time in which other programs had the processor does not count, so it continues while its
/// processor time is below the limit. It may also wait forever, so it is ended after four times the limit in any case.
fn is_over(elapsed: Duration, limit: Duration, processor: impl FnOnce() -> Option<Duration>) -> bool {
    elapsed > limit && (elapsed > 4 * limit || processor().is_none_or(|spent| spent > limit))
}

/// The processor time of a process's threads and of the processes that it has waited for, if Linux reports it.
fn processor_time(process: u32) -> Option<Duration> {
    ticks(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?).map(|ticks| Duration::from_millis(10 * ticks))
}

/// User and system time in a `stat` file of `/proc`, including children, in hundredths of a second on all platforms of Linux. The second
/// field is a name, which may contain spaces and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()? + next()? + next()?)
}

/// The command that starts a worker, with the environment that the plugin reads when it is loaded.
fn command(program: &Path, job: &Job) -> Command {
    let mut command = Command::new(program);
    command.env("TF_CPP_MIN_LOG_LEVEL", "2");
    let asks_machine = matches!(job.task, Task::Describe) && tpu::is_there(Path::new("/"));
    if job.platform == Platform::Tpu && !asks_machine {
        // There is no TPU about which to ask the cloud, which takes minutes outside of it; several workers may run at one time.
        let variables = [
            ("TPU_SKIP_MDS_QUERY", "1"),
            (tpu::KIND, "v5litepod-4"),
            ("TPU_WORKER_HOSTNAMES", "localhost"),
            ("TPU_LOG_DIR", "disabled"),
            ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
        ];
        command.envs(variables);
    }
    command
}

/// The program of workers.
fn program(options: &AheadOptions) -> Result<PathBuf> {
    if env::var_os(JOB).is_some() {
        return Err(failed("this process is a worker itself, and its program does not call `serve_ahead`".to_string()));
    }
    if let Some(program) = &options.worker {
        return Ok(program.clone());
    }
    if let Some(program) = env::var_os(WORKER).filter(|program| !program.is_empty()) {
        return Ok(program.into());
    }
    if SERVES.load(Ordering::Relaxed) {
        return env::current_exe().map_err(|error| failed(error.to_string()));
    }
    on_path(env::var_os("PATH").unwrap_or_default()).ok_or_else(|| {
        failed(format!(
            "ahead-of-time compilation needs the `remat` command, which is not on PATH; install it, set {WORKER} \
             to its file, or call `remat_xla::serve_ahead()` first in `main`"
        ))
    })
}

fn on_path(path: OsString) -> Option<PathBuf> {
    let name = format!("remat{}", env::consts::EXE_SUFFIX);
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(&name))
        .find(|file| file.is_file())
}

/// The error of a worker that ended without an answer, with its status and its last output.
fn crashed(program: &Path, status: ExitStatus, log: &Path) -> Error {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    // XLA logs a failed check as fatal, before the stack trace.
    let last =
        lines().find(|line| line.starts_with("F0") || line.contains("Check failed")).or_else(|| lines().next_back());
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    failed(format!("the compiler ended its process ({}, {status}){last}", program.display()))
}

/// A folder for one job, which is removed afterwards. Its process holds a lock in it, so that the next one can remove it if it was killed.
struct Folder {
    /// Released before the folder is removed.
    _lock: File,
    path: TempDir,
}

/// The beginning of the names of folders of jobs, among temporary files.
const PREFIX: &str = "remat-ahead-";

/// The locked file of a folder.
const LOCK: &str = "lock";

impl Folder {
    fn new() -> Result<Folder> {
        let among = env::temp_dir();
        remove_left(&among);
        let failed = |error: std::io::Error| failed(format!("{}: {error}", among.display()));
        let path = Builder::new().prefix(PREFIX).tempdir_in(&among).map_err(failed)?;
        let lock = File::create(path.path().join(LOCK)).map_err(failed)?;
        // Where there are no locks, what a killed process leaves stays.
        let _ = lock.try_lock();
        Ok(Folder { _lock: lock, path })
    }

    fn path(&self) -> &Path {
        self.path.path()
    }
}

/// Removes the folders of processes that were killed together with their workers, as far as this user may.
fn remove_left(among: &Path) {
    for entry in fs::read_dir(among).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A link is not followed.
        if is_named && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let lock = File::options().write(true).open(entry.path().join(LOCK));
            if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn failed(message: String) -> Error {
    Error::new(ErrorKind::Io, "ahead", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_others_does_not_count() {
        let second = Duration::from_secs(1);
        let is_over = |elapsed: f64, spent: Option<f64>| {
            is_over(second.mul_f64(elapsed), second, || spent.map(|spent| second.mul_f64(spent)))
        };
        assert!(!is_over(0.9, Some(1.8)), "a compiler may use several processors");
        assert!(is_over(1.1, Some(1.1)) && !is_over(1.1, Some(0.6)));
        assert!(is_over(4.1, Some(0.0)), "one that only waits is ended too");
        assert!(is_over(1.1, None));
    }

    #[test]
    fn folders_of_killed_processes_are_removed() {
        let among = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = among.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join(LOCK), "").unwrap();
            path
        };
        let (left, other) = (folder("remat-ahead-left"), folder("of-somebody-else"));
        let used = folder("remat-ahead-used");
        let lock = File::options().write(true).open(used.join(LOCK)).unwrap();
        lock.try_lock().unwrap();
        remove_left(among.path());
        assert_eq!([&left, &other, &used].map(|path| path.exists()), [false, true, true]);
        drop(lock);
        remove_left(among.path());
        assert!(!used.exists() && other.exists());
    }

    #[test]
    fn processor_time_is_read_from_a_stat_file() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 500 0 3 0 250 40 9 9 20 0 2 0 100 0 0";
        assert_eq!((ticks(stat), ticks("7 (a"), ticks("7 (a) S 1")), (Some(308), None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn processor_time_grows() {
        let before = processor_time(std::process::id()).unwrap();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        assert!(processor_time(std::process::id()).unwrap() > before);
    }
}
