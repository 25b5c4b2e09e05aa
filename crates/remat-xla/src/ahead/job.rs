//! Jobs for a worker and its answers, as text.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use remat_ir::{Error, ErrorKind, Result};

use crate::Platform;
use crate::chips::Topology;
use crate::pjrt::Bytes;

/// A task, and the plugin for it.
pub(super) struct Job {
    pub(super) platform: Platform,
    pub(super) plugin: PathBuf,
    pub(super) task: Task,
}

pub(super) enum Task {
    Describe,
    /// The chips, or `None` for a device of this machine; the encoded options, and the memory's capacity if the plugin does not report it.
    Compile {
        topology: Option<Topology>,
        capacity: u64,
        options: Vec<u8>,
        module: String,
    },
}

pub(super) enum Answer {
    Memory(ChipMemory),
    Description(PluginDescription),
}

/// The bytes of a compiled program on each chip.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChipMemory {
    /// Arguments, in the chip's memory.
    pub arguments: u64,
    /// Results in the chip's memory, including those that take the memory of an argument.
    pub outputs: u64,
    /// Results that take the memory of an argument.
    pub aliased: u64,
    /// Everything else that is live at the peak.
    pub temporaries: u64,
    /// The program itself.
    pub code: u64,
    /// Arguments and results in the memory of the host.
    pub host_arguments: u64,
    /// Values that are moved to the memory of the host and back during a run.
    pub host_temporaries: u64,
    /// The bytes of the chip's memory that programs can use.
    pub capacity: u64,
    /// The bytes that the compiler reports for the peak, if that figure can be trusted; otherwise 0.
    pub allocated: u64,
}

impl ChipMemory {
    /// The most bytes of the chip's memory that are live at one time: arguments, results and temporaries.
    pub fn peak(&self) -> u64 {
        let sum = self.arguments.saturating_add(self.outputs).saturating_add(self.temporaries);
        if self.allocated > 0 { self.allocated } else { sum.saturating_sub(self.aliased) }
    }

    /// Whether the peak and the program itself fit into the memory of the chip.
    pub fn fits(&self) -> bool {
        self.peak().saturating_add(self.code) <= self.capacity
    }

    pub(super) fn new(bytes: Bytes, capacity: u64) -> ChipMemory {
        let Bytes { code, arguments, outputs, aliased, temporaries, host_arguments, host_outputs, .. } = bytes;
        let Bytes { host_temporaries, allocated, .. } = bytes;
        let host_arguments = host_arguments + host_outputs;
        ChipMemory {
            arguments,
            outputs,
            aliased,
            temporaries,
            code,
            host_arguments,
            host_temporaries,
            capacity,
            allocated,
        }
    }

    /// The fields with their names.
    fn fields(&mut self) -> [(&'static str, &mut u64); 9] {
        [
            ("arguments", &mut self.arguments),
            ("outputs", &mut self.outputs),
            ("aliased", &mut self.aliased),
            ("temporaries", &mut self.temporaries),
            ("code", &mut self.code),
            ("host_arguments", &mut self.host_arguments),
            ("host_temporaries", &mut self.host_temporaries),
            ("capacity", &mut self.capacity),
            ("allocated", &mut self.allocated),
        ]
    }
}

/// A plugin's description of itself and of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginDescription {
    /// The file.
    pub path: PathBuf,
    /// The version of the PJRT C API, such as `0.81`.
    pub api: String,
    /// The newest version of the StableHLO language that it reads, such as `1.13.3`; empty if it does not report one.
    pub stablehlo: String,
    /// The number of this machine's devices on which the plugin runs programs, or why it runs none.
    pub devices: std::result::Result<usize, String>,
    /// The name and version of the platform, which are those of a compiler or of a driver; empty if the plugin does not report them.
    pub platform: String,
    /// `Ok` if the plugin compiles for chips that are not in the machine, or why it does not.
    pub ahead: std::result::Result<(), String>,
}

/// The names of files in the folder of a job.
const JOB: &str = "job";
const MODULE: &str = "module";
const OPTIONS: &str = "options";
const ANSWER: &str = "answer";

/// The first line of jobs and answers, by which a worker of another version is detected.
const VERSION: &str = concat!("remat ", env!("CARGO_PKG_VERSION"));

/// The kinds of errors that a worker returns, with their names.
const KINDS: [(ErrorKind, &str); 4] = [
    (ErrorKind::Memory, "memory"),
    (ErrorKind::Io, "io"),
    (ErrorKind::Argument, "argument"),
    (ErrorKind::Internal, "internal"),
];

