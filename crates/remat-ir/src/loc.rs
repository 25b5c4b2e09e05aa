//! Source locations: the user's line and named scope of an equation.
//!
//! An equation made by a rule inherits the location of the equation that it came from, so that reports of residuals show the user's line
//! and never the rule's file.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, LazyLock};

use crate::Occurrence;
use crate::intern::Interner;

/// A named scope such as `loss/block`, interned: two scopes with one path are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scope(u32);

static SCOPES: LazyLock<Interner<Arc<str>>> = LazyLock::new(Interner::default);

impl Scope {
    /// The outermost scope, whose path is empty.
    pub const ROOT: Scope = Scope(0);

    /// The scope with this whole path.
    pub fn new(path: &str) -> Scope {
        if path.is_empty() { Scope::ROOT } else { Scope(SCOPES.intern(path, || path.into()).0) }
    }

    /// The scope `name` inside this one.
    pub fn child(self, name: &str) -> Scope {
        if self == Scope::ROOT { Scope::new(name) } else { Scope::new(&format!("{}/{name}", self.path())) }
    }

    /// The path, its names joined by `/`.
    pub fn path(self) -> Arc<str> {
        SCOPES.get(self.0).unwrap_or_default()
    }
}

/// A file, line and column: of a call in this program, or of a program in another language that was imported. Sites are interned, so that
/// one takes no more than two words and two that are equal have one address; those of imported programs are never freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Site {
    /// A line of Rust.
    Rust(&'static Location<'static>),
    /// A line of the program that was imported.
    Imported(&'static ImportedSite),
}

/// A place in the source of an imported program.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ImportedSite {
    file: Box<str>,
    line: u32,
    column: u32,
}

static IMPORTED: LazyLock<Interner<&'static ImportedSite>> = LazyLock::new(Interner::default);

impl Site {
    /// The site of an imported program.
    ///
    /// ```
    /// use remat_ir::Site;
    /// let site = Site::imported("train.py", 31, 4);
    /// assert_eq!(site.to_string(), "train.py:31:4");
    /// assert_eq!(site, Site::imported("train.py", 31, 4));
    /// ```
    pub fn imported(file: &str, line: u32, column: u32) -> Site {
        let site = || ImportedSite { file: file.into(), line, column };
        Site::Imported(IMPORTED.intern(&site(), || Box::leak(Box::new(site()))).1)
    }

    /// The path of the file.
    pub fn file(self) -> &'static str {
        match self {
            Site::Rust(location) => location.file(),
            Site::Imported(site) => &site.file,
        }
    }

    /// The line, from 1.
    pub fn line(self) -> u32 {
        match self {
            Site::Rust(location) => location.line(),
            Site::Imported(site) => site.line,
        }
    }

    /// The column, from 1 in Rust.
    pub fn column(self) -> u32 {
        match self {
            Site::Rust(location) => location.column(),
            Site::Imported(site) => site.column,
        }
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Site {
        Site::Rust(location)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file(), self.line(), self.column())
    }
}

/// What an equation is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Role {
    /// It is what the user wrote: the forward pass of a gradient.
    #[default]
    Written,
    /// It computes again, for the backward pass, what a region did not keep.
    Recomputed,
    /// A derivative rule or transposition made it.
    Derivative,
}

impl Role {
    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Written => "forward",
            Role::Recomputed => "recomputed",
            Role::Derivative => "derivative",
        }
    }
}

/// Where the user wrote an operation. Programs that were parsed from text have no site.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loc {
    /// File, line and column of the call.
    pub site: Option<Site>,
    /// The named scope around the call.
    pub scope: Scope,
    /// Distinguishes equations of one line, for reports: an equation and its copies in other programs have the same number. 0 if equations
    /// are not numbered.
    pub discriminator: u32,
    /// What the equation is for, beside the one that was written here.
    pub role: Role,
    /// Which of several scopes with this path it was, as those of the layers of a model. None of an equation that was not traced.
    pub occurrence: Occurrence,
}

impl Loc {
    /// No location.
    pub const UNKNOWN: Loc =
        Loc { site: None, scope: Scope::ROOT, discriminator: 0, role: Role::Written, occurrence: Occurrence::NONE };

    /// The caller's line, outside of any scope.
    #[track_caller]
    pub fn caller() -> Loc {
        Loc { site: Some(Location::caller().into()), ..Loc::UNKNOWN }
    }
}

impl fmt::Display for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site {
            Some(site) => write!(f, "{site}")?,
            None => f.write_str("<unknown>")?,
        }
        if self.scope != Scope::ROOT { write!(f, " ({})", self.scope.path()) } else { Ok(()) }
    }
}
