//! Steps: values, loops, and what runs at one time.

use std::sync::Arc;

use remat_ir::{Atom, Eqn, Iota, Jaxpr, Literal, Shape, Var, VarMap};
use remat_kernels::{Extent, Layout};

use crate::ids::EqnId;

/// What a value is.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    /// Elements of the buffer of a variable that has its own.
    View { base: Var, layout: Layout },
    /// One number, repeated.
    Splat { literal: Literal, shape: Shape },
}

impl Value {
    /// The buffer that it lies in.
    pub(crate) fn base(&self) -> Option<Var> {
        match self {
            Value::View { base, .. } => Some(*base),
            Value::Splat { .. } => None,
        }
    }

    /// Its elements.
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Value::View { layout, .. } => &layout.shape,
            Value::Splat { shape, .. } => shape,
        }
    }

    /// The view of it that `f` makes of its layout.
    pub(super) fn map(&self, shape: &Shape, f: impl FnOnce(&Layout) -> Option<Layout>) -> Option<Value> {
        match self {
            Value::View { base, layout } => Some(Value::View { base: *base, layout: f(layout)? }),
            Value::Splat { literal, .. } => Some(Value::Splat { literal: *literal, shape: shape.clone() }),
        }
    }
}

/// What runs at one time.
pub(crate) enum Step {
    /// One equation, with its operands.
    Equation { eqn: EqnId, operands: Vec<Value> },
    /// An operand is copied into a buffer of its own, row-major, for this equation.
    Copy { eqn: EqnId, operand: Value, out: Var },
    /// The numbers from zero, for this equation.
    Count { eqn: EqnId, out: Var, iota: Iota },
    /// Equations that one loop computes.
    Loop(Group),
}

/// A program as steps, in an order in which they can run.
pub(crate) struct Steps {
    /// The program, after the passes.
    pub(crate) jaxpr: Jaxpr,
    /// The names that the user gave to values: what its labels say.
    pub(crate) names: VarMap<Option<Arc<str>>>,
    /// What each variable is.
    pub(crate) values: VarMap<Value>,
    pub(crate) steps: Vec<Step>,
}

/// An equation of a loop.
pub(crate) struct Member {
    pub(crate) eqn: EqnId,
    pub(crate) out: Var,
    pub(crate) operands: Vec<Value>,
    pub(crate) extent: Extent,
}

/// Equations that one loop computes.
pub(crate) struct Group {
    pub(crate) members: Vec<Member>,
    /// Rows; all places where there are no columns.
    pub(crate) rows: usize,
    /// Elements per row, once a row means something.
    pub(crate) columns: Option<usize>,
    /// The shape and the axes of the reductions that end it, where it is a loop that keeps only accumulators.
    pub(crate) reduction: Option<(Shape, Shape)>,
    /// The members that others read, in order.
    pub(crate) outs: Vec<Var>,
}

impl Group {
    pub(super) fn size(&self) -> usize {
        self.rows * self.columns.unwrap_or(1)
    }
}

impl Step {
    /// The values that it reads. In a loop some of them are computed by the loop itself.
    pub(crate) fn operands(&self) -> Box<dyn Iterator<Item = &Value> + '_> {
        match self {
            Step::Equation { operands, .. } => Box::new(operands.iter()),
            Step::Copy { operand, .. } => Box::new(std::iter::once(operand)),
            Step::Count { .. } => Box::new(std::iter::empty()),
            Step::Loop(group) => Box::new(group.members.iter().flat_map(|m| &m.operands)),
        }
    }
}

impl Steps {
    /// The value of an atom.
    pub(crate) fn value(&self, atom: Atom) -> Value {
        match atom {
            Atom::Var(var) => self.values[var].clone(),
            Atom::Lit(literal) => Value::Splat { literal, shape: Shape::new() },
        }
    }

    /// An equation of the program.
    pub(crate) fn eqn(&self, eqn: EqnId) -> &Eqn {
        &self.jaxpr.eqns[eqn.index()]
    }
}
