//! The memory of a compiled program over its steps: when each value is live, and where it lies.

use std::ops::Range;
use std::time::Duration;

use crate::{LiveValue, Loc, Role};

/// The memory of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// In the memory that temporaries share, at this offset in bytes.
    Arena(usize),
    /// In memory of its own, as arguments and outputs are.
    Own,
    /// In the memory of an argument or an output, whose bytes count there.
    Shared,
}

/// A value in memory, or scratch memory, and when it is there. A value that is a view of another one has no memory and no range.
#[derive(Clone, Debug)]
pub struct LiveRange {
    /// Bytes, aval, name and origin. Its location says whether it is computed again, by a plan or for a backward pass.
    pub value: LiveValue,
    /// The positions of the steps at which it is live, from the step that computes it to the last one that reads it. Arguments and outputs
    /// have all positions. A value whose memory a result takes ends where the result begins, although that step reads it.
    pub at: Range<usize>,
    /// The bytes that it adds to those in use: its own, rounded up in the arena; none if it lies in memory that counts elsewhere.
    pub reserved: usize,
    /// Where it lies.
    pub place: Place,
    /// The position of an earlier run of the same equation, if this is a repetition of it.
    pub first: Option<usize>,
    /// The number of the value: ranges with one number hold the same elements, computed by equal operations of equal operands. So a value of
    /// the forward pass and its copy that a region computes for the backward pass have one number.
    pub number: usize,
}

/// A step of a compiled program: one kernel.
#[derive(Clone, Copy, Debug)]
pub struct RangeStep {
    /// The operation that it computes; of several in one loop, the last.
    pub operation: &'static str,
    /// Where the user wrote it, and what it is for.
    pub loc: Loc,
    /// How long it runs by the cost model.
    pub time: Duration,
}

/// The steps of a compiled program in order, and the live range of each value.
///
/// ```
/// use std::time::Duration;
/// use remat_ir::{Aval, DType, LiveKind, LiveRange, LiveRanges, LiveValue, Loc, Place, RangeStep};
/// let aval = Aval::new(DType::F32, [16]);
/// let (kind, loc) = (LiveKind::Temporary, Loc::UNKNOWN);
/// let value = LiveValue { bytes: 64, aval, kind, name: None, operation: Some("exp"), loc, must_be_kept: false };
/// let step = RangeStep { operation: "exp", loc: Loc::UNKNOWN, time: Duration::ZERO };
/// let range = |at, place| LiveRange { value: value.clone(), at, reserved: 64, place, first: None, number: 0 };
/// let ranges = vec![range(0..3, Place::Own), range(1..2, Place::Arena(0))];
/// let memory = LiveRanges { steps: vec![step; 3], ranges };
/// assert_eq!(memory.live_bytes(|_| true), [64, 128, 64]);
/// assert_eq!(memory.live_bytes(|range| range.place != Place::Own), [0, 64, 0]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveRanges {
    /// The steps.
    pub steps: Vec<RangeStep>,
    /// The values: arguments and outputs in their order, then those of the arena as they are computed, each step's scratch memory after its
    /// results. In the scratch memory of a loop, before what is left of it, are the values that are live at the peak of its body, one above
    /// the other.
    pub ranges: Vec<LiveRange>,
}

impl LiveRanges {
    /// The positions of the steps of the backward pass: those between which most steps recompute or differentiate, and before and after which
    /// most do not. Factors of derivatives may be computed in the loops of the forward pass, and an optimizer comes after the backward pass.
    pub fn backward(&self) -> Range<usize> {
        let (mut best, mut most) = (self.steps.len()..self.steps.len(), 0i64);
        let (mut start, mut sum) = (0, 0i64);
        for (position, step) in self.steps.iter().enumerate() {
            if sum <= 0 {
                (start, sum) = (position, 0);
            }
            sum += if step.loc.role == Role::Written { -1 } else { 1 };
            if sum > most {
                (best, most) = (start..position + 1, sum);
            }
        }
        best
    }

    /// The bytes of these ranges that are in use while each step runs.
    pub fn live_bytes(&self, is_counted: impl Fn(&LiveRange) -> bool) -> Vec<usize> {
        let count = self.steps.len();
        let (mut more, mut less) = (vec![0usize; count + 1], vec![0usize; count + 1]);
        for range in self.ranges.iter().filter(|range| is_counted(range)) {
            let Range { start, end } = range.at;
            let add = |bytes: &mut usize| *bytes = bytes.saturating_add(range.reserved);
            more.get_mut(start).map(add);
            less.get_mut(end).map(add);
        }
        let mut live = 0usize;
        let at = |(more, less): (&usize, &usize)| {
            live = live.saturating_add(*more).saturating_sub(*less);
            live
        };
        more.iter().zip(&less).take(count).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backward_pass_is_between_what_the_user_wrote() {
        let backward = |roles: &str| {
            let role = |role| match role {
                'f' => Role::Written,
                'r' => Role::Recomputed,
                _ => Role::Derivative,
            };
            let step = |role| RangeStep { operation: "exp", loc: Loc { role, ..Loc::UNKNOWN }, time: Duration::ZERO };
            LiveRanges { steps: roles.chars().map(role).map(step).collect(), ranges: Vec::new() }.backward()
        };
        assert_eq!((backward(""), backward("fff"), backward("dd")), (0..0, 3..3, 0..2));
        // A factor of a derivative in the forward pass, a forward value in the backward pass, and an optimizer.
        assert_eq!(backward("ffdffrdfddffff"), 5..10);
    }
}
