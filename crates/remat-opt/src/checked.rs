//! Checks of programs that passes produce.

#[cfg(debug_assertions)]
use std::{convert::Infallible, sync::Arc};

use remat_ir::{Atom, Error, ErrorKind, Jaxpr, Result, VarMap};

#[cfg(debug_assertions)]
use crate::memo;

/// Maps the variables of a program to atoms of the program under construction.
pub(crate) type Env = VarMap<Option<Atom>>;

/// Checks the output of a transformation in debug builds and returns it. Bodies that were checked before are not checked again.
///
/// # Errors
/// If the program is not well formed, which is a defect of the transformation.
pub fn checked(jaxpr: Jaxpr) -> Result<Jaxpr> {
    #[cfg(debug_assertions)]
    if let Err(faults) = remat_ir::check_bodies(&jaxpr, is_new) {
        return Err(internal(format!("a transformation made a faulty program:\n{faults}")));
    }
    Ok(jaxpr)
}

/// Whether a body has not been checked before.
#[cfg(debug_assertions)]
fn is_new(body: &Arc<Jaxpr>) -> bool {
    /// Marks a body as checked.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    struct Checked;
    let mut is_new = false;
    let Ok(Checked) = memo::once(body, Checked, || {
        is_new = true;
        Ok::<_, Infallible>(Checked)
    });
    is_new
}

/// The atom of a variable, which must be there in a well-formed program; a literal is itself.
pub(crate) fn read(env: &Env, atom: Atom) -> Result<Atom> {
    match atom {
        Atom::Lit(_) => Ok(atom),
        Atom::Var(var) => env
            .get(var)
            .copied()
            .flatten()
            .ok_or_else(|| internal(format!("variable {} is used before it is defined", var.0))),
    }
}

/// An error that only a defect of remat can cause.
pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, "transform", message)
}
