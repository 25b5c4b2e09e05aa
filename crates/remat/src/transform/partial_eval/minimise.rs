//! Residual minimisation: a residual that is cheap to compute from others is not kept.
//!
//! ```text
//! minimise : staged { lambda ; r s b. -> d }, where s = mul r r
//!          → staged { lambda ; r b. -> d }
//! ```
//!
//! Cheap equations are elementwise operations other than transcendental functions, conversions, operations that move elements, and
//! everything that depends only on literals. The comparison that finds an extremum of a
//! computed operand is not. So `where` keeps no array of zeros, and no transposed copy of a weight is kept. If several
//! residuals are cheap to compute from one value that is not a residual, that value is kept instead: the tanh of a gelu.
//!
//! The comparison with an extremum stays a residual, since only the bits of the forward pass tell which elements are the extremum. What is
//! computed again is behind barriers of one operand each, so that no later pass merges it with its twin in the forward pass.

use std::collections::BTreeMap;

use remat_ir::{Atom, Atoms, Aval, Builder, Eqn, Jaxpr, OptimizationBarrier, Result, Var, VarMap};
use remat_opt::cost::{MOST_RECOMPUTED_FOR_RESIDUAL, is_cheap};
use remat_opt::finds_extremum;

use super::super::{Env, checked, read};
use super::log::Log;
use super::split_eqn::Input;

/// Facts about the known part.
pub(super) struct Facts<'a> {
    pub(super) known: &'a [Eqn],
    pub(super) avals: &'a VarMap<Aval>,
    /// The kinds of the inputs; `None` for other variables.
    pub(super) inputs: &'a VarMap<Option<Input>>,
    /// The position of each variable in the program.
    pub(super) order: &'a VarMap<usize>,
    /// Whether a budget has chosen to keep a variable, or it has to be kept.
    pub(super) is_chosen: &'a VarMap<bool>,
    pub(super) log: Option<&'a Log>,
}

/// Drops residuals of the staged part that are cheap to compute from others. `residuals` are the variables of the known part for its first
/// inputs, and `outs` the outputs of the program.
pub(super) fn minimise(
    staged: Jaxpr,
    residuals: Vec<Var>,
    outs: &[Atom],
    facts: &Facts<'_>,
) -> Result<(Jaxpr, Vec<Var>)> {
    let mut search = Search::new(&residuals, facts);
    // The latest first, so that a chain of cheap values is reduced to its first.
    for &var in residuals.iter().rev() {
        search.derive_from_kept(var);
    }
    search.replace_by_roots(&residuals, outs);
    if search.needed.is_empty() {
        return Ok((staged, residuals));
    }
    if let Some(log) = facts.log {
        let dropped = residuals.iter().filter(|&&v| !search.kept[v]).filter_map(|&v| search.definition[v]);
        dropped.for_each(|i| log.dropped_as_cheap(facts.known[i].loc));
    }
    let mut needed = search.needed;
    needed.sort_unstable();
    needed.dedup();

    let mut kept: Vec<Var> = residuals.iter().copied().filter(|&v| search.kept[v]).collect();
    kept.extend(search.roots);
    let mut is_defined: VarMap<bool> = VarMap::filled(facts.avals.len(), false);
    kept.iter().for_each(|&v| is_defined[v] = true);
    for eqn in needed.iter().map(|&i| &facts.known[i]) {
        for var in eqn.ins.iter().filter_map(|a| a.var()) {
            if !is_defined[var] {
                is_defined[var] = true;
                kept.push(var);
            }
        }
        eqn.outs.iter().for_each(|&v| is_defined[v] = true);
    }
    kept.sort_by_key(|&v| facts.order[v]);

    let mut b = Builder::new();
    let mut env: Env = VarMap::filled(facts.avals.len(), None);
    for &var in &kept {
        env[var] = Some(b.input(facts.avals[var].clone()));
    }
    let unknown: Vec<Atom> = staged.ins[residuals.len()..].iter().map(|&v| b.input(staged.avals[v].clone())).collect();
    // Behind barriers, so that they are not merged with their twins in the forward pass, which would keep the values alive after all. Each
    // operand has its own barrier, since a barrier of several would also order them, at the cost of memory.
    let mut late = env.clone();
    let operands = needed.iter().flat_map(|&i| &facts.known[i].ins).filter_map(|a| a.var());
    let mut barred: Vec<Var> = operands.filter(|&v| env[v].is_some()).collect();
    barred.sort_unstable();
    barred.dedup();
    b.loc = facts.known[needed[0]].loc;
    for var in barred {
        let operand = read(&env, Atom::Var(var))?;
        late[var] = Some(b.emit1(OptimizationBarrier.into(), &[operand])?);
    }
    for eqn in needed.into_iter().map(|i| &facts.known[i]) {
        let ins = eqn.ins.iter().map(|&a| read(&late, a)).collect::<Result<Atoms>>()?;
        let outs = b.push(eqn.op.clone(), &ins, eqn.outs.iter().map(|&v| facts.avals[v].clone()), eqn.loc);
        for (&var, out) in eqn.outs.iter().zip(outs) {
            // A kept residual that is also defined by a needed equation stays a residual.
            env[var] = env[var].or(Some(Atom::Var(out)));
            late[var] = late[var].or(Some(Atom::Var(out)));
        }
    }
    let mut args = residuals.iter().map(|&v| read(&env, Atom::Var(v))).collect::<Result<Vec<_>>>()?;
    args.extend(unknown);
    let outs = b.inline(&staged, &args)?;
    Ok((checked(b.finish(outs))?, kept))
}

