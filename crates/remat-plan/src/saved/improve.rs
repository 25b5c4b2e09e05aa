//! The search between the two choices on the convex hull that are nearest to the budget.

use std::collections::BTreeSet;

use oxc_index::{IndexVec, index_vec};

use super::cut::{Network, Prices};
use super::dominators::Dominators;
use super::{Region, State};
use crate::ids::EquationId;

/// The most prices that are tried. The hull of a region with a thousand different equations takes about a dozen.
const MOST_PRICES: usize = 48;

/// The most visits of equations that exchanges may take.
const MOST_VISITS: usize = 2_000_000;

/// A good choice within the budget. A budget of nothing keeps nothing, also of values without bytes.
pub(super) fn best(region: &Region, budget: u64) -> State {
    let nothing = region.state(index_vec![false; region.equations.len()]);
    if budget == 0 {
        return nothing;
    }
    let (within, beyond) = neighbours(region, nothing, budget);
    let mut best = filled(region, within, budget);
    if let Some(beyond) = beyond {
        let other = filled(region, trimmed(region, beyond, budget), budget);
        if other.bytes <= budget && other.is_better_than(&best) {
            best = other;
        }
        best = exchanged(region, best, budget);
    }
    without_idle(region, best)
}

/// The best choices at the prices where the budget is just kept and just missed, from one that fits on. The second is `None` if the first is
/// the cheapest of all.
fn neighbours(region: &Region, mut feasible: State, budget: u64) -> (State, Option<State>) {
    let network = Network::new(region);
    // The least cost, and for this the fewest bytes.
    let mut beyond = region.state(network.cheapest(Prices::of_ratio(1, u64::MAX)));
    if beyond.bytes <= budget {
        return (beyond, None);
    }
    for _ in 0..MOST_PRICES {
        let (more_bytes, more_cost) = (beyond.bytes - feasible.bytes, feasible.cost.saturating_sub(beyond.cost));
        if more_cost == 0 {
            break;
        }
        let found = region.state(network.cheapest(Prices::of_ratio(more_cost, more_bytes)));
        if found.bytes <= feasible.bytes || found.bytes >= beyond.bytes {
            break;
        }
        // What is above the line between the two, or on it, is not on the hull.
        let saves = u128::from(feasible.cost.saturating_sub(found.cost)) * u128::from(more_bytes);
        if saves <= u128::from(found.bytes - feasible.bytes) * u128::from(more_cost) {
            break;
        }
        if found.bytes <= budget {
            feasible = found;
        } else {
            beyond = found;
        }
    }
    (feasible, Some(beyond))
}

/// Whether `gain` per `bytes` is more than that of another, of which no bytes is the best.
fn is_worth_more((gain, bytes): (u64, u64), (other_gain, other_bytes): (u64, u64)) -> bool {
    u128::from(gain) * u128::from(other_bytes) > u128::from(other_gain) * u128::from(bytes)
}

/// Sorts by gain per byte, the highest first, then by number.
fn sort_by_worth(list: &mut [(EquationId, u64, u64)]) {
    list.sort_by(|&(a, gain_a, bytes_a), &(b, gain_b, bytes_b)| {
        let (a_worth, b_worth) = ((gain_a, bytes_a), (gain_b, bytes_b));
        is_worth_more(b_worth, a_worth).cmp(&is_worth_more(a_worth, b_worth)).then(a.cmp(&b))
    });
}

/// Keeps what saves the most per byte while the budget lasts.
fn filled(region: &Region, mut state: State, budget: u64) -> State {
    loop {
        let tree = Dominators::new(region, &state);
        let room = budget.saturating_sub(state.bytes);
        let mut list: Vec<(EquationId, u64, u64)> = tree
            .order
            .iter()
            .filter(|&&e| tree.gain[e] > 0 && region.can_be_kept(e))
            .map(|&e| (e, tree.gain[e], region.needed_bytes(&state, e)))
            .filter(|&(_, _, bytes)| bytes <= room)
            .collect();
        sort_by_worth(&mut list);
        // Several at a time, as long as none dominates another, which would change its gain.
        let mut room = room;
        let mut is_chosen: IndexVec<EquationId, bool> = index_vec![false; region.equations.len()];
        let mut has_chosen_below = is_chosen.clone();
        let mut kept = state.kept.clone();
        let mut has_more = false;
        for (equation, _, bytes) in list {
            if bytes > room || has_chosen_below[equation] || tree.above(equation).any(|e| is_chosen[e]) {
                continue;
            }
            room -= bytes;
            is_chosen[equation] = true;
            for above in tree.above(equation) {
                if std::mem::replace(&mut has_chosen_below[above], true) {
                    break;
                }
            }
            kept[equation] = true;
            has_more = true;
        }
        if !has_more {
            return state;
        }
        state = region.state(kept);
    }
}

