//! The least time of a step: a roofline from the published rates of chips.

use remat::ir::{DType, Jaxpr};
use remat_opt::cost::{Cost, Machine, contractions, program, unmasked_contractions};
use remat_xla::{Chip, ChipMemory};

use super::step::Parts;

/// The work of a step on all chips together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Work {
    /// Operations of all kinds.
    pub(crate) flops: u64,
    /// Matrix products and attention.
    contractions: Cost,
    /// The bytes that the optimizer reads and writes on each chip.
    update: u64,
}

impl Work {
    /// The work of a program, with an update that reads and writes this many bytes. `skips_masked` says whether it does not compute the
    /// scores that causal attention masks out: the native engine does not, XLA multiplies whole squares.
    pub(crate) fn of(jaxpr: &Jaxpr, update: u64, skips_masked: bool) -> Work {
        let contractions = if skips_masked { contractions(jaxpr) } else { unmasked_contractions(jaxpr) };
        Work { flops: program(jaxpr).flops, contractions, update }
    }

    /// By how much the flops of products exceed those of another program, which is the recomputation.
    pub(crate) fn overhead(&self, least: &Work) -> f64 {
        self.contractions.flops as f64 / least.contractions.flops.max(1) as f64 - 1.0
    }

    /// Seconds of the products on this many chips, and of the update, which comes after them.
    pub(crate) fn seconds(&self, machine: &Machine, chips: usize) -> f64 {
        machine.seconds(&self.contractions) / chips as f64 + self.update as f64 / machine.bytes
    }
}

/// The least seconds of a step: the largest of the times of its computation, of gathering parameters for the forward and the backward pass
/// and summing gradients over chips, and of transfers to the host and back. At best these overlap. The computation is that of products, at
/// the published rate or as fast as their operands can be read and written, and then of the optimizer, which reads and writes parameters,
/// gradient and state; work between products is not counted.
pub(crate) fn seconds(work: &Work, chip: &Chip, chips: usize, dtype: DType, parts: &Parts, memory: &ChipMemory) -> f64 {
    let products = work.seconds(&chip.machine(dtype), chips);
    // Each chip receives the parts of all others, for the forward and for the backward pass, and the sums of gradients.
    let bytes = 2 * parts.parameters + parts.trained;
    let gathered = bytes as f64 * (chips - 1) as f64 / chip.links;
    let moved = 2.0 * memory.host_temporaries as f64 / chip.host;
    products.max(gathered).max(moved)
}
