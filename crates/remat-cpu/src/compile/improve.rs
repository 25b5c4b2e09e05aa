//! The one rule by which moves are made: the changed program fits and takes no more time by the cost model.
//!
//! Without a limit a program fits if it needs no more memory than before, whatever its callers donate. With a limit it fits if its caller's
//! call is within the limit, or needs no more than before. If moves do not fit, those that need the memory where it is short are left out,
//! and the rest is tried again.
//!
//! Temporaries are placed in outputs that no step has written yet after all moves, so that the steps do not depend on it: moves are judged by the
//! memory without that. Only within a limit, where it decides what fits, is it done before and after each move.

use std::collections::HashSet;

use remat_ir::{Result, Var, VarMap};

use super::candidate::{Candidate, Ordered, Subject};
use super::kernels::KernelCall;
use super::{Caller, Donated};
use crate::ids::ArgId;
use crate::peak::Programs;
use crate::program::CompiledProgram;
use crate::steps::{Change, MOVERS, Mover, Program, Proposal, Value};

/// How often a mover proposes, with fewer moves each time. A proposal costs a schedule and a plan.
const ATTEMPTS: usize = 4;

/// The memory that a program may need.
#[derive(Clone, Copy)]
pub(super) enum Allowed<'a> {
    /// What it needs now, for every caller.
    AsBefore,
    /// This many bytes of a call, for a caller who donates some arguments.
    Within(&'a Donated, usize),
}

impl Allowed<'_> {
    /// The bytes that a program may need beyond those that it needs now.
    fn room(self, programs: &Programs) -> usize {
        match self {
            Allowed::AsBefore => 0,
            Allowed::Within(caller, bytes) => bytes.saturating_sub(caller.peak(programs)),
        }
    }

    /// Whether a changed program fits.
    fn fits(self, more: &Programs, than: &Programs, caller: Caller) -> bool {
        match self {
            Allowed::AsBefore => needs_no_more(more, than, caller),
            Allowed::Within(caller, bytes) => caller.peak(more) <= caller.peak(than).max(bytes),
        }
    }
}

/// A move with what became of it.
pub(super) struct Decided {
    pub(super) change: Change,
    pub(super) outcome: Outcome,
}

/// What became of a move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Made,
    /// It is live, or runs, where the memory does not suffice.
    NeedsMemory,
    /// It was proposed together with others that do not fit, and none of them is known to be why.
    WithOthers,
}

impl<'a> Subject<'a> {
    /// A candidate after all moves that fit. What was decided, the moves of lowering included, is added to `decided`.
    ///
    /// # Errors
    /// If an operation cannot be run.
    pub(super) fn improved(
        &self,
        first: Candidate<'a>,
        allowed: Allowed<'_>,
        decided: &mut Vec<Decided>,
    ) -> Result<Candidate<'a>> {
        let made = |change: &Change| Decided { change: change.clone(), outcome: Outcome::Made };
        decided.extend(first.steps().made.iter().map(made));
        MOVERS.into_iter().try_fold(first, |best, mover| self.moved(best, mover, allowed, decided))
    }

    /// The candidate after the moves of one mover.
    fn moved(
        &self,
        best: Candidate<'a>,
        mover: Mover,
        allowed: Allowed<'_>,
        decided: &mut Vec<Decided>,
    ) -> Result<Candidate<'a>> {
        let room = allowed.room(&best.programs);
        let mut excluded: HashSet<Var> = HashSet::new();
        for attempt in 1..=ATTEMPTS {
            let Some(Proposal { steps, moves }) = best.proposed(mover, room, &excluded)? else { break };
            let other = match allowed {
                Allowed::AsBefore => self.candidate(steps)?,
                Allowed::Within(..) => self.within_outputs(self.candidate(steps)?)?,
            };
            if other.time <= best.time && allowed.fits(&other.programs, &best.programs, self.caller) {
                decided.extend(moves.into_iter().map(|change| Decided { change, outcome: Outcome::Made }));
                return Ok(other);
            }
            let needs_memory = other.needs_memory(&moves, &best, room);
            let is_last = attempt == ATTEMPTS || !needs_memory.contains(&true);
            for (change, needs_memory) in moves.into_iter().zip(needs_memory).filter(|(_, needs)| is_last || *needs) {
                excluded.extend(change.results.iter().copied().chain(change.kept));
                let outcome = if needs_memory { Outcome::NeedsMemory } else { Outcome::WithOthers };
                decided.push(Decided { change, outcome });
            }
            if is_last {
                break;
            }
        }
        Ok(best)
    }
}

