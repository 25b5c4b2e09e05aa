//! Rules of attention.
//!
//! The derivative of an attention is one operation forward and one backward, each the transpose of the other, so that the
//! backward pass keeps queries, keys, values and results and never the matrix of weights. Only the derivatives of those two
//! go through their definitions. Source: Dao et al., "FlashAttention", 2022.

use remat_ir::{
    Array, Atom, Aval, Builder, DType, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent,
    Literal, Op, Result, eval_op,
};

use super::sample::{any, array};
use super::{Batched, Emit, Linear, Operand, Rules, Sample, differentiate, not_linear};

impl Rules for DotProductAttention {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let own = self.operands(tangents);
        let given = [*own.query, *own.key, *own.value, own.bias.copied().flatten()];
        let op = DotProductAttentionTangent { attention: *self, tangents: given.map(|t| t.is_some()) };
        let operands = [ins, outs, &present(&given)].concat();
        Ok(b.emit(op.into(), &operands)?.into_iter().map(Some).collect())
    }

    /// It is linear in the values, on which the second result does not depend.
    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        const VALUE: usize = 2;
        let Operand::Linear(value) = &ins[VALUE] else { return Err(not_linear(self)) };
        let Some(ct) = cotangents[0] else { return Ok(vec![None; ins.len()]) };
        let value = b.zeros(value)?;
        let mut operands = Vec::with_capacity(ins.len() + 3);
        for (i, operand) in ins.iter().enumerate() {
            operands.push(if i == VALUE { value } else { operand.known(self)? });
        }
        let results = b.emit((*self).into(), &operands)?;
        operands.extend(results);
        operands.push(ct);
        let cotangents = [false, false, true, false];
        let op = DotProductAttentionCotangent { attention: *self, cotangents, logsumexp: false };
        let mut all = vec![None; ins.len()];
        all[VALUE] = Some(b.apply(op, &operands)?);
        Ok(all)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let batch = example_shape(b, ins[0])[0];
        let operands = fold_operands(b, self, size, ins, true)?;
        let outs = b.emit((*self).into(), &operands)?;
        outs.into_iter().map(|out| unfold(b, size, batch, out)).collect()
    }

    fn samples() -> Vec<Sample> {
        let sample = |case: Case| Sample::new(case.label, case.attention, case.inputs).linear_in(&[2]);
        cases().into_iter().map(sample).collect()
    }
}

impl Rules for DotProductAttentionTangent {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (known, linear) = tangents.split_at(self.attention.num_operands() + 2);
        if known.iter().any(Option::is_some) {
            let definition = self.definition(&avals(b, ins))?;
            return differentiate(b, &definition, ins, tangents);
        }
        let mut linear = linear.iter().copied();
        let given = self.tangents.map(|has| if has { linear.next().flatten() } else { None });
        let op = DotProductAttentionTangent { tangents: given.map(|t| t.is_some()), ..*self };
        let operands = [&ins[..known.len()], &present(&given)].concat();
        Ok(b.emit(op.into(), &operands)?.into_iter().map(Some).collect())
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let (known, linear) = ins.split_at(self.attention.num_operands() + 2);
        let mut operands = known.iter().map(|x| x.known(self)).collect::<Result<Vec<Atom>>>()?;
        let out = b.aval_of(operands[known.len() - 2]);
        operands.push(b.instantiate(cotangents[0], &out)?);
        operands.extend(cotangents[1]);
        let mut rest = linear.iter();
        let op = DotProductAttentionCotangent {
            attention: self.attention,
            cotangents: self.tangents.map(|has| has && rest.next().is_some_and(Operand::is_linear)),
            logsumexp: cotangents[1].is_some(),
        };
        let mut results = b.emit(op.into(), &operands)?.into_iter();
        let mut all = vec![None; known.len()];
        all.extend(linear.iter().map(|x| if x.is_linear() { results.next() } else { None }));
        Ok(all)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (own, rest) = ins.split_at(self.attention.num_operands());
        let batch = example_shape(b, own[0])[0];
        let [.., has_bias] = self.tangents;
        let mut operands = fold_operands(b, &self.attention, size, own, !has_bias)?;
        let (rest, bias) = rest.split_at(rest.len() - usize::from(has_bias));
        for &x in rest {
            operands.push(fold(b, size, x)?);
        }
        for &x in bias {
            operands.push(fold_scores(b, size, batch, x)?);
        }
        let outs = b.emit((*self).into(), &operands)?;
        outs.into_iter().map(|out| unfold(b, size, batch, out)).collect()
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let sample = |label: String, case: &Case, tangents: [bool; 4]| {
            let differentiable = case.differentiable();
            let given = differentiable.iter().zip(tangents).filter(|(_, given)| *given);
            let tangents_of = given.filter_map(|(x, _)| x.as_ref().map(turned));
            let inputs: Vec<Array> = case.inputs.iter().cloned().chain(case.results()).chain(tangents_of).collect();
            let linear: Vec<usize> = (case.inputs.len() + 2..inputs.len()).collect();
            let op = DotProductAttentionTangent { attention: case.attention, tangents };
            Sample::new(label, op, inputs).linear_in(&linear)
        };
        for case in cases() {
            samples.push(sample(case.label.to_owned(), &case, [true, true, true, case.attention.bias]));
        }
        for i in 0..4 {
            let case = biased();
            samples.push(sample(format!("tangent {i} alone"), &case, [0, 1, 2, 3].map(|k| k == i)));
        }
        samples
    }
}

