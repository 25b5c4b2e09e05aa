//! What each policy saves of a training step, known before the step runs.

use remat::saved_residuals;

use crate::data::Batch;
use crate::model::Gpt;
use crate::policy;
use crate::table::{bytes, table, thousands};

/// A table of the policies and of the bytes that each keeps for the backward pass of the loss: values that the step
/// computes, weights and batch not counted. The chosen policy is marked, and has a row of its own if it is not listed.
///
/// # Errors
/// If the chosen policy cannot be applied.
pub(crate) fn report(model: &Gpt, batch: &Batch, chosen: &str) -> crate::Result<String> {
    let mut names: Vec<&str> = policy::LISTED.to_vec();
    if !names.contains(&chosen) {
        names.push(chosen);
    }
    let mut sizes = Vec::new();
    for name in names {
        sizes.push((name, saved(model, batch, name)?));
    }
    let plain = sizes.iter().find(|(name, _)| *name == "none").map_or(0, |(_, size)| size.total());
    let mut rows = Vec::new();
    for (name, size) in sizes {
        let mark = if name == chosen { "> " } else { "  " };
        let share = 100.0 * size.total() as f64 / plain.max(1) as f64;
        let host = if size.host == 0 { String::new() } else { bytes(size.host) };
        let cells = [thousands(size.device), bytes(size.device), host, format!("{share:.0}%")];
        rows.push(std::iter::once(format!("{mark}{name}")).chain(cells).collect());
    }
    Ok(table(&["  policy", "bytes saved", "", "on the host", "of none"], &rows))
}

/// Bytes in the memory of the device, and in that of its host.
struct Saved {
    device: usize,
    host: usize,
}

impl Saved {
    fn total(&self) -> usize {
        self.device + self.host
    }
}

fn saved(model: &Gpt, batch: &Batch, name: &str) -> crate::Result<Saved> {
    let policy = policy::parse(name)?;
    let residuals = saved_residuals(|model: &Gpt| model.loss(batch, policy.as_ref()), model).map_err(crate::line)?;
    let total = residuals.intermediate_bytes();
    let host = residuals.intermediates().filter(|r| r.aval.memory == remat::MemorySpace::Host);
    let host = host.map(|r| r.bytes()).sum();
    Ok(Saved { device: total - host, host })
}
