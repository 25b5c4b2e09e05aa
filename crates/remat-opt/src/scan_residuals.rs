//! Drops stacked outputs of a scan (residuals) that the scans that read them can compute.
//!
//! ```text
//! scan_residuals : carry xs ys = scan[body: x, y = f x]; scan[body reads x and y] xs ys
//!                → carry xs    = scan[body: x];          scan[body computes y = f x] xs
//! ```
//!
//! This is rematerialization between loops. The forward pass of a loop over layers stacks residuals for its backward pass. A stacked output
//! is dropped if elementwise operations compute its slices from slices of other stacked outputs. The iteration that reads such a slice
//! computes it again, in the fused loops that read it. Engines do the same for values within one program. If a slice is wider than its
//! operand, as f32 converted from bf16 is, the operand is stacked instead.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use remat_ir::{Atom, Builder, Call, Eqn, Jaxpr, Keep, Loc, Op, Prim, Result, Scan, Var, VarMap};

use crate::cost::{MOST_RECOMPUTED, MUCH_SMALLER, SMALL_BYTES, is_fusible};
use crate::extrema::finds_extremum;
use crate::inline::located;
use crate::rewrite::rewrite;
use crate::uses::{definitions, drop_lost_labels, is_kept_by, is_label};

/// Where the reading loop gets a value of this loop's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaf {
    /// The slice of a stacked value.
    Slice(Var),
    /// A constant of the loop.
    Constant(Var),
    /// The slice of a new stacked output, by its index among the new ones.
    New(usize),
}

/// A recipe for computing a slice of a stacked output.
struct Recipe {
    /// Equations of the body, in order.
    eqns: Vec<Eqn>,
    /// The variables of the body from which they start.
    leaves: Vec<(Var, Leaf)>,
    /// The slice, in the body.
    value: Var,
}