impl Rules for DotProductAttentionCotangent {
    fn jvp(&self, b: &mut Builder, ins: &[Atom], _outs: &[Atom], tangents: &[Option<Atom>]) -> Result<Linear> {
        let (known, linear) = tangents.split_at(self.attention.num_operands() + 2);
        if known.iter().any(Option::is_some) {
            let definition = self.definition(&avals(b, ins))?;
            return differentiate(b, &definition, ins, tangents);
        }
        let mut operands = ins[..known.len()].to_vec();
        let out = b.aval_of(operands[known.len() - 2]);
        operands.push(b.instantiate(linear[0], &out)?);
        let logsumexp = linear.get(1).copied().flatten();
        operands.extend(logsumexp);
        let op = DotProductAttentionCotangent { logsumexp: logsumexp.is_some(), ..*self };
        Ok(b.emit(op.into(), &operands)?.into_iter().map(Some).collect())
    }

    fn transpose(&self, b: &mut Builder, cotangents: &[Option<Atom>], ins: &[Operand]) -> Result<Linear> {
        let (known, linear) = ins.split_at(self.attention.num_operands() + 2);
        let mut operands = known.iter().map(|x| x.known(self)).collect::<Result<Vec<Atom>>>()?;
        operands.extend(present(cotangents));
        let mut given = cotangents.iter();
        let tangents = self.cotangents.map(|wanted| wanted && given.next().is_some_and(Option::is_some));
        let results = b.emit(DotProductAttentionTangent { attention: self.attention, tangents }.into(), &operands)?;
        let mut all = vec![None; known.len()];
        all.extend(linear.iter().zip(results).map(|(x, result)| x.is_linear().then_some(result)));
        Ok(all)
    }

