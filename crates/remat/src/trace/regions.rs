//! Selected named scopes, which become checkpointed regions.
//!
//! While a function runs under a selection, the predicate is called for each named scope that it enters, and the equations traced in a
//! selected scope are recorded as a range; they are consecutive, since a scope runs at one time. When the trace ends, each range becomes
//! the body of a `checkpoint` equation, inner ones first. So a region is the same as a `checkpoint` around the scope.
//!
//! Two calls of one layer are two ranges, and the results of a region are the values that are read later. The bodies of loops are traces of
//! their own, so layers in them are selected, too. In the finished program two consecutive layers would look like one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use remat_ir::{Atom, Builder, Checkpoint, Eqn, Jaxpr, Loc, Policy, Scope, Var, VarMap};

use super::tracer::{TraceId, Tracer};
use super::{InRegion, Names, Order};

thread_local! {
    static ACTIVE: RefCell<Vec<Rc<Selection>>> = const { RefCell::new(Vec::new()) };
    /// The number of loops whose bodies are being traced.
    static LOOPS: Cell<usize> = const { Cell::new(0) };
}

/// The body of a loop that is being traced, until this is dropped.
pub(crate) struct InLoop(());

impl InLoop {
    pub(crate) fn enter() -> InLoop {
        LOOPS.set(LOOPS.get() + 1);
        InLoop(())
    }
}

impl Drop for InLoop {
    fn drop(&mut self) {
        LOOPS.set(LOOPS.get() - 1);
    }
}

/// A predicate for the scopes that become regions, and what it has met.
pub(crate) struct Selection {
    /// Whether the scope with this path is selected. It is called once for each entered scope.
    pub(crate) takes: Box<dyn Fn(&str) -> bool>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) seen: RefCell<Seen>,
}

/// The scopes that a selection has met.
#[derive(Default)]
pub(crate) struct Seen {
    /// The paths of all scopes, and how often each was entered; twice for once in the body of a loop.
    pub(crate) scopes: BTreeMap<Arc<str>, usize>,
    /// The number of selected scopes.
    pub(crate) selected: usize,
    /// The names of values in them.
    pub(crate) names: Names,
}

/// Runs `f` under a selection, in addition to those already active.
pub(crate) fn with_selection<R>(selection: Rc<Selection>, f: impl FnOnce() -> R) -> R {
    ACTIVE.with_borrow_mut(|active| active.push(selection));
    let _end = End;
    f()
}

/// Ends the selection, even if the function panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        ACTIVE.with_borrow_mut(|active| drop(active.pop()));
    }
}

/// Whether a selection is active. A program must then not be taken from a cache or put there.
pub(crate) fn is_selecting() -> bool {
    ACTIVE.with_borrow(|active| !active.is_empty())
}

/// A selected scope that has been entered.
pub(super) struct Entered {
    trace: TraceId,
    start: usize,
    scope: Scope,
    /// The selections that select it, the innermost first.
    by: Vec<Rc<Selection>>,
    /// Ends with the scope.
    _region: InRegion,
}

/// Must be called when a scope is entered.
pub(super) fn enter(scope: Scope) -> Option<Entered> {
    if !is_selecting() {
        return None;
    }
    let path = scope.path();
    // A predicate is user code and may use tensors, so nothing is borrowed while it runs.
    let mut by = ACTIVE.with_borrow(|active| active.iter().rev().cloned().collect::<Vec<_>>());
    by.retain(|selection| {
        let is_taken = (selection.takes)(&path);
        let mut seen = selection.seen.borrow_mut();
        *seen.scopes.entry(path.clone()).or_default() += if LOOPS.get() > 0 { 2 } else { 1 };
        seen.selected += usize::from(is_taken);
        is_taken
    });
    let (trace, start) = Tracer::with_innermost(|tracer, _| (tracer.id(), tracer.builder.len()))?;
    let _region = InRegion::enter(by.last()?.policy.clone(), Order::current());
    Some(Entered { trace, start, scope, by, _region })
}

