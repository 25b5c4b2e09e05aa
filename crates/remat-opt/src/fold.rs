//! Constant folding.
//!
//! ```text
//! fold : { lambda ; a. let b = mul 2.0 3.0; c = mul a b in (c,) } → { lambda ; a. let b = mul a 6.0 in (b,) }
//! ```

use std::borrow::Cow;

use remat_ir::{Array, Atom, Class, Jaxpr, Op, Prim, Result};

use crate::rewrite::{map_bodies, rewrite};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    fold_literals(&jaxpr).map(Cow::Owned)
}

/// Constant folding: an equation is replaced by literals if its operands are all literals and its results are scalars.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::fold_literals;
/// let text = "{ lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] 3.0:f32[]; c:f32[] = mul a b in (c,) }";
/// let folded = fold_literals(&text.parse()?)?;
/// assert_eq!(folded.to_string(), "{ lambda ; a:f32[]. let b:f32[] = mul a 6.0:f32[] in (b,) }");
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed, or such an equation cannot be computed.
pub fn fold_literals(jaxpr: &Jaxpr) -> Result<Jaxpr> {
    rewrite(jaxpr, |b, op, ins, avals, loc| {
        let literals: Option<Vec<Array>> = ins.iter().map(|a| a.literal().map(|l| Array::full(l, []))).collect();
        let is_scalar = avals.iter().all(|a| a.rank() == 0) && !ins.is_empty();
        // Names, barriers and transfers are intended, a collective has no meaning on its own, an effect is not a value, and a body may loop for
        // ever.
        let is_opaque = matches!(op, Op::Prim(Prim::Name(_) | Prim::OptimizationBarrier(_) | Prim::DevicePut(_)))
            || matches!(op.class(), Class::Collective | Class::Effect);
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
