//! The definitions of attention and its derivatives: programs of other operations.
//!
//! The derivatives compute the weights again from the scores and the logsumexp, as FlashAttention does (Dao et al., 2022), so that the
//! definitions say what a kernel computes tile by tile.
//!
//! Everything is computed in f32, or f64, except the operands of products, which are rounded to the dtype of the attention. Matrix units
//! multiply that dtype, and operands of the size of the scores take half of the memory. The sums of products are wide again, and so are
//! those of exponentials, which are sums of the weights before they are rounded.

use super::{
    AttentionOperands, AttentionSizes, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent,
};
use crate::{
    Atom, Aval, Binary, BroadcastInDim, Builder, Compare, ConvertElementType, DType, DotGeneral, Iota, Jaxpr, Literal,
    Op, Reduce, ReduceKind, Reshape, Result, SelectN, Shape, Transpose, Unary,
};

impl DotProductAttention {
    /// A program of other operations that gives the same results for operands of these avals.
    ///
    /// ```
    /// use remat_ir::{Aval, DType, DotProductAttention, Literal, Op, Prim};
    /// let scale = Literal::from_f64(DType::F64, 0.5);
    /// let attention = DotProductAttention { scale, causal: true, bias: false, mask: false };
    /// let x = Aval::new(DType::F32, [1, 8, 2, 4]);
    /// let program = attention.definition(&[x.clone(), x.clone(), x])?;
    /// assert_eq!(program.out_avals()[1].to_string(), "f32[1,2,8]");
    /// assert!(!program.eqns.iter().any(|eqn| matches!(eqn.op, Op::Prim(Prim::DotProductAttention(_)))));
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the operation does not take operands of these avals.
    pub fn definition(&self, ins: &[Aval]) -> Result<Jaxpr> {
        Op::from(*self).infer(ins)?;
        let (mut w, atoms) = Writer::new(self, ins);
        let operands = self.operands(&atoms);
        let scores = w.scores(operands)?;
        // A row without keys has a maximum of negative infinity; then 0 is subtracted from its scores.
        let largest = w.reduce(ReduceKind::Max, scores, &[KEYS])?;
        let largest = w.finite_or_zero(largest)?;
        let wide = w.per_query(largest)?;
        let shifted = w.binary(Binary::Sub, scores, wide)?;
        let powers = w.unary(Unary::Exp, shifted)?;
        let sum = w.reduce(ReduceKind::Sum, powers, &[KEYS])?;
        let log = w.unary(Unary::Log, sum)?;
        let logsumexp = w.binary(Binary::Add, log, largest)?;
        // The sum is at least 1 in a row that has keys, and 0 in a row without keys.
        let one = w.constant(1.0);
        let divisor = w.binary(Binary::Max, sum, one)?;
        let divisor = w.per_query(divisor)?;
        let weights = w.binary(Binary::Div, powers, divisor)?;
        let out = w.over_keys(weights, *operands.value)?;
        let out = w.convert(out, ins[0].dtype)?;
        Ok(w.b.finish(vec![out, logsumexp]))
    }
}

impl DotProductAttentionTangent {
    /// A program of other operations that gives the same results for operands of these avals.
    ///
    /// With weights `p`, scores `s` and result `o`: the tangent of the second result is the sum of `p s'` over the keys,
    /// and that of the first is the sum of `p v' + p s' v`, less that sum times `o`.
    ///
    /// # Errors
    /// If the operation does not take operands of these avals.
    pub fn definition(&self, ins: &[Aval]) -> Result<Jaxpr> {
        Op::from(*self).infer(ins)?;
        let (mut w, atoms) = Writer::new(&self.attention, ins);
        let operands = self.attention.operands(&atoms);
        let (out, logsumexp) = (operands.rest[0], operands.rest[1]);
        let mut given = operands.rest[2..].iter().copied();
        let [query, key, value, bias] = self.tangents.map(|is_given| if is_given { given.next() } else { None });
        let weights = w.weights(operands, logsumexp)?;

        let products = [query.map(|t| (t, *operands.key)), key.map(|t| (*operands.query, t))];
        let mut change = None;
        for (x, y) in products.into_iter().flatten() {
            let product = w.over_features(x, y)?;
            let scaled = w.scaled(product)?;
            change = Some(w.sum(change, scaled)?);
        }
        if let Some(t) = bias {
            let t = w.spread(t)?;
            change = Some(w.sum(change, t)?);
        }
        let (mut out_tangent, mut logsumexp_tangent) = (None, None);
        if let Some(change) = change {
            let weighted = w.binary(Binary::Mul, weights, change)?;
            let sum = w.reduce(ReduceKind::Sum, weighted, &[KEYS])?;
            let moved = w.over_keys(weighted, *operands.value)?;
            let mean = w.wide(out)?;
            let factor = w.per_place(sum)?;
            let scaled = w.binary(Binary::Mul, factor, mean)?;
            out_tangent = Some(w.binary(Binary::Sub, moved, scaled)?);
            logsumexp_tangent = Some(sum);
        }
        if let Some(t) = value {
            let t = w.over_keys(weights, t)?;
            out_tangent = Some(w.sum(out_tangent, t)?);
        }
        let out_tangent = w.or_zeros(out_tangent, out)?;
        let out_tangent = w.convert(out_tangent, ins[0].dtype)?;
        let logsumexp_tangent = w.or_zeros(logsumexp_tangent, logsumexp)?;
        Ok(w.b.finish(vec![out_tangent, logsumexp_tangent]))
    }
}

