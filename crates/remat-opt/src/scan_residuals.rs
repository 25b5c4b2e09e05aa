//! Rematerialization between loops: what one loop stacks for another is not stacked if the other can compute it.
//!
//! The forward pass of a loop over layers stacks what its backward pass reads. A slice of a stack that elementwise operations
//! compute from slices of other stacks is computed again in the iteration that reads it, within the loops over tiles that
//! are there anyway. It is what [`super::recompute`] does for values within one program. Where a slice is wider than what it
//! is computed from, as f32 that is computed of bf16, that is stacked in its place.

use std::cmp::Reverse;
use std::sync::Arc;

use remat_ir::{Atom, Builder, Call, Eqn, Jaxpr, Op, Prim, Result, Scan, Var, VarMap};

use super::flat::{Flat, is_cheap};

/// Stacks of fewer bytes stay.
const SMALL: usize = 1 << 14;

/// What is so many times smaller than a slice may be stacked for its sake: the mean of a row, for instance.
const MUCH_SMALLER: usize = 32;

/// At most this many equations are repeated for a stack.
const MOST_REPEATED: usize = 24;

/// Where a value of a loop's body comes from for another loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaf {
    /// The slice of a stack.
    Stack(Var),
    /// A constant of the loop.
    Constant(Var),
    /// The slice of a stack that is not there yet, by its number among these.
    New(usize),
}

/// What computes a slice of a stack.
struct Recipe {
    /// Equations of the body, in order.
    eqns: Vec<Eqn>,
    /// Variables of the body that they start from.
    leaves: Vec<(Var, Leaf)>,
    /// The slice, in the body.
    value: Var,
}

/// Drops stacks that the loops that read them can compute.
///
/// # Errors
/// If a body is not a valid program.
pub(super) fn unstack(flat: &mut Flat) -> Result<()> {
    for at in 0..flat.eqns.len() {
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
                pinned[i] |= recipe.leaves.iter().any(|(_, leaf)| *leaf == Leaf::Stack(*var));
            }
            dropped[out] = true;
            recipes.push((eqn.outs[out], recipe));
        }
        if recipes.is_empty() {
            continue;
        }
        let body = scan.jaxpr.clone();
        let stacks = change_outs(flat, at, &dropped, &added);
        for (stack, mut recipe) in recipes {
            for (_, leaf) in &mut recipe.leaves {
                if let Leaf::New(i) = *leaf {
                    *leaf = Leaf::Stack(stacks[i]);
                }
            }
            for reader in &mut flat.eqns[at + 1..] {
                if reader.ins.contains(&Atom::Var(stack)) {
                    repeat(reader, stack, &recipe, &body)?;
                }
            }
        }
    }
    Ok(())
}

/// The stacks that only loops read, as stacks: the widest first, so that they are not kept for the sake of narrow ones, and of
/// these those that are computed last.
fn candidates(flat: &Flat, eqn: &Eqn, scan: &Scan) -> Vec<usize> {
    let mut order = VarMap::filled(scan.jaxpr.avals.len(), 0);
    for (i, eqn) in scan.jaxpr.eqns.iter().enumerate() {
        eqn.outs.iter().for_each(|&v| order[v] = i);
    }
    let is_read_by_loops = |stack: Var| {
        flat.eqns.iter().filter(|e| e.ins.contains(&Atom::Var(stack))).all(|reader| match &reader.op {
            Op::Call(Call::Scan(scan)) => !reader.ins[..scan.num_consts + scan.num_carry].contains(&Atom::Var(stack)),
            _ => false,
        })
    };
    let mut found: Vec<usize> = (scan.num_carry..eqn.outs.len())
        .filter(|&i| flat.avals[eqn.outs[i]].bytes() >= SMALL)
        .filter(|&i| !flat.outs.contains(&Atom::Var(eqn.outs[i])) && is_read_by_loops(eqn.outs[i]))
        .collect();
    found.sort_by_key(|&i| Reverse((flat.avals[eqn.outs[i]].bytes(), scan.jaxpr.outs[i].var().map(|v| order[v]))));
    found
}

