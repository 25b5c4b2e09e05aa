//! Source locations of traced operations: the caller's line and the named scope around it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;

use remat_ir::{Loc, Occurrence, Scope, Site};

use super::Tracer;

thread_local! {
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::ROOT) };
    static OCCURRENCE: Cell<Occurrence> = const { Cell::new(Occurrence::NONE) };
    /// How often scopes of each name were entered inside the current one, by the open traces.
    static ENTERED: RefCell<Option<HashMap<Box<str>, u32>>> = const { RefCell::new(None) };
    static PINNED: Cell<Option<Site>> = const { Cell::new(None) };
}

/// The caller's location in the current scope; inside [`pinned`], the location of the call of [`pinned`].
///
/// ```
/// use remat::layer::location;
/// use remat::{ErrorKind, Error};
/// #[track_caller]
/// fn width(features: usize) -> remat::Result<usize> {
///     if features == 0 {
///         return Err(Error::new(ErrorKind::Argument, "width", "a layer has at least one feature").at(location()));
///     }
///     Ok(4 * features)
/// }
/// let line = line!() + 1;
/// let error = width(0).unwrap_err();
/// assert_eq!(error.loc().and_then(|loc| loc.site).map(|site| site.line()), Some(line));
/// ```
#[track_caller]
pub fn current_loc() -> Loc {
    let caller = Location::caller();
    let site = Some(PINNED.get().unwrap_or(caller.into()));
    Loc { site, scope: SCOPE.get(), occurrence: OCCURRENCE.get(), ..Loc::UNKNOWN }
}

/// Runs `f` with all its operations at the caller's location, since a function that consists of several operations is one call to its user.
/// `#[track_caller]` alone does not suffice, since it ends at every closure.
///
/// Do not call functions given by the caller inside `f`: their operations would be at the wrong line.
///
/// ```
/// use remat::layer::pinned;
/// use remat::Tensor;
/// #[track_caller]
/// fn swish(x: &Tensor) -> Tensor {
///     pinned(|| x * x.sigmoid())
/// }
/// assert_eq!(swish(&Tensor::from(0.0f32)).item::<f32>()?, 0.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn pinned<R>(f: impl FnOnce() -> R) -> R {
    let _unpin = Unpin(PINNED.replace(current_loc().site));
    f()
}

/// As [`pinned`], for a function that is called elsewhere than it was created: all operations are at `loc`, but in the current scope.
pub(crate) fn pinned_at<R>(loc: Loc, f: impl FnOnce() -> R) -> R {
    let site = PINNED.get().or(loc.site);
    let _unpin = Unpin(PINNED.replace(site));
    f()
}

/// Restores the pinned location, even if `f` panics.
struct Unpin(Option<Site>);

impl Drop for Unpin {
    fn drop(&mut self) {
        PINNED.set(self.0);
    }
}

/// Runs `f` in the scope `name` inside the current one. Reports use it as the function of an operation, and
/// [`checkpoint_layers`](crate::checkpoint_layers) can make it a region.
///
/// ```
/// use remat::{Tensor, named_scope};
/// let y = named_scope("layer", || Tensor::from(1.0f32).sin());
/// # y.item::<f32>().unwrap();
/// ```
pub fn named_scope<R>(name: &str, f: impl FnOnce() -> R) -> R {
    let scope = SCOPE.get().child(name);
    // Outside of traces there is no program whose layers could be told apart, and no end of the numbers.
    let number = if Tracer::is_open() { next(name) } else { 0 };
    let occurrence = OCCURRENCE.get().child(name, number);
    let _restore = Restore(SCOPE.replace(scope), OCCURRENCE.replace(occurrence), ENTERED.take());
    let entered = super::regions::enter(scope);
    let result = f();
    if let Some(entered) = entered {
        super::regions::leave(entered);
    }
    result
}

/// How often a scope of this name was entered before inside the current one.
fn next(name: &str) -> u32 {
    ENTERED.with_borrow_mut(|entered| {
        let entered = entered.get_or_insert_default();
        let Some(count) = entered.get_mut(name) else {
            entered.insert(name.into(), 1);
            return 0;
        };
        *count = count.saturating_add(1);
        *count - 1
    })
}

/// Runs `f`, in which a program is traced, so that it counts scopes from the beginning.
pub(super) fn counting<R>(f: impl FnOnce() -> R) -> R {
    let _restore = Restore(SCOPE.get(), OCCURRENCE.get(), ENTERED.take());
    f()
}

/// Restores the scope, even if `f` panics.
struct Restore(Scope, Occurrence, Option<HashMap<Box<str>, u32>>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0);
        OCCURRENCE.set(self.1);
        ENTERED.set(self.2.take());
    }
}

/// The name of a function or closure type without its modules: `gpt::loss` becomes `loss`, a closure in it `loss::{closure}`.
pub(crate) fn short_type_name<F>() -> String {
    short_name(std::any::type_name::<F>())
}

fn short_name(name: &str) -> String {
    let name = name.split('<').next().unwrap_or(name);
    let parts: Vec<&str> = name.split("::").collect();
    let closures = parts.iter().rev().take_while(|p| **p == "{{closure}}").count();
    let base = parts.len().saturating_sub(closures + 1);
    parts[base..].join("::").replace("{{closure}}", "{closure}")
}
