//! Rules of attention.
//!
//! The derivative of an attention is one operation forward and one backward, each the transpose of the other. So the backward pass keeps
//! queries, keys, values and results, and never the matrix of weights. Only the derivatives of those two go through their definitions.
//! Source: Dao et al., "FlashAttention", 2022.

use remat_ir::{Aval, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent, Result};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, differentiate, not_linear};

impl Rules for DotProductAttention {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let own = self.operands(tangents);
        let given = [*own.query, *own.key, *own.value, own.bias.copied().flatten()];
        let op = DotProductAttentionTangent { attention: *self, tangents: given.map(|t| t.is_some()) };
        let operands = [ins, outs, &present(&given)].concat();
        Ok(w.emit(op, &operands)?.into_iter().map(Some).collect())
    }

    /// It is linear in the values, on which the second result does not depend.
    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        const VALUE: usize = 2;
        let Operand::Linear(value) = &ins[VALUE] else { return Err(not_linear(self)) };
        let Some(ct) = cotangents[0] else { return Ok(vec![None; ins.len()]) };
        let value = ct.writer().zeros(value);
        let mut operands = Vec::with_capacity(ins.len() + 3);
        for (i, operand) in ins.iter().enumerate() {
            operands.push(if i == VALUE { value } else { operand.known(self)? });
        }
        operands.extend(ct.writer().emit(*self, &operands)?);
        operands.push(ct);
        let cotangents = [false, false, true, false];
        let op = DotProductAttentionCotangent { attention: *self, cotangents, logsumexp: false };
        let mut all = vec![None; ins.len()];
        all[VALUE] = Some(ct.writer().apply(op, &operands));
        Ok(all)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let batch = example_shape(ins[0])?[0];
        let operands = fold_operands(self, size, ins, true)?;
        let outs = w.emit(*self, &operands)?;
        outs.into_iter().map(|out| unfold(size, batch, out)).collect()
    }
}

impl Rules for DotProductAttentionTangent {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let (known, linear) = tangents.split_at(self.attention.num_operands() + 2);
        if known.iter().any(Option::is_some) {
            let definition = self.definition(&avals(ins)?)?;
            return differentiate(w, &definition, ins, tangents);
        }
        let mut linear = linear.iter().copied();
        let given = self.tangents.map(|has| if has { linear.next().flatten() } else { None });
        let op = DotProductAttentionTangent { tangents: given.map(|t| t.is_some()), ..*self };
        let operands = [&ins[..known.len()], &present(&given)].concat();
        Ok(w.emit(op, &operands)?.into_iter().map(Some).collect())
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let (known, linear) = ins.split_at(self.attention.num_operands() + 2);
        let mut operands = known.iter().map(|x| x.known(self)).collect::<Result<Vec<_>>>()?;
        let out = operands[known.len() - 2].aval()?;
        let w = operands[0].writer();
        operands.push(w.instantiate(cotangents[0], &out));
        operands.extend(cotangents[1]);
        let mut rest = linear.iter();
        let op = DotProductAttentionCotangent {
            attention: self.attention,
            cotangents: self.tangents.map(|has| has && rest.next().is_some_and(Operand::is_linear)),
            logsumexp: cotangents[1].is_some(),
        };
        let mut results = w.emit(op, &operands)?.into_iter();
        let mut all = vec![None; known.len()];
        all.extend(linear.iter().map(|x| if x.is_linear() { results.next() } else { None }));
        Ok(all)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (own, rest) = ins.split_at(self.attention.num_operands());
        let batch = example_shape(own[0])?[0];
        let [.., has_bias] = self.tangents;
        let mut operands = fold_operands(&self.attention, size, own, !has_bias)?;
        let (rest, bias) = rest.split_at(rest.len() - usize::from(has_bias));
        for &x in rest {
            operands.push(fold(size, x)?);
        }
        for &x in bias {
            operands.push(fold_scores(size, batch, x)?);
        }
        let outs = w.emit(*self, &operands)?;
        outs.into_iter().map(|out| unfold(size, batch, out)).collect()
    }
}

