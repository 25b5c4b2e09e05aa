//! The least time of a step: a roofline from the published rates of chips.

use remat::ir::{DType, Jaxpr};
use remat_opt::cost::{Cost, Machine, contractions, program};
use remat_xla::{Chip, ChipMemory};

/// The work of a step on all chips together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Work {
    /// Operations of all kinds.
    pub(crate) flops: u64,
    /// Matrix products and attention.
    contractions: Cost,
}

impl Work {
    /// The work of a program.
    pub(crate) fn of(jaxpr: &Jaxpr) -> Work {
        Work { flops: program(jaxpr).flops, contractions: contractions(jaxpr) }
    }

    /// By how much the flops of products exceed those of another program, which is the recomputation.
    pub(crate) fn overhead(&self, least: &Work) -> f64 {
        self.contractions.flops as f64 / least.contractions.flops.max(1) as f64 - 1.0
    }

    /// Seconds of the products on this many chips.
    pub(crate) fn seconds(&self, machine: &Machine, chips: usize) -> f64 {
        machine.seconds(&self.contractions) / chips as f64
    }
}

/// The least seconds of a step: the largest of the times of its products at the published rate, of reading and writing their operands, of
/// gathering parameters for the forward and the backward pass and summing gradients over chips, and of transfers to the host and back. At
/// best all four overlap; work between products is not counted.
/// overlap at best; what is between products is not counted.
pub(crate) fn seconds(
    work: &Work,
    chip: &Chip,
    chips: usize,
    dtype: DType,
    parameters: u64,
    memory: &ChipMemory,
) -> f64 {
    let products = work.seconds(&chip.machine(dtype), chips);
    // Each chip receives the parts of all others.
    let gathered = 3.0 * parameters as f64 * (chips - 1) as f64 / chip.links;
    let moved = 2.0 * memory.host_temporaries as f64 / chip.host;
    products.max(gathered).max(moved)
}