/// Must be called when the scope ends.
pub(super) fn leave(entered: Entered) {
    let Entered { trace, start, scope, by, _region } = entered;
    Tracer::with_innermost(|tracer, _| {
        if tracer.id() != trace {
            return;
        }
        let range = start..tracer.builder.len();
        let eqns = &tracer.builder.peek().eqns[range.clone()];
        let loc = eqns.first().map_or(Loc::UNKNOWN, |eqn| Loc { scope, ..eqn.loc });
        for selection in &by {
            selection.seen.borrow_mut().names.collect(eqns);
        }
        let regions = by.iter().map(|selection| Region { range: range.clone(), policy: selection.policy.clone(), loc });
        tracer.regions.extend(regions);
    });
}

/// Consecutive equations that become a region.
pub(super) struct Region {
    range: Range<usize>,
    policy: Arc<Policy>,
    loc: Loc,
}

/// Groups the equations of a program into these regions, which are listed inner ones first.
pub(super) fn group(mut jaxpr: Jaxpr, regions: &[Region]) -> Jaxpr {
    // The equation that reads a variable last; outputs are read after all.
    let mut last_use: VarMap<Option<usize>> = jaxpr.var_map(None);
    for (i, eqn) in jaxpr.eqns.iter().enumerate() {
        for var in eqn.ins.iter().filter_map(|atom| atom.var()) {
            last_use[var] = Some(i);
        }
    }
    for var in jaxpr.outs.iter().filter_map(|atom| atom.var()) {
        last_use[var] = Some(usize::MAX);
    }
    // Each equation with the number that it, or the first equation of its body, had originally.
    let mut eqns: Vec<(usize, Eqn)> = std::mem::take(&mut jaxpr.eqns).into_iter().enumerate().collect();
    for region in regions {
        let [from, to] = [region.range.start, region.range.end].map(|at| eqns.partition_point(|(i, _)| *i < at));
        let is_read_later = |var: &Var| last_use[*var].is_some_and(|last| last >= region.range.end);
        let outs: Vec<Var> =
            eqns[from..to].iter().flat_map(|(_, eqn)| eqn.outs.iter().copied()).filter(is_read_later).collect();
        if outs.is_empty() {
            continue;
        }
        let inside: Vec<(usize, Eqn)> = eqns.drain(from..to).collect();
        eqns.insert(from, (region.range.start, checkpoint(&jaxpr.avals, inside, outs, region)));
    }
    jaxpr.eqns = eqns.into_iter().map(|(_, eqn)| eqn).collect();
    jaxpr
}

/// A `checkpoint` of these equations with these outputs. Its operands are in the order in which they are first read.
fn checkpoint(avals: &VarMap<remat_ir::Aval>, eqns: Vec<(usize, Eqn)>, outs: Vec<Var>, region: &Region) -> Eqn {
    let defined: BTreeSet<Var> = eqns.iter().flat_map(|(_, eqn)| eqn.outs.iter().copied()).collect();
    let mut builder = Builder::new();
    let mut inner: HashMap<Var, Atom> = HashMap::new();
    let mut ins = Vec::new();
    for var in eqns.iter().flat_map(|(_, eqn)| eqn.ins.iter().filter_map(|atom| atom.var())) {
        if !defined.contains(&var) && !inner.contains_key(&var) {
            inner.insert(var, builder.input(avals[var].clone()));
            ins.push(Atom::Var(var));
        }
    }
    let read =
        |inner: &HashMap<Var, Atom>, atom: Atom| atom.var().and_then(|var| inner.get(&var).copied()).unwrap_or(atom);
    for (_, eqn) in eqns {
        let operands: Vec<Atom> = eqn.ins.iter().map(|&atom| read(&inner, atom)).collect();
        let results = builder.push(eqn.op, &operands, eqn.outs.iter().map(|&var| avals[var].clone()), eqn.loc);
        inner.extend(eqn.outs.iter().copied().zip(results.into_iter().map(Atom::Var)));
    }
    let results = outs.iter().map(|&var| read(&inner, Atom::Var(var))).collect();
    let op =
        Checkpoint { jaxpr: Arc::new(builder.finish(results)), differentiated: false, policy: region.policy.clone() };
    Eqn { outs: outs.into(), op: op.into(), ins: ins.into(), loc: region.loc }
}
