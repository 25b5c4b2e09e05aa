//! Sinking: moves fusible equations to just before their first reader.
//!
//! ```text
//! sink : { lambda ; a. let b = f a; c = g a; d = h c b in (d,) }   (f fusible, g not)
//!      → { lambda ; a. let c = g a; b = f a; d = h c b in (d,) }
//! ```
//!
//! Transformations put the recomputation for all layers at the beginning of the backward pass, and a forward pass computes values that only
//! the backward pass reads.

use std::borrow::Cow;

use remat_ir::{Eqn, Jaxpr, Result};

use crate::cost::is_fusible;
use crate::uses::{is_label, labelled, vars};

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    let mut jaxpr = jaxpr.into_owned();
    let labels = take_labels(&mut jaxpr);
    let mut first = jaxpr.var_map(usize::MAX);
    for var in jaxpr.outs.iter().filter_map(|a| a.var()) {
        first[var] = 0;
    }
    let mut keys: Vec<(usize, usize)> = Vec::with_capacity(jaxpr.eqns.len());
    for (at, eqn) in jaxpr.eqns.iter().enumerate().rev() {
        let reader = eqn.outs.iter().map(|&v| first[v]).min().unwrap_or(0);
        // An equation stays at its position or moves before its reader. Equations that sink to a position come before the one that is
        // there.
        let position = if is_fusible(&eqn.op) && reader > at { reader } else { at };
        for var in vars(eqn) {
            first[var] = first[var].min(position);
        }
        keys.push((position, at));
    }
    let eqns = std::mem::take(&mut jaxpr.eqns);
    let mut eqns: Vec<((usize, usize), Eqn)> = keys.into_iter().rev().zip(eqns).collect();
    eqns.sort_by_key(|(key, _)| *key);
    jaxpr.eqns = eqns.into_iter().map(|(_, eqn)| eqn).collect();
    put_labels(&mut jaxpr, labels);
    Ok(Cow::Owned(jaxpr))
}

/// Takes the labels out of a program.
fn take_labels(jaxpr: &mut Jaxpr) -> Vec<Eqn> {
    if !jaxpr.eqns.iter().any(is_label) {
        return Vec::new();
    }
    let (labels, eqns) = std::mem::take(&mut jaxpr.eqns).into_iter().partition(is_label);
    jaxpr.eqns = eqns;
    labels
}

/// Puts each label after the equation that computes its operand.
fn put_labels(jaxpr: &mut Jaxpr, labels: Vec<Eqn>) {
    if labels.is_empty() {
        return;
    }
    let mut of_var = jaxpr.var_map(Vec::new());
    for label in labels {
        if let Some(var) = labelled(&label) {
            of_var[var].push(label);
        }
    }
    let eqns = std::mem::take(&mut jaxpr.eqns);
    for &var in &jaxpr.ins {
        jaxpr.eqns.append(&mut of_var[var]);
    }
    for eqn in eqns {
        let outs = eqn.outs.clone();
        jaxpr.eqns.push(eqn);
        for var in outs {
            jaxpr.eqns.append(&mut of_var[var]);
        }
    }
}
