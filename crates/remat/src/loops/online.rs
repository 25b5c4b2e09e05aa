//! A `while` loop that keeps a bounded number of states for any number of iterations.

use remat_ir::{DType, Loc, Result};

use super::slots;
use crate::api::custom::custom_vjp_at;
use crate::api::{vjp, while_loop};
use crate::trace::{Program, Tensor, Tree, Walk, run as run_program};

/// The operation in errors and in programs.
pub(super) const NAME: &str = "while_loop_checkpointed";

/// Captured tensors of the condition and of the body, initial carry.
type Operands = (Vec<Tensor>, Vec<Tensor>, Vec<Tensor>);

pub(super) fn run(
    condition: &Program,
    body: &Program,
    carry: Vec<Tensor>,
    states: usize,
    loc: Loc,
) -> Result<Vec<Tensor>> {
    let next = |consts: &[Tensor], state: &[Tensor]| run_program(NAME, &body.jaxpr, &[consts, state].concat(), loc);
    let holds = |consts: &[Tensor], state: &[Tensor]| {
        Ok(run_program(NAME, &condition.jaxpr, &[consts, state].concat(), loc)?.swap_remove(0))
    };
    // The backward pass computes iterations again, and their effects have happened.
    let silent = body.jaxpr.without_effects();
    let again = |consts: &[Tensor], state: &[Tensor]| run_program(NAME, &silent, &[consts, state].concat(), loc);
    let loop_ = custom_vjp_at(
        NAME.into(),
        Some("while_loop"),
        loc,
        |(of_condition, of_body, init): &Operands| {
            let holds = |state: &Vec<Tensor>| holds(of_condition, state);
            while_loop(holds, |state: &Vec<Tensor>| next(of_body, state), init)
        },
        |(of_condition, of_body, init): &Operands| {
            let slots = Slots::new(init, states.saturating_add(1))?;
            let start = (init.clone(), Tensor::from(0i32), slots);
            let holds = |(state, ..): &(Vec<Tensor>, Tensor, Slots)| holds(of_condition, state);
            let step = |(state, step, slots): &(Vec<Tensor>, Tensor, Slots)| {
                let slots = slots.place(state, step);
                Ok((next(of_body, state)?, step + 1, slots))
            };
            let (state, length, slots) = while_loop(holds, step, &start)?;
            Ok((state, (of_condition.clone(), of_body.clone(), length, slots)))
        },
        |(of_condition, of_body, length, slots): &(Vec<Tensor>, Vec<Tensor>, Tensor, Slots), ct: &Vec<Tensor>| {
            let next = |state: &[Tensor]| again(of_body, state);
            let start = (length.clone(), slots.clone(), slots::floats(ct)?, slots::zero_floats(of_body)?);
            let step = |(left, slots, ct, sums): &(Tensor, Slots, Vec<Tensor>, Vec<Tensor>)| {
                let last = left - 1;
                let (state, slots) = slots.reach(&last, next)?;
                let step = |(consts, state): &(Vec<Tensor>, Vec<Tensor>)| again(consts, state);
                let (out, pullback) = vjp(step, &(of_body.clone(), state))?;
                let (of_consts, of_state) = pullback.call(&slots::with_zeros(&out, ct)?)?;
                let sums = slots::add(sums, &slots::floats(&of_consts)?);
                Ok((last.clone(), slots.release(&last), slots::floats(&of_state)?, sums))
            };
            let is_left = |(left, ..): &(Tensor, Slots, Vec<Tensor>, Vec<Tensor>)| left.gt(0);
            let (_, _, of_init, sums) = while_loop(is_left, step, &start)?;
            let of_condition = slots::with_zeros(of_condition, &slots::zero_floats(of_condition)?)?;
            Ok((of_condition, slots::with_zeros(of_body, &sums)?, slots::with_zeros(ct, &of_init)?))
        },
    );
    loop_(&(condition.captured.clone(), body.captured.clone(), carry))
}

/// The kept states, each with the number of iterations before it and a level. A state is dispensable if a later one has a higher level:
/// then it no longer helps to keep the repetitions even.
#[derive(Clone)]
struct Slots {
    buffers: Vec<Tensor>,
    /// -1 in a free slot.
    steps: Tensor,
    levels: Tensor,
}

impl Tree for Slots {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        Slots {
            buffers: walk.field("buffers", &self.buffers),
            steps: walk.field("steps", &self.steps),
            levels: walk.field("levels", &self.levels),
        }
    }
}

