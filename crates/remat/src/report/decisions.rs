//! The decisions of each policy, and whether they made a difference.
//!
//! The decisions are those that partial evaluation recorded when it split the function. Saving a value has an effect only if the backward
//! pass needs the value, and recomputing it only if something there reads it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use remat_ir::{Aval, Decision, Loc, Policy, Result, Scope, Site, readable_bytes};

use crate::api::linearization::Linearization;
use crate::api::residuals::SavedKind;
use crate::trace::{Order, Output, Tree, current_loc, trace_tree_at};
use crate::transform::log::{Decisions, Entry, Log, Reason, visit_numbers};
use crate::transform::origin::Origins;
use crate::transform::{PartialEval, ResidualSource};

/// The decision of a region's policy about the values that one of the user's operations computes.
#[derive(Clone, Debug)]
pub struct PolicyDecision {
    /// The location of the region.
    pub region: Loc,
    /// The policy of the region.
    pub policy: Arc<Policy>,
    /// The dtype and shape of the value, the first result of the operation.
    pub aval: Aval,
    /// The name of the value, or the operation that computes it. The operation may exist only after differentiation, such as the `cos` of a
    /// `sin`.
    pub kind: SavedKind,
    /// Your line that computes the value, and the scope.
    pub loc: Loc,
    /// The decision.
    pub decision: Decision,
    /// The reason for the decision, or for its lack of effect.
    pub reason: Reason,
    /// The number of values at this line that the decision covers, such as one per layer of an unrolled loop.
    pub asked: usize,
    /// How many of these values the decision has an effect on: saved or offloaded ones that became residuals, or recomputed ones that the
    /// backward pass does compute again.
    pub used: usize,
}

impl PolicyDecision {
    /// Whether any of the values is kept or computed again for the backward pass.
    pub fn has_effect(&self) -> bool {
        self.used > 0
    }
}

impl fmt::Display for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decision, done) = match self.decision {
            Decision::Save => ("save".to_string(), "kept"),
            Decision::Recompute => ("recompute".to_string(), "computed again"),
            Decision::Offload(memory) => (format!("offload to {}", memory.name()), "kept"),
        };
        write!(f, "{decision} {} {} from {}: ", self.aval, self.kind, self.loc)?;
        match (self.asked, self.used) {
            (_, 0) => f.write_str("no effect")?,
            (1, _) => f.write_str(done)?,
            (asked, used) => write!(f, "{used} of {asked} {done}")?,
        }
        match &self.reason {
            Reason::Fits | Reason::Saves { .. } if !self.has_effect() => Ok(()),
            Reason::Policy | Reason::Undecided => Ok(()),
            Reason::Named(name) => write!(f, ", not to be kept as '{name}'"),
            Reason::Input => f.write_str(", an input of the region is available anyway"),
            Reason::Fits => f.write_str(", all that the backward pass needs fits the budget"),
            Reason::Saves { picoseconds, bytes } => {
                write!(f, ", saves {} of recomputation for {}", readable_time(*picoseconds), size(*bytes))
            }
            Reason::NoRoom { picoseconds, bytes, left } => {
                let (time, bytes, left) = (readable_time(*picoseconds), size(*bytes), size(*left));
                write!(f, ", would save {time} for {bytes}, and {left} of the budget are left")
            }
            Reason::Must => f.write_str(", and no planner changes that"),
            Reason::Passed => f.write_str(", passed to the backward pass by its custom rematerialization"),
            Reason::Free => f.write_str(", costs nothing to compute again"),
            Reason::Cheap => f.write_str(", cheap to compute from other residuals"),
        }
    }
}

fn size(bytes: u64) -> String {
    readable_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// A time by the cost model for people: three digits and a unit.
fn readable_time(picoseconds: u64) -> String {
    let units = [(1e12, "s"), (1e9, "ms"), (1e6, "µs"), (1e3, "ns")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| picoseconds as f64 >= *unit) else {
        return format!("{picoseconds} ps");
    };
    let time = picoseconds as f64 / unit;
    let decimals = if time >= 100.0 {
        0
    } else if time >= 10.0 {
        1
    } else {
        2
    };
    format!("{time:.decimals$} {name}")
}

/// The decisions of all policies in a function, region by region in the order of the program.
#[derive(Clone, Debug, Default)]
pub struct PolicyDecisions {
    list: Vec<PolicyDecision>,
}

impl PolicyDecisions {
    /// All decisions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PolicyDecision> {
        self.list.iter()
    }

    /// Decisions that made no difference: values that are saved but not needed, or recomputed but not read.
    pub fn without_effect(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.list.iter().filter(|d| !d.has_effect())
    }

    /// The names of values that a policy saves or offloads, but that no backward pass needs, each once, in the order of the program. Without
    /// these names the policy keeps the same values. A name is not listed if any value of it is needed.
    ///
    /// ```
    /// use remat::report::policy_decisions;
    /// use remat::{Policy, Tensor, checkpoint};
    /// let f = checkpoint(Policy::names(["first", "last"]), |x: &Tensor| x.sin().named("first").sin().named("last").sum(..));
    /// let decisions = policy_decisions(|x: &Tensor| f(x), &Tensor::from(vec![1.0f32]))?;
    /// assert_eq!(decisions.names_without_effect(), ["last"]);
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn names_without_effect(&self) -> Vec<&str> {
        let kept = self.list.iter().filter(|d| d.decision != Decision::Recompute);
        let named = kept.filter_map(|d| match &d.kind {
            SavedKind::Named(name) => Some((name.as_ref(), d.has_effect())),
            _ => None,
        });
        let named: Vec<(&str, bool)> = named.collect();
        let mut idle = Vec::new();
        for (name, _) in &named {
            if !idle.contains(name) && !named.iter().any(|(of, has_effect)| of == name && *has_effect) {
                idle.push(*name);
            }
        }
        idle
    }
}

