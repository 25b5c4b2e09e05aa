//! From a jaxpr to steps: the passes, in order.

use remat_ir::{Jaxpr, Result};

use super::check::check;
use super::ir::Steps;
use super::merge::{merge_equal, merge_reductions};
use super::moves::recompute::{duplicate, recompute};
use super::views::fused;

impl Steps {
    /// Lowers a program that has gone through [`CPU`](remat_opt::pipeline::CPU).
    ///
    /// # Errors
    /// If its steps cannot be put in order, or are wrong, which is a defect.
    pub(crate) fn of(jaxpr: Jaxpr) -> Result<Steps> {
        // Equations become views, fused loops, and steps of one equation each.
        let steps = fused(jaxpr)?;
        // Before values are stored for readers far away, since that takes memory.
        Steps::finished(recompute(steps))
    }

    /// As [`Steps::of`], but all values that readers far away need are stored: what is computed again is left to a plan.
    ///
    /// # Errors
    /// As [`Steps::of`].
    pub(crate) fn storing(jaxpr: Jaxpr) -> Result<Steps> {
        Steps::finished(fused(jaxpr)?)
    }

    /// The last passes, which save time.
    fn finished(mut steps: Steps) -> Result<Steps> {
        // Fewer equations of a loop leave room for those that are duplicated into it.
        merge_equal(&mut steps);
        let mut steps = duplicate(steps);
        // Reductions that read the same values, also the duplicated ones, share a loop and may then have equal equations.
        merge_reductions(&mut steps);
        merge_equal(&mut steps);
        check(&steps)?;
        Ok(steps)
    }
}
