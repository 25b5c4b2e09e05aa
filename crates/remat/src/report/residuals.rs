//! The list of residuals: what lies in memory between the forward and the backward pass.

use std::fmt;
use std::sync::Arc;

use remat_ir::{Aval, Loc, Op, Prim, Result, readable_bytes};

use super::origin::{Origin, Origins, Through};
use super::programs::print;
use crate::api::linearized::Parts;
use crate::trace::{Order, Output, Tree, current_loc, leaf_paths, trace_tree_at};
use crate::transform::Residual;

/// What a residual is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SavedKind {
    /// A tensor that the function captured: constant, and in memory anyway.
    Constant,
    /// A scalar constant that an equation hands through.
    Literal,
    /// The leaf of the argument at this path, which is empty for an argument that is a tensor itself. The caller has it
    /// in memory anyway.
    Argument(String),
    /// A value with this name.
    Named(Arc<str>),
    /// A result of the operation of this name.
    Output(&'static str),
}

impl fmt::Display for SavedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedKind::Constant => f.write_str("from a constant"),
            SavedKind::Literal => f.write_str("from a literal"),
            SavedKind::Argument(path) if path.is_empty() => f.write_str("from the argument"),
            SavedKind::Argument(path) => write!(f, "from the argument {path}"),
            SavedKind::Named(name) => write!(f, "named '{name}'"),
            SavedKind::Output(operation) => write!(f, "output of {operation}"),
        }
    }
}

/// One value that the backward pass takes from the forward pass.
#[derive(Clone, Debug)]
pub struct SavedResidual {
    /// Dtype, shape and memory space: host for an offloaded value.
    pub aval: Aval,
    /// What it is: also inside loops, branches, calls and nested checkpoints the value itself.
    pub kind: SavedKind,
    /// The user's line and scope; none for constants and arguments.
    pub loc: Option<Loc>,
    /// The loops, branches, calls and nested checkpoints that compute it, outermost first.
    pub through: Vec<Through>,
}

impl SavedResidual {
    /// The bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.aval.bytes()
    }

    /// Whether the forward pass computes it, so that it takes memory of its own.
    pub fn is_intermediate(&self) -> bool {
        match self.kind {
            SavedKind::Named(_) | SavedKind::Output(_) => true,
            SavedKind::Constant | SavedKind::Literal | SavedKind::Argument(_) => false,
        }
    }
}

/// JAX's line, then what it went through, and the bytes.
impl fmt::Display for SavedResidual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.aval, self.kind)?;
        if let Some(loc) = self.loc {
            write!(f, " from {loc}")?;
        }
        for (i, through) in self.through.iter().enumerate() {
            write!(f, "{}{through}", if i == 0 { " in " } else { " > " })?;
        }
        write!(f, "; {}", readable_bytes(self.bytes()))
    }
}

/// All residuals of a function: constants, arguments in the order of the leaves, then what equations compute in the order
/// of the program.
#[derive(Clone, Debug, Default)]
pub struct Residuals {
    list: Vec<SavedResidual>,
}

impl Residuals {
    /// The residuals.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SavedResidual> {
        self.list.iter()
    }

    /// Those that the forward pass computes: all but constants and arguments.
    pub fn intermediates(&self) -> impl Iterator<Item = &SavedResidual> {
        self.list.iter().filter(|r| r.is_intermediate())
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the backward pass needs nothing.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The bytes of all of them.
    pub fn total_bytes(&self) -> usize {
        self.list.iter().map(SavedResidual::bytes).sum()
    }

    /// The bytes of those that the forward pass computes.
    pub fn intermediate_bytes(&self) -> usize {
        self.intermediates().map(SavedResidual::bytes).sum()
    }
}