/// Drops what saves the least per byte until the rest fits, half of what is too much at a time.
fn trimmed(region: &Region, mut state: State, budget: u64) -> State {
    while state.bytes > budget {
        let mut list: Vec<(EquationId, u64, u64)> = kept(&state)
            .map(|e| (e, loss(region, &state, e), region.needed_bytes(&state, e)))
            .filter(|&(_, _, bytes)| bytes > 0)
            .collect();
        sort_by_worth(&mut list);
        let excess = state.bytes - budget;
        let mut dropped = 0u64;
        let mut kept = state.kept.clone();
        while let Some((equation, _, bytes)) = list.pop()
            && dropped < excess.div_ceil(2)
        {
            kept[equation] = false;
            dropped = dropped.saturating_add(bytes);
        }
        state = region.state(kept);
    }
    state
}

/// Tries to give up each kept equation, or to force in one that runs, and to use the budget better.
fn exchanged(region: &Region, mut best: State, budget: u64) -> State {
    let mut tries = MOST_VISITS / (8 * region.equations.len()).max(1);
    let mut is_better = true;
    while is_better {
        is_better = false;
        for equation in region.equations.indices() {
            let is_kept = best.kept[equation];
            let may_be_kept =
                best.runs[equation] && region.can_be_kept(equation) && region.needed_bytes(&best, equation) <= budget;
            if !is_kept && !may_be_kept {
                continue;
            }
            if tries == 0 {
                return best;
            }
            tries -= 1;
            let mut kept = best.kept.clone();
            kept[equation] = !is_kept;
            let mut other = region.state(kept);
            if is_kept {
                other = filled_by_others(region, other, equation, budget);
            } else {
                other = trimmed(region, other, budget);
            }
            other = filled(region, other, budget);
            if other.bytes <= budget && other.is_better_than(&best) {
                best = other;
                is_better = true;
            }
        }
    }
    best
}

/// Keeps the one other equation that saves the most in all, so that filling does not just bring back what was given up.
fn filled_by_others(region: &Region, state: State, given_up: EquationId, budget: u64) -> State {
    let tree = Dominators::new(region, &state);
    let room = budget.saturating_sub(state.bytes);
    let others = tree.order.iter().copied().filter(|&e| {
        e != given_up && tree.gain[e] > 0 && region.can_be_kept(e) && region.needed_bytes(&state, e) <= room
    });
    let Some(most) = others.max_by_key(|&e| (tree.gain[e], std::cmp::Reverse(e))) else { return state };
    let mut kept = state.kept.clone();
    kept[most] = true;
    region.state(kept)
}

/// Drops what saves nothing.
fn without_idle(region: &Region, mut state: State) -> State {
    for equation in region.equations.indices() {
        if state.kept[equation] && loss(region, &state, equation) == 0 {
            let mut kept = state.kept.clone();
            kept[equation] = false;
            let other = region.state(kept);
            // Another result of an equation that is kept may now be needed.
            if other.bytes <= state.bytes {
                state = other;
            }
        }
    }
    state
}

fn kept(state: &State) -> impl Iterator<Item = EquationId> {
    state.kept.indices().filter(|&e| state.kept[e])
}

/// The cost of what would run again in addition without a kept equation.
fn loss(region: &Region, state: &State, equation: EquationId) -> u64 {
    let mut seen = BTreeSet::from([equation]);
    let mut stack = vec![equation];
    let mut cost = 0u64;
    while let Some(at) = stack.pop() {
        cost = cost.saturating_add(region.equations[at].cost);
        for &operand in &region.equations[at].operands {
            let below = region.equation_of(operand);
            if !state.runs[below] && !state.kept[below] && seen.insert(below) {
                stack.push(below);
            }
        }
    }
    cost
}

/// What each equation saves: of one that is kept by being kept, of one that runs again if it were kept.
pub(super) fn gains(region: &Region, state: &State) -> IndexVec<EquationId, u64> {
    let mut gains = Dominators::new(region, state).gain;
    for equation in kept(state) {
        gains[equation] = loss(region, state, equation);
    }
    gains
}
