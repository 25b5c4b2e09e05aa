//! The program of an attention: its operands laid out as the operation takes them, the operation, and the result as the product had it.
//!
//! Nearly all of this is views.

use remat_ir::{
    Atom, Binary, BroadcastInDim, Builder, Compare, ConvertElementType, DType, DotProductAttention, Jaxpr, Literal,
    Reduce, ReduceKind, Reshape, Result, SelectN, Shape, Transpose, Unary,
};

use super::matching::{Attention, Roles};
use super::values::{Axes, Axis, FEATURES, Program, Value};

/// The axes of each of the four dimensions of an operand of the operation, the first one varying least.
type Dimensions = [Vec<Axis>; 4];

/// The program of an attention with a result of this shape, and its operands.
pub(super) fn written(program: &Program<'_>, attention: &Attention, shape: &[usize]) -> Result<(Jaxpr, Vec<Atom>)> {
    let Attention { query, key, value, bias, mask, scale, roles, result } = attention;
    let dtype = program.dtype(query.atom);
    let causal = mask.as_ref().and_then(|mask| mask.causal);
    let condition = mask.as_ref().and_then(|mask| mask.other.as_ref());
    let Layout { batch, heads, group, queries } = Layout::new(roles, query, causal);
    let all_heads = [heads.clone(), group].concat();
    let of_queries = [batch.clone(), queries.clone(), all_heads.clone(), vec![FEATURES]];
    let of_keys = [batch.clone(), vec![roles.key], heads, vec![FEATURES]];
    let of_scores = [batch, all_heads, queries, vec![roles.key]];

    let mut w = Writer { program, scores: &roles.sizes, b: Builder::new(), ins: Vec::new() };
    let values = w.operand(value, &of_keys)?;
    let mut operands = vec![w.operand(query, &of_queries)?, w.operand(key, &of_keys)?, values];
    if let Some(bias) = bias {
        operands.push(w.operand(bias, &of_scores)?);
    }
    if let Some(condition) = condition {
        let mask = w.operand(&condition.value, &of_scores)?;
        operands.push(if condition.is_negated { w.b.emit1(Unary::Not.into(), &[mask])? } else { mask });
    }
    let op = DotProductAttention {
        scale: Literal::from_f64(DType::F64, *scale),
        causal: causal.is_some(),
        bias: bias.is_some(),
        mask: condition.is_some(),
    };
    let results = w.b.emit(op.into(), &operands)?;
    let mut out = results[0];
    // With causality alone every query has a key.
    if condition.is_some() || bias.is_some() {
        let is_uniform = condition.is_some() && mask.as_ref().is_some_and(|mask| mask.fill.is_finite());
        let other = if is_uniform { w.mean(values, out, dtype)? } else { Literal::from_f64(dtype, f64::NAN).into() };
        out = w.or_without_keys(out, results[1], other)?;
    }
    let out = w.result(out, &of_queries, result, shape)?;
    Ok((w.b.finish(vec![out]), w.ins))
}

/// Which axes the dimensions of the operation have.
struct Layout {
    batch: Vec<Axis>,
    /// The heads of keys.
    heads: Vec<Axis>,
    /// The heads that share one of them.
    group: Vec<Axis>,
    queries: Vec<Axis>,
}

impl Layout {
    /// In the order of the dimensions of the queries, so that they need not be copied: the last axis of the batch is the heads, and axes of
    /// queries alone that come after it are a group, if others come before.
    fn new(roles: &Roles, query: &Value, causal: Option<Axis>) -> Layout {
        let (mut batch, mut queries, mut group) = (Vec::new(), Vec::new(), Vec::new());
        for &axis in query.axes.iter().flatten() {
            if roles.batch.contains(&axis) {
                batch.push(axis);
                queries.append(&mut group);
            } else if roles.free.contains(&axis) {
                group.push(axis);
            }
        }
        if queries.is_empty() {
            std::mem::swap(&mut queries, &mut group);
        }
        if let Some(axis) = causal {
            group = roles.free.iter().copied().filter(|&other| other != axis).collect();
            queries = vec![axis];
        }
        let heads = batch.pop().into_iter().collect();
        Layout { batch, heads, group, queries }
    }
}

struct Writer<'a> {
    program: &'a Program<'a>,
    /// The sizes of the axes of the scores.
    scores: &'a [usize],
    b: Builder,
    /// The operands so far.
    ins: Vec<Atom>,
}