impl<'a> IntoIterator for &'a Residuals {
    type Item = &'a SavedResidual;
    type IntoIter = std::slice::Iter<'a, SavedResidual>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// One line for each residual as JAX prints it, with the bytes behind; then the totals.
impl fmt::Display for Residuals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for residual in &self.list {
            writeln!(f, "{residual}")?;
        }
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (all, intermediate) = (readable_bytes(self.total_bytes()), readable_bytes(self.intermediate_bytes()));
        let count = plural(self.intermediates().count(), "intermediate");
        write!(f, "total {all} in {}; {intermediate} in {count}", plural(self.len(), "residual"))
    }
}

/// What the backward pass of a function keeps, for an argument of these avals, whose values are not read: every residual
/// of [`vjp`](crate::vjp).
///
/// Values inside `scan`, `jit`, branches and nested checkpoints keep their name, operation and line; what they went through
/// is told beside it.
///
/// ```
/// use remat::report::{SavedKind, saved_residuals};
/// use remat::{Policy, Tensor, checkpoint};
/// let f = checkpoint(Policy::names(["hidden"]), |x: &Tensor| x.sin().named("hidden").sin().sum(..));
/// let residuals = saved_residuals(|x: &Tensor| f(x), &Tensor::from(vec![1.0f32, 2.0]))?;
/// let kinds: Vec<&SavedKind> = residuals.iter().map(|r| &r.kind).collect();
/// assert_eq!(kinds, [&SavedKind::Argument(String::new()), &SavedKind::Named("hidden".into())]);
/// assert_eq!((residuals.total_bytes(), residuals.intermediate_bytes()), (16, 8));
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`vjp`](crate::vjp).
#[track_caller]
pub fn saved_residuals<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<Residuals> {
    let (program, _) = trace_tree_at(Order::current().plus(1), x, current_loc(), &f)?;
    let num_outs = program.jaxpr.outs.len();
    let parts = Parts::new(program, num_outs)?;
    let paths: Vec<String> = leaf_paths(x).iter().map(|p| p.to_string()).collect();
    Ok(residuals(&parts, &paths))
}

/// Prints [`saved_residuals`] to the standard output.
///
/// ```
/// use remat::report::print_saved_residuals;
/// use remat::Tensor;
/// print_saved_residuals(|x: &Tensor| x.sin(), &Tensor::from(1.0f32))?;
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// As [`saved_residuals`]; of kind `Io` if the standard output cannot be written.
#[track_caller]
pub fn print_saved_residuals<A: Tree, R: Output>(f: impl Fn(&A) -> R, x: &A) -> Result<()> {
    print("print_saved_residuals", &format!("{}\n", saved_residuals(f, x)?))
}

/// The residuals of a linearized program whose arguments are at `paths`.
fn residuals(parts: &Parts, paths: &[String]) -> Residuals {
    let known = &parts.split.known;
    let num_captured = parts.program.captured.len();
    let mut origins = Origins::default();
    let mut list = Vec::with_capacity(parts.split.residuals.len());
    for residual in &parts.split.residuals {
        let atom = match *residual {
            Residual::Input(i) => known.ins[i].into(),
            Residual::Out(i) => known.outs[i],
        };
        let found = origins.find(known, atom);
        let (group, kind, loc) = match found.origin {
            Origin::Literal => (0, SavedKind::Literal, None),
            Origin::Input(i) if i < num_captured => (1, SavedKind::Constant, None),
            Origin::Input(i) => (2 + i, SavedKind::Argument(paths[i - num_captured].clone()), None),
            Origin::Equation(eqn, _) => (usize::MAX, kind_of(&eqn.op), Some(eqn.loc)),
        };
        let saved = SavedResidual { aval: known.atom_aval(atom), kind, loc, through: found.through };
        list.push((group, found.order, saved));
    }
    list.sort_by(|(a, x, _), (b, y, _)| (a, x).cmp(&(b, y)));
    Residuals { list: list.into_iter().map(|(_, _, saved)| saved).collect() }
}

/// What the result of an operation without programs is called.
pub(super) fn kind_of(op: &Op) -> SavedKind {
    match op {
        Op::Prim(Prim::Name(op)) => SavedKind::Named(op.name.clone()),
        op => SavedKind::Output(op.name()),
    }
}
