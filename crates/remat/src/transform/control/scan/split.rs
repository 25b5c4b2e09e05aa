//! Partial evaluation of a `scan`.

use remat_ir::{Atom, Aval, Builder, Jaxpr, Result, Scan, Var, VarMap};

use super::super::super::dce as dce_jaxpr;
use super::super::super::partial_eval::reach::unknown_of_scan;
use super::super::super::partial_eval::split_eqn::{Context, SplitEqn, StagedEqn, StagedIn};
use super::super::super::partial_eval::{
    Input, PartialEval, Request, ResidualSource, Saving, StageOuts, split as split_jaxpr,
};
use super::super::spread;
use super::{groups, of, push};

/// Splits a loop into one over the known part of the body, with the residuals as stacked outputs, and one over the staged part.
pub(in crate::transform::control) fn split(op: &Scan, eqn: &Context<'_>) -> Result<Option<SplitEqn>> {
    let mut unknown = eqn.unknown();
    // A loop without known carries is transposed as a whole, so that nothing inside it has to be stacked.
    let has_known = || unknown_of_scan(op, &mut unknown).contains(&false) || op.jaxpr.has_effect();
    let Some(saving) = eqn.saving_of_bodies(has_known) else {
        return Ok(None);
    };
    let body = Body::split(op, eqn, unknown, saving)?;
    let known = body.known_loop()?;
    let staged = body.staged_loop(&known);
    Ok(Some(SplitEqn {
        known: known.program,
        unknown_outs: body.parts.unknown_outs,
        staged,
        is_chosen: false,
        named: Vec::new(),
    }))
}

/// The split of the body of a loop.
struct Body<'a> {
    op: &'a Scan,
    eqn: &'a Context<'a>,
    /// The unknown operands, including carries that become unknown in an iteration.
    unknown: Vec<bool>,
    /// Whether the staged loop computes the known carries again.
    recomputes: bool,
    parts: PartialEval,
}

/// The loop of the known part.
struct KnownLoop {
    /// Maps the known operands to the known results, the hoisted residuals, then the stacked ones.
    program: Jaxpr,
    num_hoisted: usize,
    /// The source of each residual for the staged loop.
    sources: Vec<Source>,
}

/// The source of a residual for the staged loop. Operands and carries are numbered among the known ones.
enum Source {
    /// A constant of the known loop.
    Const(usize),
    /// A value that is the same in every iteration and is computed once, before the loop.
    Hoisted(usize),
    /// A stacked input of the known loop.
    Stacked(usize),
    /// A stacked output that the known loop has in any case: this result.
    Result(usize),
    /// A stacked output that is added to the known loop.
    Added(usize),
    /// A carry, which the staged loop computes again.
    Carry(usize),
}

