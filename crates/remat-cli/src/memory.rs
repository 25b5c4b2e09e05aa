//! The bytes that each policy saves in a training step, computed before the step runs.

use anyhow::Result;
use remat::ir::MemorySpace;
use remat::report::saved_residuals;
use remat::{Policy, Tensor};
use remat_cli::arguments::{policy, policy_name};
use remat_cli::table::{table, thousands};

use crate::model::Model;
use crate::policy::LISTED;

/// A table of the policies and of the bytes that each keeps for the backward pass of the loss: values that the step computes, without
/// weights and batch. The chosen policy is marked, and has its own row if it is not listed.
///
/// # Errors
/// If the chosen policy cannot be applied.
pub(crate) fn report(
    model: &Model,
    loss: impl Fn(&Model, Option<&Policy>) -> Tensor,
    chosen: Option<&Policy>,
) -> Result<String> {
    let mut policies = LISTED.into_iter().map(policy).collect::<Result<Vec<_>>>()?;
    if !policies.iter().any(|policy| policy.as_ref() == chosen) {
        policies.push(chosen.cloned());
    }
    let mut sizes = Vec::new();
    for policy in policies {
        sizes.push((saved(model, |model| loss(model, policy.as_ref()))?, policy));
    }
    let plain = sizes.iter().find(|(_, policy)| policy.is_none()).map_or(0, |(size, _)| size.total());
    let rows = sizes.iter().map(|(size, policy)| {
        let mark = if policy.as_ref() == chosen { "> " } else { "  " };
        let share = 100.0 * size.total() as f64 / plain.max(1) as f64;
        let host = if size.host == 0 { String::new() } else { remat::report::readable_bytes(size.host) };
        let cells = [thousands(size.device), remat::report::readable_bytes(size.device), host, format!("{share:.0}%")];
        std::iter::once(format!("{mark}{}", policy_name(policy.as_ref()))).chain(cells).collect()
    });
    Ok(table(&["  policy", "bytes saved", "", "on the host", "of none"], &rows.collect::<Vec<_>>()))
}

/// Bytes in device memory, and in the memory of the host.
struct Saved {
    device: usize,
    host: usize,
}

impl Saved {
    fn total(&self) -> usize {
        self.device + self.host
    }
}

fn saved(model: &Model, loss: impl Fn(&Model) -> Tensor) -> Result<Saved> {
    let residuals = saved_residuals(loss, model)?;
    let total = residuals.intermediate_bytes();
    let host = residuals.intermediates().filter(|r| r.aval.memory == MemorySpace::Host);
    let host = host.map(|r| r.bytes()).sum();
    Ok(Saved { device: total - host, host })
}
