//! Damaged files: valid ones of each format are changed from a seed and read again.
//!
//! Files are read in a child process, one after the other, because a reader may end its process. The child keeps count in a file: if it dies,
//! the damage that it was at is known, and another child goes on after it.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use tempfile::TempDir;

use crate::harness::formats::{self, Format, Read, Rule};
use crate::harness::process::Ending;
use crate::harness::report::{Finding, Row};
use crate::harness::work::Work;

/// How many damages a child tries before another takes its place: less than fits the time limit of a process.
const SOME: u64 = 400;

/// The time after which a child begins no other damage.
const CHILD: Duration = Duration::from_secs(10);

/// Numbers that are too large, negative, or none.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1e999",
    "1e-400",
    "0.5",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999",
    "NaN",
];

/// Damages some bytes.
fn damaged(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    // Most files are damaged once, as far from what is noticed at once as possible.
    for _ in 0..1 + rng.usize(..10) / 8 {
        damage(rng, &mut bytes);
    }
    bytes
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let len = bytes.len();
    if len == 0 {
        bytes.extend([rng.u8(..); 8]);
        return;
    }
    // The beginning has what describes the rest, in most formats.
    let at = if rng.bool() { rng.usize(..len.min(200)) } else { rng.usize(..len) };
    match rng.u8(..10) {
        0..3 => {
            for _ in 0..1 + rng.usize(..3) {
                let at = if rng.bool() { at } else { rng.usize(..len) };
                bytes[at] ^= 1 << rng.u8(..8);
            }
        }
        3 => bytes.truncate(rng.usize(..len)),
        4 => {
            let block = bytes[block(rng, len)].to_vec();
            bytes.splice(at..at, block);
        }
        5 => {
            bytes.drain(block(rng, len));
        }
        6 => {
            let [a, b] = [block(rng, len), block(rng, len)];
            let size = a.len().min(b.len());
            for i in 0..size {
                bytes.swap(a.start + i, b.start + i);
            }
        }
        7 => {
            let size = 1 << rng.usize(..4);
            let pattern = [
                [0; 8],
                [0xff; 8],
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
                [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0x80],
            ];
            let of = pattern[rng.usize(..pattern.len())];
            for (byte, of) in bytes[at..].iter_mut().zip(&of[8 - size..]) {
                *byte = *of;
            }
        }
        8 => number(rng, bytes),
        _ => {
            let nested = ["[", "{\"a\":", "(", "\u{1b}]0;x\u{7}", "\0", "9"][rng.usize(..6)];
            let text = nested.repeat(1 << rng.usize(..17));
            bytes.splice(at..at, text.into_bytes());
        }
    }
}

/// A part of some bytes, small or large.
fn block(rng: &mut Rng, len: usize) -> Range<usize> {
    let (start, most) = (rng.usize(..len), 1 << rng.usize(..12));
    start..(start + 1 + rng.usize(..most)).min(len)
}

/// Writes another number in place of one, if there is one in digits.
fn number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let is_first = |at: &usize| bytes[*at].is_ascii_digit() && (*at == 0 || !bytes[at - 1].is_ascii_digit());
    let starts: Vec<usize> = (0..bytes.len()).filter(is_first).collect();
    if let Some(&start) = rng.choice(&starts) {
        let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        bytes.splice(start..start + length, NUMBERS[rng.usize(..NUMBERS.len())].bytes());
    }
}

/// The counts of a child: the damages that it has begun, and those that it has found to hold.
#[derive(Clone, Copy, Default)]
struct Counts {
    begun: u64,
    held: u64,
}

