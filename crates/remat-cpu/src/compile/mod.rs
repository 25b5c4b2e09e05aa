//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod donation;
mod kernels;
mod layout;
mod loops;
mod report;
mod results;
mod text;

use oxc_index::IndexVec;
use remat_ir::{Jaxpr, Result};
use remat_kernels::Threads;
use remat_opt::pipeline;

use crate::ids::{ResultId, StepId};
use crate::plan::{Plan, plan};
use crate::program::{CompiledProgram, ProgramResult};
use crate::schedule::schedule;
use crate::steps::Steps;
use kernels::Kernels;

/// Who runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user, to whom an argument can be returned as a result.
    User,
    /// A loop or a branch, which has the memory of every result ready.
    Control,
}

/// A program whose steps have kernels, an order and memory.
struct Planned<'a> {
    kernels: Kernels<'a>,
    results: IndexVec<ResultId, ProgramResult>,
    order: Vec<StepId>,
    plan: Plan,
}

impl<'a> Planned<'a> {
    /// # Errors
    /// If there is no kernel for a step, or the plan is wrong.
    fn new(steps: &'a Steps, caller: Caller, threads: &'a Threads) -> Result<Planned<'a>> {
        let mut kernels = Kernels::new(steps, threads)?;
        let results = kernels.results(caller)?;
        let graph = kernels.graph();
        let order = schedule(&graph);
        let plan = plan(&graph, &order)?;
        Ok(Planned { kernels, results, order, plan })
    }
}

/// The steps of a program, after the passes.
fn steps(jaxpr: &Jaxpr) -> Result<Steps> {
    Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)
}

/// Compiles a program for these threads.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<CompiledProgram> {
    layout::program(jaxpr, Planned::new(&steps(jaxpr)?, caller, threads)?)
}

/// The text of the steps that [`compile`] makes of a program, its lines but the first indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    Planned::new(&steps(jaxpr)?, caller, threads)?.text(threads, indent)
}
