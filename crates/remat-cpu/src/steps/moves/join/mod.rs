//! Joins loops that share equations or operands but run at different times.
//!
//! Fusion takes equations in program order, and leaves two loops in the backward pass of a layer. One computes the activation again, for
//! the gradient of the weights that follow it. The other computes the derivative of the activation, from a cotangent that a product between
//! the two loops computes. Both begin with the same equations. The first loop could run later, since the product that reads its result can
//! wait as well. Joined, the two loops compute their shared equations once and store nothing for each other.
//!
//! The pass visits the steps in the order in which they run. It delays the first loop to the second one, and moves all steps between them
//! that depend on the first loop behind both. If the second loop depends on one of these steps, the loops stay apart. The operands of the
//! first loop then live longer, so the caller plans the memory of both programs.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use remat_ir::{Result, Var, VarMap};
use remat_kernels::Extent;

use super::{Change, Kind, Program, Proposal};
use crate::steps::check::check;
use crate::steps::facts::{Facts, outside};
use crate::steps::fuse::{MOST_MEMBERS, repeats};
use crate::steps::ir::{FusedLoop, Member, Step, Steps, Value};
use crate::steps::merge::{MOST_READ, merge_members};

/// Joined loops are at most this many steps apart: the steps between them are delayed.
const MOST_STEPS_DELAYED: usize = 6;

/// The joined loop costs at most this fraction of both loops: smaller gains are not worth another order of the steps.
const MOST_OF_BOTH: [usize; 2] = [7, 8];

const KIND: Kind = Kind { name: "join", why: "one loop computes what two loops share" };

/// The steps in the order in which they run, with loops joined.
///
/// # Errors
/// If the changed steps are wrong, which is a defect.
pub(crate) fn propose(program: &Program<'_>) -> Result<Option<Proposal>> {
    let positions: Vec<usize> = program.positions().collect();
    let all: Vec<Step> = positions.iter().map(|&at| program.steps.steps[at].clone()).collect();
    let Facts { readers, is_returned, .. } = Facts::of(program.steps);
    let mut reads: VarMap<usize> = VarMap::filled(program.steps.jaxpr.avals.len(), 0);
    readers.iter().for_each(|(var, readers)| reads[var] = readers.len() + usize::from(is_returned[var]));
    let (steps, excluded, seen) = (program.steps.with(Vec::new()), program.excluded, Vec::with_capacity(all.len()));
    let mut joiner = Joiner { steps, excluded, seen, readers: reads, moves: Vec::new() };
    let mut at = 0;
    let mut later = all.into_iter();
    loop {
        if at == joiner.seen.len() {
            let Some(step) = later.next() else { break };
            joiner.seen.push(step);
        }
        // The joined loop may be joined to another.
        at = joiner.join_one_before(at).unwrap_or(at + 1);
    }
    let Joiner { mut steps, seen, moves, .. } = joiner;
    if moves.is_empty() {
        return Ok(None);
    }
    steps.steps = seen;
    check(&steps)?;
    Ok(Some(Proposal { steps, moves }))
}

struct Joiner<'a> {
    /// The program, without its steps.
    steps: Steps,
    /// Variables whose loops stay apart.
    excluded: &'a HashSet<Var>,
    /// The steps up to the last one that was visited. The later ones are not here, so that a join moves few of them.
    seen: Vec<Step>,
    /// The number of steps that read each variable which they do not compute; one more where it is returned.
    readers: VarMap<usize>,
    moves: Vec<Change>,
}