pub(crate) fn pass(jaxpr: Cow<'_, Jaxpr>) -> Result<Cow<'_, Jaxpr>> {
    if !jaxpr.eqns.iter().any(|eqn| matches!(eqn.op, Op::Call(Call::Scan(_)))) {
        return Ok(jaxpr);
    }
    let mut jaxpr = jaxpr.into_owned();
    drop_stacked(&mut jaxpr)?;
    drop_lost_labels(&mut jaxpr);
    Ok(Cow::Owned(jaxpr))
}

/// Drops stacked outputs that all their readers can compute.
fn drop_stacked(flat: &mut Jaxpr) -> Result<()> {
    for at in 0..flat.eqns.len() {
        open_calls(flat, at)?;
        let eqn = &flat.eqns[at];
        let Op::Call(Call::Scan(scan)) = &eqn.op else { continue };
        let mut dropped = vec![false; eqn.outs.len()];
        let mut pinned = vec![false; eqn.outs.len()];
        let mut added = Vec::new();
        let mut recipes = Vec::new();
        for out in candidates(flat, eqn, scan) {
            if pinned[out] {
                continue;
            }
            let Some(recipe) = recipe(flat, eqn, scan, out, &dropped, &mut added) else { continue };
            for (i, var) in eqn.outs.iter().enumerate() {
                pinned[i] |= recipe.leaves.iter().any(|(_, leaf)| *leaf == Leaf::Slice(*var));
            }
            dropped[out] = true;
            recipes.push((eqn.outs[out], recipe));
        }
        if recipes.is_empty() {
            continue;
        }
        let body = scan.jaxpr.clone();
        let added = change_outs(flat, at, &dropped, &added);
        for (stacked, mut recipe) in recipes {
            for (_, leaf) in &mut recipe.leaves {
                if let Leaf::New(i) = *leaf {
                    *leaf = Leaf::Slice(added[i]);
                }
            }
            for reader in &mut flat.eqns[at + 1..] {
                if reader.ins.contains(&Atom::Var(stacked)) {
                    recompute_in_reader(reader, stacked, &recipe, &body)?;
                }
            }
        }
    }
    Ok(())
}

/// Puts the equations of calls in their place, in the body of a scan with stacked outputs that may be dropped: JAX writes such a body as a
/// call, and so may a user.
fn open_calls(flat: &mut Jaxpr, at: usize) -> Result<()> {
    let eqn = &flat.eqns[at];
    let Op::Call(Call::Scan(scan)) = &eqn.op else { return Ok(()) };
    let has_calls = scan.jaxpr.eqns.iter().any(|eqn| matches!(eqn.op, Op::Call(Call::Jit(_))));
    if has_calls && !candidates(flat, eqn, scan).is_empty() {
        let jaxpr = Arc::new(without_calls(&scan.jaxpr, Loc::UNKNOWN)?);
        flat.eqns[at].op = Scan { jaxpr, ..scan.clone() }.into();
    }
    Ok(())
}

/// The same program without calls. Equations without a location get that of the call, and all have at least its role.
fn without_calls(body: &Jaxpr, call: Loc) -> Result<Jaxpr> {
    rewrite(body, |b, op, ins, avals, loc| {
        let loc = located(loc, call);
        match op {
            Op::Call(Call::Jit(op)) => b.inline(&without_calls(&op.jaxpr, loc)?, &ins),
            op => Ok(b.push(op, &ins, avals, loc).into_iter().map(Atom::Var).collect()),
        }
    })
}

/// The stacked outputs that are read only as slices by scans. The widest come first, so that they are not kept for narrow ones; among
/// equally wide ones, the last computed.
fn candidates(flat: &Jaxpr, eqn: &Eqn, scan: &Scan) -> Vec<usize> {
    let mut order = VarMap::filled(scan.jaxpr.avals.len(), 0);
    for (i, eqn) in scan.jaxpr.eqns.iter().enumerate() {
        eqn.outs.iter().for_each(|&v| order[v] = i);
    }
    // Values that are also read as a whole. A name whose result is read is no label: `inline`, which makes labels of all, does not run for XLA.
    let mut is_read = flat.var_map(false);
    let read = flat.eqns.iter().flat_map(|eqn| &eqn.ins).chain(&flat.outs);
    read.filter_map(|a| a.var()).for_each(|v| is_read[v] = true);
    let mut is_whole = flat.var_map(false);
    for reader in flat.eqns.iter().filter(|eqn| !is_label(eqn) || eqn.outs.iter().any(|&v| is_read[v])) {
        let whole = match &reader.op {
            Op::Call(Call::Scan(scan)) => &reader.ins[..scan.num_consts + scan.num_carry],
            _ => &reader.ins[..],
        };
        whole.iter().filter_map(|a| a.var()).for_each(|v| is_whole[v] = true);
    }
    flat.outs.iter().filter_map(|a| a.var()).for_each(|v| is_whole[v] = true);
    let mut found: Vec<usize> = (scan.num_carry..eqn.outs.len())
        .filter(|&i| flat.avals[eqn.outs[i]].bytes() >= SMALL_BYTES)
        .filter(|&i| !is_whole[eqn.outs[i]])
        .filter(|&i| !scan.jaxpr.eqns.iter().any(|eqn| is_kept_by(eqn, scan.jaxpr.outs[i])))
        .collect();
    found.sort_by_key(|&i| Reverse((flat.avals[eqn.outs[i]].bytes(), scan.jaxpr.outs[i].var().map(|v| order[v]))));
    found
}

/// How to compute a stacked output from others that stay, from arguments of the program, and from new stacked outputs of fewer bytes, which
/// go into `added`.
fn recipe(flat: &Jaxpr, eqn: &Eqn, scan: &Scan, out: usize, dropped: &[bool], added: &mut Vec<Var>) -> Option<Recipe> {
    let body = &*scan.jaxpr;
    let value = body.outs[out].var()?;
    let bytes = |var: Var| body.aval(var).bytes();
    let mut new: Vec<Var> = Vec::new();
    let leaf = |var: Var| {
        let stays = |i: usize| i >= scan.num_carry && i != out && !dropped[i] && body.outs[i] == Atom::Var(var);
        if let Some(i) = (0..eqn.outs.len()).find(|&i| stays(i)) {
            return Some(Leaf::Slice(eqn.outs[i]));
        }
        let operand = body.ins.iter().position(|&v| v == var)?;
        let outer = eqn.ins[operand].var().filter(|v| flat.ins.contains(v))?;
        let carries = scan.num_consts..scan.num_consts + scan.num_carry;
        match operand {
            i if i < scan.num_consts => Some(Leaf::Constant(outer)),
            i if carries.contains(&i) => None,
            _ => Some(Leaf::Slice(outer)),
        }
    };
    let definitions = definitions(body);
    let mut recipe = Recipe { eqns: Vec::new(), leaves: Vec::new(), value };
    let mut needed = vec![value];
    for eqn in body.eqns.iter().rev() {
        if !eqn.outs.iter().any(|v| needed.contains(v)) {
            continue;
        }
        let finds_extremum = || finds_extremum(eqn, |var| definitions[var], &body.eqns, |var| body.ins.contains(&var));
        // A name does nothing, unless it says that its value must be kept.
        let is_name = matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep == Keep::Choice);
        if !(is_fusible(&eqn.op) || is_name) || recipe.eqns.len() == MOST_RECOMPUTED || finds_extremum() {
            return None;
        }
        needed.retain(|v| !eqn.outs.contains(v));
        for var in eqn.ins.iter().filter_map(|a| a.var()) {
            let is_narrow = matches!(eqn.op, Op::Prim(Prim::ConvertElementType(_))) && bytes(var) < bytes(value);
            let is_small = bytes(var) * MUCH_SMALLER <= bytes(value);
            let found = leaf(var).or_else(|| {
                let known = added.iter().chain(&new).position(|&other| other == var);
                let is_stacked = known.is_some() || is_narrow || is_small;
                let number = known.unwrap_or(added.len() + new.len());
                if known.is_none() && is_stacked {
                    new.push(var);
                }
                is_stacked.then_some(Leaf::New(number))
            });
            match found {
                Some(leaf) if !recipe.leaves.contains(&(var, leaf)) => recipe.leaves.push((var, leaf)),
                Some(_) => {}
                None => needed.push(var),
            }
        }
        recipe.eqns.push(eqn.clone());
    }
    recipe.eqns.reverse();
    // A value still in `needed` is an argument that the reading loop does not have.
    let pays = new.is_empty() || new.iter().map(|&var| bytes(var)).sum::<usize>() < bytes(value);
    if !needed.is_empty() || recipe.eqns.is_empty() || !pays {
        return None;
    }
    added.append(&mut new);
    Some(recipe)
}

