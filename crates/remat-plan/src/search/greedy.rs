//! A first plan: the gap that frees the most bytes above the limit for its time is dropped, then the next.
//!
//! What a gap frees and costs changes with each drop. Gaps wait in a queue by what they cost a byte when they were last tried, and only the
//! first is tried again, since a drop seldom makes another one cheaper (Minoux 1978, "Accelerated greedy algorithms").

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::moves::Moves;
use super::problem::Problem;
use super::state::{Hold, State};

/// How often gaps are tried, in multiples of their number, and the runs of steps that a trial may consider on average.
const TRIALS: usize = 24;
const RUNS_PER_TRIAL: usize = 64;

/// The stages that all trials may look at: each trial looks at all stages, so that programs of some ten thousand steps get fewer trials, but at
/// least two for each gap, unless those look at more than eight times as many.
const STAGES: usize = 1 << 30;

/// Decisions within the limit, or with little above it.
pub(super) fn greedy(problem: &Problem, limit: i64) -> Vec<Hold> {
    let mut state = State::new(problem, problem.keep_all());
    let moves = Moves::new(&state, limit);
    let mut queue: BinaryHeap<Reverse<(u64, u32)>> = moves.gaps().iter().map(|&gap| Reverse((0, gap))).collect();
    let stages = problem.steps.len().max(1);
    let most = (STAGES / stages).max((2 * queue.len()).min(8 * STAGES / stages));
    let mut trials = most.min(TRIALS * queue.len());
    let work = state.work + RUNS_PER_TRIAL * trials;
    while state.overflow(limit) > 0 && trials > 0 && state.work < work {
        let Some(Reverse((_, gap))) = queue.pop() else { break };
        trials -= 1;
        let Some((price, hold)) = cheapest(&mut state, gap, limit) else { continue };
        if queue.peek().is_none_or(|Reverse((next, _))| price <= *next) {
            state.set(gap, hold);
            state.measure();
            state.commit();
        } else {
            queue.push(Reverse((price, gap)));
        }
    }
    state.holds
}

/// The cheaper way to drop a gap, with what it costs for the bytes above the limit that it frees. `None` if it frees none.
fn cheapest(state: &mut State<'_>, gap: u32, limit: i64) -> Option<(u64, Hold)> {
    let (time, over) = (state.time, state.overflow(limit));
    let mut best: Option<(u64, Hold)> = None;
    for hold in [Hold::Later, Hold::Drop] {
        state.set(gap, hold);
        state.measure();
        let freed = over - state.overflow(limit);
        if freed > 0 && state.faults == 0 {
            let cost = state.time.saturating_sub(time);
            let price = cost.saturating_mul(1 << 20) / freed as u128;
            let price = u64::try_from(price).unwrap_or(u64::MAX);
            if best.is_none_or(|(least, _)| price < least) {
                best = Some((price, hold));
            }
        }
        state.undo();
    }
    best
}