    fn vmap(&self, b: &mut Builder, size: usize, ins: &[Batched]) -> Result<Vec<Batched>> {
        let (own, rest) = ins.split_at(self.attention.num_operands());
        let batch = example_shape(b, own[0])[0];
        let [.., wants_bias] = self.cotangents;
        let mut operands = fold_operands(b, &self.attention, size, own, !wants_bias)?;
        for &x in rest {
            operands.push(fold(b, size, x)?);
        }
        let outs = b.emit((*self).into(), &operands)?;
        let mut outs = outs.into_iter().map(|out| unfold(b, size, batch, out)).collect::<Result<Vec<Batched>>>()?;
        let bias = self.attention.operands(own).bias.filter(|_| wants_bias);
        if let (Some(&bias), Some(ct)) = (bias, outs.last_mut()) {
            // What the elements of a batch share gets the sum of their cotangents.
            let shape = [&[size], &example_shape(b, bias)[..]].concat();
            if b.shape(ct.atom)[..] != shape {
                let sum = b.reduce_sum(ct.atom, &[1])?;
                *ct = Batched::front(b.reshape(sum, &shape)?);
            }
        }
        Ok(outs)
    }

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let sample = |label: String, case: &Case, cotangents: [bool; 4], logsumexp: bool| {
            let results = case.results();
            let cts = results.iter().take(1 + usize::from(logsumexp)).map(turned);
            let inputs: Vec<Array> = case.inputs.iter().chain(&results).cloned().chain(cts).collect();
            let linear: Vec<usize> = (case.inputs.len() + 2..inputs.len()).collect();
            let op = DotProductAttentionCotangent { attention: case.attention, cotangents, logsumexp };
            Sample::new(label, op, inputs).linear_in(&linear)
        };
        for case in cases() {
            let all = [true, true, true, case.attention.bias];
            samples.push(sample(case.label.to_owned(), &case, all, false));
            samples.push(sample(format!("{}, both results", case.label), &case, all, true));
        }
        for i in 0..4 {
            let case = biased();
            samples.push(sample(format!("cotangent {i} alone"), &case, [0, 1, 2, 3].map(|k| k == i), true));
        }
        samples
    }
}

/// The operands of an attention with the examples folded into its batch. A bias and a mask that all examples and all
/// elements of the batch share can stay so; the bias only if `shares_bias`.
fn fold_operands(
    b: &mut Builder,
    attention: &DotProductAttention,
    size: usize,
    ins: &[Batched],
    shares_bias: bool,
) -> Result<Vec<Atom>> {
    let own = attention.operands(ins);
    let batch = example_shape(b, *own.query)[0];
    let mut operands = Vec::with_capacity(ins.len());
    for &x in [own.query, own.key, own.value] {
        operands.push(fold(b, size, x)?);
    }
    for (x, can_share) in [(own.bias, shares_bias), (own.mask, true)] {
        let Some(&x) = x else { continue };
        let is_shared = can_share && x.axis.is_none() && b.shape(x.atom)[0] == 1;
        operands.push(if is_shared { x.atom } else { fold_scores(b, size, batch, x)? });
    }
    Ok(operands)
}

/// A bias or mask with the examples folded into its batch, which becomes that of the scores.
fn fold_scores(b: &mut Builder, size: usize, batch: usize, x: Batched) -> Result<Atom> {
    let front = b.batch_front(x, size)?;
    let mut shape = b.shape(front);
    shape[1] = batch;
    let full = b.broadcast(front, &shape, &[0, 1, 2, 3, 4])?;
    fold(b, size, Batched::front(full))
}

/// A value with the examples folded into its first dimension.
fn fold(b: &mut Builder, size: usize, x: Batched) -> Result<Atom> {
    let front = b.batch_front(x, size)?;
    let shape = b.shape(front);
    b.reshape(front, &[&[shape[0] * shape[1]], &shape[2..]].concat())
}

/// The examples of a value that has them in its first dimension, with a batch of this size each.
fn unfold(b: &mut Builder, size: usize, batch: usize, x: Atom) -> Result<Batched> {
    let shape = b.shape(x);
    Ok(Batched::front(b.reshape(x, &[&[size, batch], &shape[1..]].concat())?))
}

/// The shape of one example.
fn example_shape(b: &Builder, x: Batched) -> Vec<usize> {
    let mut shape = b.shape(x.atom).to_vec();
    if let Some(axis) = x.axis {
        shape.remove(axis);
    }
    shape
}

fn avals(b: &Builder, atoms: &[Atom]) -> Vec<Aval> {
    atoms.iter().map(|&a| b.aval(a)).collect()
}

fn present(atoms: &[Option<Atom>]) -> Vec<Atom> {
    atoms.iter().flatten().copied().collect()
}

/// An attention to make samples of.
struct Case {
    label: &'static str,
    attention: DotProductAttention,
    inputs: Vec<Array>,
}

