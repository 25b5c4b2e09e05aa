//! Tight residuals: what is cheap to compute from other residuals is not kept.
//!
//! ```text
//! tighten : staged { lambda ; r s b. -> d }, where s = mul r r
//!         → staged { lambda ; r b. -> d }
//! ```
//!
//! Cheap is an elementwise operation that is no transcendental function, a conversion or a move of elements, and whatever
//! depends on literals only. So `where` keeps no array of zeros, and no transposed copy of a weight is kept.

use remat_ir::{Atom, Atoms, Aval, Binary, Builder, Eqn, Jaxpr, Op, Result, Unary, Var, VarMap};

use super::{Env, checked, read};

/// How many equations may stand between a residual that is not kept and those it is computed from.
const MAX_DEPTH: usize = 4;

/// Drops residuals of the staged part that are cheap to compute from the others. `residuals` are the variables of the
/// known part that its first inputs stand for.
pub(super) fn tighten(
    staged: Jaxpr,
    residuals: Vec<Var>,
    known: &[Eqn],
    avals: &VarMap<Aval>,
    is_input: &VarMap<bool>,
) -> Result<(Jaxpr, Vec<Var>)> {
    let mut definition: VarMap<Option<usize>> = VarMap::filled(avals.len(), None);
    for (i, eqn) in known.iter().enumerate() {
        for &out in &eqn.outs {
            definition[out] = Some(i);
        }
    }
    let mut kept: VarMap<bool> = VarMap::filled(avals.len(), false);
    for &var in &residuals {
        kept[var] = true;
    }
    let mut needed: Vec<usize> = Vec::new();
    // The latest first, so that a chain of cheap values falls back to its first.
    for &var in residuals.iter().rev() {
        let mut eqns = Vec::new();
        if !is_input[var] && derive(var, var, &kept, &definition, known, MAX_DEPTH, &mut eqns) {
            kept[var] = false;
            needed.extend(eqns);
        }
    }
    if needed.is_empty() {
        return Ok((staged, residuals));
    }
    needed.sort_unstable();
    needed.dedup();

    let mut b = Builder::new();
    let mut env: Env = VarMap::filled(avals.len(), None);
    let remaining: Vec<Var> = residuals.iter().copied().filter(|&v| kept[v]).collect();
    for &var in &remaining {
        env[var] = Some(b.input(avals[var].clone()));
    }
    let unknown: Vec<Atom> = staged.ins[residuals.len()..].iter().map(|&v| b.input(staged.avals[v].clone())).collect();
    for eqn in needed.into_iter().map(|i| &known[i]) {
        let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?;
        let outs = b.push(eqn.op.clone(), &ins, eqn.outs.iter().map(|&v| avals[v].clone()), eqn.loc);
        for (&var, out) in eqn.outs.iter().zip(outs) {
            // A kept residual that a needed equation happens to define stays the residual.
            env[var] = env[var].or(Some(Atom::Var(out)));
        }
    }
    let mut args = residuals.iter().map(|&v| read(&env, Atom::Var(v))).collect::<Result<Vec<_>>>()?;
    args.extend(unknown);
    let outs = b.inline(&staged, &args)?;
    Ok((checked(b.finish(outs))?, remaining))
}

/// Whether `var` can be computed by cheap equations from kept residuals other than `target`; collects the equations.
fn derive(
    var: Var,
    target: Var,
    kept: &VarMap<bool>,
    definition: &VarMap<Option<usize>>,
    known: &[Eqn],
    depth: usize,
    eqns: &mut Vec<usize>,
) -> bool {
    if var != target && kept[var] {
        return true;
    }
    let Some(index) = definition[var] else { return false };
    let eqn = &known[index];
    if depth == 0 || !is_cheap(&eqn.op) {
        return false;
    }
    let derived = eqn.ins.iter().all(|atom| match *atom {
        Atom::Lit(_) => true,
        Atom::Var(v) => derive(v, target, kept, definition, known, depth - 1, eqns),
    });
    eqns.push(index);
    derived
}

/// Whether computing the results again costs about as little as reading them from memory.
fn is_cheap(op: &Op) -> bool {
    match op {
        Op::Unary(unary) => match unary {
            Unary::Neg | Unary::Sign | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => true,
            Unary::IsFinite | Unary::Not | Unary::PopulationCount => true,
            Unary::Exp | Unary::Exp2 | Unary::Expm1 | Unary::Log | Unary::Log1p | Unary::Sqrt | Unary::Rsqrt => false,
            Unary::Cbrt | Unary::Logistic | Unary::Sin | Unary::Cos | Unary::Tan | Unary::Asin | Unary::Acos => false,
            Unary::Atan | Unary::Sinh | Unary::Cosh | Unary::Tanh | Unary::Asinh | Unary::Acosh => false,
            Unary::Atanh | Unary::Erf | Unary::Erfc | Unary::ErfInv | Unary::Lgamma | Unary::Digamma => false,
        },
        Op::Binary(binary) => match binary {
            Binary::Pow | Binary::Atan2 | Binary::Rem => false,
            Binary::Add | Binary::AddAny | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min => true,
            Binary::And | Binary::Or | Binary::Xor | Binary::ShiftLeft => true,
            Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => true,
        },
        Op::IntegerPow(pow) => pow.y.unsigned_abs() <= 4,
        Op::Compare(_) | Op::SelectN(_) | Op::Clamp(_) => true,
        Op::ConvertElementType(_) | Op::BitcastConvertType(_) | Op::ReducePrecision(_) => true,
        Op::BroadcastInDim(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Squeeze(_) | Op::ExpandDims(_) => true,
        Op::Rev(_) | Op::Slice(_) | Op::Iota(_) | Op::StopGradient(_) => true,
        Op::Concatenate(_) | Op::Pad(_) | Op::DynamicSlice(_) | Op::DynamicUpdateSlice(_) => false,
        Op::Gather(_) | Op::Scatter(_) | Op::Reduce(_) | Op::ArgReduce(_) | Op::Cumulative(_) => false,
        Op::Sort(_) | Op::TopK(_) | Op::DotGeneral(_) | Op::Conv(_) => false,
        Op::ReduceWindow(_) | Op::ArgReduceWindow(_) | Op::Threefry2x32(_) => false,
        // A label says that the user wants to see the value; a barrier and a transfer are there for a reason.
        Op::Name(_) | Op::OptimizationBarrier(_) | Op::DevicePut(_) => false,
        Op::Jit(_) | Op::Checkpoint(_) | Op::Scan(_) | Op::While(_) | Op::Cond(_) => false,
        Op::CustomJvp(_) | Op::CustomVjp(_) | Op::CustomLin(_) => false,
    }
}
