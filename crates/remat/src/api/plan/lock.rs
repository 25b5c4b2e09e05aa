//! The text of a plan: what is the plan of what.
//!
//! ```text
//! remat plan 1
//! version 0.1.0
//! program 343e1662793c64bf6f0d3597ba446f18
//! donated 0-7 9
//! device cpu
//! threads 2
//! peak 1048576
//! overhead 0.0213
//! steps form 0 limit 1048576 runs 0-20 3 21-40
//! check d228cb696f1a8caf78912b704e4a8964
//! ```
//!
//! Each line is there, in this order. `program` is the hash of the program's text, without source lines, as the engine gets it; `donated` are the
//! numbers of the donated inputs, `steps` those of the engine ([`StepSchedule`]) or `once` if each runs once, and `check` is the hash of all
//! lines before it. `peak` and `overhead` are for readers.

use std::fmt;
use std::sync::Arc;

use remat_ir::{Error, ErrorKind, Result, StepSchedule};
use twox_hash::XxHash3_128;

use super::{Plan, Planned};

/// The first line.
const HEADER: &str = "remat plan 1";

/// The keys of the other lines, in their order.
const KEYS: [&str; 9] = ["version", "program", "donated", "device", "threads", "peak", "overhead", "steps", "check"];

/// The steps of a plan in which each runs once.
const ONCE: &str = "once";

/// A plan as it is written.
pub(super) struct Lock {
    subject: Subject,
    peak: String,
    overhead: String,
    /// `None` if each step runs once.
    schedule: Option<Arc<StepSchedule>>,
}

/// What it is the plan of.
#[derive(PartialEq)]
struct Subject {
    version: String,
    program: String,
    donated: String,
    device: String,
    threads: String,
}

impl Subject {
    /// # Errors
    /// If the system does not start the threads of the engine.
    fn program(planned: &Planned) -> Result<Subject> {
        let Planned { jaxpr, donated, device, .. } = planned;
        let donated = donated.iter().zip(0..).filter_map(|(&is_donated, argument)| is_donated.then_some(argument));
        Ok(Subject {
            version: env!("CARGO_PKG_VERSION").to_string(),
            program: hash(&jaxpr.to_string()),
            donated: ranges(&donated.collect::<Vec<usize>>()),
            device: device.name().to_string(),
            threads: device.engine().threads()?.to_string(),
        })
    }
}

