//! Assembles the two parts from the equations that a [`Splitter`] assigned to them.

use remat_ir::{Atom, Atoms, Builder, Eqn, Jaxpr, Keep, Op, Prim, Result, Var, VarMap};

use super::super::dce;
use super::super::{Env, checked, internal, read};
use super::minimise::{Facts, minimise};
use super::split_eqn::Input;
use super::splitter::{Known, Splitter};
use super::{PartialEval, Request, ResidualSource, StageOuts};

impl Splitter<'_> {
    pub(super) fn finish(self, jaxpr: &Jaxpr, request: &Request<'_>) -> Result<PartialEval> {
        let outs = jaxpr.outs.iter().zip(request.force_unknown);
        let unknown_outs: Vec<bool> = outs.map(|(&a, &force)| force || self.is_unknown(a)).collect();
        let is_staged = |(&a, &unknown): (&Atom, &bool)| unknown || self.is_staged_too(a, request.stage_outs);
        let staged_outs: Vec<bool> = jaxpr.outs.iter().zip(&unknown_outs).map(is_staged).collect();
        let order = self.definition_order(jaxpr);
        let (mut staged, mut residuals) = self.build_staged(jaxpr, request.ins, &staged_outs, &order)?;
        if self.saving.minimises() && !request.is_minimised_outside {
            // Where a name replaces a value, it does so here too.
            let resolved = |eqn: &Eqn| Eqn { ins: eqn.ins.iter().map(|&a| self.resolve(a)).collect(), ..eqn.clone() };
            let known: Vec<Eqn> = self.known.iter().map(resolved).collect();
            let mut is_chosen = VarMap::filled(self.avals.len(), false);
            let chosen = self.chosen.iter().filter_map(|&v| self.resolve(v.into()).var());
            chosen.for_each(|v| is_chosen[v] = true);
            let is_kept = |eqn: &&Eqn| matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep != Keep::Choice);
            known.iter().filter(is_kept).flat_map(|eqn| &eqn.outs).for_each(|&v| is_chosen[v] = true);
            let facts = Facts {
                known: &known,
                avals: &self.avals,
                inputs: &self.inputs,
                order: &order,
                is_chosen: &is_chosen,
                log: self.log,
            };
            (staged, residuals) = minimise(staged, residuals, &jaxpr.outs, &facts)?;
        }
        let (mut known, residuals, env) = self.build_known(jaxpr, request.ins, &unknown_outs, residuals)?;
        let mut named = Vec::new();
        if request.is_minimised_outside {
            // Equations that are not read are dropped there too; the name of a value may be one.
            for &(operand, name) in &self.named {
                named.extend(env[operand].and_then(Atom::var).zip(env[name].and_then(Atom::var)));
            }
        } else {
            known = dce(&known, &vec![true; known.outs.len()], &vec![true; known.ins.len()])?.jaxpr;
        }
        Ok(PartialEval { known, staged, unknown_outs, staged_outs, residuals, named })
    }

    /// Whether the staged part returns a known output too.
    fn is_staged_too(&self, atom: Atom, stage_outs: StageOuts) -> bool {
        match stage_outs {
            StageOuts::Unknown => false,
            // An input that is passed on may be recomputed outside, and must not be kept on the way.
            StageOuts::Recomputed => {
                atom.var().is_some_and(|v| self.status[v] == Known::Recomputed || self.inputs[v].is_some())
            }
            StageOuts::All => true,
        }
    }

    /// The staged part, and the variables of its residuals in the order of its inputs.
    fn build_staged(
        &self,
        jaxpr: &Jaxpr,
        ins: &[Input],
        staged_outs: &[bool],
        order: &VarMap<usize>,
    ) -> Result<(Jaxpr, Vec<Var>)> {
        let mut b = Builder::new();
        let mut env: Env = VarMap::filled(self.avals.len(), None);
        for (&var, _) in jaxpr.ins.iter().zip(ins).filter(|(_, i)| i.is_unknown()) {
            env[var] = Some(b.input(self.avals[var].clone()));
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
        let staged = b.finish(outs);
        // Residuals that survive dead code elimination come first, in the order of the program.
        let mut keep = vec![true; num_unknown];
        keep.resize(staged.ins.len(), false);
        let live = dce(&staged, &vec![true; staged.outs.len()], &keep)?;
        let mut kept: Vec<(usize, Var)> = (num_unknown..staged.ins.len())
            .filter(|&i| live.used_ins[i])
            .map(|i| residuals[i - num_unknown])
            .enumerate()
            .collect();
        kept.sort_by_key(|&(_, var)| order[var]);
        let mut staged = live.jaxpr;
        let ins = std::mem::take(&mut staged.ins);
        staged.ins = kept.iter().map(|&(i, _)| ins[num_unknown + i]).collect();
        staged.ins.extend_from_slice(&ins[..num_unknown]);
        Ok((checked(staged)?, kept.into_iter().map(|(_, var)| var).collect()))
    }

    /// The atom that replaces this one, after following all names.
    fn resolve(&self, mut atom: Atom) -> Atom {
        while let Atom::Var(var) = atom
            && let Some(alias) = self.alias[var]
        {
            atom = alias;
        }
        atom
    }

    /// The position of each variable in the known part, with inputs first.
    fn definition_order(&self, jaxpr: &Jaxpr) -> VarMap<usize> {
        let mut order = VarMap::filled(self.avals.len(), usize::MAX);
        let defined = jaxpr.ins.iter().chain(self.known.iter().flat_map(|eqn| &eqn.outs));
        for (i, &var) in defined.enumerate() {
            order[var] = i;
        }
        order
    }

    /// The known part, the positions of the residuals in it, and a map of this program's variables.
    fn build_known(
        &self,
        jaxpr: &Jaxpr,
        ins: &[Input],
        unknown_outs: &[bool],
        residual_vars: Vec<Var>,
    ) -> Result<(Jaxpr, Vec<ResidualSource>, Env)> {
        let mut b = Builder::new();
        let mut env: Env = VarMap::filled(self.avals.len(), None);
        let mut input_index: VarMap<Option<usize>> = VarMap::filled(self.avals.len(), None);
        for (&var, _) in jaxpr.ins.iter().zip(ins).filter(|(_, i)| !i.is_unknown()) {
            input_index[var] = Some(b.peek().ins.len());
            env[var] = Some(b.input(self.avals[var].clone()));
        }
        // In the known part the operand of a `name` stays itself. Only a result that was inlined is replaced by another value, and only if
        // that is defined already, since a name may come later.
        let get = |env: &Env, mut atom: Atom| {
            while let Atom::Var(var) = atom
                && env[var].is_none()
                && let Some(alias) = self.alias[var]
            {
                atom = alias;
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
        for (&atom, _) in jaxpr.outs.iter().zip(unknown_outs).filter(|(_, u)| !**u) {
            outs.push(get(&env, atom)?);
        }
        let mut residuals = Vec::with_capacity(residual_vars.len());
        let mut out_index: VarMap<Option<usize>> = b.peek().var_map(None);
        for (i, var) in outs.iter().enumerate().filter_map(|(i, a)| Some((i, a.var()?))) {
            out_index[var] = out_index[var].or(Some(i));
        }
        for var in residual_vars {
            let atom = read(&env, Atom::Var(var))?;
            residuals.push(match (input_index[var], atom) {
                (Some(i), _) => ResidualSource::Input(i),
                (None, Atom::Var(v)) => ResidualSource::Out(*out_index[v].get_or_insert_with(|| {
                    outs.push(atom);
                    outs.len() - 1
                })),
                (None, Atom::Lit(_)) => {
                    outs.push(atom);
                    ResidualSource::Out(outs.len() - 1)
                }
            });
        }
        Ok((b.finish(outs), residuals, env))
    }
}
