//! The locations of the file as those of equations.
//!
//! JAX nests them: a name such as `jit(step)/jvp()/dot_general` around the calls that led to the operation, the innermost first. The site is
//! that innermost line, and the scope is the name without the operation.

use remat_ir::{Loc, Scope, Site};

use crate::{Attr, AttrId, Module};

/// How many attributes are looked at for one location.
const STEPS: usize = 64;

/// The location of an operation; unknown if the file has none.
pub(crate) fn loc(module: &Module<'_>, id: AttrId) -> Loc {
    let mut loc = Loc::UNKNOWN;
    let mut todo = vec![id];
    for _ in 0..STEPS {
        let Some(id) = todo.pop() else { break };
        match module.attribute(id) {
            Attr::Named(name, child) => {
                if let (Scope::ROOT, Some(name)) = (loc.scope, text(module, *name)) {
                    let path = name.rsplit_once('/').map_or("", |(path, _)| path);
                    loc.scope = Scope::new(path);
                }
                todo.push(*child);
            }
            Attr::CallSite(callee, caller) => todo.extend([*caller, *callee]),
            Attr::Fused(locations) => todo.extend(locations.iter().rev().take(STEPS)),
            Attr::Line(file, line, column) => {
                if let Some(file) = text(module, *file) {
                    loc.site = Some(Site::imported(file, *line, *column));
                    break;
                }
            }
            _ => {}
        }
    }
    loc
}

fn text<'a>(module: &Module<'a>, id: AttrId) -> Option<&'a str> {
    match module.attribute(id) {
        Attr::String(text) => str::from_utf8(text).ok(),
        _ => None,
    }
}
