//! A scan whose backward pass is one scan over the actions of a binomial schedule.

use remat_ir::Result;

use super::schedule::{Action, reversal};
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
    let schedule = Schedule::new(body, states);
    let scan = custom_vjp_at(
        super::SCAN.into(),
        body.loc,
        |(consts, carry, xs): &Operands| body.scan(consts, carry, xs, body.length),
        |operands: &Operands| forward(body, &schedule, operands),
        |residuals: &Residuals, cotangents: &Outs| backward(body, &schedule, residuals, cotangents),
    );
    scan(&(consts.clone(), body.carry.clone(), body.xs.clone()))
}

/// A schedule, with iterations numbered by the slices that they take.
struct Schedule {
    slots: usize,
    /// For each slice, the slot of the state before its iteration.
    forward: Vec<i32>,
    backward: Vec<Action>,
    reverse: bool,
}

impl Schedule {
    fn new(body: &Body, states: usize) -> Schedule {
        let mut actions = reversal(body.length, states.min(body.length));
        let first = actions.iter().position(|a| matches!(a, Action::Reverse { .. })).unwrap_or(actions.len());
        let backward = actions.split_off(first);
        let mut forward = vec![0];
        let mut slots = 1;
        for action in &actions {
            if let Action::Advance { to, .. } = *action {
                forward.push(to as i32);
                slots = slots.max(to + 1);
            }
        }
        let reverse = body.options.reverse;
        if reverse {
            forward.reverse();
        }
        Schedule { slots, forward, backward, reverse }
    }

    /// The slice that an iteration takes.
    fn slice(&self, step: usize) -> i32 {
        (if self.reverse { self.forward.len() - 1 - step } else { step }) as i32
    }

    /// The actions of the backward pass as columns: whether it reverses, slice, slot to read, slot to write.
    fn columns(&self) -> [Tensor; 4] {
        let (mut reverses, mut slices, mut from_rows, mut to_rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &action in &self.backward {
            let (is_reverse, step, from, to) = match action {
                Action::Advance { step, from, to } => (false, step, from, to),
                Action::Reverse { step, from } => (true, step, from, from),
            };
            reverses.push(is_reverse);
            slices.push(self.slice(step));
            from_rows.push(from as i32);
            to_rows.push(to as i32);
        }
        [reverses.into(), slices.into(), from_rows.into(), to_rows.into()]
    }
}

/// The loop, which writes the state before each iteration into its slot.
fn forward(body: &Body, schedule: &Schedule, (consts, carry, xs): &Operands) -> Result<(Outs, Residuals)> {
    let buffers = slots::buffers(carry, schedule.slots)?;
    let step = |(carry, buffers): &Outs, (slot, x): &(Tensor, Vec<Tensor>)| {
        let buffers = slots::write(buffers, slot, carry);
        let (carry, ys) = body.step(consts, carry, x)?;
        Ok(((carry, buffers), ys))
    };
    let slots = Tensor::from(schedule.forward.clone());
    let options = ScanOptions { length: Some(body.length), ..body.options.clone() };
    let ((carry, buffers), ys) = scan_with(&options, step, &(carry.clone(), buffers), &(slots, xs.clone()))?;
    Ok(((carry, ys), (consts.clone(), xs.clone(), buffers)))
}

/// Carry of the backward loop: slots of states; cotangents of the floats of the carry, the captured tensors and the stacked
/// inputs.
type Backward = (Vec<Tensor>, Vec<Tensor>, Vec<Tensor>, Vec<Tensor>);

fn backward(
    body: &Body,
    schedule: &Schedule,
    (consts, xs, buffers): &Residuals,
    (ct_carry, ct_ys): &Outs,
) -> Result<Operands> {
    let init: Backward =
        (buffers.clone(), slots::floats(ct_carry)?, slots::zero_floats(consts)?, slots::zero_floats(xs)?);
    let act = |carried: &Backward, [reverses, slice, from, to]: &[Tensor; 4]| {
        let (state, x) = (slots::read(&carried.0, from), slots::read(xs, slice));
        let advance = |(buffers, carry, sums, stacked): &Backward| -> Result<Backward> {
            let next = body.step(consts, &state, &x)?.0;
            Ok((slots::write(buffers, to, &next), carry.clone(), sums.clone(), stacked.clone()))
        };
        let reverse = |(buffers, carry, sums, stacked): &Backward| -> Result<Backward> {
            let step = |(consts, carry, x): &Operands| body.step(consts, carry, x);
            let (outs, pullback) = vjp(step, &(consts.clone(), state.clone(), x.clone()))?;
            let cotangents = (slots::with_zeros(&outs.0, carry)?, slots::read(ct_ys, slice));
            let (of_consts, of_carry, of_x) = pullback.call(&cotangents)?;
            let sums = slots::add(sums, &slots::floats(&of_consts)?);
            let stacked = slots::write(stacked, slice, &slots::floats(&of_x)?);
            Ok((buffers.clone(), slots::floats(&of_carry)?, sums, stacked))
        };
        Ok((cond(reverses, reverse, advance, carried)?, ()))
    };
    let ((_, carry, sums, stacked), ()) = scan_with(&ScanOptions::default(), act, &init, &schedule.columns())?;
    let of_carry = slots::with_zeros(ct_carry, &carry)?;
    Ok((slots::with_zeros(consts, &sums)?, of_carry, slots::with_zeros(xs, &stacked)?))
}
