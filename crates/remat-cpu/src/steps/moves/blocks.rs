//! Groups loops into one step that computes them block by block.
//!
//! A batch norm is several loops: reductions to a mean and a variance, and the loops that use them. Each loop reads arrays larger than the
//! caches, but for one channel (of all images) it needs only what the loops before it have computed for that channel. So loops over one
//! space, some of which reduce to one dimension of it, become one step. The step computes all of them for a few positions along that
//! dimension while the elements are in the cache of a core (`kernels::loops::blocks`), or in the last-level cache where one position is
//! larger. Loops that gain nothing from this stay apart ([`BlockedLoops::are_worthwhile`]).
//!
//! The pass visits the steps in order. It starts at a loop that computes an operand of a reduction, and adds later loops that read results
//! of the step at the same positions. Other steps in between move before the step if they read nothing of it, and after it otherwise. A
//! loop that reads a step moved behind cannot join, so no cycles arise.

use std::collections::{HashMap, HashSet};

use remat_ir::{Jaxpr, Result, Var, VarMap};
use remat_kernels::{BlockedLoops, Layout};

use super::{Change, Kind, Program, Proposal};
use crate::steps::check::check;
use crate::steps::facts::Facts;
use crate::steps::ir::{Blocks, FusedLoop, Step, Steps, Value};
use crate::steps::placement::{aliases, spec};

/// The fewest elements of a space. Smaller arrays stay in the caches from one loop to the next.
const LEAST_ELEMENTS: usize = 1 << 17;
/// The fewest positions along the dimension: enough that no reduction is cut into segments, and that there are 16 blocks or more as tasks
/// for threads.
const LEAST_POSITIONS: usize = BlockedLoops::LEAST_POSITIONS;
/// Loops in one step are at most this many steps apart.
const MOST_STEPS_BETWEEN: usize = 24;

const KIND: Kind =
    Kind { name: "block", why: "loops over one space find the values of the loops before them in the cache" };

/// The steps with loops grouped into blocks.
///
/// # Errors
/// If the changed steps are wrong, which is a defect.
pub(crate) fn propose(program: &Program<'_>) -> Result<Option<Proposal>> {
    let steps = program.steps;
    let mut reads = VarMap::filled(steps.jaxpr.avals.len(), 0);
    for var in steps.steps.iter().flat_map(|step| step.reads(&steps.tokens)) {
        reads[var] += 1;
    }
    let rest = steps.steps.iter().cloned().map(Some).collect();
    let is_returned = Facts::of(steps).is_returned;
    let mut blocker = Blocker { program, is_returned, reads, rest, moves: Vec::new() };
    let mut at = 0;
    while at < blocker.rest.len() {
        at = blocker.reduction(at)?;
    }
    let Blocker { rest, moves, .. } = blocker;
    if moves.is_empty() {
        return Ok(None);
    }
    let steps = steps.with(rest.into_iter().flatten().collect());
    check(&steps)?;
    Ok(Some(Proposal { steps, moves }))
}

struct Blocker<'a> {
    program: &'a Program<'a>,
    is_returned: VarMap<bool>,
    /// How often the steps read each variable.
    reads: VarMap<usize>,
    /// The steps; a step that has joined another is taken out.
    rest: Vec<Option<Step>>,
    moves: Vec<Change>,
}