impl Lock {
    /// The text of a plan.
    ///
    /// # Errors
    /// If the system does not start the threads of the engine.
    pub(super) fn of(plan: &Plan) -> Result<Lock> {
        let schedule = plan.chosen.as_ref().map(|chosen| chosen.schedule.clone());
        let (peak, overhead) = (plan.peak().to_string(), format!("{:.4}", plan.overhead()));
        Ok(Lock { subject: Subject::program(&plan.program)?, peak, overhead, schedule })
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If it is cut off, damaged, or not a plan.
    pub(super) fn read(text: &[u8]) -> Result<Lock> {
        let wrong = |message: String| Error::new(ErrorKind::Parse, "plan", message);
        let damaged = || wrong("is damaged: its text is not what was written".to_string());
        let cut = || wrong(format!("is cut off after {} bytes", text.len()));
        let (mut rest, mut values) = (text, [const { String::new() }; KEYS.len()]);
        let header = HEADER.as_bytes();
        match rest.strip_prefix(header).map(|rest| rest.split_first()) {
            Some(Some((b'\n', after))) => rest = after,
            Some(None) => return Err(cut()),
            None if header.starts_with(rest) => return Err(cut()),
            _ if rest.starts_with(b"remat plan ") => {
                return Err(wrong(format!("is not of the form of this version, whose first line is `{HEADER}`")));
            }
            _ => return Err(wrong("is not a plan".to_string())),
        }
        for (key, value) in KEYS.iter().zip(&mut values) {
            let at = text.len() - rest.len();
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
                let is_begun = key.as_bytes().starts_with(rest) || rest.starts_with(format!("{key} ").as_bytes());
                return Err(if is_begun { cut() } else { damaged() });
            };
            // An end of a line that has changed would make one line of two.
            let line = str::from_utf8(&rest[..end]).ok().filter(|line| !line.contains(char::is_control));
            let line = line.ok_or_else(damaged)?;
            rest = &rest[end + 1..];
            *value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(' ')).ok_or_else(damaged)?.to_string();
            if *key == "check" && *value != hash_of(&text[..at]) {
                return Err(damaged());
            }
        }
        if !rest.is_empty() {
            return Err(damaged());
        }
        let [version, program, donated, device, threads, peak, overhead, steps, _] = values;
        let schedule = if steps == ONCE { None } else { Some(Arc::new(steps.parse().map_err(|_| damaged())?)) };
        Ok(Lock { subject: Subject { version, program, donated, device, threads }, peak, overhead, schedule })
    }

    /// The plan, if it is one of the program of this plan.
    ///
    /// # Errors
    /// If it is not; the message says in what they differ.
    pub(super) fn plan(&self, plan: &Plan) -> Result<Plan> {
        let (mine, other) = (&self.subject, Subject::program(&plan.program)?);
        let wrong = |message: String| Error::new(ErrorKind::Argument, "plan", message);
        if mine.version != other.version {
            let [written, this] = [&mine.version, &other.version];
            return Err(wrong(format!("is of version {written} of remat, and this is version {this}")));
        }
        if mine.device != other.device {
            return Err(wrong(format!("is for the device {}, and the program is for {}", mine.device, other.device)));
        }
        if mine.threads != other.threads {
            return Err(wrong(format!("is for {} threads, and the engine has {}", mine.threads, other.threads)));
        }
        if mine.program != other.program {
            return Err(wrong("is of another program, or of other sizes of it".to_string()));
        }
        if mine.donated != other.donated {
            return Err(wrong("is for callers who donate other arguments".to_string()));
        }
        let Some(schedule) = &self.schedule else { return Ok(plan.with(None)) };
        // Steps depend on nothing else today; what an engine cannot run is not applied in any case.
        let plan = plan.with_steps(schedule)?;
        plan.ok_or_else(|| wrong("has steps that the engine does not find in the program".to_string()))
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lock { subject: Subject { version, program, donated, device, threads }, peak, overhead, schedule } = self;
        let steps = schedule.as_ref().map_or_else(|| ONCE.to_string(), |schedule| schedule.to_string());
        let values = [version, program, donated, device, threads, peak, overhead, &steps];
        let mut text = format!("{HEADER}\n");
        for (key, value) in KEYS.iter().zip(values) {
            text += &format!("{key} {value}\n");
        }
        write!(f, "{text}check {}", hash_of(text.as_bytes()))?;
        f.write_str("\n")
    }
}

fn hash(text: &str) -> String {
    hash_of(text.as_bytes())
}

