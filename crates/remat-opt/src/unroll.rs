//! Unrolling: a `scan` with `unroll=k` becomes a scan whose body is `k` iterations, followed by the remaining iterations.
//!
//! ```text
//! unrolled : scan[length=7 unroll=3] → { lambda ; consts init xs. let
//!     carry ys = scan[length=2 unroll=1 body=three bodies in a row] consts init xs[0..6]
//!     carry y  = body consts carry xs[6] in (carry, ys ++ y) }
//! ```
//!
//! If `k` is at least the length, no loop is left. A reversed scan begins with the last slice, so the remaining iterations are those of the
//! first slices. The operations and their order stay those of the loop, so the bits are the same.

use std::sync::Arc;

use remat_ir::{Atom, Aval, Builder, Concatenate, ExpandDims, Jaxpr, Jit, Reshape, Result, Scan, Slice, Squeeze};

/// The unrolled program of a scan, or `None` if its `unroll` is 1. It takes the operands of the scan, whose avals are `ins`.
pub fn unrolled(scan: &Scan, ins: &[Aval]) -> Result<Option<Jaxpr>> {
    if scan.unroll <= 1 || scan.length == 0 {
        return Ok(None);
    }
    let mut b = Builder::new();
    let operands = b.inputs(ins.iter().cloned());
    let (consts, rest) = operands.split_at(scan.num_consts);
    let (init, xs) = rest.split_at(scan.num_carry);
    // The number of iterations in the loop; the others remain.
    let looped = if scan.unroll >= scan.length { 0 } else { scan.length - scan.length % scan.unroll };
    let (in_loop, remaining) = if scan.reverse {
        (scan.length - looped..scan.length, 0..scan.length - looped)
    } else {
        (0..looped, looped..scan.length)
    };
    let mut carry = init.to_vec();
    let mut parts: Vec<Vec<Atom>> = Vec::new();
    if looped > 0 {
        let trips = looped / scan.unroll;
        let chunks = slices(&mut b, xs, in_loop.start, in_loop.end)?
            .into_iter()
            .map(|x| {
                let shape = b.shape(x);
                let shape = [trips, scan.unroll].into_iter().chain(shape[1..].iter().copied()).collect();
                b.emit1(Reshape { shape }.into(), &[x])
            })
            .collect::<Result<Vec<Atom>>>()?;
        let args = [consts, &carry, &chunks].concat();
        let body = Arc::new(chunk(scan, &b, &args)?);
        let op = Scan { jaxpr: body, length: trips, unroll: 1, ..scan.clone() };
        let mut outs = b.emit(op.into(), &args)?.to_vec();
        let ys = outs.split_off(scan.num_carry);
        carry = outs;
        let flat = ys.into_iter().map(|y| {
            let shape = b.shape(y);
            let shape = [looped].into_iter().chain(shape[2..].iter().copied()).collect();
            b.emit1(Reshape { shape }.into(), &[y])
        });
        parts.push(flat.collect::<Result<Vec<Atom>>>()?);
    }
    if !remaining.is_empty() {
        let rest = slices(&mut b, xs, remaining.start, remaining.end)?;
        let (last, ys) = in_a_row(&mut b, scan, remaining.len(), consts, carry, &rest)?;
        carry = last;
        parts.push(ys);
    }
    if scan.reverse {
        parts.reverse();
    }
    let stacked = (0..scan.jaxpr.outs.len() - scan.num_carry).map(|i| {
        let parts: Vec<Atom> = parts.iter().map(|part| part[i]).collect();
        if let [part] = parts[..] { Ok(part) } else { b.emit1(Concatenate { axis: 0 }.into(), &parts) }
    });
    let stacked = stacked.collect::<Result<Vec<Atom>>>()?;
    carry.extend(stacked);
    Ok(Some(b.finish(carry)))
}

/// A body of `unroll` iterations, which takes and returns that many slices at once.
fn chunk(scan: &Scan, outer: &Builder, args: &[Atom]) -> Result<Jaxpr> {
    let mut b = Builder::new();
    let num_others = scan.num_consts + scan.num_carry;
    let avals = args.iter().enumerate().map(|(i, &arg)| {
        let aval = outer.aval(arg);
        if i < num_others { aval } else { aval.with_shape(aval.shape[1..].iter().copied()) }
    });
    let ins = b.inputs(avals);
    let (consts, rest) = ins.split_at(scan.num_consts);
    let (carry, xs) = rest.split_at(scan.num_carry);
    let (mut outs, ys) = in_a_row(&mut b, scan, scan.unroll, consts, carry.to_vec(), xs)?;
    outs.extend(ys);
    Ok(b.finish(outs))
}

/// Adds consecutive iterations, and returns the last carries and the stacked outputs.
fn in_a_row(
    b: &mut Builder,
    scan: &Scan,
    count: usize,
    consts: &[Atom],
    mut carry: Vec<Atom>,
    xs: &[Atom],
) -> Result<(Vec<Atom>, Vec<Atom>)> {
    let call = Jit { name: "body".into(), jaxpr: scan.jaxpr.clone() };
    let mut stacks: Vec<Vec<Atom>> = vec![Vec::new(); scan.jaxpr.outs.len() - scan.num_carry];
    for i in 0..count {
        let i = if scan.reverse { count - 1 - i } else { i };
        let mut args = [consts, &carry].concat();
        for x in slices(b, xs, i, i + 1)? {
            args.push(b.emit1(Squeeze { axes: [0].into_iter().collect() }.into(), &[x])?);
        }
        let mut outs = b.emit(call.clone().into(), &args)?.to_vec();
        let ys = outs.split_off(scan.num_carry);
        carry = outs;
        for (stack, y) in stacks.iter_mut().zip(ys) {
            stack.push(b.emit1(ExpandDims { axes: [0].into_iter().collect() }.into(), &[y])?);
        }
    }
    let stacked = stacks.into_iter().map(|mut parts| {
        if scan.reverse {
            parts.reverse();
        }
        if let [part] = parts[..] { Ok(part) } else { b.emit1(Concatenate { axis: 0 }.into(), &parts) }
    });
    let stacked = stacked.collect::<Result<Vec<Atom>>>()?;
    Ok((carry, stacked))
}

/// The slices `start..limit` of the first dimension of each.
fn slices(b: &mut Builder, xs: &[Atom], start: usize, limit: usize) -> Result<Vec<Atom>> {
    let slice = |x: &Atom| {
        let shape = b.shape(*x);
        if (start, limit) == (0, shape[0]) {
            return Ok(*x);
        }
        let mut op = Slice { start: shape.clone(), limit: shape.clone(), strides: shape };
        op.start.fill(0);
        op.strides.fill(1);
        (op.start[0], op.limit[0]) = (start, limit);
        b.emit1(op.into(), &[*x])
    };
    xs.iter().map(slice).collect()
}
