//! Tests that engines with a defect do not conform, and that exclusions are checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remat_conformance::search::{Limits, search};
use remat_conformance::{
    Engine, Failure, Failures, PROPERTIES, conformance, errors_agree, many_random_numbers_agree, programs_agree,
    samples_agree_in_every_dtype,
};
use remat_ir::{
    Array, Device, Error, ErrorKind, Executable, Jaxpr, Literal, MemoryReport, MemoryStats, Reference, Result,
};

/// The defect of an engine.
#[derive(Clone, Copy, PartialEq)]
enum Defect {
    Compile,
    Run,
    Panic,
    Zeros,
    FewerResults,
    OwnWords,
    /// The second run of a program, whose arguments may be overwritten, gives zeros.
    Overwrites,
}

/// The evaluator with a defect.
struct Defective(Defect);

struct Program(Defect, Arc<dyn Executable>, AtomicBool);

fn error() -> Error {
    Error::new(ErrorKind::Internal, "engine", "is not written")
}

impl Device for Defective {
    fn name(&self) -> &str {
        "defective"
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        match self.0 {
            Defect::Compile => Err(error()),
            defect => Ok(Arc::new(Program(defect, Reference.compile(jaxpr)?, AtomicBool::new(false)))),
        }
    }
}

impl Executable for Program {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        let zeros = |outs: Vec<Array>| {
            let zero = |x: Array| Array::full(Literal::from_f64(x.dtype(), 0.0), x.shape().iter().copied());
            outs.into_iter().map(zero).collect()
        };
        let ran_before = self.2.swap(true, Ordering::SeqCst);
        match (self.0, self.1.run(args)) {
            (Defect::Run, _) => Err(error()),
            (Defect::Panic, _) => panic!("out of memory"),
            (Defect::OwnWords, Err(_)) => Err(error()),
            (Defect::FewerResults, Ok(_)) => Ok(vec![]),
            (Defect::Zeros, Ok(outs)) => Ok(zeros(outs)),
            (Defect::Overwrites, Ok(outs)) if ran_before => Ok(zeros(outs)),
            (_, result) => result,
        }
    }

    fn memory(&self) -> MemoryStats {
        self.1.memory()
    }

    fn memory_report(&self) -> MemoryReport {
        self.1.memory_report()
    }
}

/// The only failure of a property.
fn only_failure(result: std::result::Result<usize, Failures>) -> Failure {
    let mut failures = result.unwrap_err().failures;
    assert_eq!(failures.len(), 1, "{failures:?}");
    failures.remove(0)
}

#[test]
fn the_evaluator_conforms() {
    assert_eq!(errors_agree(&Engine::new(Reference)), Ok(8));
    assert_eq!(many_random_numbers_agree(&Engine::new(Reference).variant("again", Reference)), Ok(1));
}

#[test]
fn defects_are_found() {
    for (defect, message) in [
        (Defect::Compile, "defective: it fails: engine: is not written\n"),
        (Defect::Run, "defective: it fails: engine: is not written\n"),
        (Defect::Panic, "panics: out of memory"),
        (Defect::FewerResults, "defective: 0 results and not 1\n"),
        (Defect::Zeros, "defective: result 0: element 0 is 0"),
        (Defect::Overwrites, "defective: the results have other bits where arguments may be overwritten\n"),
    ] {
        let failure = only_failure(many_random_numbers_agree(&Engine::new(Defective(defect))));
        assert_eq!(failure.case, "random bits");
        assert!(failure.message.starts_with(message), "{}", failure.message);
    }
    let engine = Engine::new(Reference).variant("2 threads", Defective(Defect::Zeros));
    let failure = only_failure(many_random_numbers_agree(&engine));
    assert!(failure.message.starts_with("reference: the results have other bits with 2 threads\n"), "{failure:?}");

    let failures = errors_agree(&Engine::new(Defective(Defect::OwnWords))).unwrap_err();
    assert_eq!((failures.property, failures.cases, failures.failures.len()), ("errors_agree", 8, 8));
    assert!(failures.to_string().starts_with("errors_agree: 8 failures in 8 cases:\nprogram 0: "), "{failures}");
    assert!(failures.failures[0].message.contains("the error is\nengine: is not written\nand not\n"), "{failures}");
}

