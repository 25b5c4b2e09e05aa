//! What each policy decided, and whether that made a difference.
//!
//! The answer of a policy that saves a value has an effect only if the backward pass needs the value, and a value that is
//! to be computed again is so only if something there reads it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use remat_ir::{Atom, Aval, Call, Checkpoint, Decision, Eqn, Jaxpr, Loc, Op, Policy, Result, Scope, VarMap};

use super::origin::{Origin, Origins};
use super::residuals::{SavedKind, kind_of};
use crate::trace::{Order, Output, Tree, current_loc, trace_tree_at};
use crate::transform::{Residual, Saving, decide, jvp, labels, partial_eval, unknown_results};

/// What the policy of a checkpointed region decided about the values that one operation of the user computes.
#[derive(Clone, Debug)]
pub struct PolicyDecision {
    /// Where the region is.
    pub region: Loc,
    /// Its policy.
    pub policy: Arc<Policy>,
    /// The value: the first result of the operation.
    pub aval: Aval,
    /// Its name or operation, which may be one that only differentiation brings, such as the `cos` of a `sin`.
    pub kind: SavedKind,
    /// The user's line and scope.
    pub loc: Loc,
    /// The decision.
    pub decision: Decision,
    /// About how many values of this line, such as those of the layers of an unrolled loop.
    pub asked: usize,
    /// How many of them became residuals, if they are to be saved or offloaded; how many the backward pass computes again,
    /// if they are to be recomputed.
    pub used: usize,
}

impl PolicyDecision {
    /// Whether the backward pass takes or computes any of the values.
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
            (_, 0) => f.write_str("no effect"),
            (1, _) => f.write_str(done),
            (asked, used) => write!(f, "{used} of {asked} {done}"),
        }
    }
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

    /// Those that made no difference: a value that is saved though nothing needs it, a value that is never computed again.
    pub fn without_effect(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.list.iter().filter(|d| !d.has_effect())
    }
}

/// Each region with its policy, then its decisions.
impl fmt::Display for PolicyDecisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut region: Option<(Site, &Arc<Policy>)> = None;
        for decision in &self.list {
            let this = (Site::of(decision.region), &decision.policy);
            if region.as_ref() != Some(&this) {
                writeln!(f, "checkpoint at {} with policy {}", decision.region, decision.policy)?;
                region = Some(this);
            }
            writeln!(f, "  {decision}")?;
        }
        Ok(())
    }
}

/// What the policies of a function's checkpointed regions decide when it is differentiated, for an argument of these avals,
/// whose values are not read.
///
/// Of nested regions the outermost policy alone decides what the forward pass keeps, so the list has its decisions about
/// the values of the inner ones.
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
    let jaxpr = &program.jaxpr;
    let captured = program.captured.len();
    let nonzero: Vec<bool> =
        jaxpr.ins.iter().enumerate().map(|(i, &v)| i >= captured && jaxpr.avals[v].dtype.is_float()).collect();
    let both = jvp(jaxpr, &nonzero, &vec![true; jaxpr.outs.len()])?.jaxpr;
    let unknown: Vec<bool> = (0..both.ins.len()).map(|i| i >= jaxpr.ins.len()).collect();
    let mut list = Vec::new();
    let mut result = Ok(());
    walk(&both, &unknown, &mut |seen| match seen {
        Seen::Known(..) => true,
        Seen::Region(eqn, op, unknown) => {
            if unknown.contains(&true) && result.is_ok() {
                result = decisions_of(eqn, op, unknown).map(|decisions| list.extend(decisions));
            }
            false
        }
    });
    result.map(|()| PolicyDecisions { list })
}

/// The user's line and scope, to compare.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Site(Option<&'static Location<'static>>, Scope);

impl Site {
    fn of(loc: Loc) -> Site {
        Site(loc.site, loc.scope)
    }
}

/// What identifies an equation across the parts of a split, but for others of its kind on the same line.
type Key = (Op, Site, Option<Aval>);

fn key(jaxpr: &Jaxpr, eqn: &Eqn) -> Key {
    (eqn.op.clone(), Site::of(eqn.loc), eqn.outs[..].first().map(|&v| jaxpr.avals[v].clone()))
}

