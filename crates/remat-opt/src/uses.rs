//! Uses of variables, and labels.
//!
//! A *label* is a `name` equation whose result is never read. `inline` keeps the names that the user gave to values as labels beside the
//! equations, so that passes need not look through names and engines can still report the name of a buffer. A label is not a use of its
//! operand, and goes where its operand goes.

use remat_ir::{Atom, Eqn, Jaxpr, Keep, Op, Prim, Var, VarMap};

/// Marks an output of the program among the readers of a variable.
pub(crate) const OUTPUT: usize = usize::MAX;

/// The equations that read each variable, without labels, and [`OUTPUT`] for each output that it is.
pub(crate) fn readers(jaxpr: &Jaxpr) -> VarMap<Vec<usize>> {
    let mut readers = jaxpr.var_map(Vec::new());
    for (at, eqn) in jaxpr.eqns.iter().enumerate().filter(|(_, eqn)| !is_label(eqn)) {
        vars(eqn).for_each(|v| readers[v].push(at));
    }
    jaxpr.outs.iter().filter_map(|a| a.var()).for_each(|v| readers[v].push(OUTPUT));
    readers
}

/// The equation that defines each variable, if any.
pub(crate) fn definitions(jaxpr: &Jaxpr) -> VarMap<Option<usize>> {
    let mut definitions = jaxpr.var_map(None);
    for (at, eqn) in jaxpr.eqns.iter().enumerate() {
        eqn.outs.iter().for_each(|&var| definitions[var] = Some(at));
    }
    definitions
}

/// The variables among the operands of an equation.
pub(crate) fn vars(eqn: &Eqn) -> impl Iterator<Item = Var> {
    eqn.ins.iter().filter_map(|a| a.var())
}

/// Whether an equation is a label. In a program that went through `inline` every `name` is one.
pub(crate) fn is_label(eqn: &Eqn) -> bool {
    matches!(eqn.op, Op::Prim(Prim::Name(_)))
}

/// The variable that a label names.
pub(crate) fn labelled(eqn: &Eqn) -> Option<Var> {
    if is_label(eqn) { eqn.ins.first().and_then(|a: &Atom| a.var()) } else { None }
}

/// Whether an equation is the label of a value that is not to be computed again.
pub(crate) fn is_kept_by(eqn: &Eqn, value: Atom) -> bool {
    matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep != Keep::Choice) && eqn.ins[..] == [value]
}

/// Drops the labels of values that are no longer computed.
pub(crate) fn drop_lost_labels(jaxpr: &mut Jaxpr) {
    if !jaxpr.eqns.iter().any(is_label) {
        return;
    }
    let mut is_defined = jaxpr.var_map(false);
    jaxpr.ins.iter().for_each(|&v| is_defined[v] = true);
    jaxpr.eqns.iter().flat_map(|eqn| &eqn.outs).for_each(|&v| is_defined[v] = true);
    jaxpr.eqns.retain(|eqn| labelled(eqn).is_none_or(|v| is_defined[v]));
}
