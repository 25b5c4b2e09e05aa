//! Transformations: functions from a jaxpr to a jaxpr.
//!
//! Each module states the type of its transformation; in debug builds the checker checks its outputs. First-order equations are handled by
//! their `rules`. Equations with bodies are handled by `control`, one file per operation, since their rules apply these transformations to
//! the bodies.
//!
//! Programs can be read from text, so a transformation can be tried on its own:
//!
//! ```
//! use remat::ir::Jaxpr;
//! use remat::transform;
//! let square: Jaxpr = "{ lambda ; a:f32[]. let b:f32[] = mul a a in (b,) }".parse()?;
//! let doubled = transform::jvp(&square, &[true], &[true])?;
//! assert_eq!(doubled.jaxpr.in_avals().len(), 2);
//! # Ok::<(), remat::Error>(())
//! ```

mod control;
mod jvp;
mod one_device;
pub(crate) mod origin;
mod partial_eval;
mod transpose;
mod varying;
mod vmap;

pub(crate) use control::NO_DERIVATIVE;
use jvp::jvp_body;
pub use jvp::{Jvp, jvp};
pub(crate) use one_device::needs_one_device;
pub use one_device::on_one_device;
pub(crate) use partial_eval::budget::budget_of;
pub use partial_eval::{Chosen, PartialEval, ResidualSource, Saving, partial_eval};
pub(crate) use partial_eval::{log, partial_eval_logged};
pub use transpose::{Transposed, transpose};
pub(crate) use varying::expect_invariant;
pub(crate) use vmap::Batch;
pub use vmap::{Vmapped, vmap, vmap_named};
pub(crate) use vmap::{vmap_batch, vmap_equation};

pub use remat_opt::{Dce, cse, dce, fold_literals};
pub(crate) use remat_opt::{checked, memo};

use remat_ir::{Atom, Error, ErrorKind, Result, VarMap, counted};

/// Maps the variables of a program to atoms of the program under construction.
pub(crate) type Env = VarMap<Option<Atom>>;

/// The entry of an atom; a literal is itself.
pub(crate) fn lookup(env: &Env, atom: Atom) -> Option<Atom> {
    match atom {
        Atom::Var(var) => env[var],
        Atom::Lit(_) => Some(atom),
    }
}

/// The entry of an atom, which must be there in a well-formed program.
pub(crate) fn read(env: &Env, atom: Atom) -> Result<Atom> {
    lookup(env, atom).ok_or_else(|| internal("a variable is used before it is defined"))
}

/// An error that only a defect of remat can cause.
pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, "transform", message)
}

/// Fails unless a mask over the inputs or outputs of a program has the right length. `what` names one of them.
fn expect_mask(operation: &str, what: &str, mask: &[bool], expected: usize) -> Result<()> {
    if mask.len() == expected {
        return Ok(());
    }
    let message =
        format!("the mask is for {}, and the program has {}", counted(mask.len(), what), counted(expected, what));
    Err(Error::new(ErrorKind::Argument, operation, message))
}

/// The number of `true`s.
pub(crate) fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|&&m| m).count()
}

/// The items where the mask is `true`.
pub(crate) fn select<T: Clone>(items: &[T], mask: &[bool]) -> Vec<T> {
    items.iter().zip(mask).filter(|(_, m)| **m).map(|(t, _)| t.clone()).collect()
}

/// The mask with every entry inverted.
pub(crate) fn invert(mask: &[bool]) -> Vec<bool> {
    mask.iter().map(|m| !m).collect()
}
