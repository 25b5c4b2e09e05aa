//! From a jaxpr to a compiled program: lowering, buffers and kernels, schedule, memory plan.

mod buffers;
mod donation;
mod kernels;
mod layout;
mod loops;
mod report;
mod results;
mod text;

use remat_ir::{Jaxpr, Result};
use remat_kernels::Threads;
use remat_opt::pipeline;

use crate::plan::plan;
use crate::program::CompiledProgram;
use crate::schedule::schedule;
use crate::steps::Steps;
use kernels::Kernels;
use text::Listing;

/// Who runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user, to whom an argument can be returned as a result.
    User,
    /// A loop or a branch, which has the memory of every result ready.
    Control,
}

/// Compiles a program for these threads.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<CompiledProgram> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    let mut kernels = Kernels::new(&steps, threads)?;
    let results = kernels.results(caller)?;
    let graph = kernels.graph();
    let order = schedule(&graph);
    let plan = plan(&graph, &order)?;
    layout::program(jaxpr, kernels, results, &order, &plan)
}

/// The text of the steps that [`compile`] makes of a program, its lines but the first indented.
///
/// # Errors
/// As [`compile`].
pub(crate) fn listing(jaxpr: &Jaxpr, caller: Caller, threads: &Threads, indent: usize) -> Result<String> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    let mut kernels = Kernels::new(&steps, threads)?;
    let results = kernels.results(caller)?;
    let graph = kernels.graph();
    let order = schedule(&graph);
    let plan = plan(&graph, &order)?;
    Listing { kernels: &kernels, results: &results, order: &order, plan: &plan }.text(threads, indent)
}
