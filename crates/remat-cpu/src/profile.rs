//! Profiles of runs: the time of each step, also of those in the bodies of loops and branches.
//!
//! The steps of a body are added up over its runs, and the step of the loop has what is left: the times of all steps are the time of the run. Bodies
//! run on the thread that runs the program, so a profile is of a thread.

// A profile runs the program.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use remat_ir::{Profile, ProfiledStep};

use crate::program::{CompiledProgram, Run, StepSource};

thread_local! {
    /// Whether this thread takes the time of what it runs.
    static IS_PROFILING: Cell<bool> = const { Cell::new(false) };
    /// The steps of bodies that have run since the last step of the program.
    static INSIDE: RefCell<Inside> = RefCell::default();
    /// The time of all steps of bodies, those of inner bodies counted once, and that by the cost model.
    static TIME_INSIDE: Cell<Times> = const { Cell::new(Times::ZERO) };
}

/// How long something took, and how long it takes by the cost model.
#[derive(Clone, Copy)]
struct Times {
    measured: Duration,
    modelled: Duration,
}

impl Times {
    const ZERO: Times = Times { measured: Duration::ZERO, modelled: Duration::ZERO };

    fn plus(self, other: Times) -> Times {
        Times { measured: self.measured + other.measured, modelled: self.modelled + other.modelled }
    }

    /// What is left without a part.
    fn without(self, part: Times) -> Times {
        let Times { measured, modelled } = part;
        Times { measured: self.measured.saturating_sub(measured), modelled: self.modelled.saturating_sub(modelled) }
    }
}

/// Steps of bodies.
#[derive(Default)]
struct Inside {
    /// Each step once, in the order of their first run.
    steps: Vec<ProfiledStep>,
    /// The place of a step among them, by the address of its body's program, which lives as long as the run, and its number there.
    places: HashMap<(usize, usize), usize>,
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
            TIME_INSIDE.set(Times::ZERO);
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
        for step in INSIDE.take().steps {
            // Where in the loop it ran is not one place: the steps follow each other from the start of the loop on.
            let (live, at) = (around + step.live.min(scratch), inside);
            inside += step.time;
            steps.push(ProfiledStep { start: at, live, ..step });
        }
        let source = &program.sources[number];
        let all = Times { measured: end - start, modelled: source.modelled() };
        let own = all.without(TIME_INSIDE.replace(Times::ZERO));
        steps.push(profiled_step(source, inside, own, program.timeline[number]));
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
    let mut known = INSIDE.with_borrow(|inside| inside.steps.len());
    let ran = |number: usize| {
        let source = &program.sources[number];
        let all = Times { measured: start.elapsed(), modelled: source.modelled() };
        let own = all.without(TIME_INSIDE.get().without(before));
        INSIDE.with_borrow_mut(|inside| {
            // The memory around an inner loop is that of this body.
            let scratch = program.steps[number].scratch.len();
            let around = program.timeline[number].saturating_sub(scratch);
            for step in &mut inside.steps[known..] {
                step.live = around + step.live.min(scratch);
            }
            let new = inside.steps.len();
            let place = *inside.places.entry((std::ptr::from_ref(program).addr(), number)).or_insert(new);
            if place == new {
                inside.steps.push(profiled_step(source, Duration::ZERO, own, program.timeline[number]));
            } else {
                let step = &mut inside.steps[place];
                step.runs += 1;
                step.time += own.measured;
                step.modelled += own.modelled;
            }
            known = inside.steps.len();
        });
        // The time of this step, and of what ran in it.
        before = before.plus(all);
        TIME_INSIDE.set(before);
        start = Instant::now();
    };
    // SAFETY: promised by the caller.
    unsafe { program.run_watched(run, ran) }
}

fn profiled_step(source: &StepSource, start: Duration, own: Times, live: usize) -> ProfiledStep {
    ProfiledStep {
        operation: source.name(),
        algorithm: source.algorithm,
        aval: source.aval.clone(),
        loc: source.loc,
        runs: 1,
        start,
        time: own.measured,
        modelled: own.modelled,
        live,
    }
}
