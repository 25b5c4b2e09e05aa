//! The place in a binomial schedule, as a few numbers that a loop carries: which iteration comes next, and where its states are.
//!
//! The part of the loop that remains to be reversed is cut by the kept states: the state in slot `d` is the start of the `d`-th part, which
//! ends where the next one starts. The last part is being reversed. With a free slot and more than one iteration it is split, which keeps
//! one state more; otherwise each of its iterations is reached from its start.

use remat_ir::Result;

use super::schedule::{kept, lengths};
use crate::api::cond;
use crate::trace::{Tensor, Tree, Walk};

/// The schedule for a loop of this length with this number of states, at most one for each iteration.
pub(super) struct Schedule {
    pub(super) length: usize,
    pub(super) states: usize,
    /// For each state that the forward pass keeps, the iteration after it and the repetitions of its part.
    kept: Vec<(usize, usize)>,
    /// The most repetitions of a part.
    most: usize,
}

impl Schedule {
    pub(super) fn new(length: usize, states: usize) -> Schedule {
        let states = states.min(length);
        let kept = kept(length, states);
        let most = kept.first().map_or(0, |&(_, repetitions)| repetitions);
        Schedule { length, states, kept, most }
    }

    /// The slots for kept states, and one for the state that the loop works on, unless each iteration has its own.
    pub(super) fn slots(&self) -> usize {
        if self.states == self.length { self.length } else { self.states + 1 }
    }

    /// The slot of the state that the loop works on.
    fn work(&self) -> i32 {
        self.states as i32
    }

    /// For each slot, and for one more, the start of its part and its repetitions.
    fn parts(&self) -> Tensor {
        let mut numbers: Vec<i32> = self.kept.iter().flat_map(|&(start, r)| [start as i32, r as i32]).collect();
        numbers.resize(2 * (self.states + 1), -1);
        Tensor::from(numbers).reshape([self.states + 1, 2])
    }

    /// The iterations before which the forward pass keeps the state, in order; there is one more, which is none.
    pub(super) fn starts(&self) -> Tensor {
        self.parts().index((.., 0))
    }

    /// The slot for the state before iteration `step` of the forward pass, which has kept `count` states, and the new count.
    pub(super) fn place(&self, starts: &Tensor, step: &Tensor, count: &Tensor) -> (Tensor, Tensor) {
        let is_kept = starts.dynamic_index(count, 0).eq(step);
        (is_kept.select(count, self.work()), count + is_kept.to_dtype(remat_ir::DType::I32))
    }

    /// The table of [`lengths`], row by row.
    pub(super) fn lengths(&self) -> Tensor {
        let rows = lengths(self.length, self.states, self.most);
        Tensor::from(rows.concat().into_iter().map(|n| n as i32).collect::<Vec<_>>())
    }

    /// The numbers after the forward pass, which has reached the last iteration.
    pub(super) fn cursor(&self) -> Cursor {
        let depth = self.kept.len() - 1;
        let [start, repetitions] = [self.kept[depth].0, self.kept[depth].1].map(|n| Tensor::from(n as i32));
        let [at, left] = [self.length - 1, self.length].map(|n| Tensor::from(n as i32));
        Cursor {
            parts: self.parts(),
            depth: Tensor::from(depth as i32),
            start,
            repetitions,
            at,
            target: left.clone(),
            left,
        }
    }

    /// Where the last part is split: the iteration before which the next state is kept. If it is not split, it is its end or beyond.
    fn target(&self, lengths: &Tensor, depth: &Tensor, part: (&Tensor, &Tensor), repetitions: &Tensor) -> Tensor {
        let columns = (self.most + 3) as i32;
        let (start, end) = part;
        // The column of two repetitions fewer, in the row of the states for this part; then that of all, with one state fewer.
        let row = (self.work() - depth) * columns + repetitions;
        let first = lengths.dynamic_index(&row, 0);
        let rest = end - start - lengths.dynamic_index(&(row - (columns - 2)), 0);
        start + first.maximum(rest).maximum(1)
    }
}

/// What a loop carries to follow a schedule.
#[derive(Clone)]
pub(super) struct Cursor {
    /// For each slot the start of its part and its repetitions, `i32[states + 1, 2]`.
    parts: Tensor,
    /// The slot of the last part.
    depth: Tensor,
    /// The start of the last part and its repetitions.
    start: Tensor,
    repetitions: Tensor,
    /// The iteration that comes next, of which the state is known.
    pub(super) at: Tensor,
    /// The iteration before which a state is to be kept.
    target: Tensor,
    /// The number of iterations that are not reversed.
    left: Tensor,
}

