//! A scan whose backward pass is one scan over the actions of a binomial schedule.

use remat_ir::{Error, ErrorKind, Result};

use super::cursor::{Cursor, Schedule};
use super::schedule::binomial_steps;
use super::{Body, slots};
use crate::api::custom::custom_vjp_at;
use crate::api::{ScanOptions, cond, scan_with, vjp};
use crate::trace::Tensor;

type Outs = (Vec<Tensor>, Vec<Tensor>);
/// Captured tensors, initial carry, stacked inputs.
type Operands = (Vec<Tensor>, Vec<Tensor>, Vec<Tensor>);
/// Captured tensors, stacked inputs, slots of states.
type Residuals = (Vec<Tensor>, Vec<Tensor>, Vec<Tensor>);

pub(super) fn run(body: &Body, states: usize) -> Result<Outs> {
    let consts = &body.program.captured;
    if body.length == 0 {
        return body.scan(consts, &body.carry, &body.xs, 0);
    }
    let schedule = Schedule::new(body.length, states);
    let is_countable = |&steps: &usize| i32::try_from(body.length).is_ok() && steps < usize::MAX;
    let Some(steps) = binomial_steps(body.length, schedule.states).filter(is_countable) else {
        let message = format!("{} iterations are too many for {states} states", body.length);
        return Err(Error::new(ErrorKind::Argument, super::SCAN, message));
    };
    // Of the computed iterations the forward pass has done the first sweep, and all are differentiated.
    let actions = steps + 1;
    let scan = custom_vjp_at(
        super::SCAN.into(),
        Some("scan"),
        body.loc,
        |(consts, carry, xs): &Operands| body.scan(consts, carry, xs, body.length),
        |operands: &Operands| forward(body, &schedule, operands),
        |residuals: &Residuals, cotangents: &Outs| backward(body, &schedule, actions, residuals, cotangents),
    );
    scan(&(consts.clone(), body.carry.clone(), body.xs.clone()))
}

/// The loop, which writes the state before each iteration into its slot.
fn forward(body: &Body, schedule: &Schedule, (consts, carry, xs): &Operands) -> Result<(Outs, Residuals)> {
    let starts = schedule.starts();
    let step = |((carry, buffers), at, count): &(Outs, Tensor, Tensor), x: &Vec<Tensor>| {
        let (slot, count) = schedule.place(&starts, at, count);
        let buffers = slots::write(buffers, &slot, carry);
        let (carry, ys) = body.step(consts, carry, x)?;
        Ok((((carry, buffers), at + 1, count), ys))
    };
    let options = ScanOptions { length: Some(body.length), ..body.options.clone() };
    let zero = Tensor::from(0i32);
    let init = ((carry.clone(), slots::buffers(carry, schedule.slots())?), zero.clone(), zero);
    let (((carry, buffers), ..), ys) = scan_with(&options, step, &init, xs)?;
    Ok(((carry, ys), (consts.clone(), xs.clone(), buffers)))
}

/// Carry of the backward loop: the place in the schedule; slots of states; cotangents of the floats of the carry, the captured tensors and
/// the stacked inputs.
type Backward = (Cursor, Vec<Tensor>, Vec<Tensor>, Vec<Tensor>, Vec<Tensor>);

fn backward(
    body: &Body,
    schedule: &Schedule,
    actions: usize,
    (consts, xs, buffers): &Residuals,
    (ct_carry, ct_ys): &Outs,
) -> Result<Operands> {
    // The backward pass computes iterations again, and their effects have happened.
    let body = &body.silent();
    let (floats, sums, stacked) = (slots::floats(ct_carry)?, slots::zero_floats(consts)?, slots::zero_floats(xs)?);
    let init: Backward = (schedule.cursor(), buffers.clone(), floats, sums, stacked);
    let lengths = schedule.lengths();
    let act = |carried: &Backward, (): &()| {
        let (cursor, buffers, ..) = carried;
        // Slices are numbered as the loop takes them.
        let slice = if body.options.reverse { body.length as i32 - 1 - &cursor.at } else { cursor.at.clone() };
        let (state, x) = (slots::read(buffers, &cursor.slot(schedule)), slots::read(xs, &slice));
        let advance = |(cursor, buffers, carry, sums, stacked): &Backward| -> Result<Backward> {
            let next = body.step(consts, &state, &x)?.0;
            let (slot, cursor) = cursor.advanced(schedule, &lengths)?;
            Ok((cursor, slots::write(buffers, &slot, &next), carry.clone(), sums.clone(), stacked.clone()))
        };
        let reverse = |(cursor, buffers, carry, sums, stacked): &Backward| -> Result<Backward> {
            let step = |(consts, carry, x): &Operands| body.step(consts, carry, x);
            let (outs, pullback) = vjp(step, &(consts.clone(), state.clone(), x.clone()))?;
            let cotangents = (slots::with_zeros(&outs.0, carry)?, slots::read(ct_ys, &slice));
            let (of_consts, of_carry, of_x) = pullback.call(&cotangents)?;
            let sums = slots::add(sums, &slots::floats(&of_consts)?);
            let stacked = slots::write(stacked, &slice, &slots::floats(&of_x)?);
            let cursor = cursor.reversed(schedule, &lengths);
            Ok((cursor, buffers.clone(), slots::floats(&of_carry)?, sums, stacked))
        };
        Ok((cond(&cursor.is_last(), reverse, advance, carried)?, ()))
    };
    let options = ScanOptions { length: Some(actions), ..ScanOptions::default() };
    let ((_, _, carry, sums, stacked), ()) = scan_with(&options, act, &init, &())?;
    let of_carry = slots::with_zeros(ct_carry, &carry)?;
    Ok((slots::with_zeros(consts, &sums)?, of_carry, slots::with_zeros(xs, &stacked)?))
}
