//! Moves: changes of the steps, one kind in each file, with what it proposes and how it is applied.
//!
//! [`recompute`] moves equations between loops while a program is lowered, when neither order nor memory plan are known, and its moves are
//! made at once. The [`MOVERS`] see both. Each proposes all moves of its kind that save time, and the caller plans the changed program: the
//! moves are made if it fits ([`compile::improve`](crate::compile)), and if not, the mover proposes again without those that need the
//! memory. [`repeat`] runs steps again as a plan says, in [`parts`] of loops.

pub(super) mod blocks;
mod join;
mod keep;
pub(super) mod parts;
pub(super) mod recompute;
mod repeat;

use std::collections::HashSet;

use remat_ir::{Result, Var};
use remat_plan::StepId;

use super::ir::Steps;

/// A kind of move: its name, and why such moves are made.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
}

/// Proposes moves on a program that has an order and a memory plan: the changed steps, or `None` if there is nothing to change.
///
/// # Errors
/// If the changed steps are wrong, which is a defect.
pub(crate) type Mover = fn(&Program<'_>) -> Result<Option<Proposal>>;

/// The movers, in the order in which they propose. A kept value is one that blocks need not compute again. Loops in blocks are not joined: a
/// normalisation of channels gains more in blocks than by a loop that it shares.
pub(crate) const MOVERS: [Mover; 3] = [keep::propose, blocks::propose, join::propose];

/// What a mover sees of a program.
pub(crate) struct Program<'a> {
    pub(crate) steps: &'a Steps,
    /// The order in which they run. Copies of results have numbers after those of the steps.
    pub(crate) order: &'a [StepId],
    /// The bytes that are free while each of them runs.
    pub(crate) free: &'a [usize],
    /// Whether the operand table of the program has room for a step with this many inputs and outputs. They are estimated before there are
    /// kernels and can rarely be exceeded.
    pub(crate) has_room: &'a dyn Fn(usize, usize) -> bool,
    /// Values of moves that are not proposed, since they needed too much memory.
    pub(crate) excluded: &'a HashSet<Var>,
}

impl Program<'_> {
    /// The positions of the steps in the order in which they run, without copies of results.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.order.iter().map(|step| step.index()).filter(|&at| at < self.steps.steps.len())
    }
}

/// Changed steps, and the moves that lead to them.
pub(crate) struct Proposal {
    pub(crate) steps: Steps,
    pub(crate) moves: Vec<Change>,
}

/// One move.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: &'static Kind,
    /// The value that it is about.
    pub(crate) value: Var,
    /// The results of loops that run in other steps because of it.
    pub(crate) results: Vec<Var>,
    /// The value that is live longer because of it.
    pub(crate) kept: Option<Var>,
    /// The picoseconds that it saves by the cost model.
    pub(crate) time: i64,
    /// The bytes that are live longer because of it.
    pub(crate) bytes: i64,
}

#[cfg(test)]
pub(crate) fn proposed(mover: Mover, steps: &Steps, has_room: &dyn Fn(usize, usize) -> bool) -> Result<Option<Steps>> {
    let order: Vec<StepId> = (0..steps.steps.len()).map(StepId::new).collect();
    let free = vec![usize::MAX; order.len()];
    let program = Program { steps, order: &order, free: &free, has_room, excluded: &HashSet::new() };
    Ok(mover(&program)?.map(|proposal| proposal.steps))
}
