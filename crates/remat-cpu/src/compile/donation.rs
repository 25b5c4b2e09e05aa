//! Donated arguments: outputs that may take an argument's memory.

use oxc_index::{IndexVec, index_vec};
use remat_plan::{InPlace, Location, MemoryPlan};

use super::buffers::Owner;
use super::kernels::Kernels;
use crate::ids::{ArgId, OutId};

/// The argument whose memory each output may take. This is the plan's choice, except for arguments that the program returns and for
/// arguments of another dtype.
pub(super) fn donated_arguments(kernels: &Kernels<'_>, plan: &MemoryPlan) -> IndexVec<OutId, Option<ArgId>> {
    let (steps, buffers) = (&*kernels.steps, &kernels.buffers);
    let mut is_returned: IndexVec<ArgId, bool> = index_vec![false; buffers.arguments.len()];
    for var in steps.jaxpr.outs.iter().filter_map(|out| out.var()) {
        if let Some(buffer) = steps.values[var].base().and_then(|base| buffers.of_var(base))
            && let Owner::Argument(argument) = buffers.owner(buffer)
        {
            is_returned[argument] = true;
        }
    }
    let donation = |pair: &InPlace| {
        let Location::Buffer(target) = plan.locations[pair.output] else { return None };
        let (Owner::Argument(argument), Owner::Output(out)) = (buffers.owner(pair.input), buffers.owner(target)) else {
            return None;
        };
        let fits = buffers.aval(pair.input).dtype == buffers.aval(target).dtype && !is_returned[argument];
        fits.then_some((argument, out))
    };
    let mut donated = index_vec![None; buffers.outputs.len()];
    for (argument, out) in plan.donations.iter().filter_map(donation) {
        donated[out] = Some(argument);
    }
    donated
}
