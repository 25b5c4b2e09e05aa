//! Attention: softmax of scaled products of queries and keys, applied to values, and the operations of its derivative.
//!
//! Each of the three is one operation. So a policy sees queries, keys, values and results but not the matrix of scores, and an engine can
//! compute them tile by tile without storing that matrix. Each also has a `definition`: a program of other operations that computes the
//! same.

mod definition;

use super::geometry::sized;
use super::op::op;
use super::rules::{Accepts, same_dtype, same_memory};
use super::values::{ParamGroup, ParamValue, named};
use super::{Operation, Param, ParamMap, Params, dtype_error, expect_operands, shape_error};
use crate::{Aval, Class, DType, Jaxpr, Literal, Result};

/// `dot_product_attention query key value [bias] [mask]`: for each query, the mean of the values weighted by the softmax of the query's
/// scores.
///
/// Queries are `[batch, queries, heads, features]`, keys `[batch, keys, key heads, features]` and values `[batch, keys, key heads, value
/// features]`, of one float dtype. The number of heads is a multiple of the number of key heads; consecutive heads share a key head. The
/// score of a query and a key is their product times `scale`, plus the bias. Bias (of the same dtype) and mask (bool) have the shape of the
/// scores, `[batch, heads, queries, keys]`, or size 1 in some of the dimensions. A key has no weight where the mask is false, or, with
/// `causal`, where its position is later than the query's. Positions count from the first query and the first key.
///
/// Results: the means, `[batch, queries, heads, value features]` in the dtype of the operands, and the logarithms of the sums of
/// exponentials of the scores (logsumexp), `[batch, heads, queries]` in f32, or f64 for f64. Everything is computed in that dtype and
/// rounded once. A query that attends to no key gives zeros and negative infinity; JAX gives the mean of all values. Whether a value that
/// is not finite and has no weight affects the results is not specified.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DotProductAttention {
    /// The factor for the products of queries and keys: an f64.
    pub scale: Literal,
    /// Whether a query attends only to keys up to its own position.
    pub causal: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Whether there is a mask.
    pub mask: bool,
}

/// The tangents of both results of an attention, linear in the tangents of its operands.
///
/// Operands: those of the attention, its two results, and the tangents of query, key, value and bias, where they have one. The weights are
/// computed from the scores and the second result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DotProductAttentionTangent {
    /// The attention.
    pub attention: DotProductAttention,
    /// Which of query, key, value and bias have a tangent.
    pub tangents: [bool; 4],
}

/// The cotangents of the operands of an attention, linear in the cotangents of its results: the transpose of
/// [`DotProductAttentionTangent`].
///
/// Operands: those of the attention, its two results, the cotangent of the first result and, if there is one, that of the second. Results:
/// the wanted cotangents of query, key, value and bias.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DotProductAttentionCotangent {
    /// The attention.
    pub attention: DotProductAttention,
    /// Which of query, key, value and bias get a cotangent.
    pub cotangents: [bool; 4],
    /// Whether the second result has a cotangent.
    pub logsumexp: bool,
}

/// The operands of an attention by name; `rest` are the further operands of its derivatives.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are the operands that the text names")]
pub struct AttentionOperands<'a, T> {
    pub query: &'a T,
    pub key: &'a T,
    pub value: &'a T,
    pub bias: Option<&'a T>,
    pub mask: Option<&'a T>,
    pub rest: &'a [T],
}

/// The sizes of an attention.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttentionSizes {
    /// The size of the batch.
    pub batch: usize,
    /// The number of queries.
    pub queries: usize,
    /// The number of keys.
    pub keys: usize,
    /// The number of heads.
    pub heads: usize,
    /// The number of key heads.
    pub key_heads: usize,
    /// The features of queries and keys.
    pub features: usize,
    /// The features of values.
    pub value_features: usize,
}

impl AttentionSizes {
    /// How many heads share a key head.
    pub fn group(&self) -> usize {
        self.heads.checked_div(self.key_heads).unwrap_or(1)
    }

    /// The shape of the scores.
    pub fn scores(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.keys]
    }
}

/// The names in programs of the differentiable operands.
const NAMES: [&str; 4] = ["query", "key", "value", "bias"];

impl DotProductAttention {
    /// The number of operands.
    pub fn num_operands(&self) -> usize {
        3 + usize::from(self.bias) + usize::from(self.mask)
    }

