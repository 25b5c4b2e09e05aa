//! The axes that have names where a function is being traced: those of a `vmap` with a name and of the mesh of a `shard_map`.

use std::cell::RefCell;
use std::sync::Arc;

use remat_ir::{Error, ErrorKind, Result, unknown_axis};

/// The names and sizes of axes.
type NamedAxes = Vec<(Arc<str>, usize)>;

/// The axes that one transformation binds.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    axes: NamedAxes,
    is_mesh: bool,
}

thread_local! {
    static BINDINGS: RefCell<Vec<Binding>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f`, in which these axes have names; `is_mesh` says that they are a mesh's.
///
/// # Errors
/// What `f` gives; if a name is bound already, or there is a mesh around this one.
pub(crate) fn with_axes<T>(
    operation: &str,
    axes: &[(Arc<str>, usize)],
    is_mesh: bool,
    f: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let wrong = |message: String| Err(Error::new(ErrorKind::Axis, operation, message));
    for (name, _) in axes {
        if bound_axes().iter().any(|(bound, _)| bound == name) {
            return wrong(format!(
                "the axis `{name}` has its name around this function already; call it something else"
            ));
        }
    }
    if is_mesh && BINDINGS.with_borrow(|bindings| bindings.iter().any(|binding| binding.is_mesh)) {
        return wrong(
            "the function is inside a shard_map, where it is on one device; make one mesh of all axes, and one shard_map".into(),
        );
    }
    BINDINGS.with_borrow_mut(|bindings| bindings.push(Binding { axes: axes.to_vec(), is_mesh }));
    let _unbind = Unbind;
    f()
}

/// Ends the innermost binding, also where the function panics.
struct Unbind;

impl Drop for Unbind {
    fn drop(&mut self) {
        BINDINGS.with_borrow_mut(|bindings| drop(bindings.pop()));
    }
}

/// All on which the meaning of axes in a function depends that is traced here, outermost first. A `vmap` without a name is not among
/// them, so that it shares the programs of calls outside of it.
pub(crate) fn bindings() -> Vec<Binding> {
    let means_something = |binding: &&Binding| binding.is_mesh || !binding.axes.is_empty();
    BINDINGS.with_borrow(|bindings| bindings.iter().filter(means_something).cloned().collect())
}

/// The axes that have names here, outermost first.
fn bound_axes() -> NamedAxes {
    BINDINGS.with_borrow(|bindings| bindings.iter().flat_map(|binding| binding.axes.iter().cloned()).collect())
}

/// The size of an axis that has a name here.
///
/// # Errors
/// An error of `operation` that lists the names, if there is none of this name.
pub(crate) fn bound_size(operation: &str, name: &str) -> Result<usize> {
    let axes = bound_axes();
    let size = axes.iter().find(|(axis, _)| **axis == *name).map(|(_, size)| *size);
    size.ok_or_else(|| unknown_axis(operation, name, axes.iter().map(|(name, _)| &**name)))
}
