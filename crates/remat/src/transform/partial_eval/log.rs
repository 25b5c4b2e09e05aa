//! The log of policy decisions, written when the policies are called.
//!
//! The equations of a program are numbered before it is split. Copies keep the number, which is part of their location, so that an entry of
//! the log can be found in both parts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use remat_ir::{Aval, Call, Decision, Eqn, Jaxpr, Loc, Op, Policy};

/// The reason for a policy's decision, or for its lack of effect.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The policy decides this for the value.
    Policy,
    /// The policy has no rule for the value, which is then computed again.
    Undecided,
    /// The policy would keep the value, but not under this name, which it gets later.
    Named(Arc<str>),
    /// The value is a name of an input of the region, which is available anyway.
    Input,
    /// All that the backward pass needs of the region fits the budget.
    Fits,
    /// A budget keeps the value: without it, more would be computed again.
    Saves {
        /// What it saves, by the cost model.
        picoseconds: u64,
        /// The bytes of all results of the operation that are kept.
        bytes: u64,
    },
    /// A budget has no room for the value, which would save less per byte than those that it keeps.
    NoRoom {
        /// What it would save, by the cost model.
        picoseconds: u64,
        /// The bytes that it would take.
        bytes: u64,
        /// What is left of the budget.
        left: u64,
    },
    /// The policy decides this for the value, and no planner may change it.
    Must,
    /// A function with custom rematerialization passes the value to its backward pass, whatever the policy.
    Passed,
    /// It costs nothing to compute the value again: it is a view of another one.
    Free,
    /// The value may be kept, but is cheap to compute from others that are.
    Cheap,
}

/// The decision about the results of one equation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The region whose policy was asked: an index into the regions of the log.
    pub(crate) region: usize,
    pub(crate) op: Op,
    /// The aval of the first result.
    pub(crate) aval: Aval,
    pub(crate) loc: Loc,
    pub(crate) decision: Decision,
    pub(crate) reason: Reason,
}

/// The log of one split.
#[derive(Default)]
pub(crate) struct Log(RefCell<Decisions>);

/// The decisions of all policies.
#[derive(Default)]
pub(crate) struct Decisions {
    /// The checkpointed regions whose policies were asked: their locations and policies.
    pub(crate) regions: Vec<(Loc, Arc<Policy>)>,
    /// The entries by equation number, which is the order of the program.
    pub(crate) entries: BTreeMap<u32, Entry>,
}

impl Log {
    /// Starts a region. From here on its policy is called, and those of nested regions are not.
    pub(crate) fn enter(&self, loc: Loc, policy: &Arc<Policy>) {
        self.0.borrow_mut().regions.push((loc, policy.clone()));
    }

    /// Records the decision of the innermost region about the results of an equation; `aval` is that of the first.
    pub(super) fn decided(&self, eqn: &Eqn, aval: &Aval, decision: Decision, reason: Reason) {
        let mut log = self.0.borrow_mut();
        let Some(region) = log.regions.len().checked_sub(1) else { return };
        let is_all_of_budget = decision == Decision::Save && log.regions[region].1.has_budget();
        let reason = if is_all_of_budget && reason == Reason::Policy { Reason::Fits } else { reason };
        let entry = Entry { region, op: eqn.op.clone(), aval: aval.clone(), loc: eqn.loc, decision, reason };
        log.entries.insert(eqn.loc.discriminator, entry);
    }

    /// Records that a residual computed by the equation at this location is not kept, since it is cheap to compute.
    pub(super) fn dropped_as_cheap(&self, loc: Loc) {
        if let Some(entry) = self.0.borrow_mut().entries.get_mut(&loc.discriminator) {
            entry.reason = Reason::Cheap;
        }
    }

    /// The recorded decisions.
    pub(crate) fn into_decisions(self) -> Decisions {
        self.0.into_inner()
    }
}

/// Numbers the equations for which policies may be called, from 1 on.
pub(crate) fn numbered(jaxpr: &Jaxpr) -> Jaxpr {
    fn number(jaxpr: &Jaxpr, last: &mut u32) -> Jaxpr {
        let mut jaxpr = jaxpr.clone();
        for eqn in &mut jaxpr.eqns {
            *last += 1;
            eqn.loc.discriminator = *last;
            match &eqn.op {
                Op::Call(Call::Jit(_) | Call::Checkpoint(_) | Call::Scan(_) | Call::Cond(_) | Call::ShardMap(_)) => {
                    eqn.op.bodies_mut().into_iter().for_each(|body| *body = Arc::new(number(body, last)));
                }
                // To a policy these are one value.
                Op::Call(Call::While(_) | Call::CustomJvp(_) | Call::CustomVjp(_) | Call::CustomLin(_))
                | Op::Prim(_) => {}
            }
        }
        jaxpr
    }
    number(jaxpr, &mut 0)
}

/// Calls `visit` with the number of each equation of a program and its bodies; it is 0 if there is none.
pub(crate) fn visit_numbers(jaxpr: &Jaxpr, visit: &mut impl FnMut(u32)) {
    for eqn in &jaxpr.eqns {
        visit(eqn.loc.discriminator);
        eqn.op.bodies().into_iter().for_each(|body| visit_numbers(body, visit));
    }
}
