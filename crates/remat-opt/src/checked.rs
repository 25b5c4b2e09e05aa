//! Checks of programs that passes produce.

use std::{convert::Infallible, sync::Arc};

use remat_ir::{Error, ErrorKind, Jaxpr, Result};

use crate::memo;

/// Checks the output of a transformation in debug builds and returns it. Bodies that were checked before are not checked again.
///
/// # Errors
/// If the program is not well formed, which is a defect of the transformation.
pub fn checked(jaxpr: Jaxpr) -> Result<Jaxpr> {
    if remat_debug::CHECKS
        && let Err(faults) = remat_ir::check_bodies(&jaxpr, is_new)
    {
        return Err(internal(format!("a transformation made a faulty program:\n{faults}")));
    }
    Ok(jaxpr)
}

/// Whether a body has not been checked before.
fn is_new(body: &Arc<Jaxpr>) -> bool {
    /// Marks a body as checked.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    struct Checked;
    let mut is_new = false;
    let Ok(Checked) = memo::get_or_compute(body, Checked, || {
        is_new = true;
        Ok::<_, Infallible>(Checked)
    });
    is_new
}

/// An error that only a defect of remat can cause.
pub(crate) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Internal, "transform", message)
}
