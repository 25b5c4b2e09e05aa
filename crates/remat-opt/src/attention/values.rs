//! Values along the axes of scores: the same elements are recognised through transpositions, broadcasts and dimensions of size 1.
//!
//! JAX moves the axes of scores, and adds dimensions of size 1, between any two equations of a softmax. So a value here is an atom with the
//! axis that each of its dimensions follows, and two values are the same if they are the same atom along the same axes once all equations
//! that only move elements are looked through.

use remat_ir::{Atom, Aval, DType, Eqn, Jaxpr, Literal, Op, Prim, ReduceKind, Shape, Var, VarMap};

use crate::uses::{OUTPUT, definitions, readers};

/// An axis of the scores, by the dimension of the weights that follows it; or [`FEATURES`].
pub(super) type Axis = usize;

/// The axis of the features of an operand, which is none of the scores.
pub(super) const FEATURES: Axis = usize::MAX;

/// The axis that each dimension follows. A dimension of size 1 follows none, every other one does.
pub(super) type Axes = Vec<Option<Axis>>;

/// An atom along axes of the scores.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Value {
    pub(super) atom: Atom,
    pub(super) axes: Axes,
}

/// A program without calls, and what is looked up in it.
pub(super) struct Program<'a> {
    jaxpr: &'a Jaxpr,
    definitions: VarMap<Option<usize>>,
    readers: VarMap<Vec<usize>>,
}

/// The equations that a match consists of, by their indices.
pub(super) type Matched = Vec<usize>;

impl<'a> Program<'a> {
    pub(super) fn new(jaxpr: &'a Jaxpr) -> Program<'a> {
        Program { jaxpr, definitions: definitions(jaxpr), readers: readers(jaxpr) }
    }

    pub(super) fn eqn(&self, at: usize) -> &'a Eqn {
        &self.jaxpr.eqns[at]
    }

    pub(super) fn aval(&self, atom: Atom) -> Aval {
        self.jaxpr.atom_aval(atom)
    }

    pub(super) fn shape(&self, atom: Atom) -> Shape {
        self.aval(atom).shape
    }

    pub(super) fn dtype(&self, atom: Atom) -> DType {
        self.aval(atom).dtype
    }

    /// The operation that defines a value, with its operands and its index.
    pub(super) fn definition(&self, atom: Atom) -> Option<(usize, &'a Prim, &'a Eqn)> {
        let at = self.definitions[atom.var()?]?;
        let eqn = self.eqn(at);
        if let Op::Prim(op) = &eqn.op { Some((at, op, eqn)) } else { None }
    }

    /// An operand of an elementwise equation whose result follows these axes. A scalar operand stands for all elements.
    pub(super) fn operand(&self, atom: Atom, axes: &[Option<Axis>]) -> Value {
        let is_scalar = self.shape(atom).is_empty();
        Value { atom, axes: if is_scalar { Axes::new() } else { axes.to_vec() } }
    }

    /// The value whose elements these are, before all equations that only move elements. Their indices are added to `matched`, but for those
    /// of constants, which others may read.
    pub(super) fn origin(&self, mut value: Value, matched: &mut Matched) -> Value {
        while let Some((at, op, eqn)) = self.definition(value.atom)
            && let Some(&atom) = eqn.ins.first()
            && let Some(axes) = moved(op, &self.shape(atom), &self.shape(value.atom), &value.axes)
        {
            if atom.literal().is_none() {
                matched.push(at);
            }
            value = Value { atom, axes };
        }
        value
    }

    /// As [`origin`](Program::origin), where it does not matter what else reads the values on the way.
    pub(super) fn source(&self, value: Value) -> Value {
        self.origin(value, &mut Matched::new())
    }

    /// The number that all elements of a value are.
    pub(super) fn number(&self, value: &Value) -> Option<Literal> {
        self.source(value.clone()).atom.literal()
    }

    /// The operands of the equation that defines a value, if it has this elementwise operation.
    pub(super) fn operands<const N: usize>(
        &self,
        value: &Value,
        op: impl Into<Prim>,
        matched: &mut Matched,
    ) -> Option<[Value; N]> {
        let op = op.into();
        let (at, _, eqn) = self.definition(value.atom).filter(|(_, found, _)| **found == op)?;
        let atoms: [Atom; N] = eqn.ins[..].try_into().ok()?;
        matched.push(at);
        Some(atoms.map(|atom| self.operand(atom, &value.axes)))
    }

    /// The origins of these operands.
    pub(super) fn origins<const N: usize>(
        &self,
        value: &Value,
        op: impl Into<Prim>,
        matched: &mut Matched,
    ) -> Option<[Value; N]> {
        Some(self.operands(value, op, matched)?.map(|operand| self.origin(operand, matched)))
    }

    /// The origin of the operand whose reduction along one axis a value is.
    pub(super) fn reduced(&self, value: &Value, kind: ReduceKind, axis: Axis, matched: &mut Matched) -> Option<Value> {
        let (at, Prim::Reduce(op), eqn) = self.definition(value.atom)? else { return None };
        if op.kind != kind {
            return None;
        }
        matched.push(at);
        let mut kept = value.axes.iter();
        let of_dimension = |(dimension, &size): (usize, &usize)| match op.axes.contains(&dimension) {
            true => (size != 1).then_some(axis),
            false => kept.next().copied().flatten(),
        };
        let axes = self.shape(eqn.ins[0]).iter().enumerate().map(of_dimension).collect();
        Some(self.origin(Value { atom: eqn.ins[0], axes }, matched))
    }

    /// Whether nothing but these equations, and the equation `at`, reads what these equations compute.
    pub(super) fn is_read_only_by(&self, matched: &[usize], at: usize) -> bool {
        let is_inside = |reader: &usize| *reader != OUTPUT && (*reader == at || matched.contains(reader));
        let is_private = |&var: &Var| self.readers[var].iter().all(is_inside);
        matched.iter().all(|&at| self.jaxpr.eqns[at].outs.iter().all(is_private))
    }
}

/// The axes of the operand of an equation that only moves elements, from the axes of its result.
fn moved(op: &Prim, from: &[usize], to: &[usize], axes: &[Option<Axis>]) -> Option<Axes> {
    match op {
        Prim::Transpose(op) => {
            let mut moved = vec![None; from.len()];
            op.permutation.iter().zip(axes).for_each(|(&dimension, &axis)| moved[dimension] = axis);
            Some(moved)
        }
        Prim::BroadcastInDim(op) => {
            Some(op.dims.iter().zip(from).map(|(&to, &size)| if size == 1 { None } else { axes[to] }).collect())
        }
        Prim::Reshape(_) | Prim::Squeeze(_) | Prim::ExpandDims(_) => {
            // Dimensions of size 1 come or go; all others stay as they are.
            let is_long = |size: &&usize| **size != 1;
            let is_same = from.iter().filter(is_long).eq(to.iter().filter(is_long));
            let mut long = axes.iter().flatten();
            is_same.then(|| from.iter().map(|&size| if size == 1 { None } else { long.next().copied() }).collect())
        }
        _ => None,
    }
}