#[test]
fn memory_is_measured_with_the_allocator_that_records() {
    let failure = only_failure(many_random_numbers_agree(&Engine::new(Reference).exact()));
    assert_eq!(failure.message, "the test program's global allocator is not `Recording`");
}

#[test]
fn excluded_cases_fail() {
    let broken = || Engine::new(Defective(Defect::OwnWords));
    assert_eq!(errors_agree(&broken().excluding("errors_agree", "*", "has words of its own")), Ok(8));
    let failures = errors_agree(&broken().excluding("errors_agree", "program 3", "has words of its own")).unwrap_err();
    assert_eq!(failures.failures.len(), 7);
    assert!(failures.failures.iter().all(|failure| failure.case != "program 3"));

    let failure =
        only_failure(errors_agree(&Engine::new(Reference).excluding("errors_agree", "program 3", "once failed")));
    assert_eq!(failure.case, "program 3");
    assert_eq!(failure.message, "passes, and is excluded by \"program 3\" (once failed)");
    let failure =
        only_failure(errors_agree(&Engine::new(Reference).excluding("errors_agree", "sort *", "has no sort")));
    assert_eq!(failure.case, "sort *");
    assert_eq!(failure.message, "is excluded (has no sort), and there is no such case");
    // In any property, since none has this name.
    let failure = only_failure(errors_agree(&Engine::new(Reference).excluding("errors", "*", "has a wrong name")));
    assert_eq!(failure.message, "is excluded from \"errors\", and there is no such property");
}

#[test]
fn cases_that_are_left_out_do_not_run() {
    let broken = || Engine::new(Defective(Defect::OwnWords));
    assert_eq!(errors_agree(&broken().leaving_out("errors_agree", "*", "has words of its own")), Ok(0));
    let one = errors_agree(&Engine::new(Reference).leaving_out("errors_agree", "program 3", "is not promised"));
    assert_eq!(one, Ok(7));
    let none = errors_agree(&Engine::new(Reference).leaving_out("errors_agree", "sort *", "has no sort"));
    assert_eq!(only_failure(none).message, "is excluded (has no sort), and there is no such case");
}

/// Programs that run as one have the same failures as alone.
#[test]
fn programs_that_run_together_fail_alone() {
    let together = || Engine::new(Reference).every(15).together(7);
    let cases = programs_agree(&together()).unwrap();
    assert!(cases > 14, "{cases} cases");
    assert_eq!(programs_agree(&Engine::new(Reference).every(15)), Ok(cases));
    for defect in [Defect::Zeros, Defect::Compile, Defect::FewerResults, Defect::Overwrites] {
        let alone = programs_agree(&Engine::new(Defective(defect)).every(15)).unwrap_err();
        let together = programs_agree(&Engine::new(Defective(defect)).every(15).together(7)).unwrap_err();
        assert!(!alone.failures.is_empty());
        assert_eq!(together, alone);
    }
}

#[test]
fn operations_have_the_bounds_of_the_engine() {
    let failures = |engine: Engine| {
        let failed = samples_agree_in_every_dtype(&engine.every(7)).unwrap_err().failures;
        let is_sum = |case: &str| case.starts_with("add ") && case.ends_with("f32[]");
        failed.into_iter().filter(|failure| is_sum(&failure.case)).count()
    };
    assert!(failures(Engine::new(Defective(Defect::Zeros))) > 0);
    // A result of zero is that many roundings away.
    assert_eq!(failures(Engine::new(Defective(Defect::Zeros)).within("add", u32::MAX)), 0);
}

#[test]
fn conformance_is_all_properties() {
    // Without the allocator none of them runs a case.
    let failed = conformance(&Engine::new(Reference).exact()).unwrap_err();
    let failed: Vec<&str> = failed.iter().map(|failures| failures.property).collect();
    assert_eq!(failed, PROPERTIES.iter().map(|(property, _)| *property).collect::<Vec<_>>());
    assert!(failed.contains(&"errors_agree"));
}

#[test]
fn searches_find_wrong_results_and_name_their_seeds() {
    let limits = Limits { time: Duration::from_secs(600), comparisons: 1, seed: 3 };
    let report = search(&Defective(Defect::Zeros), &limits);
    assert_eq!(report.wrong.iter().map(|wrong| wrong.seed).collect::<Vec<_>>(), [3]);
    assert!(report.to_string().contains("\n--seed 3: "), "{report}");
    assert!(search(&Reference, &limits).wrong.is_empty());
}
