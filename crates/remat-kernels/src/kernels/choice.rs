//! The choice among the algorithms of a family of operations: the first one of the family's list that applies to a problem computes it.
//!
//! Some algorithms are right for finite numbers only, and compute again by another one where a result is not finite. That is the first one
//! that applies among those below them in the list.
//!
//! `REMAT_ALGORITHM` forces algorithms, for tests and benchmarks: where a forced one applies, it is chosen even if others come before it.

use std::env;
use std::ffi::OsStr;
use std::sync::OnceLock;

use remat_ir::{Error, ErrorKind, LiveValue, Result};

use super::{attention, conv, matmul};
use crate::interface::{Kernel, Source, Target};
use crate::threads::Threads;

/// Operations that are computed by one of several algorithms.
pub(crate) trait Family: Sized + 'static {
    /// An operation with the dtypes and layouts of its operands.
    type Problem<'a>;

    /// Its name in `REMAT_ALGORITHM`.
    const NAME: &'static str;

    /// Its algorithms: the first one that applies is chosen. The last one applies to every problem.
    const ALGORITHMS: &'static [Algorithm<Self>];
}

/// Makes the kernel that the algorithms below one in the list have for the same problem.
pub(crate) type Below<'a> = &'a dyn Fn() -> Box<dyn Kernel>;

/// One way to compute the problems of a family.
pub(crate) struct Algorithm<F: Family> {
    /// Its name in listings, in profiles and in `REMAT_ALGORITHM`.
    pub(crate) name: &'static str,
    /// Why it comes before those below it.
    pub(crate) why: &'static str,
    /// Whether it can compute a problem and pays for it, by the operation, the dtypes, the shapes and the CPU.
    pub(crate) applies: for<'a, 'b> fn(&'a F::Problem<'b>) -> bool,
    /// Its kernel for a problem to which it applies. `None` if the smallest step that it could take needs more memory than it is allowed,
    /// or elements are too far apart for offsets; then it does not apply.
    pub(crate) build: for<'a, 'b, 'c> fn(&'a F::Problem<'b>, Below<'c>) -> Option<Box<dyn Kernel>>,
}

/// The kernel of a problem, by the algorithm that is forced, or else by the first one that applies.
pub(crate) fn kernel<F: Family>(problem: &F::Problem<'_>) -> Box<dyn Kernel> {
    let forced = forced_algorithms().unwrap_or_default().iter().find(|(family, _)| *family == F::NAME);
    let forced = forced.and_then(|(_, name)| F::ALGORITHMS.iter().position(|algorithm| algorithm.name == *name));
    let from = forced.and_then(|i| built::<F>(problem, i));
    from.or_else(|| first::<F>(problem, 0)).expect("the last algorithm of a family computes every problem")
}

/// The kernel by the first algorithm that applies, among those of the list from this one on.
fn first<F: Family>(problem: &F::Problem<'_>, from: usize) -> Option<Box<dyn Kernel>> {
    (from..F::ALGORITHMS.len()).find_map(|i| built::<F>(problem, i))
}

/// The kernel by an algorithm of the list, if it applies.
fn built<F: Family>(problem: &F::Problem<'_>, i: usize) -> Option<Box<dyn Kernel>> {
    let algorithm = &F::ALGORITHMS[i];
    let below = || first::<F>(problem, i + 1).expect("the last algorithm of a family does without others");
    let kernel = (algorithm.applies)(problem).then(|| (algorithm.build)(problem, &below))??;
    Some(Box::new(Named { name: algorithm.name, kernel }))
}

/// A kernel with the name of its algorithm.
struct Named {
    name: &'static str,
    kernel: Box<dyn Kernel>,
}

impl Kernel for Named {
    fn algorithm(&self) -> Option<&'static str> {
        Some(self.name)
    }

    fn scratch(&self, threads: usize) -> usize {
        self.kernel.scratch(threads)
    }

    fn in_place(&self) -> &[(usize, usize)] {
        self.kernel.in_place()
    }

    fn live(&self) -> &[LiveValue] {
        self.kernel.live()
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        self.kernel.run(ins, outs, scratch, threads);
    }
}

/// An algorithm of a family, as [`algorithms`] lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlgorithmInfo {
    /// The family: `conv`, `dot` or `attention`.
    pub family: &'static str,
    /// The name in listings, in profiles and in `REMAT_ALGORITHM`.
    pub name: &'static str,
    /// Why it is chosen before those below it.
    pub why: &'static str,
}

/// The algorithms of convolutions, matrix products and attention, in the order in which they are tried.
///
/// ```
/// let of_products: Vec<_> = remat_kernels::algorithms().into_iter().filter(|info| info.family == "dot").collect();
/// assert_eq!(of_products.last().map(|info| info.name), Some("blocked"));
/// ```
pub fn algorithms() -> Vec<AlgorithmInfo> {
    fn of<F: Family>() -> impl Iterator<Item = AlgorithmInfo> {
        F::ALGORITHMS.iter().map(|&Algorithm { name, why, .. }| AlgorithmInfo { family: F::NAME, name, why })
    }
    of::<conv::Convolutions>().chain(of::<matmul::Products>()).chain(of::<attention::Attentions>()).collect()
}

/// The environment variable that forces algorithms.
const VARIABLE: &str = "REMAT_ALGORITHM";