impl Blocker<'_> {
    fn steps(&self) -> &Steps {
        self.program.steps
    }

    fn fused_loop(&self, at: usize) -> Option<&FusedLoop> {
        self.rest[at]
            .as_ref()?
            .fused_loop()
            .filter(|fused_loop| !fused_loop.outs.iter().any(|out| self.program.excluded.contains(out)))
    }

    /// Makes one step of the loops around a reduction. Returns the next position to visit.
    ///
    /// # Errors
    /// As [`spec`].
    fn reduction(&mut self, at: usize) -> Result<usize> {
        let Some((fused_loop, space)) =
            self.fused_loop(at).and_then(|fused_loop| Some((fused_loop, space(fused_loop)?)))
        else {
            return Ok(at + 1);
        };
        let reads = |fused_loop: &FusedLoop, var: Var| {
            fused_loop.members.iter().flat_map(|m| &m.operands).any(|x| x.base() == Some(var))
        };
        let makes = |i: usize| {
            self.fused_loop(i).is_some_and(|maker| {
                size_of(maker, space) == Some(Size::Full)
                    && maker.reduction.is_none()
                    && maker.outs.iter().any(|&out| reads(fused_loop, out))
            })
        };
        let makers = (at.saturating_sub(MOST_STEPS_BETWEEN)..at).filter(|&i| makes(i));
        for start in makers.chain([at]) {
            let mut joined = self.joined(start, space);
            while joined.contains(&at) {
                let fused_loops: Vec<FusedLoop> = joined.iter().filter_map(|&i| self.fused_loop(i)).cloned().collect();
                let full = fused_loops.iter().filter(|fused_loop| size_of(fused_loop, space) == Some(Size::Full));
                if full.count() > 1 && self.is_worthwhile(&fused_loops, space)? {
                    return Ok(self.join(&joined, space));
                }
                joined.pop();
            }
        }
        Ok(at + 1)
    }

    /// The positions of the loops that can be computed in one step with the loop at `start`, in order.
    fn joined(&self, start: usize, space: [usize; 3]) -> Vec<usize> {
        let mut joined = vec![start];
        let (mut inside, mut after): (Vec<Var>, Vec<Var>) = (Vec::new(), Vec::new());
        inside.extend(self.fused_loop(start).into_iter().flat_map(|fused_loop| &fused_loop.outs));
        let mut at = start + 1;
        while at < self.rest.len() && at <= joined.last().map_or(0, |last| last + MOST_STEPS_BETWEEN) {
            let Some(step) = &self.rest[at] else {
                at += 1;
                continue;
            };
            let reads: Vec<Var> = step.reads(&self.steps().tokens).collect();
            if reads.iter().any(|var| after.contains(var)) {
                after.extend(step.outs());
            } else if reads.iter().any(|var| inside.contains(var)) {
                if self.fused_loop(at).is_some_and(|fused_loop| fits(&self.steps().jaxpr, fused_loop, space, &inside)) {
                    joined.push(at);
                    inside.extend(step.outs());
                } else {
                    after.extend(step.outs());
                }
            }
            at += 1;
        }
        joined
    }

    /// The results of these loops that other steps read, in order.
    fn read_by_others(&self, fused_loops: &[FusedLoop]) -> Vec<Var> {
        let mut inner: HashMap<Var, usize> = HashMap::new();
        for base in fused_loops
            .iter()
            .flat_map(|fused_loop| &fused_loop.members)
            .flat_map(|m| &m.operands)
            .filter_map(Value::base)
        {
            *inner.entry(base).or_default() += 1;
        }
        let outs = fused_loops.iter().flat_map(|fused_loop| &fused_loop.outs).copied();
        outs.filter(|out| self.is_returned[*out] || self.reads[*out] > inner.get(out).copied().unwrap_or(0)).collect()
    }

    /// Whether one step for these loops is faster, and has no more inputs and outputs than there is room for.
    ///
    /// # Errors
    /// As [`spec`].
    fn is_worthwhile(&self, fused_loops: &[FusedLoop], space: [usize; 3]) -> Result<bool> {
        let (steps, all) = (self.steps(), space.iter().product::<usize>());
        let outs = self.read_by_others(fused_loops);
        let specs = fused_loops.iter().map(|fused_loop| spec(steps, fused_loop)).collect::<Result<Vec<_>>>()?;
        let aliases = aliases(steps, fused_loops, &outs, space, &specs)?;
        let made: HashSet<Var> = fused_loops.iter().flat_map(|fused_loop| &fused_loop.outs).copied().collect();
        let inputs: HashSet<Var> =
            specs.iter().flat_map(|(_, inputs)| inputs).copied().filter(|var| !made.contains(var)).collect();
        // The arrays of the size of the space that the step reads in order, and those that it writes or has memory of a block for.
        let is_array = |operand: &Value| match operand {
            Value::View { base, layout } if inputs.contains(base) && layout.is_contiguous() && layout.size() == all => {
                Some(*base)
            }
            _ => None,
        };
        let members = fused_loops.iter().flat_map(|fused_loop| &fused_loop.members);
        let mut arrays: HashSet<Var> = members.flat_map(|member| &member.operands).filter_map(is_array).collect();
        let is_full = |var: &Var| steps.jaxpr.avals[*var].size() == all && !aliases.contains_key(var);
        arrays.extend(made.iter().copied().filter(is_full));
        let width = arrays.iter().map(|&array| steps.jaxpr.avals[array].dtype.size()).sum();
        Ok((self.program.has_room)(inputs.len(), outs.len()) && BlockedLoops::are_worthwhile(space, width))
    }

    /// Makes one step of these loops. Steps in between that do not depend on them go before it, the others after it. Returns the next
    /// position to visit.
    fn join(&mut self, joined: &[usize], space: [usize; 3]) -> usize {
        let [Some(&first), Some(&last)] = [joined.first(), joined.last()] else { return self.rest.len() };
        let mut fused_loops = Vec::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut behind: Vec<Var> = Vec::new();
        for at in first..=last {
            let Some(step) = self.rest[at].take() else { continue };
            if joined.contains(&at) {
                behind.extend(step.outs());
                fused_loops.extend(step.fused_loop().cloned());
            } else if step.reads(&self.steps().tokens).any(|var| behind.contains(&var)) {
                behind.extend(step.outs());
                after.push(step);
            } else {
                before.push(step);
            }
        }
        let outs = self.read_by_others(&fused_loops);
        let there = first + before.len();
        let apart: Vec<Step> = fused_loops.iter().cloned().map(Step::Loop).collect();
        let blocks = Step::Blocks(Blocks { fused_loops, space, outs });
        let time = self.steps().time_of(&apart) - self.steps().time_of([&blocks]);
        let results: Vec<Var> = blocks.loop_results().collect();
        if let Some(&value) = results.last() {
            self.moves.push(Change { kind: &KIND, value, results, kept: None, time, bytes: 0 });
        }
        let all = before.into_iter().chain([blocks]).chain(after);
        for (at, step) in (first..=last).zip(all) {
            self.rest[at] = Some(step);
        }
        there + 1
    }
}

