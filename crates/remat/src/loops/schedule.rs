//! The binomial schedule: the order in which a loop of known length is reversed with a given number of states.

/// The least number of iterations to compute, besides the differentiated ones, in the forward and backward pass of a loop of this length
/// that keeps this number of states, including the initial one. `None` if the number overflows, or `states` is 0.
///
/// With `r` the least number for which `length <= C(states + r, states)`, it is `r * length - C(states + r, states + 1)`.
///
/// Source: Griewank and Walther, "Algorithm 799: revolve", ACM Transactions on Mathematical Software 26, 2000.
///
/// ```
/// use remat::binomial_steps;
/// assert_eq!(binomial_steps(10, 3), Some(15));
/// assert_eq!(binomial_steps(10, 10), Some(9));
/// assert_eq!(binomial_steps(10, 1), Some(45));
/// ```
pub fn binomial_steps(length: usize, states: usize) -> Option<usize> {
    if states == 0 {
        return None;
    }
    if length < 2 {
        return Some(0);
    }
    if states == 1 {
        return length.checked_mul(length - 1).map(|n| n / 2);
    }
    let r = repetitions(length, states);
    let steps = (r as u128) * (length as u128) - binomial(states.saturating_add(1), r as i64 - 1);
    usize::try_from(steps).ok()
}

/// The states that the forward pass keeps: the iterations before which they are, each with the repetitions of the part of the loop that
/// began there when the state was kept, or zero if that part is not split.
pub(super) fn kept(length: usize, states: usize) -> Vec<(usize, usize)> {
    let mut kept = Vec::new();
    let (mut start, mut left) = (0, states);
    loop {
        let of_part = length - start;
        if left < 2 || of_part < 2 {
            kept.push((start, 0));
            return kept;
        }
        kept.push((start, repetitions(of_part, left)));
        start += split(of_part, left);
        left -= 1;
    }
}

/// The lengths of the loops that can be reversed, for each number of states and of repetitions: a row for 0 to `states` states, a column
/// for -2 to `most` repetitions. Without a state that is none. Longer loops than this length count as this length.
pub(super) fn lengths(length: usize, states: usize, most: usize) -> Vec<Vec<usize>> {
    let of = |states: usize, r: i64| usize::try_from(binomial(states, r)).map_or(length, |n| n.min(length));
    let row = |states| (-2..=most as i64).map(|r| if states == 0 { 0 } else { of(states, r) }).collect();
    (0..=states).map(row).collect()
}

/// How many iterations to advance before the next state is kept, with at least two states, so that neither part needs more repetitions than
/// the whole.
fn split(length: usize, states: usize) -> usize {
    let r = repetitions(length, states) as i64;
    let least = binomial(states, r - 2).max((length as u128).saturating_sub(binomial(states - 1, r)));
    // At most the length, which is a usize.
    usize::try_from(least).unwrap_or(length).clamp(1, length - 1)
}

/// How often an iteration is computed at most, with at least two states.
fn repetitions(length: usize, states: usize) -> usize {
    (0..).find(|&r| binomial(states, r as i64) >= length as u128).unwrap_or(length)
}

