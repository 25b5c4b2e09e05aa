//! What each policy costs in memory: the peak of a training step and the bytes that it keeps, computed before the step runs.

use anyhow::Result;
use remat::ir::MemorySpace;
use remat::report::{policy_decisions, readable_bytes, saved_residuals};
use remat::{Policy, Tensor};
use remat_command::arguments::policy;
use remat_command::table::{table, thousands};

use crate::model::Model;
use crate::policy::{LISTED, shown};

/// A table of the policies: the planned peak of a step, which `peak` computes for a policy as it prints (`None` where the device's own
/// compiler plans), then the bytes that each keeps for the backward pass of the loss: values that the step computes, without weights and
/// batch. The chosen policy is marked, and has its own row if it is not listed. Behind the table stands which names of the chosen policy
/// have no effect.
///
/// # Errors
/// If the chosen policy cannot be applied.
pub(crate) fn report(
    model: &Model,
    loss: impl Fn(&Model, Option<&Policy>) -> Tensor,
    peak: impl Fn(&str) -> Result<Option<usize>>,
    chosen: Option<&Policy>,
) -> Result<String> {
    let mut policies = LISTED.into_iter().map(policy).collect::<Result<Vec<_>>>()?;
    if !policies.iter().any(|policy| policy.as_ref() == chosen) {
        policies.push(chosen.cloned());
    }
    let mut costs = Vec::new();
    for policy in policies {
        let kept = kept(model, |model| loss(model, policy.as_ref()))?;
        costs.push((shown(policy.as_ref()), peak(&shown(policy.as_ref()))?, kept));
    }
    let plain = costs.iter().find(|(name, ..)| name == "none").and_then(|(_, peak, _)| *peak);
    let chosen_name = shown(chosen);
    let rows = costs.iter().map(|(name, peak, kept)| {
        let mark = if *name == chosen_name { "> " } else { "  " };
        let share = peak.zip(plain).map(|(peak, plain)| format!("{:.0}%", 100.0 * peak as f64 / plain.max(1) as f64));
        let host = if kept.host == 0 { String::new() } else { readable_bytes(kept.host) };
        vec![
            format!("{mark}{name}"),
            peak.map_or_else(|| "?".to_string(), readable_bytes),
            share.unwrap_or_default(),
            thousands(kept.device),
            host,
        ]
    });
    let mut text = table(&["  policy", "peak", "of none", "bytes kept", "on the host"], &rows.collect::<Vec<_>>());
    let mentioned = chosen.map(Policy::mentioned_names).unwrap_or_default();
    if mentioned.is_empty() {
        return Ok(text);
    }
    let decisions = policy_decisions(|model: &Model| loss(model, chosen), model)?;
    for name in decisions.names_without_effect().into_iter().filter(|name| mentioned.contains(*name)) {
        text += &format!(
            "\nnote: no backward pass needs the values named `{name}`: without the name, {chosen_name} keeps the same"
        );
    }
    Ok(text)
}

/// Bytes in device memory, and in the memory of the host.
struct Kept {
    device: usize,
    host: usize,
}

fn kept(model: &Model, loss: impl Fn(&Model) -> Tensor) -> Result<Kept> {
    let residuals = saved_residuals(loss, model)?;
    let host = residuals.intermediates().filter(|r| r.aval.memory == MemorySpace::Host);
    let host = host.map(|r| r.bytes()).sum();
    Ok(Kept { device: residuals.intermediate_bytes() - host, host })
}
