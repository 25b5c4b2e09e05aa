//! The state of the search: which values stay in memory between two readers, and what that means for time and memory.
//!
//! The steps keep the order in which they first run. Between two consecutive readers of a value lies a gap: the value is kept in it,
//! dropped, or dropped and kept again from the first time that something in the gap needs it. All that happens when a step runs at its
//! place in the order is a stage: first the runs that compute its dropped operands again, then the step itself. (Stages are those of
//! Jain et al., "Checkmate", MLSys 2020; that what is kept between two readers is the right variable is the insight of Bartan et al.,
//! "Moccasin: efficient tensor rematerialization for neural networks", ICML 2023.)
//!
//! A change of a gap changes the stages at its ends, and those that look at the value in between. Only these are computed again, so that a
//! change costs some microseconds in a program of a thousand steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::problem::{Gap, Problem, Value};

/// What happens to a value between two readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// It stays.
    Keep,
    /// It is dropped, and computed again each time that something needs it.
    Drop,
    /// It is dropped, and stays from the first time on that something computes it again.
    Later,
}

/// No stage.
const NEVER: u32 = u32::MAX;

/// What runs at one place in the order.
#[derive(Clone, Default, Debug)]
pub(crate) struct Stage {
    /// The steps that run, in order. The last is the step of this place.
    pub(crate) runs: Vec<u32>,
    /// The gaps in which a value stays from here on.
    starts: Vec<u32>,
    /// The values that runs of recomputed steps read and compute.
    looks: Vec<u32>,
    cost: u128,
    /// The number of runs that are not allowed.
    faults: u32,
}

impl Stage {
    /// A stage without runs, with the memory of this one.
    fn clear(&mut self) {
        let Stage { runs, starts, looks, cost, faults } = self;
        runs.clear();
        starts.clear();
        looks.clear();
        (*cost, *faults) = (0, 0);
    }
}

/// One part of a change, with what was there before.
enum Undo {
    Hold(u32, Hold),
    Start(u32, u32),
    Stage(u32, Stage, i64),
}

/// Which values stay, and what follows from it.
pub(crate) struct State<'p> {
    pub(crate) problem: &'p Problem,
    pub(crate) holds: Vec<Hold>,
    pub(crate) stages: Vec<Stage>,
    /// The stage from whose end on the value of a gap stays in it, or [`NEVER`].
    start: Vec<u32>,
    /// The bytes that stay from the stage before, and the most bytes beyond them that each stage needs.
    entry: Vec<i64>,
    extra: Vec<i64>,
    /// The stages in which a recomputed step reads or computes each value.
    looks: Vec<Vec<u32>>,
    /// The sum of the costs of all runs.
    pub(crate) time: u128,
    pub(crate) faults: u32,
    /// The runs that were considered so far, to which the time of a search is proportional.
    pub(crate) work: usize,
    journal: Vec<Undo>,
    /// Stages of the past, whose memory the next ones take.
    spare: Vec<Stage>,
    /// Stages whose memory is not computed yet.
    stale: Vec<u32>,
    /// The gaps in which a value does not do as with each step run once, and the place of each gap among them.
    changed: Vec<u32>,
    place: Vec<u32>,
    /// Stages to compute again, as a set and as a heap of the next.
    is_queued: Vec<bool>,
    queue: BinaryHeap<Reverse<u32>>,
    scratch: Scratch,
}

/// Memory of the computation of a stage that is reused.
#[derive(Default)]
struct Scratch {
    stamp: u64,
    step_stamp: Vec<u64>,
    value_stamp: Vec<u64>,
    last_read: Vec<u32>,
    stack: Vec<u32>,
}

