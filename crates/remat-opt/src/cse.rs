//! Common subexpression elimination.
//!
//! ```text
//! cse : { lambda ; a. let b = sin a; c = sin a; d = mul b c in (d,) } → { lambda ; a. let b = sin a; c = mul b b in (c,) }
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use remat_ir::{Atom, Atoms, Class, Jaxpr, Op, Prim, Result, Vars};

use crate::rewrite::{map_bodies, rewrite};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    cse(&jaxpr).map(Cow::Owned)
}

/// Common subexpression elimination: an equation equal to an earlier one is dropped. Bodies are treated one by one, so
/// nothing is merged across the boundary of a checkpoint, and a recomputed equation is never merged with its forward twin.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::cse;
/// let program: Jaxpr = "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = sin a; d:f32[] = mul b c in (d,) }".parse()?;
/// assert_eq!(cse(&program)?.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a; c:f32[] = mul b b in (c,) }");
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the program is not well formed.
pub fn cse(jaxpr: &Jaxpr) -> Result<Jaxpr> {
    let mut seen: HashMap<(Op, Atoms), Vars> = HashMap::new();
    rewrite(jaxpr, |b, op, ins, avals, loc| {
        if is_opaque(&op) || !op.bodies().is_empty() {
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

/// Whether equal equations of this operation stay apart: merging would let a computation cross a barrier, undo an intended copy, or lose an effect.
pub(crate) fn is_opaque(op: &Op) -> bool {
    matches!(op, Op::Prim(Prim::OptimizationBarrier(_) | Prim::DevicePut(_))) || op.class() == Class::Effect
}
