//! Bodies that stand for operations of the language.
//!
//! StableHLO has one `reduce`, one `sort` and one `scatter`, each with a body. A body is taken for a known one only if it computes the same
//! expressions: both are written as expressions in one table, where equal expressions have equal numbers, whatever the order of the equations.
//! Operations that commute may have their operands in either order, and `a > b` is `b < a`. Nothing else is equal: a body that is nearly a known
//! one is not taken for it.

mod scan;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use remat_ir::{
    ArgKind, Atom, Binary, Builder, Call, Compare, DType, Jaxpr, Literal, Op, Prim, Result, SelectN, Unary, VarMap,
};

pub(crate) use scan::{Loop, Outputs, as_scan};

/// How many operations a body may have, with those of the programs that it calls.
const STEPS: usize = 10_000;

/// The number of an expression.
type Id = usize;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Expr {
    Input(usize),
    Literal(Literal),
    /// A result of an operation.
    Apply(Op, Vec<Id>, usize),
}

/// Expressions, each with one number.
#[derive(Default)]
struct Table {
    ids: HashMap<Expr, Id>,
    steps: usize,
}

impl Table {
    fn id(&mut self, expr: Expr) -> Id {
        let next = self.ids.len();
        *self.ids.entry(expr).or_insert(next)
    }

    fn inputs(&mut self, count: usize) -> Vec<Id> {
        (0..count).map(|i| self.id(Expr::Input(i))).collect()
    }

    /// The expressions of the outputs for these inputs, where calls are what they call; `None` if the body is larger than any known one.
    fn outputs(&mut self, jaxpr: &Jaxpr, inputs: &[Id]) -> Option<Vec<Id>> {
        let env = self.evaluate(jaxpr, inputs, true)?;
        jaxpr.outs.iter().map(|&atom| self.atom(&env, atom)).collect()
    }

    /// The expression of each variable for these inputs, where a call is one operation.
    fn environment(&mut self, jaxpr: &Jaxpr, inputs: &[Id]) -> Option<VarMap<Option<Id>>> {
        self.evaluate(jaxpr, inputs, false)
    }

    fn evaluate(&mut self, jaxpr: &Jaxpr, inputs: &[Id], opens_calls: bool) -> Option<VarMap<Option<Id>>> {
        if jaxpr.ins.len() != inputs.len() {
            return None;
        }
        let mut env: VarMap<Option<Id>> = jaxpr.var_map(None);
        for (&var, &id) in jaxpr.ins.iter().zip(inputs) {
            env[var] = Some(id);
        }
        for eqn in &jaxpr.eqns {
            self.steps += usize::from(opens_calls);
            if self.steps > STEPS {
                return None;
            }
            let ins = eqn.ins.iter().map(|&atom| self.atom(&env, atom)).collect::<Option<Vec<_>>>()?;
            let outs = match &eqn.op {
                Op::Call(Call::Jit(call)) if opens_calls => self.outputs(&call.jaxpr, &ins)?,
                op => {
                    let (op, ins) = normal(op.clone(), ins);
                    (0..eqn.outs.len()).map(|i| self.id(Expr::Apply(op.clone(), ins.clone(), i))).collect()
                }
            };
            for (&var, id) in eqn.outs.iter().zip(outs) {
                env[var] = Some(id);
            }
        }
        Some(env)
    }

    fn atom(&mut self, env: &VarMap<Option<Id>>, atom: Atom) -> Option<Id> {
        match atom {
            Atom::Var(var) => env[var],
            Atom::Lit(literal) => Some(self.id(Expr::Literal(literal))),
        }
    }

    /// Whether an output is what a program written here gives for these inputs.
    fn is(&mut self, output: Id, inputs: &[Id], written: Result<Jaxpr>) -> bool {
        let outputs = written.ok().and_then(|jaxpr| self.outputs(&jaxpr, inputs));
        outputs.is_some_and(|outputs| outputs == [output])
    }
}

/// The operation with its operands in an order that does not depend on how it was written.
fn normal(op: Op, mut ins: Vec<Id>) -> (Op, Vec<Id>) {
    let op = match op {
        Op::Prim(Prim::Compare(Compare::Gt)) => {
            ins.reverse();
            Compare::Lt.into()
        }
        Op::Prim(Prim::Compare(Compare::Ge)) => {
            ins.reverse();
            Compare::Le.into()
        }
        op => op,
    };
    let commutes = matches!(
        op,
        Op::Prim(
            Prim::Binary(
                Binary::Add | Binary::Mul | Binary::Max | Binary::Min | Binary::And | Binary::Or | Binary::Xor
            ) | Prim::Compare(Compare::Eq | Compare::Ne)
        )
    );
    if commutes {
        ins.sort();
    }
    (op, ins)
}

/// A function of two values that may be applied to any number of them in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fold {
    Sum,
    Prod,
    Max,
    Min,
    And,
    Or,
}

impl Fold {
    const ALL: [Fold; 6] = [Fold::Sum, Fold::Prod, Fold::Max, Fold::Min, Fold::And, Fold::Or];

