//! Rules of the derivative of cross entropy.

use remat_ir::{Atom, CrossEntropyTangent, Result};

use super::expr::atoms;
use super::{Batched, Expr, Linear, Operand, Rules, Writer, differentiate};

impl Rules for CrossEntropyTangent {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        if let [None, None, None, None, Some(t)] = *tangents {
            return Ok(vec![Some(w.apply(*self, &[ins[0], ins[1], ins[2], ins[3], t]))]);
        }
        let avals = ins.iter().map(|x| x.aval()).collect::<Result<Vec<_>>>()?;
        differentiate(w, &self.definition(&avals)?, ins, tangents)
    }

    /// The cotangent times the weights: one expression of logits, logarithms and labels.
    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let known = ins[..4].iter().map(|x| x.known(self)).collect::<Result<Vec<_>>>()?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None; 5]) };
        let known_atoms: Vec<Atom> = atoms(&known);
        let weights = ct.writer().add(|b| self.weights(b, &known_atoms));
        let shape = weights.shape()?;
        let positions: Vec<usize> = (0..shape.len() - 1).collect();
        let product = weights * ct.broadcast(&shape, &positions);
        Ok(vec![None, None, None, None, Some(product.convert(known[0].dtype()?))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let operands: Vec<_> = ins.iter().map(|x| x.to_front(size)).collect();
        Ok(vec![Batched::front(w.apply(*self, &operands))])
    }
}
