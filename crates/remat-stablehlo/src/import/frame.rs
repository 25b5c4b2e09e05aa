//! Programs under construction: what each value of the file is here, and what a body takes from around it.
//!
//! A region of the file sees all values around it. A body here is closed, so a value from outside becomes an input of each body between its
//! definition and its use. Constants of one value are kept apart until something needs an array: elementwise operations take scalars as they
//! are.

use std::collections::HashMap;

use remat_ir::{Atom, BroadcastInDim, Builder, Jaxpr, Literal, Op, Result, Shape};

use crate::ValueId;
use crate::tidy::prune;

/// What a value of the file is in the program of a frame.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    Atom(Atom),
    /// An array each of whose elements is this.
    Splat(Literal, Shape),
}

/// What a body takes from around it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Capture {
    /// A value of the file.
    Value(ValueId),
    /// An array constant of the whole program, by number.
    Constant(usize),
}

/// One program under construction.
#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) builder: Builder,
    values: HashMap<ValueId, Known>,
    captures: Vec<Capture>,
    captured: HashMap<Capture, Atom>,
}

/// The programs around the present place, the innermost last. The first is that of a function, which sees no values around it.
#[derive(Default)]
pub(crate) struct Frames(Vec<Frame>);

/// A finished program: what it takes from around it comes first in its inputs.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) jaxpr: Jaxpr,
    pub(crate) captures: Vec<Capture>,
}

impl Frames {
    pub(crate) fn push(&mut self) {
        let loc = self.0.last().map(|frame| frame.builder.loc).unwrap_or_default();
        self.0.push(Frame::default());
        self.top().builder.loc = loc;
    }

    /// The innermost program.
    pub(crate) fn top(&mut self) -> &mut Frame {
        // There is one wherever operations are imported; an empty one does no harm elsewhere.
        if self.0.is_empty() {
            self.0.push(Frame::default());
        }
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Ends the innermost program with these outputs.
    pub(crate) fn finish(&mut self, outs: Vec<Atom>) -> Body {
        let frame = self.0.pop().unwrap_or_default();
        let mut jaxpr = frame.builder.finish(outs);
        let inputs: Vec<_> = frame.captures.iter().filter_map(|capture| frame.captured.get(capture)?.var()).collect();
        jaxpr.ins.retain(|var| !inputs.contains(var));
        jaxpr.ins.splice(0..0, inputs);
        prune(&mut jaxpr);
        Body { jaxpr, captures: frame.captures }
    }

    pub(crate) fn define(&mut self, value: ValueId, known: Known) {
        self.top().values.insert(value, known);
    }

    /// What a value is in the innermost program, which takes it from around if it has to. The value is `None` if it belongs to another
    /// function.
    pub(crate) fn known(&mut self, value: ValueId) -> Option<Known> {
        let found = self.0.iter().rposition(|frame| frame.values.contains_key(&value))?;
        let mut known = self.0[found].values.get(&value)?.clone();
        if let Known::Atom(Atom::Var(_)) = known {
            for depth in found + 1..self.0.len() {
                let (outer, inner) = self.0.split_at_mut(depth);
                let (Known::Atom(atom), Some(outer), Some(inner)) = (&known, outer.last(), inner.first_mut()) else {
                    return None;
                };
                let aval = outer.builder.aval(*atom);
                known = Known::Atom(inner.capture(Capture::Value(value), aval));
            }
        }
        Some(known)
    }

    /// The array constant of this number in the innermost program.
    pub(crate) fn constant(&mut self, number: usize, aval: &remat_ir::Aval) -> Atom {
        let mut atom = None;
        self.top();
        for frame in &mut self.0 {
            atom = Some(frame.capture(Capture::Constant(number), aval.clone()));
        }
        atom.unwrap_or_else(|| self.top().capture(Capture::Constant(number), aval.clone()))
    }

    /// What a body takes from around it, in the innermost program.
    pub(crate) fn captured(&mut self, capture: Capture, aval: &remat_ir::Aval) -> Option<Atom> {
        match capture {
            Capture::Constant(number) => Some(self.constant(number, aval)),
            Capture::Value(value) => match self.known(value)? {
                Known::Atom(atom) => Some(atom),
                Known::Splat(..) => None,
            },
        }
    }
}

impl Frame {
    fn capture(&mut self, capture: Capture, aval: remat_ir::Aval) -> Atom {
        if let Some(&atom) = self.captured.get(&capture) {
            return atom;
        }
        let atom = self.builder.input(aval);
        self.captures.push(capture);
        self.captured.insert(capture, atom);
        if let Capture::Value(value) = capture {
            self.values.insert(value, Known::Atom(atom));
        }
        atom
    }

    /// An array of this value as an atom; it is made once in each program.
    pub(crate) fn materialize(&mut self, value: ValueId, literal: Literal, shape: Shape) -> Result<Atom> {
        let op: Op = BroadcastInDim { shape, dims: Shape::new() }.into();
        let atom = self.builder.emit1(op, &[literal.into()])?;
        self.values.insert(value, Known::Atom(atom));
        Ok(atom)
    }
}
