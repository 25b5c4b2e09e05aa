//! The least times of parts of a chain for all numbers of slots of memory, and the inner loop of the program.

/// Stands for a time while no schedule is known. Times are below it, and their differences are within an `i64`.
pub(super) const UNKNOWN: u64 = i64::MAX as u64;

/// The most numbers of slots for which times are compared without a look at whether any can be lower.
const PIECE: usize = 64;

/// The least time of a part of a chain, which falls with the slots of memory. Only the numbers of slots between those that are too few and
/// those that are as good as unlimited are stored.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// The fewest slots with which there is a schedule.
    first: usize,
    /// The times with `first` slots and more; the last one holds for all larger numbers. Empty if there is no schedule.
    times: &'a [u64],
}

/// The rows of the parts that begin with the same block, one after the other, since they are read in this order.
#[derive(Default)]
pub(super) struct Rows {
    /// For each row, the fewest slots and the end of its times.
    ends: Vec<(usize, usize)>,
    times: Vec<u64>,
}

impl Rows {
    /// Adds the row with these times, which do not increase, for 0 slots and more. `least` is the time with unlimited memory.
    pub(super) fn push(&mut self, times: &[u64], least: u64) {
        let first = times.partition_point(|&t| t == UNKNOWN);
        let end = times.partition_point(|&t| t > least);
        self.times.extend_from_slice(&times[first..(end + 1).clamp(first, times.len())]);
        self.ends.push((first, self.times.len()));
    }

    pub(super) fn row(&self, index: usize) -> Row<'_> {
        let start = if index == 0 { 0 } else { self.ends[index - 1].1 };
        let (first, end) = self.ends[index];
        Row { first, times: &self.times[start..end] }
    }
}

impl<'a> Row<'a> {
    /// The row of a part without blocks.
    pub(super) const NOTHING: Row<'static> = Row { first: 0, times: &[0] };

    /// The fewest slots for each of the times, the fewest slots first.
    pub(super) fn steps(self) -> impl Iterator<Item = usize> {
        let is_new = move |&i: &usize| i == 0 || self.times[i] < self.times[i - 1];
        (0..self.times.len()).filter(is_new).map(move |i| self.first + i)
    }

    /// The least time with this number of slots.
    pub(super) fn at(self, slots: usize) -> Option<u64> {
        let index = slots.checked_sub(self.first)?;
        self.times.get(index).or(self.times.last()).copied()
    }

    /// The times from this number of slots on, which is at least `first`, without the last one: empty where that holds.
    fn varying(self, slots: usize) -> &'a [u64] {
        let constant = self.times.len().saturating_sub(1);
        &self.times[(slots - self.first).min(constant)..constant]
    }

    fn last(self) -> u64 {
        self.times.last().copied().unwrap_or(UNKNOWN)
    }
}

/// Two parts of a chain that are differentiated one after the other, what runs besides them, and what is held meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) rows: [Row<'a>; 2],
    /// The slots that hold other things while a part is differentiated.
    pub(super) held: [usize; 2],
    /// The time besides that of the parts.
    pub(super) time: u64,
    /// The least slots, if those are enough for the parts.
    pub(super) need: usize,
}

impl Parts<'_> {
    /// The least time with this number of slots.
    pub(super) fn at(&self, slots: usize) -> Option<u64> {
        let ([a, b], [held_a, held_b]) = (self.rows, self.held);
        let times = a.at(slots.checked_sub(held_a)?)? + b.at(slots.checked_sub(held_b)?)?;
        (slots >= self.need).then_some(times + self.time)
    }

    /// Lowers the times for 0 slots and more to those of these parts.
    pub(super) fn lower(&self, times: &mut [u64]) {
        let ([a, b], [held_a, held_b]) = (self.rows, self.held);
        let start = (a.first + held_a).max(b.first + held_b).max(self.need);
        if !a.times.is_empty()
            && !b.times.is_empty()
            && let Some(times) = times.get_mut(start..)
        {
            self.lower_from(times, start);
        }
    }

    /// Lowers the times for `start` slots and more. All times fall with the slots: if these parts with the most slots are not faster than
    /// what is known for the fewest, they are nowhere faster.
    fn lower_from(&self, times: &mut [u64], start: usize) {
        let fastest = self.at(start + times.len().saturating_sub(1)).unwrap_or(UNKNOWN);
        if times.first().is_none_or(|&t| t <= fastest) {
            return;
        }
        if times.len() <= PIECE {
            return self.lower_piece(times, start);
        }
        let middle = times.len() / 2;
        let (few, many) = times.split_at_mut(middle);
        self.lower_from(few, start);
        self.lower_from(many, start + middle);
    }

    /// Lowers the times for `start` slots and more. Each row is a slice and then constant, so that all loops are plain loops over slices.
    fn lower_piece(&self, times: &mut [u64], start: usize) {
        let ([a, b], [held_a, held_b]) = (self.rows, self.held);
        let (mut at, mut rest) = (start, times);
        while !rest.is_empty() {
            let (x, y) = (a.varying(at - held_a), b.varying(at - held_b));
            let length = [x, y].into_iter().filter(|s| !s.is_empty()).fold(rest.len(), |n, s| n.min(s.len()));
            let (piece, after) = rest.split_at_mut(length);
            match (x.is_empty(), y.is_empty()) {
                (false, false) => {
                    let sums = x.iter().zip(y).map(|(x, y)| x + y + self.time);
                    piece.iter_mut().zip(sums).for_each(|(least, time)| lower(least, time));
                }
                (false, true) => lower_to_sums(piece, x, b.last() + self.time),
                (true, false) => lower_to_sums(piece, y, a.last() + self.time),
                (true, true) => piece.iter_mut().for_each(|least| lower(least, a.last() + b.last() + self.time)),
            }
            (at, rest) = (at + length, after);
        }
    }
}

fn lower_to_sums(times: &mut [u64], part: &[u64], time: u64) {
    times.iter_mut().zip(part).for_each(|(least, part)| lower(least, part + time));
}

/// Lowers a time to another. The oldest vector registers compare numbers of 64 bits with 0 only.
fn lower(least: &mut u64, time: u64) {
    let difference = time.wrapping_sub(*least) as i64;
    *least = least.wrapping_add(difference.min(0) as u64);
}
