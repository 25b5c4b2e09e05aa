//! What all parts share: the programs, the time that is left, and cases that are spread over the processors.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::harness::process::Job;
use crate::harness::report::{Finding, reproduction};

/// A model that trains in a fraction of a second.
pub(crate) const SMALL: &str = "--text text.txt --layers 1 --width 16 --heads 2 --context 12 --batch 4";

/// The variable with the path of XLA's plugin for CPUs.
pub(crate) const PLUGIN: &str = "REMAT_PJRT_PLUGIN_CPU";

/// What a part of the harness works with.
pub(crate) struct Work {
    /// The `remat` command.
    pub(crate) remat: PathBuf,
    pub(crate) seed: u64,
    /// When this part has to be done; a case that has begun is finished.
    pub(crate) until: Instant,
}

/// The cases that were tried, with what is wrong.
pub(crate) struct Results<C> {
    seed: u64,
    cases: Vec<(C, String, Option<Finding>)>,
}

/// How many of some cases there were.
pub(crate) struct Count {
    pub(crate) tried: usize,
    pub(crate) held: usize,
}

impl Work {
    /// The `remat` command in a folder.
    pub(crate) fn remat(&self, folder: &Path) -> Job {
        Job::new(&self.remat, folder)
    }

    /// This program in a folder.
    pub(crate) fn own(&self, folder: &Path) -> Job {
        let own = std::env::current_exe().unwrap_or_else(|_| "remat-faults".into());
        Job::new(&own, folder)
    }

    /// Whether there is XLA's plugin for CPUs.
    pub(crate) fn has_plugin(&self) -> bool {
        std::env::var_os(PLUGIN).is_some_and(|path| Path::new(&path).exists())
    }

    /// Writes the text that small models are trained on.
    pub(crate) fn text(&self, folder: &Path) -> Result<()> {
        Ok(fs::write(folder.join("text.txt"), "to be or not to be, that is the question.\n".repeat(60))?)
    }

    pub(crate) fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// Tries cases in a random order on all processors, until there is no time left; at least one. If `only` is the name of a case or its
    /// beginning, up to a colon, only those.
    pub(crate) fn each<C: Send + Sync>(
        &self,
        mut cases: Vec<C>,
        only: Option<&str>,
        name: impl Fn(&C) -> String + Sync,
        tried: impl Fn(&C) -> Option<Finding> + Sync,
    ) -> Results<C> {
        let is_asked_for = |name: &str| {
            only.is_none_or(|only| name.strip_prefix(only).is_some_and(|rest| rest.is_empty() || rest.starts_with(':')))
        };
        cases.retain(|case| is_asked_for(&name(case)));
        fastrand::Rng::with_seed(self.seed).shuffle(&mut cases);
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(case) = cases.get(at).filter(|_| at == 0 || self.has_time()) else { break };
                        let finding = tried(case);
                        if let Some(Finding { what, problem }) = &finding {
                            eprintln!("FAILED {what}: {problem}");
                        }
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((at, finding));
                    }
                });
            }
        });
        let mut cases: Vec<Option<C>> = cases.into_iter().map(Some).collect();
        let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        let with_name = |(at, finding): (usize, Option<Finding>)| {
            let case = cases.get_mut(at)?.take()?;
            let name = name(&case);
            Some((case, name, finding))
        };
        Results { seed: self.seed, cases: done.into_iter().filter_map(with_name).collect() }
    }
}

impl<C> Results<C> {
    /// How many there were of some of the cases.
    pub(crate) fn of(&self, some: impl Fn(&C) -> bool) -> Count {
        let of = self.cases.iter().filter(|(case, ..)| some(case));
        let (tried, held) =
            of.fold((0, 0), |(tried, held), (.., problem)| (tried + 1, held + usize::from(problem.is_none())));
        Count { tried, held }
    }

    /// What failed, each with the command that repeats it.
    pub(crate) fn findings(self, part: &str) -> Vec<Finding> {
        let with = |(_, name, finding): (C, String, Option<Finding>)| {
            let Finding { what, problem } = finding?;
            Some(Finding { what, problem: format!("{problem}\n    {}", reproduction(part, &name, self.seed)) })
        };
        self.cases.into_iter().filter_map(with).collect()
    }
}

/// Copies a folder with its subfolders.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&to)?;
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to).with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}