/// Each region with its policy, then its decisions.
impl fmt::Display for PolicyDecisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut region: Option<(Place, &Arc<Policy>)> = None;
        for decision in &self.list {
            let this = (Place::of(decision.region), &decision.policy);
            if region.as_ref() != Some(&this) {
                writeln!(f, "checkpoint at {} with policy {}", decision.region, decision.policy)?;
                region = Some(this);
            }
            writeln!(f, "  {decision}")?;
        }
        Ok(())
    }
}

/// The decisions of the policies of a function's checkpointed regions when it is differentiated, for an argument with these avals, whose
/// values are not read.
///
/// With nested regions the outermost policy alone decides what the forward pass keeps, so the list has its decisions about values in the
/// inner regions.
///
/// ```
/// use remat::report::policy_decisions;
/// use remat::{Policy, Tensor, checkpoint};
/// // The sum needs no value of `last`, so that saving it has no effect.
/// let f = checkpoint(Policy::names(["first", "last"]), |x: &Tensor| x.sin().named("first").sin().named("last").sum(..));
/// let decisions = policy_decisions(|x: &Tensor| f(x), &Tensor::from(vec![1.0f32]))?;
/// let idle: Vec<String> = decisions
///     .without_effect()
///     .filter(|d| d.decision == remat::ir::Decision::Save)
///     .map(|d| d.kind.to_string())
///     .collect();
/// assert_eq!(idle, ["named 'last'"]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if an operation has no derivative.
#[track_caller]
pub fn policy_decisions<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<PolicyDecisions> {
    let (program, _) = trace_tree_at(Order::current().plus(1), x, current_loc(), &f)?;
    let num_outs = program.jaxpr.outs.len();
    let log = Log::default();
    let linearization = Linearization::logged(program, num_outs, Some(&log))?;
    Ok(PolicyDecisions { list: summary(log, &linearization.split) })
}

/// The user's line and scope, for comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place(Option<Site>, Scope);

impl Place {
    fn of(loc: Loc) -> Place {
        Place(loc.site, loc.scope)
    }
}

/// Summarises the log: one decision per line, with the number of values that had an effect. Regions with the same line and policy, such as
/// those of the layers of an unrolled loop, are merged too.
fn summary(log: Log, split: &PartialEval) -> Vec<PolicyDecision> {
    let mut origins = Origins::default();
    let kept = |residual: &ResidualSource| match *residual {
        ResidualSource::Input(_) => Vec::new(),
        ResidualSource::Out(i) => origins.find(&split.known, split.known.outs[i]).numbers,
    };
    let kept: HashSet<u32> = split.residuals.iter().flat_map(kept).collect();
    let mut recomputed: HashSet<u32> = HashSet::new();
    visit_numbers(&split.staged, &mut |number| {
        recomputed.insert(number);
    });

    let Decisions { regions, entries } = log.into_decisions();
    let is_same = |(a, p): &(Loc, Arc<Policy>), (b, q): &(Loc, Arc<Policy>)| Place::of(*a) == Place::of(*b) && p == q;
    let first_like = |region: &(Loc, Arc<Policy>)| regions.iter().position(|first| is_same(first, region));
    let firsts: Vec<Option<usize>> = regions.iter().map(first_like).collect();
    let mut list: Vec<(Option<usize>, PolicyDecision)> = Vec::new();
    let mut index: HashMap<_, usize> = HashMap::new();
    for (number, Entry { region, op, aval, loc, decision, reason }) in entries {
        let is_used = match decision {
            Decision::Save | Decision::Offload(_) => kept.contains(&number),
            Decision::Recompute => recomputed.contains(&number),
        };
        let kind = SavedKind::of(&op);
        let first = firsts[region];
        let key = (first, op, Place::of(loc), aval.clone(), decision, reason.clone());
        let i = *index.entry(key).or_insert_with(|| {
            let (region, policy) = regions[region].clone();
            list.push((first, PolicyDecision { region, policy, aval, kind, loc, decision, reason, asked: 0, used: 0 }));
            list.len() - 1
        });
        list[i].1.asked += 1;
        list[i].1.used += usize::from(is_used);
    }
    list.sort_by_key(|(first, _)| *first);
    list.into_iter().map(|(_, decision)| decision).collect()
}