impl Job {
    /// Writes the job into a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = self.plugin.to_str().ok_or_else(|| failed("the path of the plugin is not text".to_string()))?;
        let mut text = format!("{VERSION}\nplatform {}\nplugin {path}\n", self.platform.name());
        if let Task::Compile { topology, capacity, options, module } = &self.task {
            let _ = writeln!(text, "capacity {capacity}");
            if let Some(topology) = topology {
                let _ = writeln!(text, "topology {}", topology.name);
                for (name, value) in &topology.options {
                    let _ = writeln!(text, "option {name} {value}");
                }
            }
            write(folder, OPTIONS, options)?;
            write(folder, MODULE, module.as_bytes())?;
        }
        write(folder, JOB, text.as_bytes())
    }

    /// Reads the job of a folder.
    pub(super) fn read(folder: &Path) -> Result<Job> {
        let text = read(folder, JOB)?;
        let lines = body(&text)?;
        let field = |name: &str| field(lines, name);
        let platform = Platform::named(field("platform")?)?;
        let plugin = PathBuf::from(field("plugin")?);
        let Ok(capacity) = field("capacity") else { return Ok(Job { platform, plugin, task: Task::Describe }) };
        let option = |line: &str| {
            let (name, value) = line.strip_prefix("option ")?.split_once(' ')?;
            let name = ["topology", "target_config", "chip_config_name"].into_iter().find(|known| *known == name)?;
            Some((name, value.to_string()))
        };
        let options_of = || lines.lines().filter_map(option).collect();
        let topology = field("topology").ok().map(|name| Topology { name: name.to_string(), options: options_of() });
        let options = fs::read(folder.join(OPTIONS)).map_err(|error| failed(error.to_string()))?;
        let module = read(folder, MODULE)?;
        let task = Task::Compile { topology, capacity: number(capacity)?, options, module };
        Ok(Job { platform, plugin, task })
    }
}

impl Answer {
    /// Writes the findings of a worker, or its error, into the folder of its job.
    pub(super) fn write(answer: Result<Answer>, folder: &Path) -> Result<()> {
        let mut text = format!("{VERSION}\n");
        let _ = match answer {
            Ok(Answer::Memory(mut memory)) => {
                memory.fields().into_iter().try_for_each(|(name, bytes)| writeln!(text, "{name} {bytes}"))
            }
            Ok(Answer::Description(PluginDescription { path: _, api, stablehlo, devices, platform, ahead })) => {
                let devices = devices.map_or_else(|why| format!("none {}", line(&why)), |count| count.to_string());
                let ahead = ahead.map_or_else(|why| format!("no {}", line(&why)), |()| "yes".to_string());
                let platform = line(&platform);
                writeln!(
                    text,
                    "api {api}\nstablehlo {stablehlo}\ndevices {devices}\nplatform {platform}\nahead {ahead}"
                )
            }
            Err(error) => {
                let kind = KINDS.iter().find(|(kind, _)| *kind == error.kind()).map_or("internal", |(_, name)| name);
                write!(text, "error {kind}\n{}\n{}", error.operation(), error.message())
            }
        };
        write(folder, ANSWER, text.as_bytes())
    }

    /// Reads the answer of a worker; `None` if it gave none.
    pub(super) fn read(job: &Job, folder: &Path) -> Option<Result<Answer>> {
        let text = read(folder, ANSWER).ok()?;
        Some(body(&text).and_then(|lines| Answer::parse(job, lines)))
    }

    fn parse(job: &Job, lines: &str) -> Result<Answer> {
        if let Some(error) = lines.strip_prefix("error ") {
            let mut parts = error.splitn(3, '\n');
            let (kind, operation, message) = (parts.next(), parts.next(), parts.next());
            let kind =
                KINDS.iter().find(|(_, name)| Some(*name) == kind).map_or(ErrorKind::Internal, |(kind, _)| *kind);
            return Err(Error::new(kind, operation.unwrap_or("ahead"), message.unwrap_or_default()));
        }
        let field = |name: &str| field(lines, name);
        if matches!(job.task, Task::Compile { .. }) {
            let mut memory = ChipMemory::default();
            for (name, bytes) in memory.fields() {
                *bytes = number(field(name)?)?;
            }
            return Ok(Answer::Memory(memory));
        }
        let devices = match field("devices")?.split_once(' ') {
            Some((_, why)) => Err(why.to_string()),
            None => Ok(number(field("devices")?)? as usize),
        };
        Ok(Answer::Description(PluginDescription {
            path: job.plugin.clone(),
            api: field("api")?.to_string(),
            stablehlo: field("stablehlo")?.to_string(),
            devices,
            platform: field("platform")?.to_string(),
            ahead: field("ahead")?.strip_prefix("no ").map_or(Ok(()), |why| Err(why.to_string())),
        }))
    }
}

/// The lines after the first, which has the version.
fn body(text: &str) -> Result<&str> {
    let foreign = || failed("the worker is of another version".to_string());
    text.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix('\n')).ok_or_else(foreign)
}

/// The value of a line that begins with this name.
fn field<'a>(lines: &'a str, name: &str) -> Result<&'a str> {
    let lines: BTreeMap<&str, &str> = lines.lines().filter_map(|line| line.split_once(' ')).collect();
    lines.get(name).copied().ok_or_else(|| failed(format!("a worker's file has no line `{name}`")))
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| failed(format!("`{text}` is not a number of bytes")))
}

/// The text in one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(folder: &Path, name: &str) -> Result<String> {
    fs::read_to_string(folder.join(name)).map_err(|error| failed(error.to_string()))
}

fn write(folder: &Path, name: &str, content: &[u8]) -> Result<()> {
    fs::write(folder.join(name), content).map_err(|error| failed(error.to_string()))
}

fn failed(message: String) -> Error {
    Error::new(ErrorKind::Io, "ahead", message)
}
