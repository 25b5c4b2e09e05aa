//! Descriptions of residuals: arguments, constants, and values that the forward pass keeps.

use std::fmt;
use std::sync::Arc;

use remat_ir::{Aval, Jaxpr, Loc, Op, Prim, counted, readable_bytes};

use crate::trace::Path;
use crate::transform::ResidualSource;
use crate::transform::origin::{Origin, Origins, Through};

/// The kind of a residual.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SavedKind {
    /// A tensor that the function captured. It is constant, and in memory anyway.
    Constant,
    /// A scalar constant that is written in the program.
    Literal,
    /// The leaf of the argument at this path, which is empty if the argument is itself a tensor. The caller has it in memory anyway.
    Argument(String),
    /// A value with this name.
    Named(Arc<str>),
    /// A result of the operation of this name.
    Output(&'static str),
}

impl SavedKind {
    /// The kind of an operation's result.
    pub(crate) fn of(op: &Op) -> SavedKind {
        match op {
            // Only custom rematerialization marks a value before policies are asked.
            Op::Prim(Prim::Name(op)) => {
                op.label().map_or(SavedKind::Output("custom_remat"), |n| SavedKind::Named(n.clone()))
            }
            op => SavedKind::Output(op.name()),
        }
    }
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
    /// The kind of the value itself, even if it is computed inside loops, branches, calls or nested checkpoints.
    pub kind: SavedKind,
    /// Your line that computes it, and the scope; `None` for constants and arguments.
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

/// JAX's line, then the enclosing loops and calls, and the bytes.
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

/// All residuals of a function, always in the order of the inputs of the backward program: captured constants, then leaves of the argument,
/// then results of equations in the order of the forward program.
#[derive(Clone, Debug, Default)]
pub struct Residuals {
    list: Vec<SavedResidual>,
}

impl Residuals {
    /// Describes each residual of a split program. The inputs of `known` are `num_captured` constants, then the leaves of the argument,
    /// which are at `paths`.
    pub(crate) fn new(known: &Jaxpr, residuals: &[ResidualSource], num_captured: usize, paths: &[Path]) -> Residuals {
        let mut origins = Origins::default();
        let saved = |residual: &ResidualSource| {
            let atom = match *residual {
                ResidualSource::Input(i) => known.ins[i].into(),
                ResidualSource::Out(i) => known.outs[i],
            };
            let found = origins.find(known, atom);
            let (kind, loc) = match found.origin {
                Origin::Literal => (SavedKind::Literal, None),
                Origin::Input(i) => match i.checked_sub(num_captured) {
                    None => (SavedKind::Constant, None),
                    Some(leaf) => (SavedKind::Argument(paths[leaf].to_string()), None),
                },
                Origin::Equation(eqn) => (SavedKind::of(&eqn.op), Some(eqn.loc)),
            };
            SavedResidual { aval: known.atom_aval(atom), kind, loc, through: found.through }
        };
        Residuals { list: residuals.iter().map(saved).collect() }
    }

    /// The residuals.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SavedResidual> {
        self.list.iter()
    }

    /// The residuals that the forward pass computes: all but constants and arguments.
    pub fn intermediates(&self) -> impl Iterator<Item = &SavedResidual> {
        self.list.iter().filter(|r| r.is_intermediate())
    }

    /// The number of residuals.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no residuals.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The bytes of all residuals.
    pub fn total_bytes(&self) -> usize {
        self.list.iter().map(SavedResidual::bytes).sum()
    }

    /// The bytes of the residuals that the forward pass computes.
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

/// One line for each residual as JAX prints it, followed by its bytes; then the totals.
impl fmt::Display for Residuals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for residual in &self.list {
            writeln!(f, "{residual}")?;
        }
        let (all, intermediate) = (readable_bytes(self.total_bytes()), readable_bytes(self.intermediate_bytes()));
        let count = counted(self.intermediates().count(), "intermediate");
        write!(f, "total {all} in {}; {intermediate} in {count}", counted(self.len(), "residual"))
    }
}
