//! The state of partial evaluation: assigns each equation to the known part, the staged part, or both.

use std::collections::BTreeSet;
use std::sync::Arc;

use remat_ir::{
    Atom, Atoms, Aval, Call, Decision, DevicePut, Eqn, Jaxpr, Keep, Loc, MemorySpace, Name, Op, Policy, Prim, Result,
    Var, VarMap, Vars,
};

use super::super::{Env, control, read};
use super::log::{Log, Reason};
use super::split_eqn::{Context, Input, SplitEqn, StagedIn, StagedOut};
use super::{Request, Saving, decide, labels};

/// The availability of a variable of the known part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// Not known.
    No,
    /// Known, and kept if the staged part needs it.
    Saved,
    /// Known, and also computed by the staged part.
    Recomputed,
}

/// The equations of both parts over one set of variables: those of the program and new ones. A variable may be defined in both parts.
pub(super) struct Splitter<'a> {
    pub(super) saving: Saving<'a>,
    pub(super) log: Option<&'a Log>,
    pub(super) avals: VarMap<Aval>,
    pub(super) status: VarMap<Known>,
    /// The kinds of the inputs; `None` for other variables.
    pub(super) inputs: VarMap<Option<Input>>,
    /// The atom that replaces a variable: for the operand of a `name` the named value, for a result that equals an operand that operand.
    pub(super) alias: VarMap<Option<Atom>>,
    /// The operands of names that are replaced, and the named values that replace them.
    pub(super) named: Vec<(Var, Var)>,
    /// The values that regions keep by a budget. They are not replaced by others.
    pub(super) chosen: Vec<Var>,
    /// The names that policies see; empty without a policy.
    names: VarMap<Vec<Arc<str>>>,
    /// What no planner may change, if there is something.
    must: Option<Policy>,
    /// Marks of values that must be kept, which stand for them.
    marks: BTreeSet<Var>,
    pub(super) known: Vec<Eqn>,
    /// Equations that fetch offloaded values. They come first in the staged part, since any equation there may read them.
    pub(super) fetched: Vec<Eqn>,
    pub(super) staged: Vec<Eqn>,
}

