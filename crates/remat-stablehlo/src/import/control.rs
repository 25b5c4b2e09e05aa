//! Loops and branches.

use std::sync::Arc;

use remat_ir::{Atom, Binary, Compare, Cond, DType, Jaxpr, Literal, Op, Prim, Result, SelectN, While};

use super::Importer;
use super::frame::{Body, Capture};
use super::properties::Node;
use crate::patterns::{Loop, Outputs, as_scan};
use crate::tidy::{drop_unread, prune, substitute};

impl<'a, 'm> Importer<'a, 'm> {
    /// A region that takes nothing from around it.
    pub(super) fn closed_body(&mut self, node: Node<'a, 'm>, region: usize) -> Result<Jaxpr> {
        let Body { jaxpr, captures } = self.body(node.op, region, node.name)?;
        if captures.is_empty() { Ok(jaxpr) } else { Err(node.unsupported("a body that uses values from around it")) }
    }

    /// What a loop returns unchanged is a constant of it. A loop with a counter is a scan.
    pub(super) fn while_loop(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let inits = self.all_operands(node)?;
        let (cond, body) = (self.body(node.op, 0, node.name)?, self.body(node.op, 1, node.name)?);
        let cond_consts = self.captured(&cond.captures, node.name)?;
        let body_consts = self.captured(&body.captures, node.name)?;
        let (cond, body) = (cond.jaxpr, body.jaxpr);
        let carries = |jaxpr: &Jaxpr, consts: &[Atom]| jaxpr.ins.len() - consts.len();
        if carries(&cond, &cond_consts) != inits.len()
            || carries(&body, &body_consts) != inits.len()
            || body.outs.len() != inits.len()
        {
            return Err(node.malformed("the condition and the body take other values than the loop"));
        }
        let mut looped = Loop { cond, cond_consts, body, body_consts, inits };
        let mut results: Vec<Option<Atom>> = take_constants(&mut looped);
        let (outs, places) = match as_scan(&looped) {
            Some((scan, operands, places)) => (self.emit_all(scan, &operands)?, places),
            None => {
                let places = (0..looped.inits.len()).map(Outputs::Result).collect();
                let (cond_consts, body_consts) = (looped.cond_consts.len(), looped.body_consts.len());
                let operands = [looped.cond_consts, looped.body_consts, looped.inits].concat();
                let op = While { cond: looped.cond.into(), body: looped.body.into(), cond_consts, body_consts };
                (self.emit_all(op, &operands)?, places)
            }
        };
        for (result, place) in results.iter_mut().filter(|result| result.is_none()).zip(places) {
            *result = match place {
                Outputs::Result(i) => outs.get(i).copied(),
                Outputs::Literal(literal) => Some(literal.into()),
            };
        }
        let results: Vec<Atom> = results.into_iter().flatten().collect();
        self.define(node, &results)
    }

    /// `case` runs the last branch where the index is out of range, and `if` the first one where its condition holds.
    pub(super) fn branches(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let [which] = self.operands(node)?;
        let mut bodies = (0..node.op.regions.len())
            .map(|region| self.body(node.op, region, node.name))
            .collect::<Result<Vec<_>>>()?;
        let index = if node.name == "if" {
            bodies.reverse();
            self.convert(which, DType::I32)?
        } else {
            self.last_if_outside(which, bodies.len())?
        };
        let mut captures: Vec<Capture> = Vec::new();
        for capture in bodies.iter().flat_map(|body| &body.captures) {
            if !captures.contains(capture) {
                captures.push(*capture);
            }
        }
        let operands = self.captured(&captures, node.name)?;
        let avals: Vec<_> = operands.iter().map(|&atom| self.aval(atom)).collect();
        let mut branches = Vec::new();
        for Body { mut jaxpr, captures: own } in bodies {
            if jaxpr.ins.len() != own.len() {
                return Err(node.malformed("a branch has arguments"));
            }
            let inputs = std::mem::take(&mut jaxpr.ins);
            for (capture, aval) in captures.iter().zip(&avals) {
                let var = match own.iter().position(|other| other == capture) {
                    Some(i) => inputs[i],
                    None => jaxpr.avals.push(aval.clone()),
                };
                jaxpr.ins.push(var);
            }
            branches.push(Arc::new(jaxpr));
        }
        let operands: Vec<Atom> = [index].into_iter().chain(operands).collect();
        let results = self.emit_all(Cond { branches }, &operands)?;
        self.define(node, &results)
    }

    /// The index, or that of the last branch where it is out of range. What JAX writes is clamped already.
    fn last_if_outside(&mut self, index: Atom, count: usize) -> Result<Atom> {
        let program = self.frames.top().builder.peek();
        let definition = index.var().and_then(|var| program.eqns.iter().rfind(|eqn| eqn.outs.contains(&var)));
        let most = Literal::from_i128(DType::I32, count as i128 - 1);
        let zero = Literal::from_i128(DType::I32, 0);
        let is_inside = match definition.map(|eqn| (&eqn.op, &eqn.ins[..])) {
            Some((Op::Prim(Prim::Clamp(_)), &[min, _, max])) => min == zero.into() && max == most.into(),
            Some((Op::Prim(Prim::ConvertElementType(_)), &[from])) => {
                program.atom_aval(from).dtype == DType::Bool && count >= 2
            }
            _ => false,
        };
        if is_inside {
            return Ok(index);
        }
        let is_below = self.emit(Compare::Lt, &[index, zero.into()])?;
        let is_above = self.emit(Compare::Gt, &[index, most.into()])?;
        let is_outside = self.emit(Binary::Or, &[is_below, is_above])?;
        self.emit(SelectN, &[is_outside, index, most.into()])
    }
}

/// Makes constants of the carries that the body returns unchanged, and returns their values; `None` for the others. If no carry is left, the
/// loop stays as it is.
fn take_constants(looped: &mut Loop) -> Vec<Option<Atom>> {
    let (of_cond, of_body) = (looped.cond_consts.len(), looped.body_consts.len());
    let is_constant: Vec<bool> = (0..looped.inits.len())
        .map(|carry| looped.body.outs[carry] == Atom::Var(looped.body.ins[of_body + carry]))
        .collect();
    if is_constant.iter().all(|&is_constant| is_constant) {
        return vec![None; looped.inits.len()];
    }
    let mut results = vec![None; looped.inits.len()];
    for carry in (0..looped.inits.len()).rev().filter(|&carry| is_constant[carry]) {
        let value = looped.inits.remove(carry);
        looped.body.outs.remove(carry);
        for (jaxpr, consts, count) in
            [(&mut looped.cond, &mut looped.cond_consts, of_cond), (&mut looped.body, &mut looped.body_consts, of_body)]
        {
            // The constants in front have grown by those that were carries.
            let grown = consts.len() - count;
            let var = jaxpr.ins.remove(count + grown + carry);
            match value {
                Atom::Lit(literal) => substitute(jaxpr, var, literal),
                Atom::Var(_) => {
                    jaxpr.ins.insert(consts.len(), var);
                    consts.push(value);
                }
            }
        }
        results[carry] = Some(value);
    }
    for (jaxpr, consts) in [(&mut looped.cond, &mut looped.cond_consts), (&mut looped.body, &mut looped.body_consts)] {
        prune(jaxpr);
        drop_unread(jaxpr, 0, consts);
    }
    results
}