impl<'a> Body<'a> {
    fn split(op: &'a Scan, eqn: &'a Context<'a>, mut unknown: Vec<bool>, saving: Saving<'_>) -> Result<Body<'a>> {
        unknown_of_scan(op, &mut unknown);
        let carries = op.num_consts..op.num_consts + op.num_carry;
        let input = |(i, &is_unknown): (usize, &bool)| match eqn.ins[i] {
            _ if is_unknown => Input::Unknown,
            // A carry is not available, since it would have to be stacked.
            _ if carries.contains(&i) => Input::Known,
            input => input,
        };
        let ins: Vec<Input> = unknown.iter().enumerate().map(input).collect();
        let num_ys = op.jaxpr.outs.len() - op.num_carry;
        let force_unknown = [unknown[carries.clone()].to_vec(), vec![false; num_ys]].concat();
        let recomputes = saving.recomputes();
        let stage_outs = if recomputes { StageOuts::All } else { StageOuts::Unknown };
        let force_unknown = &force_unknown;
        let request =
            Request { ins: &ins, force_unknown, stage_outs, saving, is_minimised_outside: false, log: eqn.log };
        let parts = split_jaxpr(&op.jaxpr, &request)?;
        Ok(Body { op, eqn, unknown, recomputes, parts })
    }

    /// The positions of the known operands. The initial value of a carry can be known even if the carry is unknown.
    fn known_operands(&self) -> Vec<usize> {
        (0..self.unknown.len()).filter(|&i| !self.unknown[i]).collect()
    }

    fn known_loop(&self) -> Result<KnownLoop> {
        let (consts, carry, _) = groups(self.op, &self.unknown);
        let num_known = |unknown: &[bool]| unknown.iter().filter(|u| !**u).count();
        let (num_consts, num_carry) = (num_known(consts), num_known(carry));
        let mut body = self.parts.known.clone();
        let num_results = self.parts.num_known_outs();
        let invariant = invariants(&body, num_consts);
        let mut sources = Vec::with_capacity(self.parts.residuals.len());
        let (mut hoisted, mut added): (Vec<Atom>, Vec<Atom>) = (Vec::new(), Vec::new());
        let mut add = |atom: Atom| {
            added.push(atom);
            Source::Added(added.len() - 1)
        };
        for residual in &self.parts.residuals {
            sources.push(match *residual {
                ResidualSource::Input(i) if i < num_consts => Source::Const(i),
                ResidualSource::Input(i) if i < num_consts + num_carry && self.recomputes => {
                    Source::Carry(i - num_consts)
                }
                ResidualSource::Input(i) if i < num_consts + num_carry => add(Atom::Var(body.ins[i])),
                ResidualSource::Input(i) => Source::Stacked(i),
                ResidualSource::Out(i) => match body.outs[i] {
                    atom @ Atom::Var(v) if invariant[v] => {
                        hoisted.push(atom);
                        Source::Hoisted(hoisted.len() - 1)
                    }
                    _ if (num_carry..num_results).contains(&i) => Source::Result(i),
                    atom => add(atom),
                },
            });
        }
        let mut b = Builder::new();
        b.loc = self.eqn.loc;
        // All known operands of the equation are inputs, including the initial values of unknown carries.
        let inputs = b.inputs(self.eqn.known_avals());
        let known_operands = self.eqn.known();
        let ins: Vec<Atom> =
            known_operands.iter().zip(&inputs).filter(|(i, _)| !self.unknown[**i]).map(|(_, &a)| a).collect();
        let num_hoisted = hoisted.len();
        let hoisted = hoist(&mut b, &body, hoisted, &ins[..num_consts])?;
        body.outs.truncate(num_results);
        body.outs.extend(added);
        let mut outs = Vec::new();
        if !body.outs.is_empty() || body.has_effect() {
            outs = push(&mut b, of(self.op, body, num_consts, num_carry), &ins);
        }
        outs.splice(num_results..num_results, hoisted);
        Ok(KnownLoop { program: b.finish(outs), num_hoisted, sources })
    }

    /// The staged loop: constants, carries (including the known ones if they are computed again), stacked residuals and inputs. `None` if
    /// it has no results.
    fn staged_loop(&self, known: &KnownLoop) -> Option<StagedEqn> {
        let mut body = self.parts.staged.clone();
        let (residual_ins, unknown_ins) = body.ins.split_at(self.parts.residuals.len());
        let mut unknown_ins: Vec<Option<Var>> = spread(&self.unknown, unknown_ins.iter().copied());
        let known_operands = self.known_operands();
        let num_results = self.parts.num_known_outs();
        let mut consts: Vec<(Var, StagedIn)> = Vec::new();
        let mut xs: Vec<(Var, StagedIn)> = Vec::new();
        for (&var, source) in residual_ins.iter().zip(&known.sources) {
            match *source {
                Source::Const(i) => consts.push((var, StagedIn::Operand(known_operands[i]))),
                Source::Hoisted(i) => consts.push((var, StagedIn::Known(num_results + i))),
                Source::Stacked(i) => xs.push((var, StagedIn::Operand(known_operands[i]))),
                Source::Result(i) => xs.push((var, StagedIn::Known(i))),
                Source::Added(i) => xs.push((var, StagedIn::Known(num_results + known.num_hoisted + i))),
                Source::Carry(i) => {
                    let known_carries = known_operands.iter().filter(|&&k| k >= self.op.num_consts);
                    if let Some(&position) = known_carries.clone().nth(i) {
                        unknown_ins[position] = Some(var);
                    }
                }
            }
        }
        let inputs: Vec<(usize, Option<Var>)> = unknown_ins.into_iter().enumerate().collect();
        let (const_ins, carry_ins, x_ins) = groups(self.op, &inputs);
        let operand = |&(i, var): &(usize, Option<Var>)| Some((var?, StagedIn::Operand(i)));
        consts.extend(const_ins.iter().filter_map(operand));
        xs.extend(x_ins.iter().filter_map(operand));
        let mut carries: Vec<(Var, StagedIn)> = Vec::new();
        for &(i, var) in carry_ins.iter().filter(|(i, _)| self.unknown[*i] || self.recomputes) {
            // A carry that is computed again is an input of the loop even if the staged body does not read it.
            let var = var.unwrap_or_else(|| body.avals.push(self.carry_aval(i)));
            carries.push((var, StagedIn::Operand(i)));
        }
        let (num_consts, num_carry) = (consts.len(), carries.len());
        let (vars, ins): (Vec<Var>, Vec<StagedIn>) = consts.into_iter().chain(carries).chain(xs).unzip();
        body.ins = vars;
        StagedEqn::of_outs(of(self.op, body, num_consts, num_carry).into(), ins, &self.parts.staged_outs)
    }

    fn carry_aval(&self, input: usize) -> Aval {
        self.op.jaxpr.avals[self.op.jaxpr.ins[input]].clone()
    }
}

/// The variables of a body that depend only on its constants.
fn invariants(body: &Jaxpr, num_consts: usize) -> VarMap<bool> {
    let mut invariant = body.var_map(false);
    for &var in &body.ins[..num_consts] {
        invariant[var] = true;
    }
    for eqn in &body.eqns {
        if eqn.ins.iter().all(|a| a.var().is_none_or(|v| invariant[v])) {
            for &out in &eqn.outs {
                invariant[out] = true;
            }
        }
    }
    invariant
}

/// Computes loop-invariant values of a body before the loop.
fn hoist(b: &mut Builder, body: &Jaxpr, outs: Vec<Atom>, consts: &[Atom]) -> Result<Vec<Atom>> {
    if outs.is_empty() {
        return Ok(Vec::new());
    }
    let all = vec![true; outs.len()];
    let before = Jaxpr { outs, ..body.without_effects() };
    let mut keep = vec![false; body.ins.len()];
    keep[..consts.len()].fill(true);
    let before = dce_jaxpr(&before, &all, &keep)?.jaxpr;
    b.inline(&before, consts)
}