impl Rules for DotProductAttentionCotangent {
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let (known, linear) = tangents.split_at(self.attention.num_operands() + 2);
        if known.iter().any(Option::is_some) {
            let definition = self.definition(&avals(ins)?)?;
            return differentiate(w, &definition, ins, tangents);
        }
        let mut operands = ins[..known.len()].to_vec();
        let out = operands[known.len() - 2].aval()?;
        operands.push(w.instantiate(linear[0], &out));
        let logsumexp = linear.get(1).copied().flatten();
        operands.extend(logsumexp);
        let op = DotProductAttentionCotangent { logsumexp: logsumexp.is_some(), ..*self };
        Ok(w.emit(op, &operands)?.into_iter().map(Some).collect())
    }

    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let (known, linear) = ins.split_at(self.attention.num_operands() + 2);
        let mut operands = known.iter().map(|x| x.known(self)).collect::<Result<Vec<_>>>()?;
        operands.extend(present(cotangents));
        let mut given = cotangents.iter();
        let tangents = self.cotangents.map(|wanted| wanted && given.next().is_some_and(Option::is_some));
        let op = DotProductAttentionTangent { attention: self.attention, tangents };
        let results = operands[0].writer().emit(op, &operands)?;
        let mut all = vec![None; known.len()];
        all.extend(linear.iter().zip(results).map(|(x, result)| x.is_linear().then_some(result)));
        Ok(all)
    }

    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let (own, rest) = ins.split_at(self.attention.num_operands());
        let batch = example_shape(own[0])?[0];
        let [.., wants_bias] = self.cotangents;
        let mut operands = fold_operands(&self.attention, size, own, !wants_bias)?;
        for &x in rest {
            operands.push(fold(size, x)?);
        }
        let outs = w.emit(*self, &operands)?;
        let mut outs = outs.into_iter().map(|out| unfold(size, batch, out)).collect::<Result<Vec<_>>>()?;
        let bias = self.attention.operands(own).bias.filter(|_| wants_bias);
        if let (Some(&bias), Some(ct)) = (bias, outs.last_mut()) {
            // A value that the elements of a batch share gets the sum of their cotangents.
            let shape = [&[size], &example_shape(bias)?[..]].concat();
            if ct.atom.shape()?[..] != shape {
                *ct = Batched::front(ct.atom.sum(&[1]).reshape(&shape));
            }
        }
        Ok(outs)
    }
}

/// The operands of an attention with the examples folded into its batch. A bias and a mask that all examples and all elements of the batch
/// share can stay shared; the bias only if `shares_bias`.
fn fold_operands<'w>(
    attention: &DotProductAttention,
    size: usize,
    ins: &[Batched<Expr<'w>>],
    shares_bias: bool,
) -> Result<Vec<Expr<'w>>> {
    let own = attention.operands(ins);
    let batch = example_shape(*own.query)?[0];
    let mut operands = Vec::with_capacity(ins.len());
    for &x in [own.query, own.key, own.value] {
        operands.push(fold(size, x)?);
    }
    for (x, can_share) in [(own.bias, shares_bias), (own.mask, true)] {
        let Some(&x) = x else { continue };
        let is_shared = can_share && x.axis.is_none() && x.atom.shape()?[0] == 1;
        operands.push(if is_shared { x.atom } else { fold_scores(size, batch, x)? });
    }
    Ok(operands)
}

/// A bias or mask with the examples folded into its batch, which becomes that of the scores.
fn fold_scores<'w>(size: usize, batch: usize, x: Batched<Expr<'w>>) -> Result<Expr<'w>> {
    let front = x.to_front(size);
    let mut shape = front.shape()?;
    shape[1] = batch;
    fold(size, Batched::front(front.broadcast(&shape, &[0, 1, 2, 3, 4])))
}

/// A value with the examples folded into its first dimension.
fn fold<'w>(size: usize, x: Batched<Expr<'w>>) -> Result<Expr<'w>> {
    let front = x.to_front(size);
    let shape = front.shape()?;
    Ok(front.reshape(&[&[shape[0] * shape[1]], &shape[2..]].concat()))
}

/// The examples of a value that has them in its first dimension, each with a batch of this size.
fn unfold<'w>(size: usize, batch: usize, x: Expr<'w>) -> Result<Batched<Expr<'w>>> {
    let shape = x.shape()?;
    Ok(Batched::front(x.reshape(&[&[size, batch], &shape[1..]].concat())))
}

/// The shape of one example.
fn example_shape(x: Batched<Expr<'_>>) -> Result<Vec<usize>> {
    let mut shape = x.atom.shape()?.to_vec();
    x.axis.map(|axis| shape.remove(axis));
    Ok(shape)
}

fn avals(values: &[Expr<'_>]) -> Result<Vec<Aval>> {
    values.iter().map(|x| x.aval()).collect()
}

fn present<'w>(values: &[Option<Expr<'w>>]) -> Vec<Expr<'w>> {
    values.iter().flatten().copied().collect()
}
