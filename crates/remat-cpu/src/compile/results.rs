//! The results of a program. Each is an argument, an output, or the same as an earlier result.

use oxc_index::{IndexVec, index_vec};
use remat_ir::Result;

use super::Caller;
use super::buffers::Owner;
use super::kernels::Kernels;
use crate::ids::{OutId, ResultId};
use crate::program::ProgramResult;

impl Kernels<'_> {
    /// The results of the program. A value that no step computes into an output is copied into one.
    pub(super) fn results(&mut self) -> Result<IndexVec<ResultId, ProgramResult>> {
        let steps = self.steps.clone();
        // The first result that is each output.
        let mut first: IndexVec<OutId, Option<ResultId>> = index_vec![None; self.buffers.outputs.len()];
        let mut results: IndexVec<ResultId, ProgramResult> = IndexVec::with_capacity(steps.jaxpr.outs.len());
        for &atom in &steps.jaxpr.outs {
            let value = steps.value(atom);
            let owner = self.buffers.whole_buffer(&value).map(|buffer| self.buffers.owner(buffer));
            let result = match (owner, self.subject.caller) {
                (Some(Owner::Argument(argument)), Caller::User) => ProgramResult::Argument(argument),
                (Some(Owner::Output(out)), _) if first[out].is_none() => ProgramResult::Output(out),
                (Some(Owner::Output(out)), Caller::User) => {
                    first[out].map_or(ProgramResult::Output(out), ProgramResult::Same)
                }
                _ => {
                    let out = self.buffers.output(&steps.jaxpr.atom_aval(atom));
                    self.copy(None, &value, self.buffers.outputs[out])?;
                    first.push(None);
                    ProgramResult::Output(out)
                }
            };
            let number = results.push(result);
            if let ProgramResult::Output(out) = result {
                first[out] = Some(number);
            }
        }
        Ok(results)
    }
}
