//! The fastest schedules of a chain for all budgets.

use remat_ir::{Error, ErrorKind, Result};

use super::program::Program;
use super::{CHAIN, Chain, Operation};

/// More slots would only take memory: each is a millionth of it.
const MOST_SLOTS: usize = 1 << 20;

/// The time and the peak of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Cost {
    /// Picoseconds.
    pub time: u64,
    /// The most bytes that are live at one time.
    pub peak: u64,
}

/// A schedule of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainPlan {
    /// What runs, in this order.
    pub operations: Vec<Operation>,
    /// Its time and peak, as [`Chain::cost`] finds them.
    pub cost: Cost,
}

/// The fastest schedules of a chain for all budgets, among those in which a value that is held stays until the backward pass that reads it:
/// the optimal persistent schedules of Beaumont and others (2019), with several options for each block.
///
/// Memory is divided into slots, and sizes are rounded up to whole ones, but all schedules are judged by their bytes. With as many slots as
/// the schedule that keeps everything has bytes, nothing is rounded and the schedules are optimal. Otherwise choose several slots for each
/// block.
///
/// For `n` blocks and `s` slots, a table takes time in `O(n^3 s)`, and about `n^2 s / 6` numbers of 8 bytes while it is alive. Parts of a
/// run of equal blocks differ only in length: for a chain of one run, also between a few other blocks, that is `O(n^2 s)` and `O(n s)`.
pub struct Table {
    chain: Chain,
    program: Program,
    /// Schedules that no other one here beats in time and peak, the lowest peak first, and the slots with which the program finds them;
    /// none for the schedule that keeps everything.
    points: Vec<(Cost, Option<usize>)>,
}

impl Table {
    /// The table for a chain, with memory divided into this number of slots.
    ///
    /// # Errors
    ///
    /// Of kind `Argument` if `slots` is 0 or more than 1,048,576.
    pub fn new(chain: &Chain, slots: usize) -> Result<Table> {
        if !(1..=MOST_SLOTS).contains(&slots) {
            let message = format!("memory is divided into 1 to {MOST_SLOTS} slots, not {slots}");
            return Err(Error::new(ErrorKind::Argument, CHAIN, message));
        }
        let (unit, slots) = grid(chain, slots);
        let program = Program::new(chain, unit, slots);
        let mut all = vec![(chain.cost(&keep_all(chain))?, None)];
        for slots in program.distinct(chain) {
            all.push((chain.cost(&program.operations(chain, slots))?, Some(slots)));
        }
        all.sort_by_key(|(cost, _)| (cost.peak, cost.time));
        let mut points: Vec<(Cost, Option<usize>)> = Vec::new();
        for point in all {
            if points.last().is_none_or(|best| point.0.time < best.0.time) {
                points.push(point);
            }
        }
        Ok(Table { chain: chain.clone(), program, points })
    }

    /// The fastest schedule whose peak is at most `bytes`, or `None` below [`Table::minimum`]. More bytes never take more time.
    pub fn plan(&self, bytes: u64) -> Option<ChainPlan> {
        let count = self.points.partition_point(|(cost, _)| cost.peak <= bytes);
        let &(cost, slots) = self.points[..count].last()?;
        let operations = match slots {
            Some(slots) => self.program.operations(&self.chain, slots),
            None => keep_all(&self.chain),
        };
        Some(ChainPlan { operations, cost })
    }

    /// The costs of the fastest schedules for all budgets: each takes less time than those before it, and has a higher peak.
    pub fn pareto(&self) -> impl Iterator<Item = Cost> {
        self.points.iter().map(|&(cost, _)| cost)
    }

    /// The fewest bytes for which there is a plan.
    pub fn minimum(&self) -> u64 {
        self.points.first().map_or(u64::MAX, |(cost, _)| cost.peak)
    }
}

/// The schedule that runs each block once, in the fastest way.
fn keep_all(chain: &Chain) -> Vec<Operation> {
    let keep = |block| Operation::Keep { block, option: chain.fastest_option(block) };
    let backward = (0..chain.blocks.len()).rev().map(|block| Operation::Backward { block });
    (0..chain.blocks.len()).map(keep).chain(backward).collect()
}

/// The bytes of a slot, and the number of slots, at most `most`: the smallest slots for which the schedule that keeps everything is found,
/// if it can be found at all.
fn grid(chain: &Chain, most: usize) -> (u64, usize) {
    let most = most as u64;
    let all = slots_to_keep_all(chain, 1);
    let (mut low, mut high) = (all.div_ceil(most).max(1), all.max(1));
    let coarse = low;
    if slots_to_keep_all(chain, high) > most {
        return (coarse, most as usize);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if slots_to_keep_all(chain, middle) <= most { high = middle } else { low = middle + 1 }
    }
    (low, slots_to_keep_all(chain, low) as usize)
}

/// The slots with which the program finds the schedule that keeps everything.
fn slots_to_keep_all(chain: &Chain, unit: u64) -> u64 {
    let (mut held, mut most) = (0, 0);
    let last = chain.blocks.len();
    for block in 0..last {
        let tape = &chain.blocks[block].options[chain.fastest_option(block)];
        let (need, kept) = chain.keep(block, last - 1, tape);
        most = most.max(held + need.div_ceil(unit));
        held += kept.div_ceil(unit);
    }
    most
}
