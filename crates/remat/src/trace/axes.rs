//! The named axes of the function being traced: those of a named `vmap` and of the mesh of a `shard_map`.

use std::cell::RefCell;
use std::sync::Arc;

use remat_ir::{Error, ErrorKind, Mesh, Result, unknown_axis};

/// The names and sizes of axes.
type NamedAxes = Vec<(Arc<str>, usize)>;

/// The axes that one transformation binds.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    axes: NamedAxes,
    /// All devices, if the axes are those of a mesh.
    mesh: Option<Arc<Mesh>>,
}

thread_local! {
    static BINDINGS: RefCell<Vec<Binding>> = const { RefCell::new(Vec::new()) };
}

/// The axes of a mesh along which a `shard_map` here runs: the chosen ones, or all that no enclosing one has named.
///
/// # Errors
/// If the mesh has no such axis, or the list is empty; if an enclosing `shard_map` has another mesh, or has already named these axes.
pub(crate) fn free_axes(operation: &str, mesh: &Mesh, chosen: Option<&[String]>) -> Result<Mesh> {
    for name in chosen.into_iter().flatten() {
        mesh.expect_axis(operation, name)?;
    }
    if chosen.is_some_and(<[String]>::is_empty) {
        return Err(Error::new(ErrorKind::Axis, operation, "the list of axis names is empty"));
    }
    let around = BINDINGS.with_borrow(|bindings| {
        bindings.iter().filter_map(|binding| Some((binding.mesh.clone()?, binding.axes.clone()))).collect::<Vec<_>>()
    });
    let is_taken = |name: &str| around.iter().any(|(_, axes)| axes.iter().any(|(axis, _)| **axis == *name));
    let free =
        mesh.part(|name| chosen.map_or_else(|| !is_taken(name), |chosen| chosen.iter().any(|axis| axis == name)));
    match around.first() {
        Some((outer, _))
            if **outer != *mesh || free.axes().is_empty() || free.axes().iter().any(|(name, _)| is_taken(name)) =>
        {
            let axes: Vec<String> =
                outer.axes().iter().filter(|(name, _)| !is_taken(name)).map(|(name, _)| format!("`{name}`")).collect();
            let left =
                if axes.is_empty() { "it leaves none".to_string() } else { format!("it leaves {}", axes.join(", ")) };
            let message = format!(
                "the function is inside a shard_map over {outer}; one inside of it must be over the same mesh, along axes that the outer one \
                 leaves (the option `axis_names`): {left}"
            );
            Err(Error::new(ErrorKind::Axis, operation, message))
        }
        _ => Ok(free),
    }
}

/// Runs `f` with these named axes. If they are those of a mesh, the mesh is given with all of its axes.
///
/// # Errors
/// The error of `f`; if a name is already bound.
pub(crate) fn with_axes<T>(
    operation: &str,
    axes: &[(Arc<str>, usize)],
    mesh: Option<&Arc<Mesh>>,
    f: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let wrong = |message: String| Err(Error::new(ErrorKind::Axis, operation, message));
    for (name, _) in axes {
        if bound_axes().iter().any(|(bound, _)| bound == name) {
            return wrong(format!("an enclosing function has an axis `{name}` already; choose another name"));
        }
    }
    BINDINGS.with_borrow_mut(|bindings| bindings.push(Binding { axes: axes.to_vec(), mesh: mesh.cloned() }));
    let _unbind = Unbind;
    f()
}

/// Ends the innermost binding, even if the function panics.
struct Unbind;

impl Drop for Unbind {
    fn drop(&mut self) {
        BINDINGS.with_borrow_mut(|bindings| drop(bindings.pop()));
    }
}

/// Everything that determines the meaning of axes in a function traced here, outermost first. An unnamed `vmap` is not included, so that it
/// shares the programs of calls outside of it.
pub(crate) fn bindings() -> Vec<Binding> {
    let means_something = |binding: &&Binding| binding.mesh.is_some() || !binding.axes.is_empty();
    BINDINGS.with_borrow(|bindings| bindings.iter().filter(means_something).cloned().collect())
}

/// The named axes here, outermost first.
fn bound_axes() -> NamedAxes {
    BINDINGS.with_borrow(|bindings| bindings.iter().flat_map(|binding| binding.axes.iter().cloned()).collect())
}

/// The size of a named axis.
///
/// # Errors
/// If there is no axis of this name: an error of `operation` that lists the names.
pub(crate) fn bound_size(operation: &str, name: &str) -> Result<usize> {
    let axes = bound_axes();
    let size = axes.iter().find(|(axis, _)| **axis == *name).map(|(_, size)| *size);
    size.ok_or_else(|| unknown_axis(operation, name, axes.iter().map(|(name, _)| &**name)))
}
