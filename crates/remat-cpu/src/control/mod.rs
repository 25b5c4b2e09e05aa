//! Control flow as kernels: the body of a scan, a while loop or a branch is a compiled program whose arena is scratch memory of the step.
//!
//! Iterations read slices of stacked arguments and write slices of stacked results in place. A carry that the body can compute in the
//! memory of its argument stays there. Any other carry alternates between the memory of the output and a second buffer.

mod body;
mod carry;
mod cond;
mod scan;
mod while_loop;

use remat_ir::{Call, Error, ErrorKind, Jaxpr, Operation, Result};
use remat_kernels::{Kernel, Threads};

use self::carry::without_constants;
use self::cond::CondKernel;
use self::scan::ScanKernel;
use self::while_loop::{WhileKernel, predicate};
use crate::compile::Caller;

/// The kernel of a loop or a branch.
///
/// # Errors
/// If a body cannot be compiled, if the operation has no evaluation, or if it is a call, which the passes inline.
pub(crate) fn kernel(op: &Call, threads: &Threads) -> Result<Box<dyn Kernel>> {
    Ok(match op {
        Call::Scan(op) => Box::new(ScanKernel::new(op, threads)?),
        Call::While(op) => Box::new(WhileKernel::new(op, threads)?),
        Call::Cond(op) => Box::new(CondKernel::new(op, threads)?),
        Call::CustomLin(op) => return Err(op.not_evaluated()),
        Call::Jit(_) | Call::Checkpoint(_) | Call::CustomJvp(_) | Call::CustomVjp(_) | Call::ShardMap(_) => {
            return Err(Error::new(ErrorKind::Internal, op.name(), "is not inlined"));
        }
    })
}

/// The bodies of a loop or a branch as the engine compiles them, with their names and callers; empty for other calls.
pub(crate) fn bodies(op: &Call) -> Vec<(String, Jaxpr, Caller)> {
    match op {
        Call::Scan(op) => {
            let body = without_constants(&op.jaxpr, op.num_consts, op.num_carry).0;
            vec![("body".to_string(), body, Caller::with_carries(op.num_consts, op.num_carry))]
        }
        Call::While(op) => {
            let count = op.body.outs.len();
            let body = without_constants(&op.body, op.body_consts, count).0;
            let condition = || ("condition".to_string(), Jaxpr::clone(&op.cond), Caller::WITHOUT_CARRIES);
            let condition = predicate(op).is_none().then(condition);
            condition
                .into_iter()
                .chain([("body".to_string(), body, Caller::with_carries(op.body_consts, count))])
                .collect()
        }
        Call::Cond(op) => {
            let name = |i: usize| format!("branch {i}");
            let branches = op.branches.iter().enumerate();
            branches.map(|(i, branch)| (name(i), Jaxpr::clone(branch), Caller::WITHOUT_CARRIES)).collect()
        }
        Call::CustomLin(_) | Call::Jit(_) | Call::Checkpoint(_) => Vec::new(),
        Call::CustomJvp(_) | Call::CustomVjp(_) | Call::ShardMap(_) => Vec::new(),
    }
}
