//! The names of values in a region, and the custom functions whose rules may have more.
//!
//! A policy may name what only a rule has. If the check of names misses a name, and a custom function has no rule in the program, the
//! region is traced for one derivative more to learn its names alone, and again while that shows new functions without a rule. Names that
//! the policy of an inner region mentions count as known, so nested regions are not traced again.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use remat_ir::{Call, Eqn, Jaxpr, Op, Prim, Site};

/// What tells the custom functions of a program apart: name and line.
type Function = (Arc<str>, Option<Site>);

/// The names of values, and the custom functions that differentiation may reach: those with a rule, and those without one.
#[derive(Clone, Default, Debug)]
pub(crate) struct Names {
    pub(crate) known: BTreeSet<Arc<str>>,
    with_rule: HashSet<Function>,
    without_rule: HashSet<Function>,
}

impl Names {
    /// The names in a program.
    pub(crate) fn of(jaxpr: &Jaxpr) -> Names {
        let mut names = Names::default();
        names.collect(&jaxpr.eqns);
        names
    }

    /// Adds the names of values in these equations and in their bodies.
    pub(crate) fn collect(&mut self, eqns: &[Eqn]) {
        self.collect_from(eqns, true);
    }

    /// Whether a custom function has no rule in the program, and no function of its line has one. With a trace for one derivative more it
    /// has, so there may be more names. A function that calls itself in its rule has one at last, so this ends.
    pub(crate) fn may_be_more(&self) -> bool {
        !self.without_rule.is_subset(&self.with_rule)
    }

    /// `is_differentiated` is false in a custom function, whose rule takes the place of its derivative: there, no rule is ever traced.
    fn collect_from(&mut self, eqns: &[Eqn], is_differentiated: bool) {
        for eqn in eqns {
            let function = |name: &Arc<str>| (name.clone(), eqn.loc.site);
            let custom = match &eqn.op {
                Op::Call(Call::CustomJvp(op)) => Some((function(&op.name), op.jvp.is_some(), &op.call)),
                Op::Call(Call::CustomVjp(op)) => Some((function(&op.name), op.rule.is_some(), &op.call)),
                Op::Call(Call::Checkpoint(op)) => {
                    // They have been checked, and may be those of rules that are not in this program.
                    self.known.extend(op.policy.mentioned_names());
                    None
                }
                Op::Prim(Prim::Name(op)) => {
                    self.known.extend(op.label().cloned());
                    None
                }
                _ => None,
            };
            let call = custom.as_ref().map(|(_, _, call)| *call);
            if let Some((function, has_rule, _)) = custom.filter(|_| is_differentiated) {
                if has_rule { &mut self.with_rule } else { &mut self.without_rule }.insert(function);
            }
            for body in eqn.op.bodies() {
                let is_call = call.is_some_and(|call| Arc::ptr_eq(call, body));
                self.collect_from(&body.eqns, is_differentiated && !is_call);
            }
        }
    }
}