impl<'p> State<'p> {
    /// The state with these decisions.
    pub(crate) fn new(problem: &'p Problem, holds: Vec<Hold>) -> State<'p> {
        let (steps, values) = (problem.steps.len(), problem.values.len());
        let mut state = State {
            problem,
            holds,
            stages: vec![Stage::default(); steps],
            start: vec![NEVER; problem.gaps.len()],
            entry: Vec::new(),
            extra: vec![0; steps],
            looks: vec![Vec::new(); values],
            time: 0,
            faults: 0,
            work: 0,
            journal: Vec::new(),
            spare: Vec::new(),
            stale: Vec::new(),
            changed: Vec::new(),
            place: vec![NEVER; problem.gaps.len()],
            is_queued: vec![false; steps],
            queue: BinaryHeap::new(),
            scratch: Scratch {
                step_stamp: vec![0; steps],
                value_stamp: vec![0; values],
                last_read: vec![0; values],
                ..Scratch::default()
            },
        };
        (0..steps).for_each(|t| state.enqueue(t as u32));
        state.settle();
        state.entry = state.entries();
        state.measure();
        state.commit();
        for gap in 0..problem.gaps.len() as u32 {
            state.list(gap);
        }
        state
    }

    /// Changes what happens in a gap. The change can be undone until [`State::commit`].
    pub(crate) fn set(&mut self, gap: u32, hold: Hold) {
        let before = std::mem::replace(&mut self.holds[gap as usize], hold);
        if before == hold {
            return;
        }
        self.journal.push(Undo::Hold(gap, before));
        self.list(gap);
        let Gap { value, from, to, .. } = self.problem.gaps[gap as usize];
        self.enqueue(from);
        let between: Vec<u32> = self.looks[value as usize].iter().copied().filter(|&t| from < t && t < to).collect();
        between.into_iter().for_each(|t| self.enqueue(t));
        self.settle();
    }

    /// Forgets how to undo what was changed.
    pub(crate) fn commit(&mut self) {
        while let Some(undo) = self.journal.pop() {
            if let Undo::Stage(_, stage, _) = undo {
                self.spare.push(stage);
            }
        }
    }

    /// The gaps in which a value is dropped, and those behind its last reader in which it stays.
    pub(crate) fn changed(&self) -> &[u32] {
        &self.changed
    }

    /// Adds a gap to those that are changed, or takes it away.
    fn list(&mut self, gap: u32) {
        let place = self.place[gap as usize];
        let usual = if self.problem.gaps[gap as usize].is_behind { Hold::Drop } else { Hold::Keep };
        match (self.holds[gap as usize] == usual, place == NEVER) {
            (false, true) => {
                self.place[gap as usize] = self.changed.len() as u32;
                self.changed.push(gap);
            }
            (true, false) => {
                self.changed.swap_remove(place as usize);
                if let Some(&moved) = self.changed.get(place as usize) {
                    self.place[moved as usize] = place;
                }
                self.place[gap as usize] = NEVER;
            }
            _ => {}
        }
    }

    /// Undoes all changes since the last [`State::commit`].
    pub(crate) fn undo(&mut self) {
        self.stale.clear();
        while let Some(undo) = self.journal.pop() {
            match undo {
                Undo::Hold(gap, hold) => {
                    self.holds[gap as usize] = hold;
                    self.list(gap);
                }
                Undo::Start(gap, start) => {
                    self.move_start(gap, start);
                }
                Undo::Stage(t, stage, extra) => {
                    let (undone, _) = self.replace(t, stage, extra);
                    self.spare.push(undone);
                }
            }
        }
    }

    /// The bytes beyond a limit, summed over all stages. Of one stage no more count than the sum has room for.
    pub(crate) fn overflow(&self, limit: i64) -> i64 {
        let most = i64::MAX / self.entry.len().max(1) as i64;
        self.entry.iter().zip(&self.extra).map(|(entry, extra)| (entry + extra - limit).clamp(0, most)).sum()
    }

    /// The bytes that a stage needs at most.
    pub(crate) fn bytes(&self, stage: usize) -> i64 {
        self.entry[stage] + self.extra[stage]
    }

    /// The most bytes that are needed at one time, and the first stage that needs them.
    pub(crate) fn peak(&self) -> (i64, usize) {
        (0..self.entry.len()).fold((0, 0), |peak, t| if self.bytes(t) > peak.0 { (self.bytes(t), t) } else { peak })
    }

    fn enqueue(&mut self, stage: u32) {
        if !std::mem::replace(&mut self.is_queued[stage as usize], true) {
            self.queue.push(Reverse(stage));
        }
    }

    fn settle(&mut self) {
        while let Some(Reverse(t)) = self.queue.pop() {
            self.is_queued[t as usize] = false;
            self.compute(t);
        }
    }

    /// Whether a value is in memory when a stage begins.
    fn is_there(&self, value: u32, stage: u32) -> bool {
        match self.problem.gap_before(value, stage) {
            Some(gap) => self.start[gap as usize] < stage,
            None => false,
        }
    }

    /// Computes again what runs in a stage, what stays after it, and how much memory it needs.
    fn compute(&mut self, t: u32) {
        let mut stage = self.runs(t);
        self.work += stage.runs.len();
        self.starts(t, &mut stage);
        let before = std::mem::take(&mut self.stages[t as usize].starts);
        for &gap in before.iter().filter(|gap| !stage.starts.contains(gap)) {
            if self.start[gap as usize] == t {
                self.change_start(gap, NEVER);
            }
        }
        for &gap in &stage.starts {
            if self.start[gap as usize] != t {
                self.change_start(gap, t);
            }
        }
        self.stages[t as usize].starts = before;
        let (old, extra) = self.replace(t, stage, self.extra[t as usize]);
        self.journal.push(Undo::Stage(t, old, extra));
        self.stale.push(t);
    }

    /// Computes how much memory the stages need that were changed. The time is known before.
    pub(crate) fn measure(&mut self) {
        while let Some(t) = self.stale.pop() {
            let runs = std::mem::take(&mut self.stages[t as usize].runs);
            self.extra[t as usize] = self.extra(t, &runs);
            self.stages[t as usize].runs = runs;
        }
    }

    /// The runs of a stage.
    fn runs(&mut self, t: u32) -> Stage {
        let problem = self.problem;
        let mut stage = self.spare.pop().unwrap_or_default();
        stage.clear();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.stamp += 1;
        let stamp = scratch.stamp;
        scratch.step_stamp[t as usize] = stamp;
        scratch.stack.push(t);
        while let Some(number) = scratch.stack.pop() {
            stage.runs.push(number);
            let step = &problem.steps[number as usize];
            stage.cost += u128::from(step.cost);
            stage.faults += u32::from(t > step.until);
            for &value in &step.reads {
                let producer = problem.values[value as usize].producer;
                if scratch.step_stamp[producer as usize] != stamp && !self.is_there(value, t) {
                    scratch.step_stamp[producer as usize] = stamp;
                    scratch.stack.push(producer);
                }
            }
            if number != t {
                for &value in step.reads.iter().chain(&step.writes) {
                    if scratch.value_stamp[value as usize] != stamp {
                        scratch.value_stamp[value as usize] = stamp;
                        stage.looks.push(value);
                    }
                }
            }
        }
        self.scratch = scratch;
        stage.runs.sort_unstable();
        stage
    }

    /// The gaps in which a value stays from the end of this stage on.
    fn starts(&mut self, t: u32, stage: &mut Stage) {
        let problem = self.problem;
        self.scratch.stamp += 1;
        let stamp = self.scratch.stamp;
        let mut starts = std::mem::take(&mut stage.starts);
        for &number in &stage.runs {
            let step = &problem.steps[number as usize];
            for &value in step.reads.iter().chain(&step.writes) {
                if std::mem::replace(&mut self.scratch.value_stamp[value as usize], stamp) == stamp {
                    continue;
                }
                let Some(gap) = problem.gap_after(value, t) else { continue };
                let is_inside = problem.gaps[gap as usize].from < t;
                let stays = match self.holds[gap as usize] {
                    Hold::Keep => true,
                    Hold::Drop => false,
                    Hold::Later => is_inside,
                };
                // What stayed before still does.
                if stays && !(is_inside && self.start[gap as usize] < t) {
                    starts.push(gap);
                }
            }
        }
        for &value in &problem.steps[t as usize].passes {
            let is_new = self.scratch.value_stamp[value as usize] != stamp;
            if let Some(gap) = problem.gap_after(value, t)
                && is_new
                && self.holds[gap as usize] == Hold::Keep
                && problem.gaps[gap as usize].from == t
                && self.is_there(value, t)
            {
                starts.push(gap);
            }
        }
        stage.starts = starts;
    }

    /// Moves the stage from which a value stays, and lets the stages that notice it be computed again.
    fn change_start(&mut self, gap: u32, start: u32) {
        let before = self.move_start(gap, start);
        self.journal.push(Undo::Start(gap, before));
        let Gap { value, to, .. } = self.problem.gaps[gap as usize];
        let (first, last) = (before.min(start), before.max(start).min(to));
        let mut noticed = std::mem::take(&mut self.looks[value as usize]);
        for &t in noticed.iter().filter(|&&t| first < t && t <= last) {
            self.enqueue(t);
        }
        std::mem::swap(&mut self.looks[value as usize], &mut noticed);
        if to <= last {
            self.enqueue(to);
        }
    }

    /// The bytes that stay from stage to stage, for all gaps at once: one after the other they take the time of their lengths.
    fn entries(&self) -> Vec<i64> {
        let mut entry = vec![0; self.stages.len() + 1];
        for (gap, &start) in self.problem.gaps.iter().zip(&self.start).filter(|&(gap, &start)| start < gap.to) {
            let bytes = self.problem.values[gap.value as usize].bytes;
            entry[start as usize + 1] += bytes;
            entry[gap.to as usize + 1] -= bytes;
        }
        for stage in 1..entry.len() {
            entry[stage] += entry[stage - 1];
        }
        entry.pop();
        entry
    }

    fn move_start(&mut self, gap: u32, start: u32) -> u32 {
        let Gap { value, to, .. } = self.problem.gaps[gap as usize];
        let before = std::mem::replace(&mut self.start[gap as usize], start);
        if self.entry.is_empty() {
            return before;
        }
        let bytes = self.problem.values[value as usize].bytes;
        // The value is there at the beginning of each stage behind the start, up to the end of the gap.
        let (old, new) = (before.min(to) as usize, start.min(to) as usize);
        if new < old {
            self.entry[new + 1..=old].iter_mut().for_each(|entry| *entry += bytes);
        } else {
            self.entry[old + 1..=new].iter_mut().for_each(|entry| *entry -= bytes);
        }
        before
    }

    fn replace(&mut self, t: u32, stage: Stage, extra: i64) -> (Stage, i64) {
        let old_extra = std::mem::replace(&mut self.extra[t as usize], extra);
        let old = std::mem::take(&mut self.stages[t as usize]);
        self.time = self.time - old.cost + stage.cost;
        self.faults = self.faults - old.faults + stage.faults;
        if old.looks == stage.looks {
            self.stages[t as usize] = stage;
            return (old, old_extra);
        }
        for &value in old.looks.iter().filter(|value| !stage.looks.contains(value)) {
            let list = &mut self.looks[value as usize];
            if let Some(at) = list.iter().position(|&other| other == t) {
                list.swap_remove(at);
            }
        }
        for &value in stage.looks.iter().filter(|value| !old.looks.contains(value)) {
            self.looks[value as usize].push(t);
        }
        self.stages[t as usize] = stage;
        (old, old_extra)
    }

    /// The most bytes that are needed during a stage beyond those at its beginning.
    fn extra(&mut self, t: u32, runs: &[u32]) -> i64 {
        let problem = self.problem;
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.stamp += 1;
        let stamp = scratch.stamp;
        for (i, &number) in runs.iter().enumerate() {
            let step = &problem.steps[number as usize];
            for &value in &step.reads {
                scratch.value_stamp[value as usize] = stamp;
                scratch.last_read[value as usize] = i as u32;
            }
        }
        let (mut live, mut most) = (0i64, 0i64);
        for (i, &number) in runs.iter().enumerate() {
            let step = &problem.steps[number as usize];
            let dies = |&value: &u32| scratch.last_read[value as usize] == i as u32 && !self.is_there(value, t + 1);
            let dead: SmallVec<[u32; 8]> = step.reads.iter().copied().filter(dies).collect();
            let dying: i64 = dead.iter().map(|&value| problem.values[value as usize].bytes).sum();
            // A result that takes the memory of an operand that dies needs none of its own.
            let mut taken: SmallVec<[(u32, u32); 4]> = SmallVec::new();
            for &(input, output) in &step.in_place {
                if dead.contains(&input) && taken.iter().all(|pair| pair.0 != input && pair.1 != output) {
                    taken.push((input, output));
                }
            }
            let saved: i64 = taken.iter().map(|pair| problem.values[pair.1 as usize].bytes).sum();
            let written: i64 = step.writes.iter().map(|&value| problem.values[value as usize].bytes).sum();
            let outputs = if number == t { 0 } else { step.outputs };
            let (mut lost, mut unused) = (0, 0);
            for &value in &step.writes {
                let is_read =
                    scratch.value_stamp[value as usize] == stamp && scratch.last_read[value as usize] > i as u32;
                if !is_read && !self.is_there(value, t + 1) {
                    let Value { bytes, unused: all, .. } = problem.values[value as usize];
                    lost += bytes;
                    unused += all - bytes;
                }
            }
            most = most.max(live + written - saved + step.scratch + outputs + unused);
            live += written - dying - lost;
        }
        self.scratch = scratch;
        most
    }
}
