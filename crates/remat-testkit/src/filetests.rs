//! Tests in text files.
//!
//! A file has any number of cases. A case is a command with arguments, comments, a program, and the output of the command:
//!
//! ```text
//! // run: print width=60
//! // A short program stands on one line.
//! { lambda ; a:f32[]. let
//!     b:f32[] = sin a
//!   in (b,) }
//! // expect:
//! { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
//! ```
//!
//! For invalid programs and failing commands the output is `error: ` and the message. The environment variable `BLESS=1` rewrites the
//! expectations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use remat_ir::{Error, ErrorKind, Jaxpr, Result};

use crate::sized::is_set;

const RUN: &str = "// run:";
const EXPECT: &str = "// expect:";

/// The arguments of a command: words, and `name=value` pairs.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(&'a str);

impl<'a> Args<'a> {
    /// The words in order.
    pub fn words(self) -> impl Iterator<Item = &'a str> {
        self.0.split_whitespace()
    }

    /// Whether the word is there.
    pub fn has(self, word: &str) -> bool {
        self.words().any(|w| w == word)
    }

    /// The value of `name=value`, if it is there.
    ///
    /// # Errors
    /// If the value is of another type.
    pub fn get<T: std::str::FromStr>(self, name: &str) -> Result<Option<T>> {
        let value = self.words().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        let malformed = |text| Error::new(ErrorKind::Argument, "run", format!("`{name}={text}` is malformed"));
        value.map(|text| text.parse().map_err(|_| malformed(text))).transpose()
    }
}

type Run = Box<dyn Fn(&Jaxpr, Args<'_>) -> Result<String>>;

/// The commands that file tests may run.
#[derive(Default)]
pub struct FileTests {
    /// By name: whether the program must be valid, and the function.
    commands: BTreeMap<&'static str, (bool, Run)>,
}

impl FileTests {
    /// No commands.
    pub fn new() -> FileTests {
        FileTests::default()
    }

    /// Adds a command that takes valid programs.
    pub fn command(
        mut self,
        name: &'static str,
        run: impl Fn(&Jaxpr, Args<'_>) -> Result<String> + 'static,
    ) -> FileTests {
        self.commands.insert(name, (true, Box::new(run)));
        self
    }

    /// Adds a command that takes programs with faults.
    pub fn unchecked_command(
        mut self,
        name: &'static str,
        run: impl Fn(&Jaxpr, Args<'_>) -> Result<String> + 'static,
    ) -> FileTests {
        self.commands.insert(name, (false, Box::new(run)));
        self
    }

    /// Runs every case of every `.txt` file of a directory, or rewrites the expectations if `BLESS` is set.
    ///
    /// # Errors
    /// A report of the cases with unexpected output, or of what prevented the tests from running.
    pub fn run(&self, dir: impl AsRef<Path>) -> Result<(), String> {
        let bless = is_set("BLESS");
        let dir = dir.as_ref();
        let files = text_files(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        if files.is_empty() {
            return Err(format!("{} has no tests", dir.display()));
        }
        let mut report = String::new();
        for path in files {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let (blessed, failures) = self.run_text(&text, &path.display().to_string())?;
            if !bless {
                report.push_str(&failures);
            } else if blessed != text {
                fs::write(&path, blessed).map_err(|e| format!("{}: {e}", path.display()))?;
            }
        }
        if report.is_empty() { Ok(()) } else { Err(format!("{report}\nBLESS=1 rewrites the expectations")) }
    }

    /// The text with the expectations rewritten, and a report of those that were not met.
    fn run_text(&self, text: &str, file: &str) -> Result<(String, String), String> {
        let (mut blessed, mut report) = (String::new(), String::new());
        for case in cases(text).map_err(|(line, e)| format!("{file}:{line}: {e}"))? {
            let got = self.run_case(&case).map_err(|e| format!("{file}:{}: {e}", case.line))?;
            if got != case.expected {
                report.push_str(&format!(
                    "{file}:{}: {RUN} {}\n--- expected\n{}\n--- got\n{got}\n\n",
                    case.line, case.command, case.expected
                ));
            }
            if !blessed.is_empty() {
                blessed.push('\n');
            }
            for part in [case.head, case.program, EXPECT, &got] {
                blessed.push_str(part);
                blessed.push('\n');
            }
        }
        Ok((blessed, report))
    }

    fn run_case(&self, case: &Case<'_>) -> Result<String, String> {
        let (name, args) = case.command.split_once(' ').unwrap_or((case.command, ""));
        let Some((checked, run)) = self.commands.get(name) else {
            let names: Vec<&str> = self.commands.keys().copied().collect();
            return Err(format!("there is no command `{name}`, only {}", names.join(", ")));
        };
        let parsed = if *checked { Jaxpr::parse(case.program) } else { Jaxpr::parse_unchecked(case.program) };
        let result = parsed.and_then(|jaxpr| run(&jaxpr, Args(args)));
        let text = result.unwrap_or_else(|error| format!("error: {error}"));
        Ok(text.trim_end().to_string())
    }
}

/// One test.
struct Case<'t> {
    /// The number of the line that has the command.
    line: usize,
    /// The command with its arguments.
    command: &'t str,
    /// The line of the command and the comments below it.
    head: &'t str,
    program: &'t str,
    expected: &'t str,
}

fn cases(text: &str) -> Result<Vec<Case<'_>>, (usize, String)> {
    let starts: Vec<usize> = lines(text).filter(|(_, line)| line.starts_with(RUN)).map(|(at, _)| at).collect();
    let number = |at: usize| text[..at].matches('\n').count() + 1;
    if !text[..starts.first().copied().unwrap_or(text.len())].trim().is_empty() {
        return Err((1, format!("the first line has to begin with `{RUN}`")));
    }
    let mut cases = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let case = &text[start..starts.get(i + 1).copied().unwrap_or(text.len())];
        let body = lines(case).find(|(_, line)| !line.starts_with("//") || line.starts_with(EXPECT));
        let (head, rest) = case.split_at(body.map_or(case.len(), |(at, _)| at));
        let Some((expect, _)) = lines(rest).find(|(_, line)| line.trim_end() == EXPECT) else {
            return Err((number(start), format!("the case has no line `{EXPECT}`")));
        };
        let command = lines(head).next().map_or("", |(_, line)| line);
        cases.push(Case {
            line: number(start),
            command: command[RUN.len()..].trim(),
            head: head.trim_end(),
            program: rest[..expect].trim(),
            expected: rest[expect + EXPECT.len()..].trim_matches('\n').trim_end(),
        });
    }
    Ok(cases)
}

/// The lines with the bytes at which they begin.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        at += line.len();
        (at - line.len(), line.trim_end_matches('\n'))
    })
}