impl Case {
    /// An attention of `[batch, places, heads, features]` queries and such keys, with values of as many features and one.
    fn new(label: &'static str, dtype: DType, query: [usize; 4], key: [usize; 4]) -> Case {
        let scale = Literal::from_f64(DType::F64, 0.7);
        let [batch, places, heads, features] = key;
        let inputs = vec![any(dtype, &query), any(dtype, &key), any(dtype, &[batch, places, heads, features + 1])];
        Case { label, attention: DotProductAttention { scale, causal: false, bias: false, mask: false }, inputs }
    }

    fn causal(mut self) -> Case {
        self.attention.causal = true;
        self
    }

    fn biased(mut self, shape: [usize; 4]) -> Case {
        self.attention.bias = true;
        self.inputs.push(any(self.inputs[0].dtype(), &shape));
        self
    }

    fn masked(mut self, shape: [usize; 4], mask: &[f64]) -> Case {
        self.attention.mask = true;
        self.inputs.push(array(DType::Bool, &shape, mask));
        self
    }

    fn results(&self) -> Vec<Array> {
        eval_op(&Op::from(self.attention), &self.inputs).expect("the case is well formed")
    }

    fn differentiable(&self) -> [Option<Array>; 4] {
        let own = self.attention.operands(&self.inputs);
        [Some(own.query), Some(own.key), Some(own.value), own.bias].map(Option::<&Array>::cloned)
    }
}

fn biased() -> Case {
    Case::new("bias", DType::F64, [2, 3, 2, 2], [2, 2, 2, 2]).biased([2, 2, 3, 2])
}

fn cases() -> Vec<Case> {
    let case = |label, query, key| Case::new(label, DType::F64, query, key);
    let mut cases = vec![
        case("every key", [2, 3, 2, 3], [2, 4, 2, 3]),
        case("causal", [1, 3, 2, 2], [1, 3, 2, 2]).causal(),
        case("causal, more queries", [1, 4, 1, 2], [1, 2, 1, 2]).causal(),
        case("causal, more keys", [1, 2, 1, 2], [1, 4, 1, 2]).causal(),
        case("heads share keys", [2, 2, 6, 2], [2, 3, 2, 2]),
        case("all heads share keys", [1, 3, 3, 2], [1, 3, 1, 2]).causal(),
        biased(),
        case("bias of the places", [2, 3, 2, 2], [2, 2, 2, 2]).biased([1, 1, 3, 2]),
        case("bias of the heads", [2, 3, 4, 2], [2, 2, 2, 2]).biased([2, 4, 1, 1]),
        case("mask", [2, 3, 2, 2], [2, 4, 2, 2]).masked([2, 2, 3, 4], &[1.0, 0.0, 1.0, 1.0, 1.0]),
        case("bias and mask of keys", [2, 3, 2, 2], [2, 4, 2, 2])
            .biased([1, 2, 1, 4])
            .masked([2, 1, 1, 4], &[1.0, 1.0, 0.0, 1.0, 0.0])
            .causal(),
        case("rows without a key", [1, 3, 1, 2], [1, 2, 1, 2]).masked([1, 1, 3, 1], &[1.0, 0.0, 1.0]),
        case("no keys", [1, 2, 2, 2], [1, 0, 2, 2]),
        case("no queries", [1, 0, 2, 2], [1, 2, 2, 2]).causal(),
        case("no features", [1, 2, 1, 0], [1, 3, 1, 0]),
        case("no heads", [1, 2, 0, 2], [1, 3, 0, 2]),
        case("no batch", [0, 2, 1, 2], [0, 3, 1, 2]).biased([1, 1, 2, 3]),
    ];
    for dtype in [DType::F16, DType::Bf16, DType::F32] {
        cases.push(Case::new(dtype.name(), dtype, [1, 3, 4, 2], [1, 3, 2, 2]).causal().biased([1, 4, 1, 3]));
    }
    cases
}

/// Other values of the same dtype and shape.
fn turned(x: &Array) -> Array {
    let values = [0.5, -1.0, 0.25, 1.5, -0.75, 1.0, -0.125];
    array(x.dtype(), x.shape(), &values)
}
