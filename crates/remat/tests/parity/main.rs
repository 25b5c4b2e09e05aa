//! JAX's checkpointing, case by case: inputs, values, gradients, residual lists and equation counts recorded from JAX
//! 0.10.2 in `data/parity/cases.json`, whose `accept` fields say what must agree. A residual list that is shorter than
//! JAX's is welcome; a longer one is a defect.

mod basics;
mod control;
mod differences;
mod models;
mod names;
mod support;
mod tutorial;
mod tutorial_text;

/// No case is skipped in silence: each has a test of its name in one of the modules.
#[test]
fn every_recorded_case_has_a_test() {
    let modules =
        [basics::CASES, control::CASES, differences::CASES, models::CASES, names::CASES, tutorial::CASES].concat();
    let mut covered: Vec<String> = modules.iter().map(|name| name.to_string()).collect();
    let mut recorded = support::case_names();
    covered.sort();
    recorded.sort();
    assert_eq!(covered, recorded);
    assert_eq!(recorded.len(), 41);
}