    /// The operands by their names, of at least [`DotProductAttention::num_operands`].
    pub fn operands<'a, T>(&self, ins: &'a [T]) -> AttentionOperands<'a, T> {
        let (own, rest) = ins.split_at(self.num_operands());
        AttentionOperands {
            query: &own[0],
            key: &own[1],
            value: &own[2],
            bias: self.bias.then(|| &own[3]),
            mask: self.mask.then(|| &own[own.len() - 1]),
            rest,
        }
    }

    /// The sizes, given avals that the shape rule takes.
    pub fn sizes(&self, ins: &[Aval]) -> AttentionSizes {
        let AttentionOperands { query, key, value, .. } = self.operands(ins);
        AttentionSizes {
            batch: query.shape[0],
            queries: query.shape[1],
            keys: key.shape[1],
            heads: query.shape[2],
            key_heads: key.shape[2],
            features: query.shape[3],
            value_features: value.shape[3],
        }
    }

    /// The avals of the results.
    fn results(&self, name: &str, ins: &[Aval]) -> Result<[Aval; 2]> {
        let operands = self.operands(ins);
        let AttentionOperands { query, key, value, bias, mask, .. } = operands;
        if self.scale.dtype() != DType::F64 {
            return dtype_error(name, format!("scale is {} and must be an f64", self.scale));
        }
        let floats: Vec<Aval> = [Some(query), Some(key), Some(value), bias].into_iter().flatten().cloned().collect();
        Accepts::Floats.check(name, query)?;
        same_dtype(name, &floats)?;
        same_memory(name, ins)?;
        if let Some(other) = [query, key, value].into_iter().find(|a| a.rank() != 4) {
            let message = format!("takes queries, keys and values [batch, queries, heads, features], not {other}");
            return shape_error(name, message);
        }
        for (dimension, what) in [(0, "batch sizes"), (3, "features")] {
            if query.shape[dimension] != key.shape[dimension] {
                return shape_error(name, format!("the {what} of queries {query} and keys {key} differ"));
            }
        }
        for (dimension, what) in [(0, "batch sizes"), (1, "positions"), (2, "heads")] {
            if key.shape[dimension] != value.shape[dimension] {
                return shape_error(name, format!("the {what} of keys {key} and values {value} differ"));
            }
        }
        let sizes = self.sizes(ins);
        if !sizes.heads.is_multiple_of(sizes.key_heads) {
            let message =
                format!("the {} heads of {query} are not a multiple of the {} of {key}", sizes.heads, sizes.key_heads);
            return shape_error(name, message);
        }
        let scores = sized(name, query.with_shape(sizes.scores()).with_dtype(query.dtype.wide()))?;
        for (what, operand) in [("bias", bias), ("mask", mask)] {
            let Some(operand) = operand else { continue };
            let is_broadcast = |(&size, &full): (&usize, &usize)| size == full || size == 1;
            if operand.rank() != 4 || !operand.shape.iter().zip(&scores.shape).all(is_broadcast) {
                let shape = sizes.scores();
                return shape_error(name, format!("the {what} {operand} does not broadcast to {shape:?}"));
            }
        }
        if let Some(mask) = mask.filter(|mask| mask.dtype != DType::Bool) {
            return dtype_error(name, format!("the mask must be bool, not {mask}"));
        }
        let out = query.with_shape([sizes.batch, sizes.queries, sizes.heads, sizes.value_features]);
        let logsumexp = scores.with_shape([sizes.batch, sizes.heads, sizes.queries]);
        Ok([sized(name, out)?, logsumexp])
    }

    /// The avals of the differentiable operands; there is no bias where the attention has none.
    fn differentiable<'a>(&self, ins: &'a [Aval]) -> [Option<&'a Aval>; 4] {
        let AttentionOperands { query, key, value, bias, .. } = self.operands(ins);
        [Some(query), Some(key), Some(value), bias]
    }

    /// The avals of those of `which`.
    fn chosen(&self, name: &str, what: &str, which: [bool; 4], ins: &[Aval]) -> Result<Vec<Aval>> {
        if which[3] && !self.bias {
            return shape_error(name, format!("there are {what} of a bias, and there is no bias"));
        }
        let all = self.differentiable(ins);
        Ok(all.into_iter().zip(which).filter(|(_, chosen)| *chosen).filter_map(|(aval, _)| aval.cloned()).collect())
    }
}