impl Writer<'_> {
    /// A value with these dimensions; one along whose axes it does not vary has size 1.
    fn operand(&mut self, value: &Value, dimensions: &Dimensions) -> Result<Atom> {
        let shape = self.program.shape(value.atom);
        let place = |axis: &Axis| value.axes.iter().position(|other| other.as_ref() == Some(axis));
        let size = |axis: &Axis| place(axis).map_or_else(|| self.scores[*axis], |dimension| shape[dimension]);
        let varies = |axes: &&Vec<Axis>| axes.iter().any(|axis| place(axis).is_some());
        let wanted: Vec<Axis> = dimensions.iter().filter(varies).flatten().copied().collect();
        let own: Vec<Axis> = wanted.iter().copied().filter(|axis| place(axis).is_some()).collect();
        let short = (0..shape.len()).filter(|&dimension| value.axes[dimension].is_none());
        let permutation: Shape = own.iter().filter_map(place).chain(short).collect();
        let long: Shape = own.iter().map(size).collect();
        let full: Shape = wanted.iter().map(size).collect();
        let dims: Shape = (0..wanted.len()).filter(|&i| place(&wanted[i]).is_some()).collect();
        let product = |axes: &Vec<Axis>| if varies(&axes) { axes.iter().map(size).product() } else { 1 };
        let last: Shape = dimensions.iter().map(product).collect();

        let mut x = value.atom;
        if x.var().is_some() {
            self.ins.push(x);
            x = self.b.input(self.program.aval(x));
        }
        let x = self.transposed(x, permutation)?;
        let x = self.reshaped(x, long)?;
        let x = if own == wanted { x } else { self.b.emit1(BroadcastInDim { shape: full, dims }.into(), &[x])? };
        self.reshaped(x, last)
    }

    /// The result of the operation, with these dimensions, along other axes and of this shape.
    fn result(&mut self, out: Atom, dimensions: &Dimensions, axes: &Axes, shape: &[usize]) -> Result<Atom> {
        let place = |axis: &Axis| axes.iter().position(|other| other.as_ref() == Some(axis));
        let long: Vec<Axis> = dimensions.iter().flatten().copied().filter(|axis| place(axis).is_some()).collect();
        let sizes = long.iter().filter_map(place).map(|dimension| shape[dimension]).collect();
        let order = axes.iter().flatten().filter_map(|axis| long.iter().position(|other| other == axis)).collect();
        let out = self.reshaped(out, sizes)?;
        let out = self.transposed(out, order)?;
        self.reshaped(out, shape.into())
    }

    /// The mean of the values, for each query: the sum of their products with the same weight, which is rounded as other weights are.
    fn mean(&mut self, values: Atom, out: Atom, dtype: DType) -> Result<Atom> {
        let (from, to) = (self.b.shape(values), self.b.shape(out));
        let [batch, keys, heads, features] = from[..] else { return Ok(out) };
        let weight = Literal::from_f64(dtype, 1.0 / keys as f64);
        let weight = Literal::from_f64(dtype.wide(), weight.as_f64());
        let wide = self.converted(values, dtype.wide())?;
        let weighted = self.b.emit1(Binary::Mul.into(), &[wide, weight.into()])?;
        let sum =
            self.b.emit1(Reduce { kind: ReduceKind::Sum, axes: [1].into_iter().collect() }.into(), &[weighted])?;
        let sum = self.converted(sum, dtype)?;
        let grouped = [batch, to[1], heads, to[2] / heads, features].into_iter().collect();
        let dims = [0, 2, 4].into_iter().collect();
        let sum = self.b.emit1(BroadcastInDim { shape: grouped, dims }.into(), &[sum])?;
        self.reshaped(sum, to)
    }

    /// The result of the operation, or another one for queries without keys, whose logsumexp is negative infinity.
    fn or_without_keys(&mut self, out: Atom, logsumexp: Atom, other: Atom) -> Result<Atom> {
        let bottom = Literal::from_f64(self.b.dtype(logsumexp), f64::NEG_INFINITY);
        let is_empty = self.b.emit1(Compare::Eq.into(), &[logsumexp, bottom.into()])?;
        let is_empty = self.transposed(is_empty, [0, 2, 1].into_iter().collect())?;
        let broadcast = BroadcastInDim { shape: self.b.shape(out), dims: [0, 1, 2].into_iter().collect() };
        let is_empty = self.b.emit1(broadcast.into(), &[is_empty])?;
        self.b.emit1(SelectN.into(), &[is_empty, out, other])
    }

    fn converted(&mut self, x: Atom, dtype: DType) -> Result<Atom> {
        if self.b.dtype(x) == dtype { Ok(x) } else { self.b.emit1(ConvertElementType { dtype }.into(), &[x]) }
    }

    fn transposed(&mut self, x: Atom, permutation: Shape) -> Result<Atom> {
        if permutation.is_sorted() { Ok(x) } else { self.b.emit1(Transpose { permutation }.into(), &[x]) }
    }

    fn reshaped(&mut self, x: Atom, shape: Shape) -> Result<Atom> {
        if self.b.shape(x) == shape { Ok(x) } else { self.b.emit1(Reshape { shape }.into(), &[x]) }
    }
}
