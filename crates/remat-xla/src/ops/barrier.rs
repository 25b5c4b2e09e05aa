//! Barriers, whose results are read in place of their operands from then on (see [`versions`](crate::versions)).

use remat_ir::Result;

use super::prim;
use crate::value::{Name, Value, names, types};
use crate::writer::Writer;

/// A barrier: operations on the results are not merged with those that compute the operands.
///
/// An operand that may be another value's buffer under another shape goes through as that value, and equal operands go through once, so that
/// no two results are one buffer.
pub(crate) fn optimization_barrier(w: &mut Writer, ins: &[Value]) -> Result<Vec<Value>> {
    let ins: Vec<Value> = ins.iter().map(|value| w.operand(value)).collect();
    let mut held: Vec<Value> = Vec::new();
    for value in &ins {
        let base = base(w, value);
        if held.iter().all(|other| other.name != base.name) {
            held.push(base);
        }
    }
    hold(w, &held);
    ins.iter().map(|value| current(w, value)).collect()
}

/// The values by their newest names, for an operation that reads them.
pub(crate) fn current_all(w: &mut Writer, values: &[Value]) -> Result<Vec<Value>> {
    values.iter().map(|value| current(w, value)).collect()
}

/// The value by its newest name. If it is stale, this writes it again as a view, or a barrier for it.
fn current(w: &mut Writer, value: &Value) -> Result<Value> {
    let mut at = w.versions.newest(value);
    let mut views = Vec::new();
    while w.versions.is_stale(&at)
        && let Some(view) = w.versions.view(&at)
    {
        let (view, of) = (view.clone(), w.versions.newest(&view.operand));
        views.push((at, view));
        at = of;
    }
    if w.versions.is_stale(&at) {
        hold(w, std::slice::from_ref(&at));
        at = w.versions.newest(&at);
    }
    for (old, view) in views.into_iter().rev() {
        let new = prim(w, &view.op, &[at], &[view.out])?.swap_remove(0);
        w.versions_mut().replace(&old, &new);
        at = new;
    }
    Ok(Value { name: at.name, aval: value.aval.clone() })
}

/// The value whose buffer this one may be, or which has to be read in its place.
fn base(w: &Writer, value: &Value) -> Value {
    let mut at = w.versions.newest(value);
    while let Some(view) = w.versions.view(&at)
        && (view.shares_buffer() || w.versions.is_stale(&at))
        && !matches!(view.operand.name, Name::Literal(_))
    {
        at = w.versions.newest(&view.operand);
    }
    at
}

/// Writes a barrier of values with different buffers, whose results are read from then on.
fn hold(w: &mut Writer, values: &[Value]) {
    let avals: Vec<_> = values.iter().map(|value| value.aval.clone()).collect();
    if avals.is_empty() {
        return;
    }
    let text = format!("stablehlo.optimization_barrier {} : {}", names(values), types(&avals));
    for (old, new) in values.iter().zip(w.define_all(text, avals)) {
        w.versions_mut().replace(old, &new);
    }
}
