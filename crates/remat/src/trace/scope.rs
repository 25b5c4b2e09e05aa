//! Source locations of traced operations: the caller's line and the named scope around it.

use std::cell::Cell;
use std::panic::Location;

use remat_ir::{Loc, Scope};

thread_local! {
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::ROOT) };
}

/// The caller's location in the current scope.
#[track_caller]
pub(crate) fn current_loc() -> Loc {
    Loc { site: Some(Location::caller()), scope: SCOPE.get() }
}

/// Runs `f` in the scope `name` inside the current one: what reports call the function of an operation.
///
/// ```
/// use remat::{Tensor, named_scope};
/// let y = named_scope("layer", || Tensor::from(1.0f32).sin());
/// # y.item::<f32>().unwrap();
/// ```
pub fn named_scope<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let _restore = Restore(SCOPE.replace(SCOPE.get().child(name)));
    f()
}

/// Puts the scope back also when `f` panics.
struct Restore(Scope);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0);
    }
}

/// The name of a function or closure type without its modules: `gpt::loss` is `loss`, a closure in it `loss::{closure}`.
pub(crate) fn short_type_name<F>() -> String {
    let name = std::any::type_name::<F>();
    let name = name.split('<').next().unwrap_or(name);
    let parts: Vec<&str> = name.split("::").collect();
    let closures = parts.iter().rev().take_while(|p| **p == "{{closure}}").count();
    let base = parts.len().saturating_sub(closures + 1);
    parts[base..].join("::").replace("{{closure}}", "{closure}")
}
