//! A traced function split into its forward pass and its linear function. Every reverse-mode entry point and every report of residuals is
//! built on it.

use remat_ir::{Atom, Builder, Jaxpr, Loc, Result};

use super::residuals::Residuals;
use crate::trace::{Path, Program, Tensor, Tree, run, structure};
use crate::transform::log::{Log, numbered};
use crate::transform::{self, Jvp, PartialEval, ResidualSource, Saving, jvp, partial_eval_logged, transpose};

/// The forward pass and the linear function of a program.
pub(crate) struct Linearization {
    /// The program that was differentiated; its inputs are the captured tensors, then the arguments.
    pub(crate) program: Program,
    /// The arguments that are differentiated: the floats.
    pub(crate) differentiated: Vec<bool>,
    /// The results that have a tangent: the floats among the wanted ones.
    pub(crate) float_outs: Vec<bool>,
    /// The known part is the forward pass, from the inputs of the program to its outputs and residuals. The staged part is the linear
    /// function of the tangents of the differentiated arguments.
    pub(crate) split: PartialEval,
}

impl Linearization {
    /// Linearizes the first `num_outs` results of a program in its float arguments; the others have no tangents.
    pub(crate) fn new(program: Program, num_outs: usize) -> Result<Linearization> {
        Linearization::logged(program, num_outs, None)
    }

    /// As [`Linearization::new`]; decisions of policies are written into the log.
    pub(crate) fn logged(program: Program, num_outs: usize, log: Option<&Log>) -> Result<Linearization> {
        let jaxpr = &program.jaxpr;
        let num_captured = program.captured.len();
        let differentiated: Vec<bool> =
            jaxpr.ins[num_captured..].iter().map(|&v| jaxpr.avals[v].dtype.is_float()).collect();
        let float_outs: Vec<bool> =
            jaxpr.out_avals().iter().enumerate().map(|(i, a)| a.dtype.is_float() && i < num_outs).collect();
        let nonzero = [vec![false; num_captured], differentiated.clone()].concat();
        let Jvp { jaxpr: mut both, nonzero: has_tangent } = jvp(jaxpr, &nonzero, &float_outs)?;
        let mut tangents = both.outs.split_off(jaxpr.outs.len()).into_iter();
        for (&wanted, &has) in float_outs.iter().zip(&has_tangent) {
            let tangent = if has { tangents.next() } else { None };
            both.outs.extend(tangent.filter(|_| wanted));
        }
        let unknown_ins: Vec<bool> = (0..both.ins.len()).map(|i| i >= jaxpr.ins.len()).collect();
        let unknown_outs: Vec<bool> = (0..both.outs.len()).map(|i| i >= jaxpr.outs.len()).collect();
        let both = if log.is_some() { numbered(&both) } else { both };
        let split = partial_eval_logged(&both, &unknown_ins, &unknown_outs, Saving::Residuals, log)?;
        Ok(Linearization { program, differentiated, float_outs, split })
    }

    /// The backward pass: residuals and cotangents of the float results to cotangents of the differentiated arguments.
    pub(crate) fn backward(&self) -> Result<Jaxpr> {
        let linear: Vec<bool> = (0..self.split.staged.ins.len()).map(|i| i >= self.split.residuals.len()).collect();
        let cotangents = vec![true; self.split.staged.outs.len()];
        Ok(transpose(&self.split.staged, &linear, &cotangents, true)?.jaxpr)
    }

    /// The kinds of the residuals; the leaves of the argument are at `paths`.
    pub(crate) fn residuals(&self, paths: &[Path]) -> Residuals {
        Residuals::new(&self.split.known, &self.split.residuals, self.program.captured.len(), paths)
    }

    /// Runs the forward pass for the function with this name. Returns the results and the residuals.
    pub(crate) fn run_forward<A: Tree>(
        &self,
        operation: &'static str,
        x: &A,
        loc: Loc,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let args = [self.program.captured.clone(), structure(x).0].concat();
        let mut outs = run(operation, &self.split.known, &args, loc)?;
        let residual = |r: &ResidualSource| match *r {
            ResidualSource::Input(i) => args[i].clone(),
            ResidualSource::Out(i) => outs[i].clone(),
        };
        let residuals = self.split.residuals.iter().map(residual).collect();
        outs.truncate(self.program.jaxpr.outs.len());
        Ok((outs, residuals))
    }

    /// Forward and backward pass in one program. It takes the inputs of the program, computes cotangents from the results by `seed`, and
    /// returns the results, then the cotangents of the differentiated arguments.
    pub(crate) fn forward_and_backward(
        &self,
        seed: impl FnOnce(&mut Builder, &[Atom]) -> Result<Vec<Atom>>,
    ) -> Result<Jaxpr> {
        let backward = self.backward()?;
        let mut b = Builder::new();
        let ins = b.inputs(self.program.jaxpr.in_avals());
        let known = b.inline(&self.split.known, &ins)?;
        let outs = known[..self.program.jaxpr.outs.len()].to_vec();
        let cotangents = seed(&mut b, &outs)?;
        let residuals = self.split.residual_atoms(&ins, &known);
        let cts = b.inline(&backward, &[residuals, cotangents].concat())?;
        let both = b.finish([outs, cts].concat());
        Ok(transform::dce(&both, &vec![true; both.outs.len()], &vec![true; both.ins.len()])?.jaxpr)
    }
}
