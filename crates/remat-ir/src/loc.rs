//! Source locations: the user's line and named scope of an equation.
//!
//! An equation made by a rule inherits the location of the equation that it came from, so that reports of residuals show the user's line
//! and never the rule's file.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, LazyLock, RwLock};

/// A named scope such as `loss/block`, interned: two scopes with one path are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope(u32);

#[derive(Default)]
struct Interner {
    paths: Vec<Arc<str>>,
    index: HashMap<Arc<str>, u32>,
}

static SCOPES: LazyLock<RwLock<Interner>> = LazyLock::new(|| {
    let mut interner = Interner::default();
    interner.paths.push("".into());
    interner.index.insert("".into(), 0);
    RwLock::new(interner)
});

impl Scope {
    /// The outermost scope, whose path is empty.
    pub const ROOT: Scope = Scope(0);

    /// The scope with this whole path.
    pub fn new(path: &str) -> Scope {
        if let Some(&id) = SCOPES.read().unwrap_or_else(|e| e.into_inner()).index.get(path) {
            return Scope(id);
        }
        let mut interner = SCOPES.write().unwrap_or_else(|e| e.into_inner());
        if let Some(&id) = interner.index.get(path) {
            return Scope(id);
        }
        let id = interner.paths.len() as u32;
        let path: Arc<str> = path.into();
        interner.paths.push(path.clone());
        interner.index.insert(path, id);
        Scope(id)
    }

    /// The scope `name` inside this one.
    pub fn child(self, name: &str) -> Scope {
        if self == Scope::ROOT { Scope::new(name) } else { Scope::new(&format!("{}/{name}", self.path())) }
    }

    /// The path, its names joined by `/`.
    pub fn path(self) -> Arc<str> {
        SCOPES.read().unwrap_or_else(|e| e.into_inner()).paths[self.0 as usize].clone()
    }
}

/// Where the user wrote an operation. Programs that were parsed from text have no site.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loc {
    /// File, line and column of the call.
    pub site: Option<&'static Location<'static>>,
    /// The named scope around the call.
    pub scope: Scope,
    /// Distinguishes equations of one line, for reports: an equation and its copies in other programs have the same number. 0 if equations
    /// are not numbered.
    pub discriminator: u32,
    /// Whether a derivative rule or transposition made the equation of the one that was written here. What a backward pass computes again is
    /// not meant.
    pub is_derivative: bool,
}

impl Loc {
    /// No location.
    pub const UNKNOWN: Loc = Loc { site: None, scope: Scope::ROOT, discriminator: 0, is_derivative: false };

    /// The caller's line, outside of any scope.
    #[track_caller]
    pub fn caller() -> Loc {
        Loc { site: Some(Location::caller()), ..Loc::UNKNOWN }
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site {
            Some(site) => write!(f, "{}:{}:{}", site.file(), site.line(), site.column())?,
            None => f.write_str("<unknown>")?,
        }
        if self.scope != Scope::ROOT { write!(f, " ({})", self.scope.path()) } else { Ok(()) }
    }
}