impl Candidate<'_> {
    /// What a mover proposes where this many bytes are free besides those of the plan.
    fn proposed(&self, mover: Mover, room: usize, excluded: &HashSet<Var>) -> Result<Option<Proposal>> {
        // The operand tables of large steps are memory too.
        let table = |call: &KernelCall| CompiledProgram::table_bytes(call.ins.len(), call.outs.len());
        let largest = self.kernels.calls.iter().map(table).max().unwrap_or(0);
        let has_room = |ins, outs| CompiledProgram::table_bytes(ins, outs) <= largest;
        let Ordered { order, plan } = &self.keeping;
        let free: Vec<usize> = plan.timeline.iter().map(|live| (plan.arena - live).saturating_add(room)).collect();
        mover(&Program { steps: self.steps(), order, free: &free, has_room: &has_room, excluded })
    }

    /// For each of the moves that led to this candidate, whether it runs, or keeps a value, where more bytes are live than another plan has
    /// and this many more. If none does, the moves at the most live bytes count: the holes between values need memory too.
    fn needs_memory(&self, moves: &[Change], than: &Candidate<'_>, room: usize) -> Vec<bool> {
        let mut needs = vec![false; moves.len()];
        for (mine, other) in [(Some(&self.keeping), &than.keeping), (self.donating.as_ref(), than.for_donating())] {
            let allowed = other.plan.arena.saturating_add(room);
            let Some(ordered) = mine.filter(|mine| mine.plan.arena > allowed) else { continue };
            let live = self.live_at(moves, ordered);
            let limit = live.iter().copied().max().unwrap_or(0).min(allowed + 1);
            needs.iter_mut().zip(live).for_each(|(needs, live)| *needs |= live >= limit);
        }
        needs
    }

    /// The most live bytes while each of these moves runs or keeps a value.
    fn live_at(&self, moves: &[Change], Ordered { order, plan }: &Ordered) -> Vec<usize> {
        let steps = self.steps();
        let vars = steps.jaxpr.avals.len();
        // The positions at which a loop computes each variable, and from which to which its buffer is live.
        let (mut runs, mut ranges) = (VarMap::filled(vars, None), VarMap::filled(vars, None));
        for (at, step) in order.iter().enumerate().filter_map(|(at, step)| Some((at, steps.steps.get(step.index())?))) {
            step.loop_results().for_each(|var| runs[var] = Some(at));
            for var in step.outs().chain(step.operands().filter_map(Value::base)) {
                ranges[var] = Some((ranges[var].map_or(at, |(first, _)| first), at));
            }
        }
        let of_run = |var: Var| runs[var].map(|at| plan.timeline[at]);
        let of_range =
            |var: Var| ranges[var].and_then(|(first, last)| plan.timeline[first..=last].iter().max().copied());
        let live = |change: &Change| {
            let runs = change.results.iter().filter_map(|&var| of_run(var));
            runs.chain(change.kept.and_then(of_range)).max().unwrap_or(0)
        };
        moves.iter().map(live).collect()
    }
}

/// Whether a program needs no more memory than another if the caller donates no arguments, all of them, or those with which the other
/// program saves more, which are the worst to donate.
fn needs_no_more(more: &Programs, than: &Programs, caller: Caller) -> bool {
    // A loop gives a carry that is not computed in place a second buffer.
    let mut donated = more.keeping.donated.iter().zip(&than.keeping.donated);
    if caller != Caller::User && donated.any(|(more, than)| than.is_some() && more != than) {
        return false;
    }
    let peak =
        |programs: &Programs, is_donated: &dyn Fn(ArgId) -> bool| programs.for_donated(is_donated).peak(is_donated);
    let saved = [more, than].map(|programs| programs.keeping.saved_bytes());
    let is_worse = |arg: ArgId| saved[0][arg] < saved[1][arg];
    let donated: [&dyn Fn(ArgId) -> bool; 3] = [&|_| false, &|_| true, &is_worse];
    donated.into_iter().all(|is_donated| peak(more, is_donated) <= peak(than, is_donated))
}
