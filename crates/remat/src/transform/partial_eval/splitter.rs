//! The walk through a program that partial evaluation is: each equation goes to the known part, to the staged one, or to
//! both.

use std::sync::Arc;

use remat_ir::{
    Atom, Atoms, Aval, Builder, Decision, DevicePut, Eqn, Jaxpr, Loc, MemorySpace, Op, Policy, Result, Var, VarMap,
    Vars,
};

use super::super::dce::dce;
use super::{PartialEval, Residual, Saving, StageOuts, decide, labels};
use super::minimise::{Facts, tighten};
use super::super::{Env, checked, control, internal, invert, read};
use crate::rules::first_order;

/// Whether and where a variable of the known part is at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Not known.
    No,
    /// Known, and kept if the staged part needs it.
    Saved,
    /// Known, and computed by the staged part too.
    Recomputed,
}

/// The state of a split: the equations of both parts over one set of variables, those of the program and new ones. A
/// variable may be defined in both parts.
pub(crate) struct Splitter<'a> {
    pub(crate) saving: Saving<'a>,
    pub(crate) avals: VarMap<Aval>,
    status: VarMap<Known>,
    is_input: VarMap<bool>,
    /// The inputs that are kept in any case.
    at_hand: VarMap<bool>,
    /// What stands for a variable: the named value for the operand of a `name`, an operand for a result that is one.
    same: VarMap<Option<Atom>>,
    /// The names that policies see; empty where there is no policy.
    labels: VarMap<Vec<Arc<str>>>,
    known: Vec<Eqn>,
    /// Fetches what was offloaded. These come first in the staged part, since any equation there may read them.
    fetched: Vec<Eqn>,
    staged: Vec<Eqn>,
}