/// The size of a loop's results.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    /// One element per position of the space, or reductions of these.
    Full,
    /// One element per position along the dimension.
    Kept,
}

/// The numbers of positions before, along and after the single dimension that a reduction keeps, if there are enough of them.
fn space(fused_loop: &FusedLoop) -> Option<[usize; 3]> {
    let (shape, axes) = fused_loop.reduction.as_ref()?;
    let kept: Vec<usize> = (0..shape.len()).filter(|d| !axes.contains(d) && shape[*d] != 1).collect();
    let (first, last) = (*kept.first()?, *kept.last()?);
    let is_one = (first..=last).all(|d| shape[d] == 1 || kept.contains(&d));
    let size = |dims: &[usize]| dims.iter().product::<usize>();
    let space = [size(&shape[..first]), size(&shape[first..=last]), size(&shape[last + 1..])];
    let is_large = space[1] >= LEAST_POSITIONS && space[2] > 1 && size(shape) >= LEAST_ELEMENTS;
    (is_one && is_large).then_some(space)
}

fn size_of(fused_loop: &FusedLoop, shape: [usize; 3]) -> Option<Size> {
    let all = shape.iter().product::<usize>();
    match (&fused_loop.reduction, fused_loop.columns, fused_loop.rows) {
        (Some(_), None, _) => (space(fused_loop) == Some(shape)).then_some(Size::Full),
        (None, None, rows) if rows == all => Some(Size::Full),
        (None, None, rows) if rows == shape[1] => Some(Size::Kept),
        _ => None,
    }
}

/// Whether a loop runs over this space, and reads from the variables `values` only elements at the positions that it computes.
pub(in crate::steps) fn fits(jaxpr: &Jaxpr, fused_loop: &FusedLoop, space: [usize; 3], values: &[Var]) -> bool {
    let Some(of_results) = size_of(fused_loop, space) else { return false };
    let all = space.iter().product::<usize>();
    let is_in_order =
        |layout: &Layout, size: usize| layout.is_contiguous() && layout.offset == 0 && layout.size() == size;
    fused_loop.members.iter().flat_map(|m| &m.operands).all(|operand| match operand {
        Value::View { base, layout } if values.contains(base) => match (of_results, jaxpr.avals[*base].size()) {
            (Size::Full, size) if size == all => is_in_order(layout, all),
            (Size::Full, size) if size == space[1] => {
                layout.size() == all && layout.offset == 0 && repeats(layout, space)
            }
            (Size::Kept, size) if size == space[1] => is_in_order(layout, size),
            _ => false,
        },
        _ => true,
    })
}

/// Whether a layout broadcasts one element per position along the dimension.
fn repeats(layout: &Layout, space: [usize; 3]) -> bool {
    layout.reshaped(&space).is_some_and(|layout| {
        let strides = layout.strides.iter().zip(&layout.shape).zip([0, 1, 0]);
        strides.into_iter().all(|((&stride, &n), expected)| n == 1 || stride == expected)
    })
}
