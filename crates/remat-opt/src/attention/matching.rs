//! The match: from the product with the values back to the product of queries and keys, equation by equation.

use remat_ir::{Binary, ConvertElementType, DType, Prim, ReduceKind, Shape, Unary};

use super::mask::{Mask, masked};
use super::product::Product;
use super::values::{Axes, Axis, FEATURES, Matched, Program, Value};

/// An attention that is written out.
pub(super) struct Attention {
    pub(super) query: Value,
    pub(super) key: Value,
    pub(super) value: Value,
    pub(super) bias: Option<Value>,
    pub(super) mask: Option<Mask>,
    pub(super) scale: f64,
    pub(super) roles: Roles,
    /// The axes of its result.
    pub(super) result: Axes,
}

/// What the axes of the scores are.
pub(super) struct Roles {
    /// Those of queries, keys and values.
    pub(super) batch: Vec<Axis>,
    /// Those of queries alone.
    pub(super) free: Vec<Axis>,
    pub(super) key: Axis,
    /// The size of each axis.
    pub(super) sizes: Shape,
}

/// The products of queries and keys, times a constant.
struct Scores {
    scale: f64,
    query: Value,
    key: Value,
}

/// The fewest queries of a head of keys, and the fewest keys, of which the operation is computed faster than what is written out. Scores of
/// fewer queries take no more memory than the keys. Measured in docs/EXPERIMENTS.md, "Attention", row "Attention that JAX writes out".
const FEWEST: usize = 32;

/// The attention whose last equation, the product with the values, is this one. Nothing else reads what the others compute.
pub(super) fn attention(program: &Program<'_>, at: usize) -> Option<Attention> {
    (0..2).find_map(|side| of_weights(program, at, side))
}

/// The attention whose weights are this operand of its last equation.
fn of_weights(program: &Program<'_>, at: usize, side: usize) -> Option<Attention> {
    let dtype = program.dtype(program.eqn(at).ins.first().copied()?);
    let product = Product::new(program, at, dtype, dtype)?;
    let weights = product.ins[side];
    // The dimensions of the weights name the axes of the scores.
    let shape = program.shape(weights);
    let axes: Axes = shape.iter().enumerate().map(|(axis, &size)| (size != 1).then_some(axis)).collect();
    let mut contracted = product.contracted(side).iter().filter_map(|&dimension| axes[dimension]);
    let (Some(key), None) = (contracted.next(), contracted.next()) else { return None };
    if !dtype.is_float() || shape.contains(&0) {
        return None;
    }
    let batch: Vec<Axis> = product.batch(side).iter().filter_map(|&dimension| axes[dimension]).collect();
    let free = axes.iter().flatten().copied().filter(|axis| *axis != key && !batch.contains(axis)).collect();
    let roles = Roles { batch, free, key, sizes: shape };
    let result = product.result(side, &axes);
    let value = product.operands(&result, key).into_iter().nth(1 - side)?;

    let mut matched = Matched::new();
    let weights = Value { atom: weights, axes };
    let weights = program.origin(weights, &mut matched);
    let weights = unrounded(program, weights, dtype, &mut matched)?;
    let scores = softmax(program, &weights, key, &mut matched)?;
    let (mask, scores) = masked(program, scores, key, &mut matched)?;
    let (bias, Scores { scale, query, key }) = biased(program, scores, dtype, key, &mut matched)?;
    let is_of_query = |mask: &Mask| mask.causal.is_none_or(|axis| roles.free.contains(&axis));
    let queries: usize = roles.free.iter().map(|&axis| roles.sizes[axis]).product();
    let is_whole = queries >= FEWEST
        && roles.sizes[roles.key] >= FEWEST
        && mask.as_ref().is_none_or(is_of_query)
        && roles.are_of(&query, &roles.free)
        && roles.are_of(&key, &[roles.key])
        && roles.are_of(&value, &[roles.key])
        && program.is_read_only_by(&matched, at);
    let [query, key, value] = [query, key, value].map(|value| unmoved(program, value));
    is_whole.then_some(Attention { query, key, value, bias, mask, scale, roles, result })
}

impl Roles {
    /// Whether the dimensions of an operand follow the axes of the batch and these, each once, and at most one has features.
    fn are_of(&self, value: &Value, others: &[Axis]) -> bool {
        let mut got: Vec<Axis> = value.axes.iter().flatten().copied().filter(|axis| *axis != FEATURES).collect();
        let mut expected = [&self.batch, others].concat();
        got.sort_unstable();
        expected.sort_unstable();
        got == expected && value.axes.iter().filter(|axis| **axis == Some(FEATURES)).count() <= 1
    }
}