/// The families and algorithms that `REMAT_ALGORITHM` forces, such as `conv=direct,dot=blocked`. One that does not apply to a problem is
/// not forced there: the problem is computed as if the variable did not name it. The variable is read once.
///
/// # Errors
/// If the variable has an unknown family or algorithm, or names a family twice.
pub fn forced_algorithms() -> Result<&'static [(&'static str, &'static str)]> {
    static FORCED: OnceLock<Result<Vec<(&'static str, &'static str)>>> = OnceLock::new();
    FORCED.get_or_init(|| parsed(env::var_os(VARIABLE).as_deref())).as_deref().map_err(Clone::clone)
}

fn parsed(text: Option<&OsStr>) -> Result<Vec<(&'static str, &'static str)>> {
    let text = text.unwrap_or_default().to_string_lossy();
    let all = algorithms();
    let mut forced: Vec<(&'static str, &'static str)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let found = part.split_once('=').and_then(|(family, name)| {
            all.iter().find(|info| info.family == family.trim() && info.name == name.trim())
        });
        match found {
            Some(info) if forced.iter().all(|(family, _)| *family != info.family) => {
                forced.push((info.family, info.name));
            }
            _ => return Err(unknown(&text, &all)),
        }
    }
    Ok(forced)
}

/// The error of a variable that is wrong, which lists what is right.
fn unknown(text: &str, all: &[AlgorithmInfo]) -> Error {
    let known: Vec<String> = all
        .chunk_by(|a, b| a.family == b.family)
        .map(|family| {
            let names: Vec<String> = family.iter().map(|info| format!("`{}`", info.name)).collect();
            format!("{} is one of {}", family[0].family, names.join(", "))
        })
        .collect();
    let message = format!(
        "{VARIABLE} is '{text}' and must be `FAMILY=ALGORITHM`, or several of different families with commas between them: {}",
        known.join("; ")
    );
    Error::new(ErrorKind::Argument, "compile", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_reasons_are_those_of_rows() {
        let all = algorithms();
        for (i, info) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| (other.family, other.name) != (info.family, info.name)), "{info:?}");
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(info.name.chars().all(is_word), "{info:?}");
            assert!(info.why.ends_with('.') && info.why.matches(". ").count() == 0, "one sentence: {info:?}");
        }
    }

    #[test]
    fn known_algorithms_of_different_families_are_forced() {
        let of = |text: &str| parsed(Some(OsStr::new(text))).map_err(|error| error.to_string());
        assert_eq!(parsed(None).map_err(|error| error.to_string()), Ok(Vec::new()));
        assert_eq!(of(""), Ok(Vec::new()));
        assert_eq!(of("conv=direct"), Ok(vec![("conv", "direct")]));
        assert_eq!(of("dot=blocked, conv=im2col"), Ok(vec![("dot", "blocked"), ("conv", "im2col")]));
        for info in algorithms() {
            assert_eq!(of(&format!("{}={}", info.family, info.name)), Ok(vec![(info.family, info.name)]));
        }
        for wrong in ["conv", "conv=", "=direct", "conv=fast", "dot=direct", "conv=direct,conv=im2col", "conv=direct,"]
        {
            let message = of(wrong).expect_err(wrong);
            assert!(message.starts_with(&format!("compile: REMAT_ALGORITHM is '{wrong}' and must be ")), "{message}");
            assert!(message.contains("attention is one of `few`, `tiles_unit`, `tiles`"), "{message}");
        }
    }

    /// Numbers from 0 on: even ones, those below 10, and all.
    struct Numbers;

    struct Of(u8);

    impl Kernel for Of {
        fn scratch(&self, _: usize) -> usize {
            usize::from(self.0)
        }

        fn run(&self, _: &[Source<'_>], _: &mut [Target<'_>], _: &mut [u8], _: &Threads) {}
    }

    impl Family for Numbers {
        type Problem<'a> = &'a u8;
        const NAME: &'static str = "numbers";
        const ALGORITHMS: &'static [Algorithm<Numbers>] = &[
            Algorithm {
                name: "even",
                why: "It adds one to what those below it make.",
                applies: |x| x.is_multiple_of(2),
                build: |_, below| Some(Box::new(Of(1 + below().scratch(1) as u8))),
            },
            Algorithm {
                name: "small",
                why: "It is for numbers below 10, and refuses 3 later.",
                applies: |x| **x < 10,
                build: |x, _| if **x == 3 { None } else { Some(Box::new(Of(100))) },
            },
            Algorithm { name: "any", why: "It is for all.", applies: |_| true, build: |_, _| Some(Box::new(Of(50))) },
        ];
    }

    #[test]
    fn the_first_algorithm_that_applies_is_chosen() {
        let chosen = |x: u8| {
            let kernel = kernel::<Numbers>(&&x);
            (kernel.algorithm(), kernel.scratch(1))
        };
        assert_eq!(chosen(2), (Some("even"), 101));
        assert_eq!(chosen(12), (Some("even"), 51));
        assert_eq!(chosen(5), (Some("small"), 100));
        assert_eq!(chosen(3), (Some("any"), 50));
        assert_eq!(chosen(13), (Some("any"), 50));
        // Below each of them.
        let from = |x: u8, i: usize| first::<Numbers>(&&x, i).and_then(|kernel| kernel.algorithm());
        assert_eq!([from(2, 0), from(2, 1), from(2, 2), from(2, 3)], [Some("even"), Some("small"), Some("any"), None]);
    }
}
