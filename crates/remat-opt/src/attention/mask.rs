//! Masks: the conjunction of conditions that decides which keys a query attends to.
//!
//! A condition that a key is not later than the query, as comparisons of `iota`s say it, is causality, which the operation has by itself. At
//! most one other condition becomes its mask, as small as it was before it was broadcast.

use remat_ir::{Atom, Binary, Compare, DType, Eqn, Literal, Prim, Unary};

use super::values::{Axis, Matched, Program, Value};

/// A finite fill below this hides a key from every query that has another one: a score would have to be as large for its weight to differ
/// from zero. JAX and flax fill with -0.7 times the largest number, or the smallest one, haiku with this.
const HIDES: f64 = -1e30;

/// A mask of scores.
pub(super) struct Mask {
    /// The axis of the queries, if keys after the query are hidden.
    pub(super) causal: Option<Axis>,
    /// Another condition.
    pub(super) other: Option<Condition>,
    /// What the scores of hidden keys are: finite, or negative infinity.
    pub(super) fill: f64,
}

/// A condition, or its negation.
#[derive(Clone)]
pub(super) struct Condition {
    pub(super) value: Value,
    pub(super) is_negated: bool,
}

/// A mask of these scores, and the scores that it selects from; or no mask and the scores.
pub(super) fn masked(
    program: &Program<'_>,
    scores: Value,
    key: Axis,
    matched: &mut Matched,
) -> Option<(Option<Mask>, Value)> {
    let Some((at, Prim::SelectN(_), eqn)) = program.definition(scores.atom) else { return Some((None, scores)) };
    let (&[condition, if_false, if_true], true) = (&eqn.ins[..], is_choice(program, eqn)) else { return None };
    let [condition, if_false, if_true] = [condition, if_false, if_true].map(|x| program.operand(x, &scores.axes));
    matched.push(at);
    // The mask and the fill are no part of the match: others may read them.
    let (fill, visible, is_negated) = match (program.number(&if_false), program.number(&if_true)) {
        (Some(fill), None) => (fill.as_f64(), if_true, false),
        (None, Some(fill)) => (fill.as_f64(), if_false, true),
        _ => return None,
    };
    // Not a number is not below.
    let hides = fill <= HIDES;
    let condition = Condition { value: condition, is_negated };
    let (causal, other) = hides.then(|| split(program, condition, key))?;
    Some((Some(Mask { causal, other, fill }), program.origin(visible, matched)))
}

/// A condition as causality and another condition.
fn split(program: &Program<'_>, whole: Condition, key: Axis) -> (Option<Axis>, Option<Condition>) {
    let mut causal = None;
    let mut others = Vec::new();
    for condition in conjunction(program, &whole) {
        match is_causal(program, &condition, key) {
            Some(query) if causal.is_none_or(|other| other == query) => causal = Some(query),
            _ => others.push(condition),
        }
    }
    match &others[..] {
        [] => (causal, None),
        [other] => (causal, Some(other.clone())),
        _ => (None, Some(origin(program, whole))),
    }
}

/// The most conditions that are looked at, since equal ones may be joined again and again.
const CONDITIONS: usize = 64;

/// The conditions that all hold where a condition does.
fn conjunction(program: &Program<'_>, whole: &Condition) -> Vec<Condition> {
    let (mut open, mut all) = (vec![whole.clone()], Vec::new());
    for _ in 0..CONDITIONS {
        let Some(condition) = open.pop() else { return all };
        let condition = origin(program, condition);
        match parts(program, &condition) {
            Some(parts) => open.extend(parts),
            None => all.push(condition),
        }
    }
    vec![origin(program, whole.clone())]
}

fn origin(program: &Program<'_>, condition: Condition) -> Condition {
    Condition { value: program.source(condition.value), ..condition }
}

/// The conditions of which a condition is the conjunction, if it is one: none if it always holds.
fn parts(program: &Program<'_>, condition: &Condition) -> Option<Vec<Condition>> {
    let Condition { value, is_negated } = condition;
    let always = Literal::from_bool(!is_negated);
    if value.atom == Atom::Lit(always) {
        return Some(Vec::new());
    }
    let (_, op, eqn) = program.definition(value.atom)?;
    let operand = |i: usize, flips: bool| {
        let value = program.operand(eqn.ins[i], &value.axes);
        Condition { value, is_negated: *is_negated != flips }
    };
    let constant = |i: usize| program.number(&operand(i, false).value);
    match op {
        Prim::Binary(Binary::And) if !is_negated => Some(vec![operand(0, false), operand(1, false)]),
        Prim::Binary(Binary::Or) if *is_negated => Some(vec![operand(0, false), operand(1, false)]),
        Prim::Unary(Unary::Not) => Some(vec![operand(0, true)]),
        // A number that was a bool, and is not zero: flax keeps masks as numbers.
        Prim::Compare(Compare::Ne) if constant(1)?.is_zero() => {
            let number = origin(program, operand(0, false));
            let (_, Prim::ConvertElementType(_), eqn) = program.definition(number.value.atom)? else { return None };
            let value = program.operand(eqn.ins[0], &number.value.axes);
            let is_bool = program.dtype(value.atom) == DType::Bool;
            is_bool.then(|| vec![Condition { value, ..number }])
        }
        // `tril` and `triu` select between elements and zeros.
        Prim::SelectN(_) if is_choice(program, eqn) => {
            let is_constant = |i: usize, value: bool| constant(i) == Some(Literal::from_bool(value));
            if is_constant(1, *is_negated) {
                Some(vec![Condition { is_negated: false, ..operand(0, false) }, operand(2, false)])
            } else if is_constant(2, *is_negated) {
                Some(vec![Condition { is_negated: true, ..operand(0, false) }, operand(1, false)])
            } else {
                None
            }
        }
        _ => None,
    }
}

/// Whether a selection is one of two by a bool.
fn is_choice(program: &Program<'_>, eqn: &Eqn) -> bool {
    eqn.ins.len() == 3 && program.dtype(eqn.ins[0]) == DType::Bool
}

/// The axis of the queries, if a condition says that the position along it is not before the position of the key.
fn is_causal(program: &Program<'_>, condition: &Condition, key: Axis) -> Option<Axis> {
    let (_, &Prim::Compare(compare), eqn) = program.definition(condition.value.atom)? else { return None };
    let position = |atom: Atom| {
        let value = program.source(program.operand(atom, &condition.value.axes));
        let (_, Prim::Iota(op), _) = program.definition(value.atom)? else { return None };
        // Narrow integers, and floats, do not count as far as sizes go.
        let counts = matches!(op.dtype, DType::I32 | DType::I64 | DType::U32 | DType::U64);
        if counts { value.axes[op.axis] } else { None }
    };
    let (left, right) = (position(eqn.ins[0])?, position(eqn.ins[1])?);
    let (query, other) = match (compare, condition.is_negated) {
        (Compare::Ge, false) | (Compare::Lt, true) => (left, right),
        (Compare::Le, false) | (Compare::Gt, true) => (right, left),
        _ => return None,
    };
    (other == key && query != key).then_some(query)
}
