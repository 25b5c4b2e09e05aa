//! Clean-up that does not change what a program computes.
//!
//! ```text
//! cse           : jaxpr → jaxpr, each expression computed once
//! fold_literals : jaxpr → jaxpr, equations of literals alone computed
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{Array, Atom, Atoms, Builder, Jaxpr, Op, Prim, Result, Vars};

use super::{Env, checked, read};

/// Common subexpression elimination: an equation equal to an earlier one is dropped. Bodies are treated one by one, so
/// nothing is merged across the boundary of a checkpoint, and what is recomputed is never merged with its forward twin.
///
/// ```
/// use remat::{Jaxpr, transform::cse};
/// let program: Jaxpr = "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = sin a; d:f32[] = mul b c in (d,) }".parse()?;
/// assert_eq!(cse(&program)?.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b b in (c,) }");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed.
pub fn cse(jaxpr: &Jaxpr) -> Result<Jaxpr> {
    let mut seen: HashMap<(Op, Atoms), Vars> = HashMap::new();
    rewrite(jaxpr, |b, op, ins, avals, loc| {
        // Merging would let a computation cross the barrier, or undo an intended copy.
        let is_opaque = matches!(op, Op::Prim(Prim::OptimizationBarrier(_) | Prim::DevicePut(_)));
        if is_opaque || !op.bodies().is_empty() {
            let op = map_bodies(&op, cse)?;
            return Ok(b.push(op, &ins, avals, loc).into_iter().map(Atom::Var).collect());
        }
        let key = (op, ins);
        if let Some(outs) = seen.get(&key) {
            return Ok(outs.iter().copied().map(Atom::Var).collect());
        }
        let outs = b.push(key.0.clone(), &key.1, avals, loc);
        seen.insert(key, outs.clone());
        Ok(outs.into_iter().map(Atom::Var).collect())
    })
}

/// Constant folding: an equation whose operands are all literals and whose results are scalars becomes literals.
///
/// ```
/// use remat::{Jaxpr, transform::fold_literals};
/// let text = "{ lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] 3.0:f32[]; c:f32[] = mul a b in (c,) }";
/// let folded = fold_literals(&text.parse()?)?;
/// assert_eq!(folded.to_string(), "{ lambda ; a:f32[]. let b:f32[] = mul a 6.0:f32[] in (b,) }");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed, or such an equation cannot be computed.
pub fn fold_literals(jaxpr: &Jaxpr) -> Result<Jaxpr> {
    rewrite(jaxpr, |b, op, ins, avals, loc| {
        let literals: Option<Vec<Array>> = ins.iter().map(|a| a.literal().map(|l| Array::full(l, []))).collect();
        let is_scalar = avals.iter().all(|a| a.rank() == 0) && !ins.is_empty();
        // A name, a barrier and a transfer are there for a reason, and a program in a parameter may loop for ever.
        let is_opaque = matches!(op, Op::Prim(Prim::Name(_) | Prim::OptimizationBarrier(_) | Prim::DevicePut(_)));
        if let Some(literals) = literals
            && is_scalar
            && !is_opaque
            && op.bodies().is_empty()
        {
            let outs = remat_ir::eval_op(&op, &literals)?;
            if let Some(outs) = outs.iter().map(|a| a.to_literal().map(Atom::Lit)).collect() {
                return Ok(outs);
            }
        }
        let op = map_bodies(&op, fold_literals)?;
        Ok(b.push(op, &ins, avals, loc).into_iter().map(Atom::Var).collect())
    })
}

/// Rebuilds a program, each equation through `emit`.
fn rewrite(
    jaxpr: &Jaxpr,
    mut emit: impl FnMut(&mut Builder, Op, Atoms, Vec<remat_ir::Aval>, remat_ir::Loc) -> Result<Vec<Atom>>,
) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let mut env: Env = jaxpr.var_map(None);
    for &var in &jaxpr.ins {
        env[var] = Some(b.input(jaxpr.avals[var].clone()));
    }
    for eqn in &jaxpr.eqns {
        let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Atoms>>()?;
        let avals = eqn.outs.iter().map(|&v| jaxpr.avals[v].clone()).collect();
        let outs = emit(&mut b, eqn.op.clone(), ins, avals, eqn.loc)?;
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(out);
        }
    }
    let outs = jaxpr.outs.iter().map(|&a| read(&env, a)).collect::<Result<Vec<_>>>()?;
    checked(b.finish(outs))
}

/// The operation with every body transformed; the interface of the bodies stays.
fn map_bodies(op: &Op, f: impl Fn(&Jaxpr) -> Result<Jaxpr>) -> Result<Op> {
    let mut op = op.clone();
    let map = |body: &mut Arc<Jaxpr>| -> Result<()> {
        *body = Arc::new(f(body)?);
        Ok(())
    };
    op.bodies_mut().into_iter().try_for_each(map)?;
    Ok(op)
}
