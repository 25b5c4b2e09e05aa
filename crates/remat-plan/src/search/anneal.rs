//! Simulated annealing over gaps (Kirkpatrick, Gelatt and Vecchi 1983).
//!
//! The energy is the time, and a price for every byte above the limit at every place. The price follows the state: it rises while the limit
//! is exceeded and falls while it is kept, so that the search moves along the limit. What is returned keeps it.
//!
//! Powers and logarithms are those of the crate `libm`: those of the standard library may differ in the last bit from one system to the next,
//! and a plan with them.

use super::moves::Moves;
use super::problem::Problem;
use super::state::{Hold, State};
use crate::random::SplitMix;

/// The last temperature, as a share of the first.
const COLD: f64 = 0.01;

/// The price at first of the limit's bytes for one place, as a share of the time of the program.
const PRICE: f64 = 0.02;

/// The lowest and the highest price.
const PRICES: (f64, f64) = (1e-4, 100.0);

/// After this many moves the price changes by one of these factors: as the limit is exceeded, at first and once it was kept, or kept.
const MOVES_PER_PRICE: usize = 64;
const FIRST: f64 = 1.5;
const DEARER: f64 = 1.1;
const CHEAPER: f64 = 0.93;

/// The runs of steps that a move may consider on average.
const RUNS_PER_MOVE: usize = 64;

/// What a run that is not allowed costs, in times of the program.
const FAULT: f64 = 10.0;

/// Decisions, and the time of the program with them.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) time: u128,
    pub(super) holds: Vec<Hold>,
}

/// The fastest decisions within the limit on the way of one search from these decisions on; `None` if there were none.
///
/// `temperature` is the first one, in times of an average step.
pub(super) fn anneal(
    problem: &Problem,
    limit: i64,
    evaluations: usize,
    start: Vec<Hold>,
    temperature: f64,
    seed: u64,
) -> Option<Found> {
    let mut random = SplitMix(seed);
    let mut state = State::new(problem, start);
    let moves = Moves::new(&state, limit);
    let [base, unit] = [problem.time.max(1) as f64, limit.max(1) as f64];
    let overflow = |state: &State<'_>| state.overflow(limit) as f64 / unit;
    let time = |state: &State<'_>| state.time as f64 / base + f64::from(state.faults) * FAULT;
    let is_better = |state: &State<'_>, best: &Option<Found>| {
        state.faults == 0 && best.as_ref().is_none_or(|best| state.time < best.time)
    };
    let found = |state: &State<'_>| Some(Found { time: state.time, holds: state.holds.clone() });
    let mut over = overflow(&state);
    let mut best = if over == 0.0 && state.faults == 0 { found(&state) } else { None };
    if moves.is_empty() {
        return best;
    }
    let mut price = PRICE;
    let hot = temperature / problem.steps.len() as f64;
    let work = evaluations.saturating_mul(RUNS_PER_MOVE);
    let begun = state.work;
    for n in 0..evaluations {
        // Moves are dear where long stages run again. The search then makes fewer.
        let progress = (n as f64 / evaluations as f64).max((state.work - begun) as f64 / work as f64);
        if progress >= 1.0 {
            break;
        }
        if n % MOVES_PER_PRICE == 0 {
            let factor = match (over > 0.0, best.is_some()) {
                (true, false) => FIRST,
                (true, true) => DEARER,
                (false, _) => CHEAPER,
            };
            price = (price * factor).clamp(PRICES.0, PRICES.1);
        }
        let temperature = hot * libm::pow(COLD, progress);
        let current = time(&state) + price * over;
        // What a move may lead to at most. Its time is known before its memory is.
        let most = current - temperature * libm::log(random.unit().max(f64::MIN_POSITIVE));
        moves.apply(&mut state, &mut random);
        if time(&state) > most {
            state.undo();
            continue;
        }
        state.measure();
        let next = overflow(&state);
        if time(&state) + price * next > most {
            state.undo();
            continue;
        }
        state.commit();
        over = next;
        if over == 0.0 && is_better(&state, &best) {
            best = found(&state);
        }
    }
    best
}