    /// The function.
    pub(crate) fn binary(self) -> Binary {
        match self {
            Fold::Sum => Binary::Add,
            Fold::Prod => Binary::Mul,
            Fold::Max => Binary::Max,
            Fold::Min => Binary::Min,
            Fold::And => Binary::And,
            Fold::Or => Binary::Or,
        }
    }

    /// Whether this value changes no other one.
    pub(crate) fn is_identity(self, value: Literal) -> bool {
        let dtype = value.dtype();
        match self {
            Fold::Sum => value.bits() == 0 || (dtype.is_float() && value == Literal::from_f64(dtype, -0.0)),
            Fold::Or => value.bits() == 0,
            Fold::Prod => value == Literal::from_i128(dtype, 1),
            Fold::And => value == ones(dtype),
            Fold::Max => value == least(dtype),
            Fold::Min => value == greatest(dtype),
        }
    }
}

fn ones(dtype: DType) -> Literal {
    if dtype == DType::Bool { Literal::from_bool(true) } else { Literal::from_i128(dtype, -1) }
}

/// The least value: minus infinity for floats.
fn least(dtype: DType) -> Literal {
    match dtype {
        DType::Bool => Literal::from_bool(false),
        dtype if dtype.is_float() => Literal::from_f64(dtype, f64::NEG_INFINITY),
        dtype if dtype.is_signed() => Literal::from_i128(dtype, -(1i128 << (dtype.bits() - 1))),
        dtype => Literal::from_i128(dtype, 0),
    }
}

fn greatest(dtype: DType) -> Literal {
    match dtype {
        DType::Bool => Literal::from_bool(true),
        dtype if dtype.is_float() => Literal::from_f64(dtype, f64::INFINITY),
        dtype if dtype.is_signed() => Literal::from_i128(dtype, (1i128 << (dtype.bits() - 1)) - 1),
        dtype => Literal::from_i128(dtype, -1),
    }
}

/// A program of scalars of these dtypes.
fn program(dtypes: &[DType], write: impl FnOnce(&mut Builder, &[Atom]) -> Result<Atom>) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let ins = b.inputs(dtypes.iter().map(|&dtype| remat_ir::Aval::scalar(dtype)));
    let out = write(&mut b, &ins)?;
    Ok(b.finish(vec![out]))
}

/// The folds of a body over several arrays at once, each by itself: its inputs are the values so far, then the next ones.
pub(crate) fn folds(body: &Jaxpr, dtypes: &[DType]) -> Option<Vec<Fold>> {
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    let outputs = table.outputs(body, &inputs)?;
    let (n, mut found) = (dtypes.len(), Vec::new());
    if outputs.len() != n || inputs.len() != 2 * n {
        return None;
    }
    for (j, &dtype) in dtypes.iter().enumerate() {
        let pair = [inputs[j], inputs[n + j]];
        let mut is = |fold: &Fold| {
            let op = fold.binary();
            op.takes(dtype) && table.is(outputs[j], &pair, program(&[dtype; 2], |b, ins| b.emit1(op.into(), ins)))
        };
        found.push(Fold::ALL.into_iter().find(|fold| is(fold))?);
    }
    Some(found)
}

/// The fold of a body of two values.
pub(crate) fn fold(body: &Jaxpr, dtype: DType) -> Option<Fold> {
    folds(body, &[dtype]).map(|folds| folds[0])
}

/// Whether a body of two values gives the second.
pub(crate) fn is_second(body: &Jaxpr) -> bool {
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    inputs.len() == 2 && table.outputs(body, &inputs).is_some_and(|outputs| outputs == [inputs[1]])
}

/// Whether a body of two values gives the first less the second.
pub(crate) fn is_difference(body: &Jaxpr, dtype: DType) -> bool {
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    let written = || program(&[dtype; 2], |b, ins| b.emit1(Binary::Sub.into(), ins));
    match table.outputs(body, &inputs).as_deref() {
        Some(&[output]) if Binary::Sub.takes(dtype) => table.is(output, &inputs, written()),
        _ => false,
    }
}

/// Whether a body of two floats gives `log(exp(x) + exp(y))` as JAX writes it.
pub(crate) fn is_log_add_exp(body: &Jaxpr, dtype: DType) -> bool {
    let written = program(&[dtype; 2], |b, ins| {
        let (x, y) = (ins[0], ins[1]);
        let most = b.emit1(Binary::Max.into(), &[x, y])?;
        let delta = b.emit1(Binary::Sub.into(), &[x, y])?;
        let is_nan = b.emit1(Compare::Ne.into(), &[delta, delta])?;
        let sum = b.emit1(Binary::Add.into(), &[x, y])?;
        let size = b.emit1(Unary::Abs.into(), &[delta])?;
        let minus = b.emit1(Unary::Neg.into(), &[size])?;
        let exp = b.emit1(Unary::Exp.into(), &[minus])?;
        let log = b.emit1(Unary::Log1p.into(), &[exp])?;
        let result = b.emit1(Binary::Add.into(), &[most, log])?;
        b.emit1(SelectN.into(), &[is_nan, result, sum])
    });
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    match table.outputs(body, &inputs).as_deref() {
        Some(&[output]) => table.is(output, &inputs, written),
        _ => false,
    }
}