impl ParamGroup for DotProductAttention {
    op! { group { bias, causal, mask, scale } }
}

// Not a row of `op!`: its parameters are those of its derivatives too.
impl Operation for DotProductAttention {
    fn name(&self) -> &'static str {
        "dot_product_attention"
    }

    fn class(&self) -> Class {
        Class::Contraction
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        expect_operands(self.name(), ins, self.num_operands())?;
        Ok(self.results(self.name(), ins)?.to_vec())
    }

    fn params(&self) -> Params {
        self.to_params()
    }

    fn definition(&self, ins: &[Aval]) -> Option<Result<Jaxpr>> {
        Some(self.definition(ins))
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "dot_product_attention").then(|| ParamGroup::take(params))
    }
}

impl Operation for DotProductAttentionTangent {
    op! { "dot_product_attention_tangent" class Contraction { ..attention, tangents } }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let own = self.attention.num_operands();
        let tangents = self.tangents.iter().filter(|t| **t).count();
        expect_operands(self.name(), ins, own + 2 + tangents)?;
        let results = self.attention.results(self.name(), ins)?;
        let tangents = self.attention.chosen(self.name(), "tangents", self.tangents, ins)?;
        expect_avals(self.name(), &ins[own..], results.iter().chain(&tangents))?;
        Ok(results.to_vec())
    }

    fn definition(&self, ins: &[Aval]) -> Option<Result<Jaxpr>> {
        Some(self.definition(ins))
    }
}

// Not a row of `op!`: parameters print between those of the attention.
impl Operation for DotProductAttentionCotangent {
    fn name(&self) -> &'static str {
        "dot_product_attention_cotangent"
    }

    fn class(&self) -> Class {
        Class::Contraction
    }

    fn infer(&self, ins: &[Aval]) -> Result<Vec<Aval>> {
        let own = self.attention.num_operands();
        expect_operands(self.name(), ins, own + 3 + usize::from(self.logsumexp))?;
        let results = self.attention.results(self.name(), ins)?;
        let expected = results.iter().chain(&results).take(ins.len() - own);
        expect_avals(self.name(), &ins[own..], expected)?;
        self.attention.chosen(self.name(), "cotangents", self.cotangents, ins)
    }

    fn params(&self) -> Params {
        let mut params = self.attention.to_params();
        params.extend(named("cotangents", &self.cotangents).chain(named("logsumexp", &self.logsumexp)));
        params.sort_by_key(|(name, _)| *name);
        params
    }

    fn definition(&self, ins: &[Aval]) -> Option<Result<Jaxpr>> {
        Some(self.definition(ins))
    }

    fn parse(name: &str, params: &ParamMap<'_>) -> Option<Result<Self>> {
        (name == "dot_product_attention_cotangent").then(|| {
            let (cotangents, logsumexp) = (params.read("cotangents")?, params.read("logsumexp")?);
            Ok(DotProductAttentionCotangent { attention: ParamGroup::take(params)?, cotangents, logsumexp })
        })
    }
}

/// Fails unless the operands of a derivative have these avals.
fn expect_avals<'a>(name: &str, ins: &[Aval], expected: impl Iterator<Item = &'a Aval>) -> Result<()> {
    match ins.iter().zip(expected).find(|(got, expected)| got != expected) {
        Some((got, expected)) => shape_error(name, format!("takes {expected} and got {got}")),
        None => Ok(()),
    }
}

/// The differentiable operands for which it is true: `(query, value)`.
impl ParamValue for [bool; 4] {
    fn to_param(&self) -> Option<Param> {
        let chosen = NAMES.into_iter().zip(*self).filter(|(_, chosen)| *chosen);
        Some(Param::Tuple(chosen.map(|(name, _)| Param::word(name)).collect()))
    }

    fn take(params: &ParamMap<'_>, name: &str) -> Result<Self> {
        let param = params.take(name)?;
        let malformed = || params.error(name, "is not a tuple of query, key, value and bias");
        let Param::Tuple(items) = &param else { return Err(malformed()) };
        let which = NAMES.map(|name| items.contains(&Param::word(name)));
        // Other words, and another order, do not print again as they are.
        if which.to_param() == Some(param) { Ok(which) } else { Err(malformed()) }
    }
}