/// `C(states + r, r)`: the length that can be reversed with this number of states and repetitions. It saturates above any length.
fn binomial(states: usize, r: i64) -> u128 {
    if r < 0 {
        return 0;
    }
    let (mut result, n, r) = (1u128, states as u128, r as u128);
    // The product of a few factors is exact; the smaller of the two lower indices keeps it short.
    let (n, r) = if r > n { (r, n) } else { (n, r) };
    for i in 1..=r {
        match result.checked_mul(n + i) {
            Some(product) => result = product / i,
            None => return u128::MAX,
        }
    }
    result
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An action of the reversal of a loop. States are in slots; `from` is the slot of the state before iteration `step`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in crate::loops) enum Action {
        /// Computes the state after an iteration into a slot.
        Advance { step: usize, from: usize, to: usize },
        /// Differentiates an iteration.
        Reverse { step: usize, from: usize },
    }

    /// The whole reversal. Slot 0 holds the initial state, the slots below `states` the other kept states, and the one after those the
    /// current state of the loop.
    pub(in crate::loops) fn reversal(length: usize, states: usize) -> Vec<Action> {
        let work = states;
        let mut actions = Vec::new();
        let mut free: Vec<usize> = (1..states.min(length)).rev().collect();
        // Parts of the loop that remain to be reversed, the last one first: start, length, slot of the state at the start.
        let mut parts = vec![(0, length, 0)];
        while let Some((start, length, slot)) = parts.pop() {
            if length > 1
                && let Some(kept) = free.pop()
            {
                let first = split(length, free.len() + 2);
                advance(&mut actions, start, first, slot, work, kept);
                parts.push((start, first, slot));
                parts.push((start + first, length - first, kept));
                continue;
            }
            for last in (0..length).rev() {
                advance(&mut actions, start, last, slot, work, work);
                actions.push(Action::Reverse { step: start + last, from: if last == 0 { slot } else { work } });
            }
            if slot != 0 {
                free.push(slot);
            }
        }
        actions
    }

    /// Advances `count` iterations from a slot to another one, through the slot for work.
    fn advance(actions: &mut Vec<Action>, start: usize, count: usize, slot: usize, work: usize, target: usize) {
        for i in 0..count {
            let from = if i == 0 { slot } else { work };
            let to = if i + 1 == count { target } else { work };
            actions.push(Action::Advance { step: start + i, from, to });
        }
    }

    /// The minimum, found by trying all positions for the next state.
    fn by_trial(length: usize, states: usize, known: &mut Vec<Vec<Option<usize>>>) -> usize {
        if length < 2 {
            return 0;
        }
        if states == 1 {
            return length * (length - 1) / 2;
        }
        if let Some(n) = known[length][states] {
            return n;
        }
        let cost = |m: usize, known: &mut Vec<Vec<Option<usize>>>| {
            m + by_trial(length - m, states - 1, known) + by_trial(m, states, known)
        };
        let least = (1..length).map(|m| cost(m, known)).min().unwrap();
        known[length][states] = Some(least);
        least
    }

    /// Runs a schedule on numbers. Returns the number of advances and the largest number of slots in use for later.
    fn run(length: usize, states: usize) -> (usize, usize) {
        let mut slots: Vec<Option<usize>> = vec![None; states + 1];
        slots[0] = Some(0);
        let (mut advances, mut peak, mut left) = (0, 1, length);
        for action in reversal(length, states) {
            match action {
                Action::Advance { step, from, to } => {
                    assert_eq!(slots[from], Some(step));
                    assert!(to != 0 && step + 1 < left, "advances to a state that is needed");
                    slots[to] = Some(step + 1);
                    advances += 1;
                }
                Action::Reverse { step, from } => {
                    assert_eq!(slots[from], Some(step));
                    left -= 1;
                    assert_eq!(step, left);
                    for slot in slots.iter_mut().filter(|r| **r == Some(step) && step > 0) {
                        *slot = None;
                    }
                }
            }
            peak = peak.max(slots[..states].iter().flatten().count());
        }
        assert_eq!(left, 0);
        (advances, peak)
    }

    #[test]
    fn schedules_are_as_short_as_the_formula_and_as_any_schedule_can_be() {
        let mut known = vec![vec![None; 20]; 60];
        for length in 0..60 {
            for states in 1..20 {
                let (advances, peak) = run(length, states);
                assert_eq!(Some(advances), binomial_steps(length, states), "{length} iterations, {states} states");
                assert_eq!(advances, by_trial(length, states, &mut known), "{length} iterations, {states} states");
                assert!(peak <= states);
            }
        }
    }

    #[test]
    fn long_schedules_are_optimal_too() {
        for (length, states) in [(1000, 2), (1000, 3), (5000, 10), (5000, 100), (997, 1000), (10_000, 9_999)] {
            let (advances, peak) = run(length, states);
            assert_eq!(Some(advances), binomial_steps(length, states));
            assert!(peak <= states);
        }
    }

    #[test]
    fn steps_of_extreme_loops() {
        assert_eq!(binomial_steps(5, 0), None);
        assert_eq!(binomial_steps(0, 3), Some(0));
        assert_eq!(binomial_steps(usize::MAX, 1), None);
        assert_eq!(binomial_steps(1_000_000, 1_000_000), Some(999_999));
        assert_eq!(binomial_steps(1_000_000, usize::MAX - 1), Some(999_999));
        assert_eq!(binomial_steps(1_000_000, usize::MAX), Some(999_999));
    }
}