/// The extremum whose value and first position a body of two values and two positions keeps, as JAX writes it: a NaN wins, and of equal
/// values the one at the lower position.
pub(crate) fn arg_reduce(body: &Jaxpr, dtype: DType, index: DType) -> Option<ArgKind> {
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    let outputs = table.outputs(body, &inputs)?;
    let &[value, position] = &outputs[..] else { return None };
    let dtypes = [dtype, index, dtype, index];
    let wins = |b: &mut Builder, ins: &[Atom], better: Compare| {
        let is_better = b.emit1(better.into(), &[ins[0], ins[2]])?;
        let is_nan = b.emit1(Compare::Ne.into(), &[ins[0], ins[0]])?;
        b.emit1(Binary::Or.into(), &[is_better, is_nan])
    };
    let kinds = [(ArgKind::Max, Compare::Gt), (ArgKind::Min, Compare::Lt)];
    let found = kinds.into_iter().find(|&(_, better)| {
        let values = program(&dtypes, |b, ins| {
            let first = wins(b, ins, better)?;
            b.emit1(SelectN.into(), &[first, ins[2], ins[0]])
        });
        let positions = program(&dtypes, |b, ins| {
            let first = wins(b, ins, better)?;
            let is_equal = b.emit1(Compare::Eq.into(), &[ins[0], ins[2]])?;
            let is_before = b.emit1(Compare::Lt.into(), &[ins[1], ins[3]])?;
            let is_first = b.emit1(Binary::And.into(), &[is_equal, is_before])?;
            let first = b.emit1(Binary::Or.into(), &[first, is_first])?;
            b.emit1(SelectN.into(), &[first, ins[3], ins[1]])
        });
        table.is(value, &inputs, values) && table.is(position, &inputs, positions)
    });
    found.map(|(kind, _)| kind)
}

/// The extremum that a body of two values selects: whether the first is at least, or at most, the second.
pub(crate) fn selection(body: &Jaxpr, dtype: DType) -> Option<ArgKind> {
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    let &[output] = &table.outputs(body, &inputs)?[..] else { return None };
    let kinds = [(ArgKind::Max, Compare::Ge), (ArgKind::Min, Compare::Le)];
    let found = kinds
        .into_iter()
        .find(|&(_, op)| table.is(output, &inputs, program(&[dtype; 2], |b, ins| b.emit1(op.into(), ins))));
    found.map(|(kind, _)| kind)
}

/// The number of keys by which a body of pairs of values compares, as JAX writes it: ascending, the first key first; floats in total order, but
/// zeros are equal, and NaNs too.
pub(crate) fn sort_keys(body: &Jaxpr, dtypes: &[DType]) -> Option<usize> {
    let mut table = Table::default();
    let inputs = table.inputs(body.ins.len());
    let &[output] = &table.outputs(body, &inputs)?[..] else { return None };
    let pairs: Vec<DType> = dtypes.iter().flat_map(|&dtype| [dtype, dtype]).collect();
    (1..=dtypes.len()).find(|&count| {
        let written = program(&pairs, |b, ins| {
            let mut is_less: Option<Atom> = None;
            for key in (0..count).rev() {
                let [x, y] = [key_of(b, ins[2 * key], dtypes[key])?, key_of(b, ins[2 * key + 1], dtypes[key])?];
                let is_key_less = b.emit1(Compare::Lt.into(), &[x, y])?;
                is_less = Some(match is_less {
                    None => is_key_less,
                    Some(is_rest_less) => {
                        let is_equal = b.emit1(Compare::Eq.into(), &[x, y])?;
                        let is_later = b.emit1(Binary::And.into(), &[is_equal, is_rest_less])?;
                        b.emit1(Binary::Or.into(), &[is_key_less, is_later])?
                    }
                });
            }
            Ok(is_less.unwrap_or(Literal::from_bool(false).into()))
        });
        table.is(output, &inputs, written)
    })
}

/// The integer by which a value is compared.
fn key_of(b: &mut Builder, x: Atom, dtype: DType) -> Result<Atom> {
    if !dtype.is_float() {
        return Ok(x);
    }
    let zero: Atom = Literal::from_f64(dtype, 0.0).into();
    let is_zero = b.emit1(Compare::Eq.into(), &[x, zero])?;
    let unsigned = b.emit1(SelectN.into(), &[is_zero, x, zero])?;
    let is_nan = b.emit1(Compare::Ne.into(), &[x, x])?;
    let one_nan = b.emit1(SelectN.into(), &[is_nan, unsigned, Literal::from_f64(dtype, f64::NAN).into()])?;
    crate::order::total_order(b, one_nan, dtype)
}