impl Joiner<'_> {
    /// Joins a loop before this step with it. Returns the position of the joined loop.
    fn join_one_before(&mut self, at: usize) -> Option<usize> {
        for first in (at.saturating_sub(MOST_STEPS_DELAYED)..at).rev() {
            let Some(joined) = self.joined(first, at) else { continue };
            let Some(waiting) = self.waiting(first, at) else { continue };
            for var in outside(&self.seen[first]).into_iter().chain(outside(&self.seen[at])) {
                self.readers[var] -= 1;
            }
            let joined = Step::Loop(joined);
            let time = self.steps.time_of([&self.seen[first], &self.seen[at]]) - self.steps.time_of([&joined]);
            let results: Vec<Var> = joined.loop_results().collect();
            self.moves.extend(results.last().map(|&value| Change {
                kind: &KIND,
                value,
                results: results.clone(),
                kept: None,
                time,
                bytes: 0,
            }));
            outside(&joined).into_iter().for_each(|var| self.readers[var] += 1);
            // The steps that need not wait, then the joined loop, then the steps that wait for it.
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for (i, step) in (first..).zip(self.seen.drain(first..=at)) {
                match waiting.contains(&i) {
                    true => after.push(step),
                    false if i != first && i != at => before.push(step),
                    false => {}
                }
            }
            let place = first + before.len();
            self.seen.splice(first..first, before.into_iter().chain([joined]).chain(after));
            return Some(place);
        }
        None
    }

    /// The steps between `first` and `second` that depend on the first. `None` if the second depends on one of them.
    fn waiting(&self, first: usize, second: usize) -> Option<Vec<usize>> {
        let mut made: Vec<Var> = self.seen[first].outs().collect();
        let mut waiting = Vec::new();
        for at in first + 1..second {
            let step = &self.seen[at];
            if step.reads(&self.steps.tokens).any(|var| made.contains(&var)) {
                waiting.push(at);
                made.extend(step.outs());
            }
        }
        let of_first: Vec<Var> = self.seen[first].outs().collect();
        let depends = |var: Var| made.contains(&var) && !of_first.contains(&var);
        (!self.seen[second].reads(&self.steps.tokens).any(depends)).then_some(waiting)
    }

    /// The two loops joined, if they fit together and the joined loop costs less.
    fn joined(&self, first: usize, second: usize) -> Option<FusedLoop> {
        let may_join = |fused_loop: &&FusedLoop| {
            fused_loop.reduction.is_none() && !fused_loop.outs.iter().any(|out| self.excluded.contains(out))
        };
        let [a, b] = [first, second].map(|at| self.seen[at].fused_loop().filter(may_join));
        let (a, b) = (a?, b?);
        let columns = a.columns.or(b.columns);
        if a.size() != b.size() || b.columns.or(columns) != columns || a.members.len() + b.members.len() > MOST_MEMBERS
        {
            return None;
        }
        let rows = if a.columns.is_some() { a.rows } else { b.rows };
        // The second loop has to read the values of the first one at the same elements.
        let extent = |var: Var| a.members.iter().find(|m| m.out == var).map(|m| m.extent);
        let fits = |reader: &Member, x: &Value| match x {
            Value::View { base, layout } => match (extent(*base), reader.extent) {
                (None, _) => true,
                (Some(Extent::Full), _) => layout.is_contiguous() && layout.size() == a.size(),
                (Some(Extent::Row), Extent::Row) => layout.is_contiguous() && layout.size() == rows,
                (Some(Extent::Row), Extent::Full) => columns.is_some() && repeats(layout, rows, a.size()) == columns,
            },
            Value::Splat { .. } => true,
        };
        if !b.members.iter().all(|m| m.operands.iter().all(|x| fits(m, x))) {
            return None;
        }
        let members = a.members.iter().chain(&b.members).cloned().collect();
        let outs = a.outs.iter().chain(&b.outs).copied().collect();
        let mut joined = FusedLoop { members, rows, columns, reduction: None, outs };
        // Values that only the second loop reads are not stored.
        let reads_of_second = outside(&self.seen[second]);
        joined.outs.retain(|out| self.readers[*out] > usize::from(reads_of_second.contains(out)));
        merge_members(&self.steps, &mut joined);
        results_last(&mut joined);
        let (a_cost, b_cost, cost) = (self.cost(a), self.cost(b), self.cost(&joined)?);
        let [part, whole] = MOST_OF_BOTH;
        (cost * whole <= (a_cost? + b_cost?) * part).then_some(joined)
    }

    /// The bytes that a loop reads and writes, with its equations counted as bytes. `None` if it reads more than [`MOST_READ`] arrays.
    fn cost(&self, fused_loop: &FusedLoop) -> Option<usize> {
        let read = self.steps.large_reads(fused_loop.members.iter());
        let stored: usize = fused_loop.outs.iter().map(|&out| self.steps.store_bytes(out)).sum();
        let read_bytes = || self.steps.read_bytes(fused_loop.members.iter(), fused_loop.size());
        (read.len() <= MOST_READ).then(|| read_bytes() + stored)
    }
}

/// Moves the members that no other member reads to the end, where their results can take the memory of operands.
fn results_last(fused_loop: &mut FusedLoop) {
    let read: Vec<Var> = fused_loop.members.iter().flat_map(|m| &m.operands).filter_map(Value::base).collect();
    fused_loop.members.sort_by_key(|m| !read.contains(&m.out));
}