struct Search<'a> {
    facts: &'a Facts<'a>,
    /// The equation of the known part that defines a variable.
    definition: VarMap<Option<usize>>,
    kept: VarMap<bool>,
    /// The values that are kept in place of residuals.
    roots: Vec<Var>,
    /// The equations of the known part that the staged part repeats.
    needed: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(residuals: &[Var], facts: &'a Facts<'a>) -> Search<'a> {
        let mut definition: VarMap<Option<usize>> = VarMap::filled(facts.avals.len(), None);
        for (i, eqn) in facts.known.iter().enumerate() {
            for &out in &eqn.outs {
                definition[out] = Some(i);
            }
        }
        let mut kept = VarMap::filled(facts.avals.len(), false);
        for (var, &input) in facts.inputs.iter() {
            kept[var] = input == Some(Input::Available);
        }
        for &var in residuals {
            kept[var] = true;
        }
        Search { facts, definition, kept, roots: Vec::new(), needed: Vec::new() }
    }

    /// Drops a residual that is cheap to compute from kept values.
    fn derive_from_kept(&mut self, var: Var) {
        let (mut roots, mut eqns) = (Vec::new(), Vec::new());
        if self.facts.inputs[var].is_none()
            && !self.facts.is_chosen[var]
            && self.trace(var, var, MOST_RECOMPUTED_FOR_RESIDUAL, &mut roots, &mut eqns)
            && roots.is_empty()
        {
            self.kept[var] = false;
            self.needed.extend(eqns);
        }
    }

    /// Keeps one value in place of the residuals that are cheap to compute from it, if it is smaller than they are or is an output of the
    /// program, which exists anyway.
    fn replace_by_roots(&mut self, residuals: &[Var], outs: &[Atom]) {
        let mut groups: BTreeMap<Var, (usize, Vec<Var>, Vec<usize>)> = BTreeMap::new();
        let may_go = |v: Var| self.kept[v] && self.facts.inputs[v].is_none() && !self.facts.is_chosen[v];
        for &var in residuals.iter().filter(|&&v| may_go(v)) {
            let (mut roots, mut eqns) = (Vec::new(), Vec::new());
            if self.trace(var, var, MOST_RECOMPUTED_FOR_RESIDUAL, &mut roots, &mut eqns)
                && let [root] = roots[..]
                && root != var
            {
                let (bytes, vars, all) = groups.entry(root).or_default();
                *bytes += self.facts.avals[var].bytes();
                vars.push(var);
                all.extend(eqns);
            }
        }
        if groups.is_empty() {
            return;
        }
        let mut is_out: VarMap<bool> = VarMap::filled(self.kept.len(), false);
        outs.iter().filter_map(|a| a.var()).for_each(|v| is_out[v] = true);
        for (root, (bytes, vars, eqns)) in groups {
            let of_root = self.facts.avals[root].bytes();
            if of_root < bytes || (of_root == bytes && is_out[root]) {
                vars.iter().for_each(|&v| self.kept[v] = false);
                self.roots.push(root);
                self.needed.extend(eqns);
            }
        }
    }

    /// Follows cheap equations from `var` back to kept values, `target` excepted, and to roots, which are values that are not cheap.
    /// Collects roots and equations; returns `false` if the chain is too long.
    fn trace(&self, var: Var, target: Var, depth: usize, roots: &mut Vec<Var>, eqns: &mut Vec<usize>) -> bool {
        if var != target && self.kept[var] {
            return true;
        }
        // An input, or a value that an inlined program only passes on.
        let Some(index) = self.definition[var] else { return false };
        let eqn = &self.facts.known[index];
        // Which element is the extremum is known only together with the extremum itself.
        let is_argument = |var| self.facts.inputs[var] == Some(Input::Available);
        let finds_extremum = || finds_extremum(eqn, |var| self.definition[var], self.facts.known, is_argument);
        if !is_cheap(&eqn.op) || finds_extremum() {
            let is_new = !roots.contains(&var);
            roots.extend(is_new.then_some(var));
            return true;
        }
        if depth == 0 {
            return false;
        }
        let found = eqn.ins.iter().filter_map(|a| a.var()).all(|v| self.trace(v, target, depth - 1, roots, eqns));
        eqns.push(index);
        found
    }
}
