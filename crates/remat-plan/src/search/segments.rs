//! A first plan for deep networks: the forward pass is cut into segments, and of some of them only what later segments read is kept. The rest
//! of a segment is computed again when the backward pass first needs a value of it.
//!
//! (Chen, Xu, Zhang and Guestrin 2016, "Training deep nets with sublinear memory cost". The cuts are where few bytes cross them, as
//! between two layers.)

use super::problem::Problem;
use super::state::{Hold, State};

/// The numbers of segments that are tried.
const SEGMENTS: [usize; 16] = [2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96];

/// The runs of steps that all tries together may consider, and in programs of which a few tries take more, for each step. Programs of some
/// thousand steps need fewer.
const RUNS: usize = 1 << 20;
const RUNS_PER_STEP: usize = 24;

/// The fastest of these decisions within the limit; if none is, `None`.
pub(super) fn segments(problem: &Problem, limit: i64) -> Option<Vec<Hold>> {
    let (_, peak) = State::new(problem, problem.keep_all()).peak();
    let forward = Forward::new(problem, peak as u32);
    let mut best: Option<(u128, Vec<Hold>)> = None;
    let mut before: Vec<u32> = Vec::new();
    let (mut work, most) = (0, RUNS.max(RUNS_PER_STEP * problem.steps.len()));
    for count in SEGMENTS {
        let cuts = forward.cuts(count);
        if cuts == before {
            continue;
        }
        let mut fits = |segments: usize| {
            if work > most {
                return None;
            }
            let state = State::new(problem, forward.without(problem, &cuts, segments));
            work += state.work;
            (state.overflow(limit) == 0 && state.faults == 0).then_some((state.time, state.holds))
        };
        // The fewest of the first segments, whose values would wait longest.
        let (mut low, mut high) = (0, cuts.len() + 1);
        let Some(mut found) = fits(high) else { continue };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                Some(fitting) => (high, found) = (middle, fitting),
                None => low = middle,
            }
        }
        if best.as_ref().is_none_or(|(time, _)| found.0 < *time) {
            best = Some(found);
        }
        before = cuts;
    }
    best.map(|(_, holds)| holds)
}

/// What waits at the peak, and what the forward pass reads before it.
struct Forward {
    /// The gaps across the peak.
    gaps: Vec<u32>,
    /// The last reader before the peak of the value of each of these gaps.
    last: Vec<u32>,
    /// The values that no gap across the peak has and that the forward pass reads, with their last readers.
    ended: Vec<(u32, u32)>,
    peak: u32,
    /// The bytes of values of these gaps that are computed up to each place.
    waiting: Vec<i64>,
    /// The bytes that the forward pass reads behind each place and has computed before.
    crossing: Vec<i64>,
}

impl Forward {
    fn new(problem: &Problem, peak: u32) -> Forward {
        let places = peak as usize + 1;
        let (mut gaps, mut last, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let (mut waiting, mut crossing) = (vec![0; places], vec![0; places + 1]);
        for (number, value) in problem.values.iter().enumerate().filter(|(_, value)| value.producer < peak) {
            let of_value = problem.gaps_of(number as u32);
            let reader =
                of_value.clone().map(|gap| problem.gaps[gap as usize]).filter(|g| g.to <= peak && !g.is_behind);
            let reader = reader.map(|gap| gap.to).max().unwrap_or(value.producer);
            crossing[value.producer as usize] += value.bytes;
            crossing[reader as usize] -= value.bytes;
            let across = |&gap: &u32| {
                let gap = problem.gaps[gap as usize];
                gap.from < peak && peak < gap.to && !gap.is_behind && value.bytes > 0
            };
            match of_value.clone().find(across) {
                Some(gap) => {
                    gaps.push(gap);
                    last.push(reader);
                    waiting[value.producer as usize] += value.bytes;
                }
                None => ended.push((number as u32, reader)),
            }
        }
        for place in 1..places {
            waiting[place] += waiting[place - 1];
            crossing[place] += crossing[place - 1];
        }
        Forward { gaps, last, ended, peak, waiting, crossing }
    }

    /// The last places of all segments but the last. Segments have about equal bytes that wait.
    fn cuts(&self, count: usize) -> Vec<u32> {
        let all = self.waiting.last().copied().unwrap_or(0);
        let place = |bytes: i64| self.waiting.partition_point(|&waiting| waiting < bytes);
        let mut cuts: Vec<u32> = Vec::new();
        for segment in 1..count as i64 {
            let at = |halves: i64| place(all / (2 * count as i64) * (2 * segment + halves));
            let best = (at(-1)..at(1).min(self.waiting.len())).min_by_key(|&place| self.crossing[place]);
            cuts.extend(best.map(|place| place as u32));
        }
        cuts.dedup();
        cuts
    }

    /// The decisions in which the first segments keep only what later ones read.
    fn without(&self, problem: &Problem, cuts: &[u32], segments: usize) -> Vec<Hold> {
        let mut holds = problem.keep_all();
        let segment_of = |place: u32| cuts.partition_point(|&cut| cut < place);
        for (&gap, &last) in self.gaps.iter().zip(&self.last) {
            let segment = segment_of(problem.values[problem.gaps[gap as usize].value as usize].producer);
            if segment < segments && segment_of(last) == segment {
                holds[gap as usize] = Hold::Later;
            }
        }
        // From these, segments are computed again, whether or not the backward pass reads them.
        for &(value, last) in &self.ended {
            if segment_of(last) > segment_of(problem.values[value as usize].producer) && segment_of(last) <= segments {
                let gaps = problem.gaps_of(value).map(|gap| (gap, problem.gaps[gap as usize]));
                for (gap, _) in gaps.filter(|(_, gap)| gap.is_behind && gap.from < self.peak) {
                    holds[gap as usize] = Hold::Keep;
                }
            }
        }
        holds
    }
}
