//! The environment of a pass that writes a program anew.

use remat_ir::{Atom, Result, VarMap};

use crate::checked::internal;

/// Maps the variables of a program to atoms of the program under construction.
pub(crate) type Env = VarMap<Option<Atom>>;

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