impl Tree for Cursor {
    fn map_leaves(&self, walk: &mut Walk<'_>) -> Self {
        Cursor {
            parts: walk.field("parts", &self.parts),
            depth: walk.field("depth", &self.depth),
            start: walk.field("start", &self.start),
            repetitions: walk.field("repetitions", &self.repetitions),
            at: walk.field("at", &self.at),
            target: walk.field("target", &self.target),
            left: walk.field("left", &self.left),
        }
    }
}

impl Cursor {
    /// Whether the next iteration is differentiated, rather than computed.
    pub(super) fn is_last(&self) -> Tensor {
        self.at.eq(&self.left - 1)
    }

    /// The slot of its state.
    pub(super) fn slot(&self, schedule: &Schedule) -> Tensor {
        self.at.eq(&self.start).select(&self.depth, schedule.work())
    }

    /// After the iteration has been computed: the slot for its result.
    pub(super) fn advanced(&self, schedule: &Schedule, lengths: &Tensor) -> Result<(Tensor, Cursor)> {
        let next = Cursor { at: &self.at + 1, ..self.clone() };
        let push = |cursor: &Cursor| {
            let Cursor { parts, depth, repetitions, at, left, .. } = cursor;
            let depth = depth + 1;
            let target = schedule.target(lengths, &depth, (at, left), repetitions);
            let parts = write(parts, &depth, at, repetitions);
            (depth.clone(), Cursor { parts, depth, start: at.clone(), target, ..cursor.clone() })
        };
        let stay = |cursor: &Cursor| (Tensor::from(schedule.work()), cursor.clone());
        cond(&next.at.eq(&next.target), push, stay, &next)
    }

    /// After the iteration has been differentiated. If its part has ended, the part before it is the last one, which is shorter than it was
    /// when its state was kept, and needs one or two repetitions fewer.
    pub(super) fn reversed(&self, schedule: &Schedule, lengths: &Tensor) -> Cursor {
        let Cursor { parts, depth, start, repetitions, left, .. } = self;
        let left = left - 1;
        let has_ended = left.eq(start) & depth.gt(0);
        let depth = depth - has_ended.to_dtype(remat_ir::DType::I32);
        let part = parts.dynamic_index(&depth, 0);
        let (start, whole) = (part.index(0), part.index(1));
        let row = (schedule.work() - &depth) * (schedule.most + 3) as i32 + &whole;
        let fewer = (&left - &start).eq(lengths.dynamic_index(&row, 0)).select(2, Tensor::from(1i32));
        let repetitions = has_ended.select(whole - fewer, repetitions).maximum(0);
        let target = schedule.target(lengths, &depth, (&start, &left), &repetitions);
        let parts = write(parts, &depth, &start, &repetitions);
        Cursor { parts, depth, at: start.clone(), start, repetitions, target, left }
    }
}

/// The parts with this start and these repetitions in a slot.
fn write(parts: &Tensor, slot: &Tensor, start: &Tensor, repetitions: &Tensor) -> Tensor {
    let row = Tensor::stack(&[start, repetitions], 0).expand_dims(0);
    parts.dynamic_update_slice(&row, [slot.clone(), Tensor::from(0i32)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::schedule::tests::{Action, reversal};

    /// Follows the cursor on numbers, and compares it with the list of all actions.
    #[test]
    fn a_cursor_follows_the_schedule() {
        for (length, states) in [(1, 1), (2, 1), (2, 2), (7, 1), (9, 2), (21, 3), (12, 11), (5, 9)] {
            let schedule = Schedule::new(length, states);
            let states = states.min(length);
            let (lengths, starts) = (schedule.lengths(), schedule.starts());
            let number = |t: &Tensor| t.item::<i32>().unwrap() as usize;
            let mut expected = reversal(length, states).into_iter();
            let mut count = Tensor::from(0i32);
            for step in 0..length {
                let (slot, next) = schedule.place(&starts, &Tensor::from(step as i32), &count);
                count = next;
                let wanted = if step == 0 {
                    Some(0)
                } else {
                    expected.next().map(|action| if let Action::Advance { to, .. } = action { to } else { usize::MAX })
                };
                assert_eq!(Some(number(&slot)), wanted, "{length} iterations, {states} states, step {step}");
            }
            let mut cursor = schedule.cursor();
            for action in expected {
                let (step, from) = (number(&cursor.at), number(&cursor.slot(&schedule)));
                let found = if cursor.is_last().item::<bool>().unwrap() {
                    cursor = cursor.reversed(&schedule, &lengths);
                    Action::Reverse { step, from }
                } else {
                    let (to, next) = cursor.advanced(&schedule, &lengths).unwrap();
                    cursor = next;
                    Action::Advance { step, from, to: number(&to) }
                };
                assert_eq!(found, action, "{length} iterations, {states} states");
            }
            assert_eq!(number(&cursor.left), 0);
        }
    }
}
