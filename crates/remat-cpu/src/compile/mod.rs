//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod candidate;
mod constraints;
mod donation;
mod fused_loops;
mod improve;
mod kernels;
mod layout;
mod numbers;
mod plans;
mod ranges;
mod report;
mod results;
mod search;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use remat_ir::{Jaxpr, Moves, Rematerialization, Result};
use remat_kernels::Threads;
use remat_opt::pipeline;
use remat_plan::Graph;

use crate::peak::Programs;
use crate::steps::Steps;

use candidate::{Candidate, Subject};
pub(crate) use constraints::{Constraints, Donated};
use improve::{Allowed, Decided};
use kernels::Controls;
use plans::{Made, Plans};

/// The caller of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user: an argument can be returned as a result.
    User,
    /// A loop or a branch, which provides the memory of every result. It donates only the arguments from the first number to before the
    /// second, the carries of a loop.
    Control([usize; 2]),
}

impl Caller {
    /// The caller of a condition or of a branch.
    pub(crate) const WITHOUT_CARRIES: Caller = Caller::Control([0; 2]);

    /// The caller of the body of a loop with this many carries, which are its arguments from this one on.
    pub(crate) fn with_carries(first: usize, count: usize) -> Caller {
        Caller::Control([first, first + count])
    }
}

/// What is compiled: the candidate that was chosen, and how it was made to fit its limit, if steps run again.
struct Chosen<'a> {
    candidate: Candidate<'a>,
    rematerialization: Option<Arc<Rematerialization>>,
    /// The moves that were made and refused on the way.
    decided: Vec<Decided>,
}

impl<'a> Subject<'a> {
    /// Plans the program. If it needs more than the limit, steps run again.
    ///
    /// # Errors
    /// If an operation cannot be run.
    fn chosen(&self) -> Result<Chosen<'a>> {
        let steps = Steps::of(pipeline::run(pipeline::CPU, self.jaxpr)?)?;
        let mut decided = Vec::new();
        let candidate = self.improved(self.candidate(steps)?, Allowed::AsBefore, &mut decided)?;
        let candidate = self.within_outputs(candidate)?;
        if self.constraints.are_met(&candidate.programs) {
            return Ok(Chosen { candidate, rematerialization: None, decided });
        }
        let Constraints { bytes, schedule, .. } = self.constraints;
        let plans = Plans::new(*self, &candidate);
        let scheduled = schedule.as_ref().map(|schedule| plans.scheduled(schedule, *bytes)).transpose()?;
        let made = match scheduled.flatten() {
            Some(made) => Some(made),
            None => plans.within(*bytes)?.map(|repeated| plans.made_again(&repeated)).transpose()?,
        };
        let Some(Made { repeated, candidate, decided }) = made else {
            return Ok(Chosen { candidate, rematerialization: None, decided });
        };
        let rematerialization = Some(Arc::new(plans.rematerialization(&repeated)));
        Ok(Chosen { candidate, rematerialization, decided })
    }
}

/// Compiles a program for these threads. Within a limit, steps run again until it fits, or needs as little memory as was found.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, constraints: &Constraints) -> Result<Programs> {
    let subject = Subject { jaxpr, caller, threads, controls: &Controls::default(), constraints };
    let Chosen { candidate, rematerialization, .. } = subject.chosen()?;
    let Candidate { kernels, keeping, donating, mut programs, .. } = candidate;
    if caller == Caller::User {
        programs.keeping.ranges = ranges::ranges(&kernels, &keeping, &programs.keeping.sources);
        if let (Some(program), Some(ordered)) = (&mut programs.donating, &donating) {
            program.ranges = ranges::ranges(&kernels, ordered, &program.sources);
        }
    }
    Ok(Programs { rematerialization, ..programs })
}

/// The text of the steps that [`compile`] makes of a program. All lines except the first are indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    let constraints = &Constraints::default();
    let subject = Subject { jaxpr, caller, threads, controls: &Controls::default(), constraints };
    subject.chosen()?.candidate.text(threads, indent)
}

/// The steps that [`compile`] makes of a program, their buffers, and the program.
///
/// # Errors
/// As [`compile`].
pub(crate) fn graph(jaxpr: &Jaxpr, threads: &Threads, constraints: &Constraints) -> Result<(Graph, Programs)> {
    let controls = Controls::default();
    let subject = Subject::for_user(jaxpr, threads, &controls, constraints);
    let candidate = subject.chosen()?.candidate;
    Ok((candidate.kernels.graph(), candidate.programs))
}

/// The moves that [`compile`] makes and refuses, in the order in which it tries them.
///
/// # Errors
/// As [`compile`].
pub(crate) fn moves(jaxpr: &Jaxpr, threads: &Threads, constraints: &Constraints) -> Result<Moves> {
    let controls = Controls::default();
    let subject = Subject::for_user(jaxpr, threads, &controls, constraints);
    let Chosen { candidate, rematerialization, decided } = subject.chosen()?;
    Ok(report::moves(candidate.steps(), &decided, rematerialization.as_deref()))
}

/// Ways to run a program in less memory, from the least bytes on: about this many, each faster than those with fewer.
///
/// # Errors
/// As [`compile`].
pub(crate) fn pareto(
    jaxpr: &Jaxpr,
    donated: Donated,
    threads: &Threads,
    points: usize,
) -> Result<Vec<Rematerialization>> {
    let (controls, constraints) = (Controls::default(), Constraints { donated, ..Constraints::default() });
    let subject = Subject::for_user(jaxpr, threads, &controls, &constraints);
    let candidate = subject.chosen()?.candidate;
    Plans::new(subject, &candidate).pareto(points)
}