impl DotProductAttentionCotangent {
    /// A program of other operations that gives the same results for operands of these avals.
    ///
    /// With weights `p`, result `o` and the cotangents `o^` and `l^` of the results: that of the scores is
    /// `p (o^ v - (o^ o - l^))`, the products being sums over features.
    ///
    /// # Errors
    /// If the operation does not take operands of these avals.
    pub fn definition(&self, ins: &[Aval]) -> Result<Jaxpr> {
        Op::from(*self).infer(ins)?;
        let (mut w, atoms) = Writer::new(&self.attention, ins);
        let operands = self.attention.operands(&atoms);
        let (out, logsumexp, ct) = (operands.rest[0], operands.rest[1], operands.rest[2]);
        let weights = w.weights(operands, logsumexp)?;

        let product = w.over_features(ct, *operands.value)?;
        let wide_ct = w.wide(ct)?;
        let wide_out = w.wide(out)?;
        let both = w.binary(Binary::Mul, wide_ct, wide_out)?;
        let rows = w.reduce(ReduceKind::Sum, both, &[3])?;
        let mut rows = w.transpose(rows, &[0, 2, 1])?;
        if self.logsumexp {
            rows = w.binary(Binary::Sub, rows, operands.rest[3])?;
        }
        let rows = w.per_query(rows)?;
        let difference = w.binary(Binary::Sub, product, rows)?;
        let scores_ct = w.binary(Binary::Mul, weights, difference)?;

        let mut outs = Vec::new();
        let [query, key, value, bias] = self.cotangents;
        if query {
            let sum = w.over_keys(scores_ct, *operands.key)?;
            outs.push(w.scaled(sum)?);
        }
        if key {
            let sum = w.over_queries(scores_ct, *operands.query)?;
            outs.push(w.scaled(sum)?);
        }
        if value {
            outs.push(w.over_queries(weights, ct)?);
        }
        if let Some(operand) = operands.bias.filter(|_| bias) {
            outs.push(w.gathered(scores_ct, *operand)?);
        }
        let outs = outs.into_iter().map(|out| w.convert(out, ins[0].dtype)).collect::<Result<_>>()?;
        Ok(w.b.finish(outs))
    }
}

/// The dimensions of scores: batch, heads, queries, keys.
const QUERIES: usize = 2;
const KEYS: usize = 3;

/// Writes the equations of a definition.
struct Writer {
    b: Builder,
    attention: DotProductAttention,
    sizes: AttentionSizes,
    /// The dtype of the operands of products, that of the attention.
    operands: DType,
    /// The dtype in which everything else is computed.
    dtype: DType,
}

impl Writer {
    /// An empty program with these inputs.
    fn new(attention: &DotProductAttention, ins: &[Aval]) -> (Writer, Vec<Atom>) {
        let mut b = Builder::new();
        let atoms = b.inputs(ins.iter().cloned());
        let operands = ins[0].dtype;
        (Writer { b, attention: *attention, sizes: attention.sizes(ins), operands, dtype: operands.wide() }, atoms)
    }