fn hash_of(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// Ascending numbers as text, with a range for those one after the other: `0-7 9`.
fn ranges(numbers: &[usize]) -> String {
    let ranges = numbers.chunk_by(|number, next| number + 1 == *next).map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        range => range.iter().map(usize::to_string).collect(),
    });
    let ranges: Vec<String> = ranges.collect();
    if ranges.is_empty() { "none".to_string() } else { ranges.join(" ") }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::{DType, Tensor, plan};

    fn planned() -> Plan {
        static PLANNED: LazyLock<Plan> = LazyLock::new(|| {
            let w = Tensor::eye(16, DType::F32);
            let loss = move |x: &Tensor| (0..6).fold(x.clone(), |x, _| x.matmul(&w).tanh()).sum(..);
            let free = plan(crate::grad(loss), Tensor::ones([32, 16], DType::F32)).expect("a plan");
            free.for_bytes(free.peak() / 10 * 9).expect("a plan")
        });
        PLANNED.clone()
    }

    fn text() -> String {
        Lock::of(&planned()).expect("the engine has threads").to_string()
    }

    fn problem(text: &[u8], plan: &Plan) -> Option<(ErrorKind, String)> {
        let error = Lock::read(text).and_then(|lock| lock.plan(plan)).err()?;
        Some((error.kind(), error.message().to_string()))
    }

    /// The text with another value for a key, and its own checksum.
    fn changed(text: &str, key: &str, value: &str) -> Vec<u8> {
        let lines: Vec<&str> = text.lines().collect();
        let (_, lines) = lines.split_last().expect("a checksum");
        let mut changed = String::new();
        for line in lines {
            let of_key = line.split(' ').next() == Some(key) && *line != HEADER;
            changed += &if of_key { format!("{key} {value}\n") } else { format!("{line}\n") };
        }
        assert_ne!(format!("{}\n", lines.join("\n")), changed, "{key} has the value {value} already");
        changed += &format!("check {}\n", hash(&changed));
        changed.into_bytes()
    }

    #[test]
    fn a_text_that_is_cut_or_changed_anywhere_is_not_applied() {
        let (plan, text) = (planned(), text());
        let text = text.as_bytes();
        assert_eq!(problem(text, &plan), None);
        for end in 0..text.len() {
            let cut = (ErrorKind::Parse, format!("is cut off after {end} bytes"));
            assert_eq!(problem(&text[..end], &plan), Some(cut));
        }
        for at in 0..text.len() {
            for flip in [1, 2, 0x10, 0x80] {
                let mut other = text.to_vec();
                other[at] ^= flip;
                let (kind, message) = problem(&other, &plan).expect("it is not what was written");
                let is_told = match at {
                    0..11 => message == "is not a plan",
                    11..13 => message.starts_with("is not of the form of this version"),
                    // The last byte could be one that was written in part.
                    _ if at + 1 == text.len() => message.contains("is cut off") || message.contains("is damaged"),
                    _ => message.starts_with("is damaged"),
                };
                assert!(kind == ErrorKind::Parse && is_told, "byte {at}: {message}");
            }
        }
        let more = [text, b"\n"].concat();
        assert!(problem(&more, &plan).is_some_and(|(_, message)| message.starts_with("is damaged")));
        assert_eq!(problem(b"{}", &plan), Some((ErrorKind::Parse, "is not a plan".to_string())));
    }

    #[test]
    fn plans_of_something_else_are_told_apart() {
        let (plan, text) = (planned(), text());
        let threads = plan.program.device.engine().threads().expect("threads");
        let cases = [
            (
                "version",
                "0.0.9",
                format!("is of version 0.0.9 of remat, and this is version {}", env!("CARGO_PKG_VERSION")),
            ),
            ("device", "cuda:0", "is for the device cuda:0, and the program is for cpu".to_string()),
            ("threads", "77", format!("is for 77 threads, and the engine has {threads}")),
            ("program", "0", "is of another program, or of other sizes of it".to_string()),
            ("donated", "none", "is for callers who donate other arguments".to_string()),
        ];
        for (key, value, message) in cases {
            assert_eq!(problem(&changed(&text, key, value), &plan), Some((ErrorKind::Argument, message)));
        }
        // Steps that somebody wrote: the engine does not run what does not compute the program.
        let runs = ["0-100000", "", "0", "1-0", "4294967295"].map(|runs| format!("form 0 limit 1048576 runs {runs}"));
        for steps in runs.iter().map(String::as_str).chain(["form 9 limit 9 runs 0", "twice"]) {
            assert!(problem(&changed(&text, "steps", steps), &plan).is_some(), "{steps}");
        }
        // Figures are for readers.
        assert_eq!(problem(&changed(&text, "peak", "1"), &plan), None);
        let once = Lock::read(&changed(&text, "steps", ONCE)).and_then(|lock| lock.plan(&plan));
        assert!(once.is_ok_and(|plan| plan.recomputed().is_empty()));
    }

    #[test]
    fn numbers_are_written_as_ranges() {
        assert_eq!(ranges(&[]), "none");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2 5 7-8");
    }
}
