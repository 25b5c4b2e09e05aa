//! Programs without equations that nothing reads.

use remat_ir::{Atom, Jaxpr, Literal, Var};

/// Removes equations whose results are not used. No operation has an effect.
pub(crate) fn prune(jaxpr: &mut Jaxpr) {
    let mut is_used = jaxpr.var_map(false);
    for var in jaxpr.outs.iter().filter_map(|atom| atom.var()) {
        is_used[var] = true;
    }
    let mut kept = Vec::with_capacity(jaxpr.eqns.len());
    for eqn in std::mem::take(&mut jaxpr.eqns).into_iter().rev() {
        if eqn.outs.iter().any(|&var| is_used[var]) {
            for var in eqn.ins.iter().filter_map(|atom| atom.var()) {
                is_used[var] = true;
            }
            kept.push(eqn);
        }
    }
    kept.reverse();
    jaxpr.eqns = kept;
}

/// Whether an equation or an output reads a variable.
pub(crate) fn reads(jaxpr: &Jaxpr, var: Var) -> bool {
    let is = |atom: &Atom| *atom == Atom::Var(var);
    jaxpr.outs.iter().any(is) || jaxpr.eqns.iter().any(|eqn| eqn.ins.iter().any(is))
}

/// Writes a constant wherever a variable is read.
pub(crate) fn substitute(jaxpr: &mut Jaxpr, var: Var, literal: Literal) {
    let eqns = jaxpr.eqns.iter_mut().flat_map(|eqn| eqn.ins.iter_mut());
    for atom in eqns.chain(jaxpr.outs.iter_mut()) {
        if *atom == Atom::Var(var) {
            *atom = Atom::Lit(literal);
        }
    }
}

/// Removes those inputs that nothing reads, from number `first` on, one for each of `values`, and the same ones of `values`.
pub(crate) fn drop_unread<T>(jaxpr: &mut Jaxpr, first: usize, values: &mut Vec<T>) {
    for i in (0..values.len()).rev() {
        if jaxpr.ins.get(first + i).is_some_and(|&var| !reads(jaxpr, var)) {
            jaxpr.ins.remove(first + i);
            values.remove(i);
        }
    }
}