impl Counts {
    fn read(path: &Path) -> Result<Counts> {
        let bytes = fs::read(path)?;
        let number =
            |at: usize| bytes.get(at..at + 8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        Ok(Counts { begun: number(0).unwrap_or(0), held: number(8).unwrap_or(0) })
    }

    fn write(self, path: &Path) -> Result<()> {
        Ok(fs::write(path, [self.begun.to_le_bytes(), self.held.to_le_bytes()].concat())?)
    }
}

/// What the hidden command `damage` does, in its folder: damages the files of a format with these numbers and prints what does not hold.
pub(crate) fn child(work: &Work, name: &str, first: u64, last: u64) -> Result<()> {
    let format = formats::all().into_iter().find(|format| format.name == name).context("no such format")?;
    let folder = std::env::current_dir()?;
    let (at, counts) = (folder.join("files"), folder.join("counts"));
    fs::create_dir_all(&at)?;
    if fs::read_dir(&at)?.next().is_none() {
        (format.make)(work, &at)?;
    }
    let whole: Vec<(PathBuf, Vec<u8>)> = files(&at)?;
    let expected = match (format.read)(work, &at) {
        Read::Value(value) => value,
        Read::Error(problem) | Read::Broken(problem) => anyhow::bail!("{name} is not read undamaged: {problem}"),
    };
    let (mut count, started) = (Counts::default(), Instant::now());
    for number in first..last {
        if started.elapsed() > CHILD {
            break;
        }
        count.begun += 1;
        count.write(&counts)?;
        let mut rng = Rng::with_seed(work.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (path, bytes) = &whole[rng.usize(..whole.len())];
        fs::write(path, damaged(&mut rng, bytes))?;
        match problem(&format, &(format.read)(work, &at), &expected, &at) {
            None => count.held += 1,
            Some(problem) => println!("{number} {problem}"),
        }
        std::io::stdout().flush()?;
        if format.writes {
            fs::remove_dir_all(&at)?;
            for (path, bytes) in &whole {
                fs::create_dir_all(path.parent().context("no folder")?)?;
                fs::write(path, bytes)?;
            }
        } else {
            fs::write(path, bytes)?;
        }
    }
    count.write(&counts)
}

/// All files of a folder, with their bytes, in the order of their names.
fn files(folder: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.append(&mut files(&path)?);
        } else {
            let bytes = fs::read(&path)?;
            found.push((path, bytes));
        }
    }
    found.sort();
    Ok(found)
}

/// What is wrong with what came of a damaged file.
fn problem(format: &Format, read: &Read, expected: &str, folder: &Path) -> Option<String> {
    match read {
        Read::Broken(problem) => Some(problem.clone()),
        Read::Value(value) if format.rule == Rule::Noticed && value != expected => {
            Some(format!("read as another value: {} instead of {}", shown(value), shown(expected)))
        }
        Read::Value(_) => None,
        Read::Error(message) if format.place.is_in(message, folder) => None,
        Read::Error(message) => Some(format!("an error that does not say where: {}", shown(message))),
    }
}

/// The beginning of a text on one line.
fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_default).collect()
}

/// Damages the files of every format, for as long as there is time.
pub(crate) fn run(work: &Work, only: Option<&str>) -> Result<(Vec<Row>, Vec<Finding>)> {
    let mut formats: Vec<(Format, Option<u64>)> = formats::all().into_iter().map(|format| (format, None)).collect();
    if let Some(only) = only {
        let (name, number) = only.split_once(':').map_or((only, None), |(name, number)| (name, Some(number)));
        let number = number.map(str::parse).transpose().context("the number of a damage")?;
        formats.retain(|(format, _)| format.name == name);
        formats.iter_mut().for_each(|(_, only)| *only = number);
    }
    ensure!(!formats.is_empty(), "there is no such format");
    let (mut series, mut findings) = (Vec::new(), Vec::new());
    for (format, only) in formats {
        series.push(Series { folder: TempDir::new()?, format, next: only.unwrap_or(0), only, tried: 0, held: 0 });
    }
    // Round after round, so that each format gets some of the time.
    while series.iter().any(|of| of.tried == 0) || (work.has_time() && series.iter().any(|of| of.only.is_none())) {
        for (of, name, finding) in rounds(work, &mut series)? {
            let problem =
                format!("{finding}\n    {}", crate::harness::report::reproduction("damage", &name, work.seed));
            findings.push(Finding { what: of, problem });
        }
    }
    let row = |Series { format, tried, held, .. }: Series| {
        let what = format!("{} ({})", format.name, format.rule.word());
        Row { part: "damaged files", what, tried, of: None, held }
    };
    Ok((series.into_iter().map(row).collect(), findings))
}