/// How a stack is computed from others that stay, from arguments of the program, and from new stacks of fewer bytes, which are
/// `added`.
fn recipe(flat: &Flat, eqn: &Eqn, scan: &Scan, out: usize, dropped: &[bool], added: &mut Vec<Var>) -> Option<Recipe> {
    let body = &*scan.jaxpr;
    let value = body.outs[out].var()?;
    let bytes = |var: Var| body.aval(var).bytes();
    let mut new: Vec<Var> = Vec::new();
    let leaf = |var: Var| {
        let stack = |i: usize| i >= scan.num_carry && i != out && !dropped[i] && body.outs[i] == Atom::Var(var);
        if let Some(i) = (0..eqn.outs.len()).find(|&i| stack(i)) {
            return Some(Leaf::Stack(eqn.outs[i]));
        }
        let operand = body.ins.iter().position(|&v| v == var)?;
        let outer = eqn.ins[operand].var().filter(|v| flat.ins.contains(v))?;
        let carries = scan.num_consts..scan.num_consts + scan.num_carry;
        match operand {
            i if i < scan.num_consts => Some(Leaf::Constant(outer)),
            i if carries.contains(&i) => None,
            _ => Some(Leaf::Stack(outer)),
        }
    };
    let mut recipe = Recipe { eqns: Vec::new(), leaves: Vec::new(), value };
    let mut needed = vec![value];
    for eqn in body.eqns.iter().rev() {
        if !eqn.outs.iter().any(|v| needed.contains(v)) {
            continue;
        }
        if !is_cheap(&eqn.op) || recipe.eqns.len() == MOST_REPEATED {
            return None;
        }
        needed.retain(|v| !eqn.outs.contains(v));
        for var in eqn.ins.iter().filter_map(|a| a.var()) {
            let is_narrow = matches!(eqn.op, Op::Prim(Prim::ConvertElementType(_))) && bytes(var) < bytes(value);
            let is_small = bytes(var) * MUCH_SMALLER <= bytes(value);
            let stacked = leaf(var).or_else(|| {
                let known = added.iter().chain(&new).position(|&other| other == var);
                let stays = known.is_some() || is_narrow || is_small;
                let number = known.unwrap_or(added.len() + new.len());
                if known.is_none() && stays {
                    new.push(var);
                }
                stays.then_some(Leaf::New(number))
            });
            match stacked {
                Some(leaf) if !recipe.leaves.contains(&(var, leaf)) => recipe.leaves.push((var, leaf)),
                Some(_) => {}
                None => needed.push(var),
            }
        }
        recipe.eqns.push(eqn.clone());
    }
    recipe.eqns.reverse();
    // What is needed still is an argument that the other loop cannot have.
    let pays = new.is_empty() || new.iter().map(|&var| bytes(var)).sum::<usize>() < bytes(value);
    if !needed.is_empty() || recipe.eqns.is_empty() || !pays {
        return None;
    }
    added.append(&mut new);
    Some(recipe)
}

/// Lets a loop compute the slices of a stack itself.
fn repeat(reader: &mut Eqn, stack: Var, recipe: &Recipe, body: &Jaxpr) -> Result<()> {
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
        let is_stack = i >= first && outer == Atom::Var(stack);
        args.push((!is_stack).then(|| b.input(old.aval(var).clone())));
        ins.extend((!is_stack).then_some(outer));
    }
    for &(var, leaf) in &recipe.leaves {
        if let Leaf::Stack(outer) = leaf {
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

/// Drops results of a loop, and adds stacks of other values of its body.
fn change_outs(flat: &mut Flat, at: usize, dropped: &[bool], added: &[Var]) -> Vec<Var> {
    let Op::Call(Call::Scan(scan)) = &flat.eqns[at].op else { return Vec::new() };
    let scan = scan.clone();
    let mut jaxpr = Jaxpr::clone(&scan.jaxpr);
    let mut keep = dropped.iter().map(|dropped| !dropped);
    jaxpr.outs.retain(|_| keep.next().unwrap_or(true));
    let mut keep = dropped.iter().map(|dropped| !dropped);
    flat.eqns[at].outs.retain(|_| keep.next().unwrap_or(true));
    let mut stacks = Vec::new();
    for &value in added {
        let aval = jaxpr.aval(value);
        let stack = flat.var(&aval.with_shape(std::iter::once(scan.length).chain(aval.shape.iter().copied())));
        jaxpr.outs.push(Atom::Var(value));
        flat.eqns[at].outs.push(stack);
        stacks.push(stack);
    }
    flat.eqns[at].op = Scan { jaxpr: Arc::new(jaxpr), ..scan }.into();
    stacks
}