impl<'a> Splitter<'a> {
    pub(in crate::transform) fn new(jaxpr: &Jaxpr, unknown_ins: &[bool], saving: Saving<'a>, at_hand: &[bool]) -> Splitter<'a> {
        let mut status = jaxpr.var_map(Known::Saved);
        let mut is_input = jaxpr.var_map(false);
        let mut kept = jaxpr.var_map(false);
        for ((&var, &unknown), &at_hand) in jaxpr.ins.iter().zip(unknown_ins).zip(at_hand) {
            is_input[var] = true;
            kept[var] = at_hand && !unknown;
            if unknown {
                status[var] = Known::No;
            }
        }
        Splitter {
            saving,
            avals: jaxpr.avals.clone(),
            status,
            is_input,
            at_hand: kept,
            same: jaxpr.var_map(None),
            labels: match saving {
                Saving::Policy(_) => labels(jaxpr),
                Saving::Residuals | Saving::Linear => VarMap::default(),
            },
            known: Vec::new(),
            fetched: Vec::new(),
            staged: Vec::new(),
        }
    }

    /// Whether an atom is unknown.
    pub(crate) fn is_unknown(&self, atom: Atom) -> bool {
        atom.var().is_some_and(|v| self.status[v] == Known::No)
    }

    /// Whether an atom is kept in any case.
    pub(crate) fn is_at_hand(&self, atom: Atom) -> bool {
        atom.var().is_none_or(|v| self.at_hand[v])
    }

    /// A new variable of the known part.
    pub(crate) fn new_var(&mut self, aval: Aval) -> Var {
        self.status.push(Known::Saved);
        self.is_input.push(false);
        self.at_hand.push(false);
        self.same.push(None);
        self.avals.push(aval)
    }

    /// Adds an equation to the known part. Its results are saved if need be.
    pub(crate) fn push_known(&mut self, op: Op, ins: Atoms, outs: Vars, loc: Loc) {
        for &out in &outs {
            self.status[out] = Known::Saved;
        }
        self.known.push(Eqn { outs, op, ins, loc });
    }

    /// Adds an equation to the staged part. A result that the known part does not define is unknown, another one is
    /// recomputed.
    pub(crate) fn push_staged(&mut self, op: Op, ins: Atoms, outs: Vars, unknown: &[bool], loc: Loc) {
        for (&out, &unknown) in outs.iter().zip(unknown) {
            self.status[out] = if unknown { Known::No } else { Known::Recomputed };
        }
        self.staged.push(Eqn { outs, op, ins, loc });
    }

    /// Copies a program into the known part, naming its outputs `outs`.
    pub(crate) fn inline_known(&mut self, jaxpr: &Jaxpr, args: &[Atom], outs: &[Var]) -> Result<()> {
        let mut env: Env = jaxpr.var_map(None);
        for (&var, &arg) in jaxpr.ins.iter().zip(args) {
            env[var] = Some(arg);
        }
        for (&atom, &out) in jaxpr.outs.iter().zip(outs) {
            match atom {
                Atom::Var(var) if env[var].is_none() => env[var] = Some(Atom::Var(out)),
                _ => self.same[out] = Some(read(&env, atom)?),
            }
        }
        for eqn in &jaxpr.eqns {
            let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?;
            let mut new = Vars::new();
            for &var in &eqn.outs {
                new.push(match env[var] {
                    Some(Atom::Var(out)) => out,
                    _ => self.new_var(jaxpr.avals[var].clone()),
                });
                env[var] = new.last().copied().map(Atom::Var);
            }
            self.push_known(eqn.op.clone(), ins, new, eqn.loc);
        }
        Ok(())
    }

    pub(in crate::transform) fn equation(&mut self, eqn: &Eqn) -> Result<()> {
        let any_unknown = eqn.ins.iter().any(|&a| self.is_unknown(a));
        if first_order(&eqn.op).is_none() && control::split(self, eqn, any_unknown)? {
            return Ok(());
        }
        if any_unknown {
            let unknown = vec![true; eqn.outs.len()];
            self.push_staged(eqn.op.clone(), eqn.ins.clone(), eqn.outs.clone(), &unknown, eqn.loc);
            return Ok(());
        }
        self.push_known(eqn.op.clone(), eqn.ins.clone(), eqn.outs.clone(), eqn.loc);
        match self.decide(eqn) {
            Decision::Save => self.alias_name(eqn),
            Decision::Recompute => {
                let known = vec![false; eqn.outs.len()];
                self.push_staged(eqn.op.clone(), eqn.ins.clone(), eqn.outs.clone(), &known, eqn.loc);
            }
            Decision::Offload(memory) => {
                self.alias_name(eqn);
                for &out in &eqn.outs {
                    self.offload(out, memory, eqn.loc);
                }
            }
        }
        Ok(())
    }

    fn decide(&self, eqn: &Eqn) -> Decision {
        let Saving::Policy(policy) = self.saving else { return Decision::Save };
        let ins: Vec<Aval> = eqn.ins.iter().map(|&a| self.aval(a)).collect();
        let outs: Vec<Aval> = eqn.outs.iter().map(|&v| self.avals[v].clone()).collect();
        let labels = eqn.outs.iter().filter_map(|&v| self.labels.get(v)).flatten();
        let decision = decide(policy, &eqn.op, &ins, &outs, labels);
        match (&eqn.op, eqn.ins[..].first()) {
            // The label of what is there anyway.
            (Op::Name(_), Some(Atom::Var(v))) if self.at_hand[*v] && decision == Decision::Save => Decision::Recompute,
            _ => decision,
        }
    }

    fn aval(&self, atom: Atom) -> Aval {
        match atom {
            Atom::Var(v) => self.avals[v].clone(),
            Atom::Lit(l) => l.aval(),
        }
    }

    /// Lets a kept named value stand for the operand of the `name`, unless that is there anyway.
    fn alias_name(&mut self, eqn: &Eqn) {
        if let (Op::Name(_), [Atom::Var(operand)], [named]) = (&eqn.op, &eqn.ins[..], &eqn.outs[..])
            && !self.at_hand[*operand]
            && self.same[*operand].is_none()
        {
            self.same[*operand] = Some(Atom::Var(*named));
        }
    }

    fn offload(&mut self, var: Var, memory: MemorySpace, loc: Loc) {
        let home = self.avals[var].memory;
        let there = self.new_var(self.avals[var].in_memory(memory));
        self.push_known(DevicePut { memory }.into(), [Atom::Var(var)].into_iter().collect(), Vars::from([there]), loc);
        let fetch = DevicePut { memory: home }.into();
        self.status[var] = Known::Recomputed;
        self.fetched.push(Eqn {
            outs: Vars::from([var]),
            op: fetch,
            ins: [Atom::Var(there)].into_iter().collect(),
            loc,
        });
    }

    pub(in crate::transform) fn finish(
        mut self,
        jaxpr: &Jaxpr,
        unknown_ins: &[bool],
        force_unknown: &[bool],
        stage_outs: StageOuts,
    ) -> Result<PartialEval> {
        let unknown_outs: Vec<bool> =
            jaxpr.outs.iter().zip(force_unknown).map(|(&a, &force)| force || self.is_unknown(a)).collect();
        let staged_outs: Vec<bool> = jaxpr
            .outs
            .iter()
            .zip(&unknown_outs)
            .map(|(&a, &unknown)| {
                unknown
                    || match stage_outs {
                        StageOuts::Unknown => false,
                        // An input that is handed on may be recomputed outside, and must not be kept on its way through.
                        StageOuts::Recomputed => {
                            a.var().is_some_and(|v| self.status[v] == Known::Recomputed || self.is_input[v])
                        }
                        StageOuts::All => true,
                    }
            })
            .collect();
        let (staged, residual_vars) = self.build_staged(jaxpr, unknown_ins, &staged_outs)?;
        let (staged, residual_vars) = match self.saving {
            Saving::Residuals | Saving::Policy(Policy::Everything) => {
                // Where a label stands for a value, it does so here too.
                let resolved =
                    |eqn: &Eqn| Eqn { ins: eqn.ins.iter().map(|&a| self.resolve(a)).collect(), ..eqn.clone() };
                let known: Vec<Eqn> = self.known.iter().map(resolved).collect();
                let facts = Facts {
                    known: &known,
                    avals: &self.avals,
                    is_input: &self.is_input,
                    at_hand: &self.at_hand,
                    order: &self.definition_order(jaxpr),
                };
                tighten(staged, residual_vars, &jaxpr.outs, &facts)?
            }
            Saving::Linear | Saving::Policy(_) => (staged, residual_vars),
        };
        self.build_known(jaxpr, unknown_ins, unknown_outs, staged_outs, staged, residual_vars)
    }

    /// The staged part and the variables of its residuals, in the order of its inputs.
    fn build_staged(&self, jaxpr: &Jaxpr, unknown_ins: &[bool], staged_outs: &[bool]) -> Result<(Jaxpr, Vec<Var>)> {
        let mut b = Builder::new();
        let mut env: Env = VarMap::filled(self.avals.len(), None);
        for (&var, &unknown) in jaxpr.ins.iter().zip(unknown_ins) {
            if unknown {
                env[var] = Some(b.input(self.avals[var].clone()));
            }
        }
        let num_unknown = b.peek().ins.len();
        let mut residuals: Vec<Var> = Vec::new();
        let mut get = |b: &mut Builder, env: &mut Env, atom: Atom| -> Result<Atom> {
            let Atom::Var(var) = self.resolve(atom) else { return Ok(self.resolve(atom)) };
            if let Some(atom) = env[var] {
                return Ok(atom);
            }
            if self.status[var] == Known::No {
                return Err(internal("a staged variable is used before it is defined"));
            }
            let atom = b.input(self.avals[var].clone());
            residuals.push(var);
            env[var] = Some(atom);
            Ok(atom)
        };
        for eqn in self.fetched.iter().chain(&self.staged) {
            let ins = eqn.ins.iter().map(|&a| get(&mut b, &mut env, a)).collect::<Result<Atoms>>()?;
            let avals = eqn.outs.iter().map(|&v| self.avals[v].clone());
            let outs = b.push(eqn.op.clone(), &ins, avals, eqn.loc);
            for (&var, out) in eqn.outs.iter().zip(outs) {
                env[var] = Some(Atom::Var(out));
            }
        }
        let mut outs = Vec::new();
        for (&atom, &staged) in jaxpr.outs.iter().zip(staged_outs) {
            if staged {
                outs.push(get(&mut b, &mut env, atom)?);
            }
        }
        let mut staged = b.finish(outs);
        // Residuals that survive dead code elimination, in the order of the program, come first.
        let mut keep = vec![true; num_unknown];
        keep.resize(staged.ins.len(), false);
        let live = dce(&staged, &vec![true; staged.outs.len()], &keep)?;
        let mut kept: Vec<(usize, Var)> = (num_unknown..staged.ins.len())
            .filter(|&i| live.used_ins[i])
            .map(|i| residuals[i - num_unknown])
            .enumerate()
            .collect();
        let order = self.definition_order(jaxpr);
        kept.sort_by_key(|&(_, var)| order[var]);
        staged = live.jaxpr;
        let ins = std::mem::take(&mut staged.ins);
        staged.ins = kept.iter().map(|&(i, _)| ins[num_unknown + i]).collect();
        staged.ins.extend_from_slice(&ins[..num_unknown]);
        Ok((checked(staged)?, kept.into_iter().map(|(_, var)| var).collect()))
    }

    /// What stands for an atom, through all labels.
    fn resolve(&self, mut atom: Atom) -> Atom {
        while let Atom::Var(var) = atom
            && let Some(same) = self.same[var]
        {
            atom = same;
        }
        atom
    }

    /// For each variable its place in the known part: inputs first.
    fn definition_order(&self, jaxpr: &Jaxpr) -> VarMap<usize> {
        let mut order = VarMap::filled(self.avals.len(), usize::MAX);
        let defined = jaxpr.ins.iter().chain(self.known.iter().flat_map(|eqn| &eqn.outs));
        for (i, &var) in defined.enumerate() {
            order[var] = i;
        }
        order
    }

    fn build_known(
        &mut self,
        jaxpr: &Jaxpr,
        unknown_ins: &[bool],
        unknown_outs: Vec<bool>,
        staged_outs: Vec<bool>,
        staged: Jaxpr,
        residual_vars: Vec<Var>,
    ) -> Result<PartialEval> {
        let mut b = Builder::new();
        let mut env: Env = VarMap::filled(self.avals.len(), None);
        let mut input_index: VarMap<Option<usize>> = VarMap::filled(self.avals.len(), None);
        for (&var, _) in jaxpr.ins.iter().zip(unknown_ins).filter(|(_, u)| !**u) {
            input_index[var] = Some(b.peek().ins.len());
            env[var] = Some(b.input(self.avals[var].clone()));
        }
        // In the known part the operand of a `name` is itself: only a result that was inlined stands for another, and only
        // as far as that is defined, since a label may come later.
        let get = |env: &Env, mut atom: Atom| {
            while let Atom::Var(var) = atom
                && env[var].is_none()
                && let Some(same) = self.same[var]
            {
                atom = same;
            }
            read(env, atom)
        };
        for eqn in &self.known {
            let ins = eqn.ins.iter().map(|&a| get(&env, a)).collect::<Result<Atoms>>()?;
            let avals = eqn.outs.iter().map(|&v| self.avals[v].clone());
            let outs = b.push(eqn.op.clone(), &ins, avals, eqn.loc);
            for (&var, out) in eqn.outs.iter().zip(outs) {
                env[var] = Some(Atom::Var(out));
            }
        }
        let mut outs = Vec::new();
        for (&atom, _) in jaxpr.outs.iter().zip(&unknown_outs).filter(|(_, u)| !**u) {
            outs.push(get(&env, atom)?);
        }
        let mut residuals = Vec::with_capacity(residual_vars.len());
        let mut place_of: VarMap<Option<usize>> = b.peek().var_map(None);
        for (i, var) in outs.iter().enumerate().filter_map(|(i, a)| Some((i, a.var()?))) {
            place_of[var] = place_of[var].or(Some(i));
        }
        for var in residual_vars {
            let atom = read(&env, Atom::Var(var))?;
            residuals.push(match (input_index[var], atom) {
                (Some(i), _) => Residual::Input(i),
                (None, Atom::Var(v)) => Residual::Out(*place_of[v].get_or_insert_with(|| {
                    outs.push(atom);
                    outs.len() - 1
                })),
                (None, Atom::Lit(_)) => {
                    outs.push(atom);
                    Residual::Out(outs.len() - 1)
                }
            });
        }
        let known = b.finish(outs);
        let known = dce(&known, &vec![true; known.outs.len()], &vec![true; known.ins.len()])?.jaxpr;
        debug_assert_eq!(known.ins.len(), invert(unknown_ins).iter().filter(|k| **k).count());
        Ok(PartialEval { known, staged, unknown_outs, staged_outs, residuals })
    }
}
