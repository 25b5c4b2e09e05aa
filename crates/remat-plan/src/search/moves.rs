//! The gaps that a search may change, and which of them are changed together.

use super::problem::Problem;
use super::state::{Hold, State};
use crate::random::SplitMix;

/// The most neighbours of a gap that are remembered. A value that everything reads has as many as there are steps.
const NEIGHBOURS: usize = 24;

/// A gap is worth a decision if at one of its places more than this share of the limit is live. Elsewhere a drop gains nothing, unless what
/// runs again there brings it near the limit too.
const NEAR_LIMIT: f64 = 0.5;

/// The share of moves that begin with a gap that was changed. There are few of them when much memory is left.
const FROM_CHANGED: f64 = 0.5;

/// The share of moves that keep a value behind its last reader, for others that are computed again from it.
const BEHIND: f64 = 0.03;

/// The shares of moves that exchange a gap for a neighbour, and for any other. The rest change one gap.
///
/// A neighbour belongs to a value from which this value is computed, or which is computed from it. To keep the one rather than the other
/// moves the border of what is computed again by a step, which no single change can do within the limit.
const WITH_NEIGHBOUR: f64 = 0.6;
const WITH_ANY: f64 = 0.1;

/// The gaps that can change.
pub(super) struct Moves {
    gaps: Vec<u32>,
    is_movable: Vec<bool>,
    /// The neighbours of each gap: from the first number on to before the second.
    ranges: Vec<(u32, u32)>,
    neighbours: Vec<u32>,
}

impl Moves {
    /// The gaps of a state that are worth a decision under a limit.
    pub(super) fn new(state: &State<'_>, limit: i64) -> Moves {
        let problem = state.problem;
        let threshold = (limit as f64 * NEAR_LIMIT) as i64;
        // How many places before each one are near the limit.
        let mut near = vec![0u32];
        for t in 0..problem.steps.len() {
            near.push(near[t] + u32::from(state.bytes(t) > threshold));
        }
        let is_worth = |number: usize| {
            let gap = problem.gaps[number];
            if gap.is_behind {
                return false;
            }
            let is_long = gap.to > gap.from + 1 && problem.values[gap.value as usize].bytes > 0;
            is_long && (state.holds[number] != Hold::Keep || near[gap.to as usize + 1] > near[gap.from as usize])
        };
        let is_movable: Vec<bool> = (0..problem.gaps.len()).map(is_worth).collect();
        let gaps: Vec<u32> = (0..problem.gaps.len() as u32).filter(|&gap| is_movable[gap as usize]).collect();
        let mut moves = Moves { gaps, ranges: vec![(0, 0); is_movable.len()], is_movable, neighbours: Vec::new() };
        for at in 0..moves.gaps.len() {
            let gap = moves.gaps[at];
            let start = moves.neighbours.len() as u32;
            moves.add_neighbours(problem, gap);
            moves.ranges[gap as usize] = (start, moves.neighbours.len() as u32);
        }
        moves
    }

    /// The gaps.
    pub(super) fn gaps(&self) -> &[u32] {
        &self.gaps
    }

    /// Whether nothing can change.
    pub(super) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Adds the gaps at the same time of values from which the value of a gap is computed in one step or two, and of values that its readers
    /// compute.
    fn add_neighbours(&mut self, problem: &Problem, number: u32) {
        let gap = problem.gaps[number as usize];
        let step_of = |value: u32| &problem.steps[problem.values[value as usize].producer as usize];
        let before = &step_of(gap.value).reads;
        let further = before.iter().flat_map(|&value| &step_of(value).reads);
        let readers = problem.gaps_of(gap.value).map(|g| &problem.steps[problem.gaps[g as usize].to as usize]);
        let behind = readers.flat_map(|step| &step.writes);
        let start = self.neighbours.len();
        for &value in before.iter().chain(further).chain(behind).filter(|&&value| value != gap.value) {
            for other in problem.gaps_of(value) {
                let range = problem.gaps[other as usize];
                let is_same_time = range.from < gap.to && gap.from < range.to;
                if is_same_time && self.is_movable[other as usize] && !self.neighbours[start..].contains(&other) {
                    self.neighbours.push(other);
                }
                if self.neighbours.len() - start == NEIGHBOURS {
                    return;
                }
            }
        }
    }

    /// Changes one gap at random, or two.
    pub(super) fn apply(&self, state: &mut State<'_>, random: &mut SplitMix) {
        if random.unit() < BEHIND
            && let Some(last) = self.behind(state, random)
        {
            // It stays in all gaps up to this one.
            let gaps = state.problem.gaps_of(state.problem.gaps[last as usize].value);
            for gap in gaps.filter(|&gap| gap <= last && state.problem.gaps[gap as usize].is_behind) {
                state.set(gap, Hold::Keep);
            }
            return;
        }
        let changed = state.changed();
        let is_from_changed = random.unit() < FROM_CHANGED && !changed.is_empty();
        let from: &[u32] = if is_from_changed { changed } else { &self.gaps };
        let gap = from[random.below(from.len())];
        let before = state.holds[gap as usize];
        let after = match (before, random.below(2)) {
            (Hold::Keep, 0) | (Hold::Later, 0) => Hold::Drop,
            (Hold::Keep, _) | (Hold::Drop, 0) => Hold::Later,
            _ => Hold::Keep,
        };
        state.set(gap, after);
        let Some(other) = self.other(gap, random) else { return };
        let is_kept = state.holds[other as usize] == Hold::Keep;
        if after == Hold::Keep && is_kept {
            state.set(other, before);
        } else if before == Hold::Keep && !is_kept {
            state.set(other, Hold::Keep);
        }
    }

    /// A gap behind the last reader of a value that is computed again, or read to compute another again, where a value was dropped.
    fn behind(&self, state: &State<'_>, random: &mut SplitMix) -> Option<u32> {
        let (problem, changed) = (state.problem, state.changed());
        let gap = problem.gaps[*changed.get(random.below(changed.len().max(1)))? as usize];
        let runs = &state.stages[gap.to as usize].runs;
        let step = &problem.steps[runs[random.below(runs.len())] as usize];
        let value = *step.reads.get(random.below(step.reads.len().max(1)))?;
        let found = problem.gap_before(value, gap.to)?;
        (problem.gaps[found as usize].is_behind && state.holds[found as usize] == Hold::Drop).then_some(found)
    }

    /// The gap that is changed with one, if any.
    fn other(&self, gap: u32, random: &mut SplitMix) -> Option<u32> {
        let dice = random.unit();
        let (start, end) = self.ranges[gap as usize];
        let among = match dice {
            _ if dice < WITH_ANY => &self.gaps[..],
            _ if dice < WITH_ANY + WITH_NEIGHBOUR => &self.neighbours[start as usize..end as usize],
            _ => &[],
        };
        let other = if among.is_empty() { return None } else { among[random.below(among.len())] };
        (other != gap).then_some(other)
    }
}