    /// The scores, negative infinity where there is no weight.
    fn scores(&mut self, operands: AttentionOperands<'_, Atom>) -> Result<Atom> {
        let product = self.over_features(*operands.query, *operands.key)?;
        let mut scores = self.scaled(product)?;
        if let Some(&bias) = operands.bias {
            let bias = self.spread(bias)?;
            scores = self.binary(Binary::Add, scores, bias)?;
        }
        let infinity = self.constant(f64::NEG_INFINITY);
        if let Some(&mask) = operands.mask {
            let mask = self.broadcast(mask, &self.sizes.scores(), &[0, 1, QUERIES, KEYS])?;
            scores = self.select(mask, scores, infinity)?;
        }
        if self.attention.causal {
            let positions: Shape = [self.sizes.queries, self.sizes.keys].into_iter().collect();
            let iota = |axis| Op::from(Iota { dtype: DType::I32, shape: positions.clone(), axis });
            let (query, key) = (self.b.emit1(iota(0), &[])?, self.b.emit1(iota(1), &[])?);
            let earlier = self.b.emit1(Compare::Ge.into(), &[query, key])?;
            let earlier = self.broadcast(earlier, &self.sizes.scores(), &[QUERIES, KEYS])?;
            scores = self.select(earlier, scores, infinity)?;
        }
        Ok(scores)
    }

    /// The weights, from the scores and the logsumexp, rounded as the operands of products are.
    fn weights(&mut self, operands: AttentionOperands<'_, Atom>, logsumexp: Atom) -> Result<Atom> {
        let scores = self.scores(operands)?;
        let shift = self.finite_or_zero(logsumexp)?;
        let shift = self.per_query(shift)?;
        let shifted = self.binary(Binary::Sub, scores, shift)?;
        let weights = self.unary(Unary::Exp, shifted)?;
        // The scores take twice the bytes. With the rounded weights they need not stay live for the second reader.
        let rounded = self.convert(weights, self.operands)?;
        self.wide(rounded)
    }

    /// `[batch, queries, heads, f]` and `[batch, keys, key heads, f]` to `[batch, heads, queries, keys]`.
    fn over_features(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        let x = self.grouped_positions(x)?;
        let product = self.product(x, y, (&[4], &[3]), (&[0, 2], &[0, 2]))?;
        // Batch, key heads, queries, group, keys.
        let product = self.transpose(product, &[0, 1, 3, 2, 4])?;
        self.reshape(product, &self.sizes.scores())
    }

    /// `[batch, heads, queries, keys]` and `[batch, keys, key heads, f]` to `[batch, queries, heads, f]`.
    fn over_keys(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        let x = self.grouped_scores(x)?;
        let product = self.product(x, y, (&[4], &[1]), (&[0, 1], &[0, 2]))?;
        // Batch, key heads, group, queries, features.
        let product = self.transpose(product, &[0, 3, 1, 2, 4])?;
        let features = self.b.shape(y)[3];
        self.reshape(product, &[self.sizes.batch, self.sizes.queries, self.sizes.heads, features])
    }

    /// `[batch, heads, queries, keys]` and `[batch, queries, heads, f]` to `[batch, keys, key heads, f]`.
    fn over_queries(&mut self, x: Atom, y: Atom) -> Result<Atom> {
        let (x, y) = (self.grouped_scores(x)?, self.grouped_positions(y)?);
        let product = self.product(x, y, (&[2, 3], &[3, 1]), (&[0, 1], &[0, 2]))?;
        // Batch, key heads, keys, features.
        self.transpose(product, &[0, 2, 1, 3])
    }

    /// `[batch, queries, key heads, group, f]`
    fn grouped_positions(&mut self, x: Atom) -> Result<Atom> {
        let AttentionSizes { batch, queries, key_heads, .. } = self.sizes;
        let features = self.b.shape(x)[3];
        self.reshape(x, &[batch, queries, key_heads, self.sizes.group(), features])
    }

    /// `[batch, key heads, group, queries, keys]`, rounded for a product.
    fn grouped_scores(&mut self, x: Atom) -> Result<Atom> {
        let x = self.convert(x, self.operands)?;
        let AttentionSizes { batch, queries, keys, key_heads, .. } = self.sizes;
        self.reshape(x, &[batch, key_heads, self.sizes.group(), queries, keys])
    }

    fn product(
        &mut self,
        x: Atom,
        y: Atom,
        contract: (&[usize], &[usize]),
        batch: (&[usize], &[usize]),
    ) -> Result<Atom> {
        let op = DotGeneral {
            lhs_contract: contract.0.into(),
            rhs_contract: contract.1.into(),
            lhs_batch: batch.0.into(),
            rhs_batch: batch.1.into(),
            preferred_element_type: self.dtype,
        };
        self.b.emit1(op.into(), &[x, y])
    }