fn text_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().filter(|p| p.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> FileTests {
        FileTests::new()
            .command("count", |jaxpr, args| {
                Ok(format!("{} of {}", jaxpr.eqns.len(), args.get::<usize>("of")?.unwrap_or(0)))
            })
            .unchecked_command("faults", |jaxpr, _| {
                remat_ir::check(jaxpr).map(|()| "none".to_string()).map_err(Error::from)
            })
    }

    #[test]
    fn a_file_has_cases_and_blessing_rewrites_what_is_expected() {
        let text = "\
// run: count of=3
// A comment.
{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
// expect:
2 of 3

// run: count of=x
{ lambda ; . let in () }
// expect:
error: run: `of=x` is malformed
";
        let (blessed, report) = tests().run_text(text, "t.txt").unwrap();
        assert_eq!(blessed, text.replace("2 of 3", "1 of 3"));
        assert_eq!(report, "t.txt:1: // run: count of=3\n--- expected\n2 of 3\n--- got\n1 of 3\n\n");
        assert_eq!(tests().run_text(&blessed, "t.txt").unwrap(), (blessed.clone(), String::new()));
    }

    #[test]
    fn malformed_files_are_reported() {
        let error = |text: &str| tests().run_text(text, "t.txt").unwrap_err();
        assert_eq!(error("program\n"), "t.txt:1: the first line has to begin with `// run:`");
        assert_eq!(error("\n// run: count\n{}\n"), "t.txt:2: the case has no line `// expect:`");
        let unknown = error("// run: fold\n{ lambda ; . let in () }\n// expect:\n");
        assert_eq!(unknown, "t.txt:1: there is no command `fold`, only count, faults");
        assert!(tests().run("no/such/directory").unwrap_err().starts_with("no/such/directory: "));
    }
}