/// The damages of one format.
struct Series {
    folder: TempDir,
    format: Format,
    next: u64,
    only: Option<u64>,
    tried: usize,
    held: usize,
}

/// Runs one child of each format, and returns what did not hold: the format, the case, the problem.
fn rounds(work: &Work, series: &mut [Series]) -> Result<Vec<(String, String, String)>> {
    let cases: Vec<std::sync::Mutex<&mut Series>> = series.iter_mut().map(std::sync::Mutex::new).collect();
    let found = std::sync::Mutex::new(Vec::new());
    work.each(
        cases,
        None,
        |_| String::new(),
        |of| {
            let mut of = of.lock().ok()?;
            let problems = of.round(work).unwrap_or_else(|error| vec![(of.next, format!("{error:#}"))]);
            let name = of.format.name;
            let problems = problems.into_iter().map(|(number, problem)| {
                eprintln!("FAILED damage {number} of {name}: {problem}");
                (format!("{name}: damage {number}"), format!("{name}:{number}"), problem)
            });
            found.lock().ok()?.extend(problems);
            None
        },
    );
    Ok(found.into_inner().unwrap_or_default())
}

impl Series {
    /// Runs a child, and returns the numbers and problems of what did not hold.
    fn round(&mut self, work: &Work) -> Result<Vec<(u64, String)>> {
        let (first, folder) = (self.next, self.folder.path());
        let last = self.only.map_or(first + SOME, |only| only + 1);
        let job = work.own(folder).with(["--remat".as_ref(), work.remat.as_os_str()]);
        let job = job.with(["--seed".to_string(), work.seed.to_string(), "damage".into(), self.format.name.into()]);
        let ended = job.with([first.to_string(), last.to_string()]).run()?;
        let Counts { begun, held } = Counts::read(&folder.join("counts")).unwrap_or_default();
        fs::remove_file(folder.join("counts")).ok();
        let number = |line: &str| {
            let (number, problem) = line.split_once(' ')?;
            Some((number.parse().ok()?, problem.to_string()))
        };
        let mut problems: Vec<(u64, String)> = ended.output.lines().filter_map(number).collect();
        if ended.ending != Ending::Code(0) {
            ensure!(begun > 0, "{}", ended.output);
            problems.push((first + begun - 1, ended.broken().unwrap_or_else(|| ended.last_line().to_string())));
            // The next child makes the files anew.
            fs::remove_dir_all(folder.join("files")).ok();
        }
        self.next = first + begun;
        self.tried += begun as usize;
        self.held += held as usize;
        Ok(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure is repeated by its seed.
    #[test]
    fn damage_depends_on_the_seed_alone() {
        let whole: Vec<u8> = b"{\"a\": 12, \"b\": [3, 4]}".repeat(20);
        let of = |seed: u64, length: usize| damaged(&mut Rng::with_seed(seed), &whole[..length]);
        let mut different = 0;
        for seed in 0..2000 {
            let length = (seed as usize) % whole.len();
            assert_eq!(of(seed, length), of(seed, length));
            different += usize::from(of(seed, length) != whole[..length]);
        }
        // Some change nothing: blocks of equal bytes are swapped, a number is replaced by itself.
        assert!(different > 1800, "{different}");
    }

    #[test]
    fn errors_have_to_say_where() {
        let format = Format {
            name: "a",
            rule: Rule::Noticed,
            place: formats::Place::File,
            writes: false,
            make: |_, _| Ok(()),
            read: |_, _| Read::Value(String::new()),
        };
        let of = |read: Read| problem(&format, &read, "1", Path::new("/tmp/x"));
        assert_eq!(of(Read::Value("1".into())), None);
        assert_eq!(of(Read::Value("2".into())).unwrap(), "read as another value: 2 instead of 1");
        assert_eq!(of(Read::Error("`/tmp/x/a` is damaged".into())), None);
        assert_eq!(of(Read::Error("damaged\n".into())).unwrap(), "an error that does not say where: damaged\\n");
        assert_eq!(of(Read::Broken("SIGABRT".into())).unwrap(), "SIGABRT");
    }
}