fn decisions_of(region: &Eqn, op: &Checkpoint, unknown: &[bool]) -> Result<Vec<PolicyDecision>> {
    let body = &op.jaxpr;
    let parts = partial_eval(body, unknown, &vec![false; body.outs.len()], Saving::Policy(&op.policy))?;

    let mut kept: HashMap<Key, usize> = HashMap::new();
    let mut origins = Origins::of_policy();
    let mut counted: HashSet<*const Eqn> = HashSet::new();
    for residual in &parts.residuals {
        let Residual::Out(i) = *residual else { continue };
        let Origin::Equation(eqn, within) = origins.find(&parts.known, parts.known.outs[i]).origin else { continue };
        if counted.insert(eqn) {
            *kept.entry(key(within, eqn)).or_default() += 1;
        }
    }
    let mut recomputed: HashMap<Key, usize> = HashMap::new();
    let is_tangent: Vec<bool> = (0..parts.staged.ins.len()).map(|i| i >= parts.residuals.len()).collect();
    walk(&parts.staged, &is_tangent, &mut |seen| {
        if let Seen::Known(eqn, within) = seen {
            *recomputed.entry(key(within, eqn)).or_default() += 1;
        }
        true
    });

    let mut list: Vec<PolicyDecision> = Vec::new();
    let mut index: HashMap<Key, usize> = HashMap::new();
    let mut labels_of: HashMap<*const Jaxpr, VarMap<Vec<Arc<str>>>> = HashMap::new();
    walk(body, unknown, &mut |seen| {
        let Seen::Known(eqn, within) = seen else { return true };
        let key = key(within, eqn);
        if let Some(&i) = index.get(&key) {
            list[i].asked += 1;
            return true;
        }
        let ins: Vec<Aval> = eqn.ins.iter().map(|&a| within.atom_aval(a)).collect();
        let outs: Vec<Aval> = eqn.outs.iter().map(|&v| within.avals[v].clone()).collect();
        let Some(aval) = outs.first().cloned() else { return true };
        let labels = labels_of.entry(within).or_insert_with(|| labels(within));
        let decision = decide(&op.policy, &eqn.op, &ins, &outs, eqn.outs.iter().flat_map(|&v| &labels[v]));
        let used = match decision {
            Decision::Save | Decision::Offload(_) => kept.get(&key),
            Decision::Recompute => recomputed.get(&key),
        };
        list.push(PolicyDecision {
            region: region.loc,
            policy: op.policy.clone(),
            aval,
            kind: kind_of(&eqn.op),
            loc: eqn.loc,
            decision,
            asked: 1,
            used: used.copied().unwrap_or(0),
        });
        index.insert(key, list.len() - 1);
        true
    });
    Ok(list)
}

/// What a walk meets.
enum Seen<'a> {
    /// An equation that is one value to a policy and reads known values only, and its program.
    Known(&'a Eqn, &'a Jaxpr),
    /// A checkpointed region and which of its operands are unknown.
    Region(&'a Eqn, &'a Checkpoint, &'a [bool]),
}

/// Walks a program with these unknown inputs as partial evaluation does. `visit` says whether to walk into a region.
fn walk(jaxpr: &Jaxpr, unknown_ins: &[bool], visit: &mut dyn FnMut(Seen<'_>) -> bool) {
    let mut unknown = jaxpr.var_map(false);
    for (&var, &is_unknown) in jaxpr.ins.iter().zip(unknown_ins) {
        unknown[var] = is_unknown;
    }
    for eqn in &jaxpr.eqns {
        let mut mask: Vec<bool> = eqn.ins.iter().map(|&a| matches!(a, Atom::Var(v) if unknown[v])).collect();
        let outs = unknown_results(eqn, &mut mask);
        match &eqn.op {
            Op::Call(Call::Jit(op)) => walk(&op.jaxpr, &mask, visit),
            Op::Call(Call::Checkpoint(op)) => {
                if visit(Seen::Region(eqn, op, &mask)) {
                    walk(&op.jaxpr, &mask, visit);
                }
            }
            Op::Call(Call::Scan(op)) => walk(&op.jaxpr, &mask, visit),
            Op::Call(Call::Cond(_)) if mask[0] => {}
            Op::Call(Call::Cond(op)) => op.branches.iter().for_each(|branch| walk(branch, &mask[1..], visit)),
            Op::Call(Call::While(_) | Call::CustomJvp(_) | Call::CustomVjp(_) | Call::CustomLin(_)) | Op::Prim(_) => {
                if !mask.contains(&true) {
                    visit(Seen::Known(eqn, jaxpr));
                }
            }
        }
        for (&var, is_unknown) in eqn.outs.iter().zip(outs) {
            unknown[var] = is_unknown;
        }
    }
}
