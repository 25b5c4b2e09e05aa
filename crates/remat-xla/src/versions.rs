//! Versions of values: which name of a value statements read, and which values were computed from an older one.
//!
//! The operand and the result of a barrier are one value in one buffer. XLA:CPU, whose barriers reach the assignment of buffers, lets a
//! fused loop write over an operand that it reads element by element for the last time, and compares operands by name. A loop that reads the
//! result of a barrier in order and its operand in another order would so write over elements that it still has to read. So after a barrier
//! no statement reads its operand, nor what was computed from it before, since XLA may compute that again inside the loop:
//!
//! - A value that went through a barrier is read by its newest name.
//! - What was computed from an older name is *stale*. A stale view is written again, of the newest name; any other stale value goes through
//!   a barrier of its own before it is read, so that it is computed once, from the older name alone.
//!
//! Here are the names; [`ops`](crate::ops) writes the statements.

use std::collections::{HashMap, HashSet};

use remat_ir::{Aval, Prim};

use crate::value::{Name, Value};

/// An operation that only moves elements of one value, and so is as cheap to write again as to keep.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) op: Prim,
    pub(crate) operand: Value,
    pub(crate) out: Aval,
}

impl View {
    /// This operation of this value, if it is a view.
    pub(crate) fn new(op: &Prim, operand: &Value, out: &Aval) -> Option<View> {
        let is_view = matches!(op, Prim::BroadcastInDim(_) | Prim::Slice(_) | Prim::Rev(_)) || keeps_elements(op);
        is_view.then(|| View { op: op.clone(), operand: operand.clone(), out: out.clone() })
    }

    /// Whether it may be the buffer of the value under another shape or layout.
    pub(crate) fn shares_buffer(&self) -> bool {
        keeps_elements(&self.op)
    }
}

fn keeps_elements(op: &Prim) -> bool {
    matches!(op, Prim::Reshape(_) | Prim::Squeeze(_) | Prim::ExpandDims(_) | Prim::Transpose(_))
}

/// The values that were written, by their names.
#[derive(Clone, Default)]
pub(crate) struct Versions {
    /// The value that is read instead.
    newer: HashMap<Name, Value>,
    /// The results of each operation.
    results: Vec<Vec<Name>>,
    /// The operations that read a value.
    readers: HashMap<Name, Vec<usize>>,
    views: HashMap<Name, View>,
    stale: HashSet<Name>,
}

impl Versions {
    /// The value by its newest name.
    pub(crate) fn newest(&self, value: &Value) -> Value {
        let mut name = value.name;
        while let Some(newer) = self.newer.get(&name) {
            name = newer.name;
        }
        Value { name, aval: value.aval.clone() }
    }

    /// Whether the value was computed from one that has a newer name by now.
    pub(crate) fn is_stale(&self, value: &Value) -> bool {
        self.stale.contains(&value.name)
    }

    /// How the value was computed, if that was a view.
    pub(crate) fn view(&self, value: &Value) -> Option<&View> {
        self.views.get(&value.name)
    }

    /// Records an operation that was written. A result that is an operand is nothing new.
    pub(crate) fn record(&mut self, ins: &[Value], outs: &[Value], view: Option<View>) {
        let is_new = |out: &&Value| ins.iter().all(|value| value.name != out.name);
        let results: Vec<Name> = outs.iter().filter(is_new).map(|out| out.name).collect();
        if let (Some(view), [name]) = (view, &results[..]) {
            self.views.insert(*name, view);
        }
        for value in ins {
            self.readers.entry(value.name).or_default().push(self.results.len());
        }
        self.results.push(results);
    }

    /// From now on `new` is read in place of `old`: the same value. What was computed from `old` is stale.
    pub(crate) fn replace(&mut self, old: &Value, new: &Value) {
        if old.name == new.name {
            return;
        }
        let mut todo = vec![old.name];
        while let Some(name) = todo.pop() {
            for &operation in self.readers.get(&name).into_iter().flatten() {
                todo.extend(self.results[operation].iter().filter(|&&result| self.stale.insert(result)));
            }
        }
        self.newer.insert(old.name, new.clone());
    }
}
