//! The choice of a budget: which values a checkpointed region keeps.
//!
//! ```text
//! choose : program of the region, known inputs, bytes
//!     → everything, or the numbers of the equations whose results are kept
//! ```
//!
//! The region is split twice before the split that counts. As under `Everything`: if the residuals fit, that is the choice. And as under
//! `Nothing`: its staged part has all that would be computed again, and shows what the linear part reads, from which
//! [`graph`](super::graph) makes a graph for [`remat_plan::saved`]. Whether the choice fits is not left to the graph: the region is split by
//! it, and the bytes are counted. If they are too many, the graph has less to spend, and at last nothing.

use std::collections::{BTreeMap, BTreeSet};

use remat_ir::{Decision, Error, ErrorKind, Jaxpr, Policy, Result};

use super::graph::Graph;
use super::log::Reason;
use super::{PartialEval, Request, ResidualSource, Saving, split};

/// How often a choice that does not fit is made again.
const ATTEMPTS: usize = 8;

/// The values that a budget keeps in a region.
#[derive(Debug)]
pub(crate) enum Choice {
    /// All that the linear part needs fits.
    Everything,
    /// These values.
    Values(Chosen),
}

/// The decisions about the equations of a region, by their numbers. All others are computed again if they are needed.
#[derive(Debug, Default)]
pub struct Chosen {
    decisions: BTreeMap<u32, (Decision, Reason)>,
}

impl Chosen {
    /// Records the decision about an equation.
    pub(super) fn decide(&mut self, number: u32, decision: Decision, reason: Reason) {
        self.decisions.insert(number, (decision, reason));
    }

    /// The decision about the results of the equation with this number.
    pub(super) fn decision(&self, number: u32) -> (Decision, Reason) {
        self.decisions.get(&number).cloned().unwrap_or((Decision::Recompute, Reason::Policy))
    }

    fn keeps_nothing(&self) -> bool {
        !self.decisions.values().any(|(decision, _)| *decision == Decision::Save)
    }
}

impl Choice {
    /// How the region is split.
    pub(crate) fn saving(&self) -> Saving<'_> {
        match self {
            Choice::Everything => Saving::Policy(&Policy::Everything),
            Choice::Values(chosen) => Saving::Chosen(chosen),
        }
    }
}

/// Chooses what a region with numbered equations keeps within a budget. The request is that of the split, whatever it saves.
pub(crate) fn choose(jaxpr: &Jaxpr, request: &Request<'_>, budget: usize) -> Result<Choice> {
    let quietly = Request { is_minimised_outside: false, log: None, ..*request };
    if budget == 0 {
        // Nothing is kept, and only the log asks for reasons.
        if request.log.is_none() {
            return Ok(Choice::Values(Chosen::default()));
        }
    } else {
        let everything = split(jaxpr, &Request { saving: Saving::Policy(&Policy::Everything), ..quietly })?;
        if kept_bytes(&everything) <= budget {
            return Ok(Choice::Everything);
        }
    }
    let nothing = split(jaxpr, &Request { saving: Saving::Policy(&Policy::Nothing), ..quietly })?;
    let graph = Graph::new(&nothing.staged, nothing.residuals.len());
    let mut room = budget;
    for _ in 0..ATTEMPTS {
        let chosen = graph.choose(room);
        if chosen.keeps_nothing() {
            return Ok(Choice::Values(chosen));
        }
        let bytes = kept_bytes(&split(jaxpr, &Request { saving: Saving::Chosen(&chosen), ..quietly })?);
        if bytes <= budget {
            return Ok(Choice::Values(chosen));
        }
        room = room.saturating_sub(bytes - budget);
    }
    Ok(Choice::Values(graph.choose(0)))
}

/// The bytes of the residuals that are not inputs.
fn kept_bytes(parts: &PartialEval) -> usize {
    let outs = parts.residuals.iter().filter_map(|residual| match *residual {
        ResidualSource::Out(i) => Some(i),
        ResidualSource::Input(_) => None,
    });
    let outs: BTreeSet<usize> = outs.collect();
    outs.into_iter().map(|i| parts.known.atom_aval(parts.known.outs[i]).bytes()).sum()
}

/// Fails if the policy of an operation combines a budget with another policy.
pub(crate) fn expect_alone(operation: &str, policy: &Policy) -> Result<()> {
    let Some((budget, others)) = policy.combined_budget() else { return Ok(()) };
    let message = format!(
        "the policy {policy} combines {budget} with {others}; a budget decides about all values together, so it stands alone"
    );
    Err(Error::new(ErrorKind::Policy, operation, message))
}