impl Slots {
    /// Free slots, at least two: for the initial state and for the current one.
    fn new(state: &[Tensor], count: usize) -> Result<Slots> {
        Ok(Slots {
            buffers: slots::buffers(state, count)?,
            steps: Tensor::full(count, -1i32, DType::I32),
            levels: Tensor::zeros(count, DType::I32),
        })
    }

    /// Keeps a state that is later than all others: in a free slot, in place of a dispensable one, or in place of the latest, one level
    /// higher. The initial state has the highest level, so it stays.
    fn place(&self, state: &[Tensor], step: &Tensor) -> Slots {
        let Slots { buffers, steps, levels } = self;
        let is_free = steps.lt(0);
        let (step_of, level_of) = (steps.expand_dims(1), levels.expand_dims(1));
        let is_exceeded = (steps.expand_dims(0).gt(&step_of) & levels.expand_dims(0).gt(&level_of)).any(1);
        let is_dispensable = is_exceeded & steps.ge(0);
        let first = |mask: &Tensor| mask.to_dtype(DType::I32).argmax(0);
        let (has_free, has_dispensable) = (is_free.any(..), is_dispensable.any(..));
        let latest = steps.argmax(0);
        let slot = has_free.select(first(&is_free), has_dispensable.select(first(&is_dispensable), &latest));
        let replaces_latest = !(has_free | has_dispensable);
        let raised = levels.dynamic_index(&latest, 0) + 1;
        let level = step.eq(0).select(i32::MAX, replaces_latest.select(raised, 0));
        let put = |values: &Tensor, value: &Tensor| values.dynamic_update_slice(&value.expand_dims(0), slot.clone());
        Slots { buffers: slots::write(buffers, &slot, state), steps: put(steps, step), levels: put(levels, &level) }
    }

    /// The state before iteration `target`, computed from the latest kept one. States on the way are kept while there are free slots.
    fn reach(&self, target: &Tensor, next: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<(Vec<Tensor>, Slots)> {
        let (state, step) = self.latest();
        let is_before = |(_, step, _): &(Vec<Tensor>, Tensor, Slots)| step.lt(target);
        let advance = |(state, step, slots): &(Vec<Tensor>, Tensor, Slots)| {
            let (state, step) = (next(state)?, step + 1);
            let slots = slots.place(&state, &step);
            Ok((state, step, slots))
        };
        let (state, _, slots) = while_loop(is_before, advance, &(state, step, self.clone()))?;
        Ok((state, slots))
    }

    fn latest(&self) -> (Vec<Tensor>, Tensor) {
        let slot = self.steps.argmax(0);
        (slots::read(&self.buffers, &slot), self.steps.dynamic_index(&slot, 0))
    }

    /// Frees the slot of the state before an iteration.
    fn release(&self, step: &Tensor) -> Slots {
        Slots { steps: self.steps.eq(step).select(-1i32, &self.steps), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binomial_steps;

    /// Runs the slots of a loop of this length, forward and backward, on numbers. Returns how many iterations are computed again.
    fn repeated(length: i32, states: usize) -> usize {
        let mut slots = Slots::new(&[Tensor::from(0i32)], states + 1).unwrap();
        for step in 0..length {
            slots = slots.place(&[Tensor::from(step)], &Tensor::from(step));
        }
        let mut count = 0;
        for target in (0..length).rev() {
            let (state, step) = slots.latest();
            let mut step = step.item::<i32>().unwrap();
            assert_eq!(state[0].item::<i32>().unwrap(), step);
            assert!(step <= target);
            while step < target {
                step += 1;
                count += 1;
                slots = slots.place(&[Tensor::from(step)], &Tensor::from(step));
            }
            slots = slots.release(&Tensor::from(target));
            assert!(!slots.steps.to_vec::<i32>().unwrap().contains(&target));
        }
        count
    }

    #[test]
    fn the_repetitions_are_close_to_the_least_number() {
        for states in [1, 2, 3, 5, 8] {
            for length in [0, 1, 2, 3, 5, 7, 12, 30] {
                // The minimum includes the forward sweep, which in the loop is not a repetition.
                let least = binomial_steps(length as usize, states).unwrap() - (length as usize).saturating_sub(1);
                let count = repeated(length, states);
                assert!(count >= least && count <= least + least / 4, "{length}, {states}: {count} for {least}");
            }
        }
    }
}