/// The origin of an operand, unless it was broadcast.
fn unmoved(program: &Program<'_>, value: Value) -> Value {
    let source = program.source(value.clone());
    let count = |value: &Value| value.axes.iter().flatten().count();
    if count(&source) == count(&value) { source } else { value }
}

/// Weights before they are rounded to the dtype of a narrow attention, whose scores are wide.
fn unrounded(program: &Program<'_>, weights: Value, dtype: DType, matched: &mut Matched) -> Option<Value> {
    if dtype == dtype.wide() {
        return Some(weights);
    }
    let [unrounded] = program.origins(&weights, ConvertElementType { dtype }, matched)?;
    (program.dtype(unrounded.atom) == dtype.wide()).then_some(unrounded)
}

/// The scores whose softmax along the axis of the keys these weights are.
fn softmax(program: &Program<'_>, weights: &Value, key: Axis, matched: &mut Matched) -> Option<Value> {
    let [powers, sum] = program.origins(weights, Binary::Div, matched)?;
    let summed = program.reduced(&sum, ReduceKind::Sum, key, matched)?;
    let [shifted] = program.origins(&powers, Unary::Exp, matched)?;
    let [scores, mut largest] = program.origins(&shifted, Binary::Sub, matched)?;
    // JAX takes the larger one of the maximum and negative infinity.
    if let Some(operands) = program.origins::<2>(&largest, Binary::Max, matched) {
        let is_bottom = |value: &Value| value.atom.literal().is_some_and(|x| x.as_f64() == f64::NEG_INFINITY);
        largest = match operands {
            [bottom, largest] | [largest, bottom] if is_bottom(&bottom) => largest,
            _ => return None,
        };
    }
    let compared = program.reduced(&largest, ReduceKind::Max, key, matched)?;
    (summed == powers && compared == scores).then_some(scores)
}

/// Scores as the sum of products and a bias, if there is one.
fn biased(
    program: &Program<'_>,
    scores: Value,
    dtype: DType,
    key: Axis,
    matched: &mut Matched,
) -> Option<(Option<Value>, Scores)> {
    let mut inside = matched.clone();
    let Some(terms) = program.operands::<2>(&scores, Binary::Add, &mut inside) else {
        return Some((None, scaled(program, scores, dtype, key, matched)?));
    };
    (0..2).find_map(|side| {
        let mut inside = inside.clone();
        let product = program.origin(terms[side].clone(), &mut inside);
        let scores = scaled(program, product, dtype, key, &mut inside)?;
        let mut bias = program.source(terms[1 - side].clone());
        if dtype != dtype.wide() {
            // The bias of a narrow attention is narrow.
            let [narrow] = program.operands(&bias, ConvertElementType { dtype: dtype.wide() }, &mut Matched::new())?;
            bias = program.source(narrow);
        }
        *matched = std::mem::take(&mut inside);
        (program.dtype(bias.atom) == dtype).then_some((Some(bias), scores))
    })
}

/// Scores as products of queries and keys times a constant, if there is one.
fn scaled(program: &Program<'_>, scores: Value, dtype: DType, key: Axis, matched: &mut Matched) -> Option<Scores> {
    let (scale, product) = match program.definition(scores.atom)?.1 {
        Prim::Binary(Binary::Mul) => {
            let [x, y] = program.origins(&scores, Binary::Mul, matched)?;
            let (factor, product) = if x.atom.literal().is_some() { (x, y) } else { (y, x) };
            (factor.atom.literal()?.as_f64(), product)
        }
        // The factor of the operation is rounded once more than the divisor, as a sum of products is several times.
        Prim::Binary(Binary::Div) => {
            let [product, divisor] = program.origins(&scores, Binary::Div, matched)?;
            (1.0 / divisor.atom.literal()?.as_f64(), product)
        }
        _ => (1.0, scores),
    };
    let (at, ..) = program.definition(product.atom)?;
    matched.push(at);
    let operands = Product::new(program, at, dtype, dtype.wide())?.operands(&product.axes, FEATURES);
    let [query, key] = match operands.each_ref().map(|operand| operand.axes.contains(&Some(key))) {
        [false, true] => operands,
        [true, false] => {
            let [key, query] = operands;
            [query, key]
        }
        _ => return None,
    };
    // A kernel multiplies in f32, but for f64.
    (scale as f32).is_normal().then_some(Scores { scale, query, key })
}