impl<'a> Splitter<'a> {
    pub(super) fn new(jaxpr: &Jaxpr, request: &Request<'a>) -> Splitter<'a> {
        let mut status = jaxpr.var_map(Known::Saved);
        let mut inputs = jaxpr.var_map(None);
        for (&var, &input) in jaxpr.ins.iter().zip(request.ins) {
            inputs[var] = Some(input);
            if input.is_unknown() {
                status[var] = Known::No;
            }
        }
        Splitter {
            saving: request.saving,
            log: request.log,
            avals: jaxpr.avals.clone(),
            status,
            inputs,
            alias: jaxpr.var_map(None),
            named: Vec::new(),
            chosen: Vec::new(),
            names: match request.saving {
                Saving::Policy(_) | Saving::Chosen(_) => labels(jaxpr),
                Saving::Residuals | Saving::Linear => VarMap::default(),
            },
            must: match request.saving {
                Saving::Policy(policy) => Some(policy.strict()),
                Saving::Chosen(chosen) => Some(chosen.must().clone()),
                Saving::Residuals | Saving::Linear => None,
            }
            .filter(|must| !must.is_open()),
            marks: BTreeSet::new(),
            known: Vec::new(),
            fetched: Vec::new(),
            staged: Vec::new(),
        }
    }

    pub(super) fn equation(&mut self, eqn: &Eqn) -> Result<()> {
        if let Op::Call(op) = &eqn.op
            && let Some(split) = self.split(op, eqn)?
        {
            return self.add_split(eqn, split);
        }
        if eqn.ins.iter().any(|&a| self.is_unknown(a)) {
            self.set_status(&eqn.outs, Known::No);
            self.staged.push(eqn.clone());
            return Ok(());
        }
        // Without results there is nothing to decide.
        if eqn.outs.is_empty() {
            self.known.push(eqn.clone());
            return Ok(());
        }
        let (decision, must) = self.decide(eqn);
        // A mark does not count where its operand is computed again or kept itself.
        let is_idle = is_mark(&eqn.op) && (decision == Decision::Recompute || self.is_kept_itself(eqn.ins[0]));
        self.known.push(eqn.clone());
        match decision {
            _ if is_idle => self.pass_on(eqn.outs[0], eqn.ins[0]),
            Decision::Save => self.keep(eqn, must),
            Decision::Recompute => {
                self.set_status(&eqn.outs, Known::Recomputed);
                // Effects have happened when a value is computed again.
                self.staged.push(Eqn { op: eqn.op.without_effects(), ..eqn.clone() });
            }
            Decision::Offload(memory) => {
                self.keep(eqn, false);
                for &out in &eqn.outs {
                    self.offload(out, memory, eqn.loc);
                }
            }
        }
        Ok(())
    }

    /// Calls the rule of an equation with jaxprs in its operation.
    fn split(&self, op: &Call, eqn: &Eqn) -> Result<Option<SplitEqn>> {
        let ins: Vec<Input> = eqn.ins.iter().map(|&a| self.input(a)).collect();
        let avals: Vec<Aval> = eqn.ins.iter().map(|&a| self.aval(a)).collect();
        control::split(op, &Context { ins: &ins, avals: &avals, saving: self.saving, loc: eqn.loc, log: self.log })
    }

    fn add_split(&mut self, eqn: &Eqn, split: SplitEqn) -> Result<()> {
        let known_ins: Vec<Atom> = eqn.ins.iter().copied().filter(|&a| !self.is_unknown(a)).collect();
        let results = eqn.outs.iter().zip(&split.unknown_outs);
        let mut known_outs: Vec<Var> = results.filter(|(_, unknown)| !**unknown).map(|(&v, _)| v).collect();
        let residuals = split.known.out_avals().split_off(split.num_known_outs());
        known_outs.extend(residuals.into_iter().map(|aval| self.new_var(aval)));
        let env = self.inline_known(&split.known, &known_ins, &known_outs)?;
        for (operand, named) in split.named {
            self.replace_by_name(read(&env, operand.into())?, read(&env, named.into())?);
        }

        let Some(staged) = split.staged else { return Ok(()) };
        let operand = |source: StagedIn| match source {
            StagedIn::Operand(i) => eqn.ins[i],
            StagedIn::Known(i) => Atom::Var(known_outs[i]),
        };
        if split.is_chosen {
            let residuals = staged.ins.iter().filter(|source| matches!(source, StagedIn::Known(_)));
            self.chosen.extend(residuals.filter_map(|&source| operand(source).var()));
        }
        let ins: Atoms = staged.ins.into_iter().map(operand).collect();
        let mut outs = Vars::new();
        for out in staged.outs {
            let (out, status) = match out {
                StagedOut::Result(i) if split.unknown_outs[i] => (eqn.outs[i], Known::No),
                StagedOut::Result(i) => (eqn.outs[i], Known::Recomputed),
                StagedOut::Unused(i) => (self.new_var(self.avals[eqn.outs[i]].clone()), Known::No),
            };
            self.status[out] = status;
            outs.push(out);
        }
        self.staged.push(Eqn { outs, op: staged.op, ins, loc: eqn.loc });
        Ok(())
    }

    /// Copies a program into the known part with the outputs `outs`. Returns a map of its variables.
    fn inline_known(&mut self, jaxpr: &Jaxpr, args: &[Atom], outs: &[Var]) -> Result<Env> {
        let mut env: Env = jaxpr.var_map(None);
        for (&var, &arg) in jaxpr.ins.iter().zip(args) {
            env[var] = Some(arg);
        }
        for (&atom, &out) in jaxpr.outs.iter().zip(outs) {
            match atom {
                Atom::Var(var) if env[var].is_none() => env[var] = Some(Atom::Var(out)),
                _ => {
                    // An operand that is passed on is the same input under another variable.
                    let operand = read(&env, atom)?;
                    self.alias[out] = Some(operand);
                    self.inputs[out] = operand.var().map_or(Some(Input::Available), |v| self.inputs[v]);
                }
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
            self.known.push(Eqn { outs: new, op: eqn.op.clone(), ins, loc: eqn.loc });
        }
        Ok(env)
    }

    /// The decision about the results of an equation, and whether no planner may change it.
    fn decide(&self, eqn: &Eqn) -> (Decision, bool) {
        let is_passed = matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep == Keep::Everyone);
        match self.saving {
            Saving::Residuals | Saving::Linear => return (Decision::Save, is_passed),
            Saving::Policy(_) if !self.saving.recomputes() && self.log.is_none() => return (Decision::Save, is_passed),
            Saving::Policy(_) | Saving::Chosen(_) => {}
        }
        let ins: Vec<Aval> = eqn.ins.iter().map(|&a| self.aval(a)).collect();
        let outs: Vec<Aval> = eqn.outs.iter().map(|&v| self.avals[v].clone()).collect();
        let ask = |policy: &Policy| {
            let names = eqn.outs.iter().filter_map(|&v| self.names.get(v)).flatten();
            decide(policy, &eqn.op, &ins, &outs, names)
        };
        let must = self.must.as_ref().map(ask).filter(|(_, reason)| *reason != Reason::Undecided);
        let (decision, mut reason) = match self.saving {
            _ if is_passed => (Decision::Save, Reason::Passed),
            Saving::Policy(policy) if self.saving.recomputes() => ask(policy),
            Saving::Chosen(chosen) => must.clone().unwrap_or_else(|| chosen.decision(eqn.loc.discriminator)),
            Saving::Policy(_) | Saving::Residuals | Saving::Linear => (Decision::Save, Reason::Policy),
        };
        let must = must.is_some_and(|(must, _)| must == decision);
        if must && reason == Reason::Policy {
            reason = Reason::Must;
        }
        let is_input = match (&eqn.op, eqn.ins[..].first()) {
            (Op::Prim(Prim::Name(_)), Some(&operand)) => decision == Decision::Save && self.is_kept_itself(operand),
            _ => false,
        };
        if is_input {
            reason = Reason::Input;
        }
        if let (Some(log), Some(aval)) = (self.log, outs.first()) {
            log.decided(eqn, aval, decision, reason);
        }
        // The name of a value that is itself kept is computed again.
        let decision = if is_input && self.saving.recomputes() { Decision::Recompute } else { decision };
        (decision, must || is_passed)
    }

    /// Keeps the results of an equation. Those that must be kept are marked in the known part, for engines.
    fn keep(&mut self, eqn: &Eqn, must: bool) {
        let [operand, named] = match (&eqn.op, &eqn.ins[..], &eqn.outs[..]) {
            (Op::Prim(Prim::Name(_)), [operand], [named]) => [*operand, Atom::Var(*named)],
            _ if must => return eqn.outs.iter().for_each(|&out| self.mark(out, eqn.loc)),
            _ => return,
        };
        // A name takes the place of the mark of its operand.
        let mark = operand.var().and_then(|v| self.alias[v]?.var()).filter(|mark| self.marks.contains(mark));
        if (must || mark.is_some())
            && let Some(Eqn { op: Op::Prim(Prim::Name(op)), .. }) = self.known.last_mut()
        {
            op.keep = Keep::Planner;
        }
        self.replace_by_name(mark.map_or(operand, Atom::Var), named);
    }

    /// Makes an operand stand for a mark of it that is not kept.
    fn pass_on(&mut self, mark: Var, operand: Atom) {
        self.alias[mark] = Some(operand);
        self.inputs[mark] = operand.var().map_or(Some(Input::Available), |v| self.inputs[v]);
        self.status[mark] = operand.var().map_or(Known::Saved, |v| self.status[v]);
    }

    fn mark(&mut self, var: Var, loc: Loc) {
        let mark = self.new_var(self.avals[var].clone());
        let ins = [Atom::Var(var)].into_iter().collect();
        self.known.push(Eqn { outs: Vars::from([mark]), op: Name::kept(Keep::Planner).into(), ins, loc });
        self.marks.insert(mark);
        self.replace_by_name(var.into(), mark.into());
    }

    /// Makes a named value replace the operand of its `name`, unless the operand is itself kept.
    fn replace_by_name(&mut self, operand: Atom, named: Atom) {
        if let (Atom::Var(operand), Atom::Var(named)) = (operand, named)
            && !self.is_kept_itself(operand.into())
            && self.alias[operand].is_none()
        {
            self.alias[operand] = Some(named.into());
            self.named.push((operand, named));
        }
    }

    fn offload(&mut self, var: Var, memory: MemorySpace, loc: Loc) {
        let home = self.avals[var].memory;
        let there = self.new_var(self.avals[var].in_memory(memory));
        let transfer = |out: Var, memory, operand: Var| Eqn {
            outs: Vars::from([out]),
            op: DevicePut { memory }.into(),
            ins: [Atom::Var(operand)].into_iter().collect(),
            loc,
        };
        self.known.push(transfer(there, memory, var));
        self.status[var] = Known::Recomputed;
        self.fetched.push(transfer(var, home, there));
    }

    pub(super) fn is_unknown(&self, atom: Atom) -> bool {
        atom.var().is_some_and(|v| self.status[v] == Known::No)
    }

    /// Whether an atom is kept instead of its names.
    fn is_kept_itself(&self, atom: Atom) -> bool {
        matches!(self.input(atom), Input::Available | Input::Region)
    }

    fn input(&self, atom: Atom) -> Input {
        match atom {
            Atom::Lit(_) => Input::Available,
            Atom::Var(v) if self.status[v] == Known::No => Input::Unknown,
            Atom::Var(v) => self.inputs[v].unwrap_or(Input::Known),
        }
    }

    fn aval(&self, atom: Atom) -> Aval {
        match atom {
            Atom::Var(v) => self.avals[v].clone(),
            Atom::Lit(l) => l.aval(),
        }
    }

    fn set_status(&mut self, vars: &[Var], status: Known) {
        for &var in vars {
            self.status[var] = status;
        }
    }

    /// A new variable of the known part.
    fn new_var(&mut self, aval: Aval) -> Var {
        self.status.push(Known::Saved);
        self.inputs.push(None);
        self.alias.push(None);
        self.avals.push(aval)
    }
}

/// Whether an operation marks a value, and gives no name to it.
fn is_mark(op: &Op) -> bool {
    matches!(op, Op::Prim(Prim::Name(op)) if op.label().is_none())
}
