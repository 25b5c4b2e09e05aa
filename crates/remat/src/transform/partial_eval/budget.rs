//! The choice of a budget: which values a checkpointed region keeps.
//!
//! ```text
//! choose : program of the region, known inputs, bytes
//!     → everything, or the numbers of the equations whose results are kept
//! ```
//!
//! The region is split several times before the split that counts. As under `Everything`: if the residuals fit, that is the choice. And as
//! under `Nothing`: its staged part has all that would be computed again, and shows what the linear part reads, from which
//! [`graph`](super::graph) makes a graph for [`remat_plan::saved`]. Whether the choice fits is not left to the graph: the region is split by
//! it, and the bytes are counted. If they are too many, the graph has less to spend, and at last nothing.
//!
//! What must be kept is kept in each of these splits, and so is not in the graph. What is preferred is chosen first, from a graph in which
//! nothing else can be kept, and then stays like what must be kept, while the rest is chosen with what is left.

use std::collections::{BTreeMap, BTreeSet};

use remat_ir::{
    Budgeted, Decision, Error, ErrorKind, Jaxpr, Keep, MemorySpace, Op, Policy, Prim, Result, readable_bytes,
};

use super::graph::Graph;
use super::log::Reason;
use super::{PartialEval, Request, ResidualSource, Saving, split};

/// How often a choice that does not fit is made again.
const ATTEMPTS: usize = 8;

/// The values that a budget keeps in a region.
#[derive(Debug)]
pub(crate) enum Choice {
    /// All that the linear part needs fits: what this policy saves.
    Everything(Policy),
    /// These values.
    Values(Chosen),
}

/// The decisions about the equations of a region, by their numbers, where a policy that must hold leaves them open. All others are computed
/// again if they are needed.
#[derive(Clone, Debug)]
pub struct Chosen {
    must: Policy,
    decisions: BTreeMap<u32, (Decision, Reason)>,
}

impl Chosen {
    fn new(must: Policy) -> Chosen {
        Chosen { must, decisions: BTreeMap::new() }
    }

    /// What the budget may not change.
    pub(super) fn must(&self) -> &Policy {
        &self.must
    }

    /// The decisions of another choice about values that this one leaves open.
    fn and(&self, other: Chosen) -> Chosen {
        let mut all = Chosen { decisions: other.decisions, must: self.must.clone() };
        all.decisions.extend(self.decisions.clone());
        all
    }

    fn drop_all_but_kept(&mut self) {
        self.decisions.retain(|_, (decision, _)| *decision == Decision::Save);
    }

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
            Choice::Everything(policy) => Saving::Policy(policy),
            Choice::Values(chosen) => Saving::Chosen(chosen),
        }
    }
}

/// Chooses what a region with numbered equations keeps within a budget. The request is that of the split, whatever it saves.
///
/// # Errors
/// If what must be kept exceeds the budget; if the region cannot be split.
pub(crate) fn choose(operation: &str, jaxpr: &Jaxpr, request: &Request<'_>, parts: Budgeted) -> Result<Choice> {
    let Budgeted { bytes: budget, must, prefer } = parts;
    let quietly = Request { is_minimised_outside: false, log: None, ..*request };
    if budget > 0 {
        let everything = match must.is_open() {
            true => Policy::Everything,
            false => Policy::First(vec![must.clone(), Policy::Everything]),
        };
        let split = split(jaxpr, &Request { saving: Saving::Policy(&everything), ..quietly })?;
        if kept_bytes(&split) <= budget {
            return Ok(Choice::Everything(everything));
        }
    }
    let mut chosen = Chosen::new(must);
    let least = kept_bytes(&split(jaxpr, &Request { saving: Saving::Chosen(&chosen), ..quietly })?);
    if least > budget {
        return Err(exceeded(operation, budget, &chosen.must, least, jaxpr));
    }
    if budget == 0 && request.log.is_none() {
        // Nothing else is kept, and only the log asks for reasons.
        return Ok(Choice::Values(chosen));
    }
    if !prefer.is_open() {
        chosen = fill(jaxpr, &quietly, chosen, budget, Some(&prefer))?;
        chosen.drop_all_but_kept();
    }
    Ok(Choice::Values(fill(jaxpr, &quietly, chosen, budget, None)?))
}

/// Adds to a choice what saves the most recomputation within a budget, from all values or only from those that a policy saves.
fn fill(jaxpr: &Jaxpr, request: &Request<'_>, base: Chosen, budget: usize, only: Option<&Policy>) -> Result<Chosen> {
    let least = split(jaxpr, &Request { saving: Saving::Chosen(&base), ..*request })?;
    let graph = Graph::new(&least.staged, least.residuals.len(), &base.must, only);
    let choose = |room| {
        let mut chosen = Chosen::new(Policy::First(Vec::new()));
        graph.choose(room, &mut chosen);
        chosen
    };
    let mut room = budget.saturating_sub(kept_bytes(&least));
    for _ in 0..ATTEMPTS {
        let more = choose(room);
        if more.keeps_nothing() {
            return Ok(base.and(more));
        }
        let chosen = base.and(more);
        let bytes = kept_bytes(&split(jaxpr, &Request { saving: Saving::Chosen(&chosen), ..*request })?);
        if bytes <= budget {
            return Ok(chosen);
        }
        room = room.saturating_sub(bytes - budget);
    }
    Ok(base.and(choose(0)))
}

/// The error of a budget that is smaller than what has to be kept.
fn exceeded(operation: &str, budget: usize, must: &Policy, bytes: usize, jaxpr: &Jaxpr) -> Error {
    let passed = passes(jaxpr).then(|| "functions with custom rematerialization pass".to_string());
    let saved = (!must.is_open()).then(|| format!("{must} saves"));
    let what: Vec<String> = saved.into_iter().chain(passed).collect();
    let (what, bytes, budget) = (what.join(" and what "), readable_bytes(bytes), Policy::Budget(budget));
    let message = format!("what {what} takes {bytes}, which is more than {budget} allows");
    Error::new(ErrorKind::Policy, operation, message)
}

/// Whether a function in a program says itself what it keeps.
fn passes(jaxpr: &Jaxpr) -> bool {
    jaxpr.eqns.iter().any(|eqn| {
        matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep == Keep::Everyone)
            || eqn.op.bodies().into_iter().any(|body| passes(body))
    })
}

/// The bytes of the residuals that are not inputs, in the memory of the device.
fn kept_bytes(parts: &PartialEval) -> usize {
    let outs = parts.residuals.iter().filter_map(|residual| match *residual {
        ResidualSource::Out(i) => Some(i),
        ResidualSource::Input(_) => None,
    });
    let outs: BTreeSet<usize> = outs.collect();
    let avals = outs.into_iter().map(|i| parts.known.atom_aval(parts.known.outs[i]));
    avals.filter(|aval| aval.memory == MemorySpace::Device).map(|aval| aval.bytes()).sum()
}

/// The parts of a policy with a budget; `None` if it has none.
///
/// # Errors
/// If the budget cannot be combined like this.
pub(crate) fn budget_of(operation: &str, policy: &Policy) -> Result<Option<Budgeted>> {
    policy.budgeted().map_err(|message| Error::new(ErrorKind::Policy, operation, message))
}