    /// A bias broadcast to the shape of the scores.
    fn spread(&mut self, bias: Atom) -> Result<Atom> {
        let bias = self.wide(bias)?;
        self.broadcast(bias, &self.sizes.scores(), &[0, 1, QUERIES, KEYS])
    }

    /// Scores summed to the shape of a bias.
    fn gathered(&mut self, scores: Atom, bias: Atom) -> Result<Atom> {
        let shape = self.b.shape(bias);
        let axes: Vec<usize> = (0..4).filter(|&d| shape[d] != self.sizes.scores()[d]).collect();
        let sum = self.reduce(ReduceKind::Sum, scores, &axes)?;
        self.reshape(sum, &shape)
    }

    /// `[batch, heads, queries]` repeated for each key.
    fn per_query(&mut self, x: Atom) -> Result<Atom> {
        self.broadcast(x, &self.sizes.scores(), &[0, 1, QUERIES])
    }

    /// `[batch, heads, queries]` as `[batch, queries, heads, value features]`.
    fn per_place(&mut self, x: Atom) -> Result<Atom> {
        let AttentionSizes { batch, queries, heads, value_features, .. } = self.sizes;
        let x = self.transpose(x, &[0, 2, 1])?;
        self.broadcast(x, &[batch, queries, heads, value_features], &[0, 1, 2])
    }

    /// `x`, or 0 where it is negative infinity.
    fn finite_or_zero(&mut self, x: Atom) -> Result<Atom> {
        let infinity = self.constant(f64::NEG_INFINITY);
        let is_empty = self.b.emit1(Compare::Eq.into(), &[x, infinity])?;
        let zero = self.constant(0.0);
        self.select(is_empty, zero, x)
    }

    fn scaled(&mut self, x: Atom) -> Result<Atom> {
        let scale = self.constant(self.attention.scale.as_f64());
        self.binary(Binary::Mul, x, scale)
    }

    fn sum(&mut self, x: Option<Atom>, y: Atom) -> Result<Atom> {
        x.map_or(Ok(y), |x| self.binary(Binary::Add, x, y))
    }

    /// `x`, or zeros of the shape of `like`.
    fn or_zeros(&mut self, x: Option<Atom>, like: Atom) -> Result<Atom> {
        let zero = self.constant(0.0);
        let shape = self.b.shape(like);
        x.map_or_else(|| self.broadcast(zero, &shape, &[]), Ok)
    }

    fn constant(&self, value: f64) -> Atom {
        Literal::from_f64(self.dtype, value).into()
    }

    fn wide(&mut self, x: Atom) -> Result<Atom> {
        self.convert(x, self.dtype)
    }

    fn convert(&mut self, x: Atom, dtype: DType) -> Result<Atom> {
        if self.b.dtype(x) == dtype { Ok(x) } else { self.b.emit1(ConvertElementType { dtype }.into(), &[x]) }
    }

    fn unary(&mut self, op: Unary, x: Atom) -> Result<Atom> {
        self.b.emit1(op.into(), &[x])
    }

    fn binary(&mut self, op: Binary, x: Atom, y: Atom) -> Result<Atom> {
        self.b.emit1(op.into(), &[x, y])
    }

    /// `if_true` where `condition` holds, else `if_false`; one of the two can be a constant.
    fn select(&mut self, condition: Atom, if_true: Atom, if_false: Atom) -> Result<Atom> {
        self.b.emit1(SelectN.into(), &[condition, if_false, if_true])
    }

    fn reduce(&mut self, kind: ReduceKind, x: Atom, axes: &[usize]) -> Result<Atom> {
        self.b.emit1(Reduce { kind, axes: axes.into() }.into(), &[x])
    }

    fn broadcast(&mut self, x: Atom, shape: &[usize], dims: &[usize]) -> Result<Atom> {
        self.b.emit1(BroadcastInDim { shape: shape.into(), dims: dims.into() }.into(), &[x])
    }

    fn transpose(&mut self, x: Atom, permutation: &[usize]) -> Result<Atom> {
        self.b.emit1(Transpose { permutation: permutation.into() }.into(), &[x])
    }

    fn reshape(&mut self, x: Atom, shape: &[usize]) -> Result<Atom> {
        self.b.emit1(Reshape { shape: shape.into() }.into(), &[x])
    }
}