/// Makes a scan compute the slices of a stacked value itself.
fn recompute_in_reader(reader: &mut Eqn, stacked: Var, recipe: &Recipe, body: &Jaxpr) -> Result<()> {
    let Op::Call(Call::Scan(scan)) = &reader.op else { return Ok(()) };
    let (old, first) = (&scan.jaxpr, scan.num_consts + scan.num_carry);
    let mut b = Builder::new();
    let mut env: VarMap<Option<Atom>> = body.var_map(None);
    let mut ins = Vec::new();
    for &(var, leaf) in &recipe.leaves {
        if let Leaf::Constant(outer) = leaf {
            env[var] = Some(b.input(body.aval(var).clone()));
            ins.push(Atom::Var(outer));
        }
    }
    let num_consts = ins.len() + scan.num_consts;
    let mut args: Vec<Option<Atom>> = Vec::new();
    for (i, (&var, &outer)) in old.ins.iter().zip(&reader.ins).enumerate() {
        let is_dropped = i >= first && outer == Atom::Var(stacked);
        args.push((!is_dropped).then(|| b.input(old.aval(var).clone())));
        ins.extend((!is_dropped).then_some(outer));
    }
    for &(var, leaf) in &recipe.leaves {
        if let Leaf::Slice(outer) = leaf {
            let known = (first..old.ins.len()).find(|&i| reader.ins[i] == Atom::Var(outer)).and_then(|i| args[i]);
            env[var] = Some(known.unwrap_or_else(|| {
                ins.push(Atom::Var(outer));
                b.input(body.aval(var).clone())
            }));
        }
    }
    for eqn in &recipe.eqns {
        let operands: Vec<Atom> = eqn.ins.iter().filter_map(|&a| a.var().map_or(Some(a), |v| env[v])).collect();
        let outs = b.push(eqn.op.clone(), &operands, eqn.outs.iter().map(|&v| body.aval(v).clone()), eqn.loc);
        for (&var, out) in eqn.outs.iter().zip(outs) {
            env[var] = Some(Atom::Var(out));
        }
    }
    let args: Vec<Atom> = args.into_iter().filter_map(|arg| arg.or(env[recipe.value])).collect();
    let outs = b.inline(old, &args)?;
    let jaxpr = Arc::new(b.finish(outs));
    *reader = Eqn {
        op: Scan { jaxpr, num_consts, ..scan.clone() }.into(),
        ins: ins.into_iter().collect(),
        outs: reader.outs.clone(),
        loc: reader.loc,
    };
    Ok(())
}

/// Drops results of a scan, and adds stacked outputs for other values of its body.
fn change_outs(flat: &mut Jaxpr, at: usize, dropped: &[bool], added: &[Var]) -> Vec<Var> {
    let Op::Call(Call::Scan(scan)) = &flat.eqns[at].op else { return Vec::new() };
    let scan = scan.clone();
    let mut jaxpr = Jaxpr::clone(&scan.jaxpr);
    let mut keep = dropped.iter().map(|dropped| !dropped);
    jaxpr.outs.retain(|_| keep.next().unwrap_or(true));
    let mut keep = dropped.iter().map(|dropped| !dropped);
    flat.eqns[at].outs.retain(|_| keep.next().unwrap_or(true));
    let mut outs = Vec::new();
    for &value in added {
        let aval = jaxpr.aval(value);
        let stacked = flat.avals.push(aval.with_shape(std::iter::once(scan.length).chain(aval.shape.iter().copied())));
        jaxpr.outs.push(Atom::Var(value));
        flat.eqns[at].outs.push(stacked);
        outs.push(stacked);
    }
    flat.eqns[at].op = Scan { jaxpr: Arc::new(jaxpr), ..scan }.into();
    outs
}
