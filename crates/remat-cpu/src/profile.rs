//! Profiles of runs: the time of each step, also of those in the bodies of loops and branches.
//!
//! The steps of a body are added up over its runs, and the step of the loop has what is left: the times of all steps are the time of the run. Bodies
//! run on the thread that runs the program, so a profile is of a thread.

// A profile runs the program.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use remat_ir::{Profile, ProfiledStep};

use crate::program::{CompiledProgram, Run, StepSource};

thread_local! {
    /// Whether this thread takes the time of what it runs.
    static IS_PROFILING: Cell<bool> = const { Cell::new(false) };
    /// The steps of bodies that have run since the last step of the program, each once, in the order of their first run.
    static INSIDE: RefCell<Vec<BodyStep>> = const { RefCell::new(Vec::new()) };
    /// The time of all steps of bodies, those of inner bodies counted once.
    static TIME_INSIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A step of a body.
struct BodyStep {
    /// The address of the body's program, which lives as long as the run, and the number of the step in it.
    key: (usize, usize),
    step: ProfiledStep,
}

/// Whether runs of bodies on this thread are to be profiled.
pub(crate) fn is_profiling() -> bool {
    IS_PROFILING.get()
}

/// Runs a program and takes the time of each step.
///
/// # Safety
/// As [`CompiledProgram::run`].
pub(crate) unsafe fn profiled(program: &CompiledProgram, run: Run<'_>) -> Profile {
    /// Ends the profile, also if a kernel panics.
    struct Profiling;

    impl Drop for Profiling {
        fn drop(&mut self) {
            IS_PROFILING.set(false);
            INSIDE.take();
            TIME_INSIDE.set(Duration::ZERO);
        }
    }

    let profiling = Profiling;
    IS_PROFILING.set(true);
    let mut steps = Vec::with_capacity(program.steps.len());
    let begun = Instant::now();
    let mut start = Duration::ZERO;
    let ran = |number: usize| {
        let end = begun.elapsed();
        let mut inside = start;
        // The scratch memory of a loop is that of its body.
        let scratch = program.steps[number].scratch.len();
        let around = program.timeline[number].saturating_sub(scratch);
        for BodyStep { step, .. } in INSIDE.take() {
            // Where in the loop it ran is not one place: the steps follow each other from the start of the loop on.
            let (live, at) = (around + step.live.min(scratch), inside);
            inside += step.time;
            steps.push(ProfiledStep { start: at, live, ..step });
        }
        let own = (end - start).saturating_sub(TIME_INSIDE.replace(Duration::ZERO));
        steps.push(profiled_step(&program.sources[number], inside, own, program.timeline[number]));
        start = begun.elapsed();
    };
    // SAFETY: promised by the caller.
    unsafe { program.run_watched(run, ran) };
    drop(profiling);
    Profile { steps, total: start }
}

/// Runs a body in a program that is profiled.
///
/// # Safety
/// As [`CompiledProgram::run`].
pub(crate) unsafe fn run_body(program: &CompiledProgram, run: Run<'_>) {
    let mut start = Instant::now();
    let mut before = TIME_INSIDE.get();
    let ran = |number: usize| {
        let time = start.elapsed();
        let own = time.saturating_sub(TIME_INSIDE.get() - before);
        INSIDE.with_borrow_mut(|inside| {
            let key = (std::ptr::from_ref(program).addr(), number);
            let source = &program.sources[number];
            match inside.iter_mut().find(|step| step.key == key) {
                Some(BodyStep { step, .. }) => {
                    step.runs += 1;
                    step.time += own;
                    step.modelled += source.modelled();
                }
                None => {
                    let step = profiled_step(source, Duration::ZERO, own, program.timeline[number]);
                    inside.push(BodyStep { key, step });
                }
            }
        });
        // The time of this step, and of what ran in it.
        before += time;
        TIME_INSIDE.set(before);
        start = Instant::now();
    };
    // SAFETY: promised by the caller.
    unsafe { program.run_watched(run, ran) }
}

fn profiled_step(source: &StepSource, start: Duration, time: Duration, live: usize) -> ProfiledStep {
    ProfiledStep {
        operation: source.name(),
        algorithm: source.algorithm,
        aval: source.aval.clone(),
        loc: source.loc,
        runs: 1,
        start,
        time,
        modelled: source.modelled(),
        live,
    }
}
