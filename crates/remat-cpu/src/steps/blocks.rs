//! Loops that are computed together, block by block.
//!
//! A normalisation of channels is several loops: reductions to a mean and to a variance, and those that use them. Each reads arrays that are larger than
//! caches. But of one channel, of all images, a loop needs only what the one before has computed of that channel. So loops over one space of which
//! some reduce to one dimension become one step, which computes them all for some positions along that dimension while the elements are in the cache of a core
//! (`kernels::loops::blocks`), or, where one position is larger, in the last-level cache. Where that gains nothing ([`BlockedLoops::are_worthwhile`]), they stay apart.
//!
//! The steps are visited in the order in which they run. From a loop on that computes what a reduction reads, loops join that read what others
//! of the step compute, at the same positions. What lies between goes before the step if it reads nothing of it, and after it otherwise; there it keeps whatever
//! reads it from joining, so that there are no cycles.

use std::collections::{HashMap, HashSet};

use remat_ir::{Jaxpr, Result, Var, VarMap};
use remat_kernels::{BlockedLoops, Layout};

use super::check::check;
use super::ir::{Blocks, Group, Step, Steps, Value};

/// A space has at least this many elements: smaller arrays stay in the caches between two loops.
const LEAST_ELEMENTS: usize = 1 << 17;
/// Positions along the dimension, at least: enough that no reduction is cut into segments, and for 16 blocks or more, which are the tasks of threads.
const LEAST_POSITIONS: usize = BlockedLoops::LEAST_POSITIONS;
/// Loops that are computed together are at most this many steps apart.
const NEAR_STEPS: usize = 24;

impl Steps {
    /// The steps, where loops are computed together block by block. `None` if there are none. A step of them has as many inputs and outputs as are `allowed`: these
    /// are counted before there are kernels, so that in rare cases there are more.
    ///
    /// # Errors
    /// If the steps are wrong, which is a defect.
    pub(crate) fn in_blocks(&self, allowed: impl Fn(usize, usize) -> bool) -> Result<Option<Steps>> {
        let mut needed = VarMap::filled(self.jaxpr.avals.len(), false);
        for base in self.jaxpr.outs.iter().filter_map(|out| self.values[out.var()?].base()) {
            needed[base] = true;
        }
        let mut reads = VarMap::filled(self.jaxpr.avals.len(), 0);
        for var in self.steps.iter().flat_map(|step| step.reads(&self.tokens)) {
            reads[var] += 1;
        }
        let rest = self.steps.iter().cloned().map(Some).collect();
        let mut pass = Pass { steps: self, allowed, needed, reads, rest, is_changed: false };
        let mut at = 0;
        while at < pass.rest.len() {
            at = pass.reduction(at);
        }
        if !pass.is_changed {
            return Ok(None);
        }
        let Steps { jaxpr, names, values, tokens, .. } = self;
        let steps = pass.rest.into_iter().flatten().collect();
        let steps =
            Steps { jaxpr: jaxpr.clone(), names: names.clone(), values: values.clone(), tokens: tokens.clone(), steps };
        check(&steps)?;
        Ok(Some(steps))
    }
}

struct Pass<'a, F> {
    steps: &'a Steps,
    /// Whether a step may have so many inputs and outputs.
    allowed: F,
    /// The variables that the program returns.
    needed: VarMap<bool>,
    /// How often the steps read each variable.
    reads: VarMap<usize>,
    /// The steps; those that have joined others are taken out.
    rest: Vec<Option<Step>>,
    is_changed: bool,
}

impl<F: Fn(usize, usize) -> bool> Pass<'_, F> {
    fn group(&self, at: usize) -> Option<&Group> {
        self.rest[at].as_ref()?.group()
    }

    /// Makes a step of the loops around a reduction. Returns where to go on.
    fn reduction(&mut self, at: usize) -> usize {
        let Some((group, space)) = self.group(at).and_then(|group| Some((group, space(group)?))) else { return at + 1 };
        let reads =
            |group: &Group, var: Var| group.members.iter().flat_map(|m| &m.operands).any(|x| x.base() == Some(var));
        let makes = |i: usize| {
            self.group(i).is_some_and(|maker| {
                kind(maker, space) == Some(Kind::Full)
                    && maker.reduction.is_none()
                    && maker.outs.iter().any(|&out| reads(group, out))
            })
        };
        let makers = (at.saturating_sub(NEAR_STEPS)..at).filter(|&i| makes(i));
        for start in makers.chain([at]) {
            let mut joined = self.joined(start, space);
            while joined.contains(&at) {
                let groups: Vec<&Group> = joined.iter().filter_map(|&i| self.group(i)).collect();
                let full = groups.iter().filter(|group| kind(group, space) == Some(Kind::Full));
                if full.count() > 1 && self.is_worthwhile(&groups, space) {
                    return self.join(&joined, space);
                }
                joined.pop();
            }
        }
        at + 1
    }

    /// The loops that are computed together with this one, in order.
    fn joined(&self, start: usize, space: [usize; 3]) -> Vec<usize> {
        let mut joined = vec![start];
        let (mut inside, mut after): (Vec<Var>, Vec<Var>) = (Vec::new(), Vec::new());
        inside.extend(self.group(start).into_iter().flat_map(|group| &group.outs));
        let mut at = start + 1;
        while at < self.rest.len() && at <= joined.last().map_or(0, |last| last + NEAR_STEPS) {
            let Some(step) = &self.rest[at] else {
                at += 1;
                continue;
            };
            let reads: Vec<Var> = step.reads(&self.steps.tokens).collect();
            if reads.iter().any(|var| after.contains(var)) {
                after.extend(step.outs(&self.steps.jaxpr));
            } else if reads.iter().any(|var| inside.contains(var)) {
                if step.group().is_some_and(|group| fits(&self.steps.jaxpr, group, space, &inside)) {
                    joined.push(at);
                    inside.extend(step.outs(&self.steps.jaxpr));
                } else {
                    after.extend(step.outs(&self.steps.jaxpr));
                }
            }
            at += 1;
        }
        joined
    }

    /// What others read of the values of loops, in their order.
    fn read_by_others(&self, groups: &[&Group]) -> Vec<Var> {
        let mut inner: HashMap<Var, usize> = HashMap::new();
        for base in groups.iter().flat_map(|group| &group.members).flat_map(|m| &m.operands).filter_map(Value::base) {
            *inner.entry(base).or_default() += 1;
        }
        let outs = groups.iter().flat_map(|group| &group.outs).copied();
        outs.filter(|out| self.needed[*out] || self.reads[*out] > inner.get(out).copied().unwrap_or(0)).collect()
    }

    /// Whether loops are faster together, and their step has no more inputs and outputs than it may have.
    fn is_worthwhile(&self, groups: &[&Group], space: [usize; 3]) -> bool {
        let avals = &self.steps.jaxpr.avals;
        let all = space.iter().product::<usize>();
        let outs = self.read_by_others(groups);
        // Values that no other step reads: as in `compile::loops`, the last loop that reads one computes a result in place of it.
        let mut in_place = HashSet::new();
        let (mut inputs, mut arrays) = (HashSet::new(), HashSet::new());
        let mut made: HashSet<Var> = HashSet::new();
        let mut read_later: HashSet<Var> = HashSet::new();
        for group in groups.iter().rev() {
            made.extend(group.members.iter().map(|m| m.out));
            let mut free: Vec<Var> = group.outs.iter().copied().filter(|out| avals[*out].size() == all).collect();
            for operand in group.members.iter().flat_map(|m| &m.operands) {
                let Value::View { base, layout } = operand else { continue };
                inputs.insert(*base);
                if layout.is_contiguous() && layout.size() == all {
                    arrays.insert(*base);
                }
                let is_last = read_later.insert(*base) && !made.contains(base) && !outs.contains(base);
                let is_own = is_last && groups.iter().any(|group| group.outs.contains(base));
                if let Some(i) = free.iter().position(|out| is_own && avals[*out].dtype == avals[*base].dtype) {
                    free.swap_remove(i);
                    in_place.insert(*base);
                }
            }
        }
        let full = groups.iter().flat_map(|group| &group.outs).filter(|out| avals[**out].size() == all);
        let stored: HashSet<Var> = full.chain(&outs).copied().filter(|out| !in_place.contains(out)).collect();
        inputs.retain(|input| !made.contains(input));
        arrays.retain(|array| !made.contains(array));
        arrays.extend(stored.iter().filter(|out| avals[**out].size() == all));
        let width = arrays.iter().map(|&array| avals[array].dtype.size()).sum();
        (self.allowed)(inputs.len(), stored.len()) && BlockedLoops::are_worthwhile(space, width)
    }

    /// Makes one step of loops, and puts it after the steps between them that it does not precede. Returns where to go on.
    fn join(&mut self, joined: &[usize], space: [usize; 3]) -> usize {
        let [Some(&first), Some(&last)] = [joined.first(), joined.last()] else { return self.rest.len() };
        let mut groups = Vec::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut behind: Vec<Var> = Vec::new();
        for at in first..=last {
            let Some(step) = self.rest[at].take() else { continue };
            if joined.contains(&at) {
                behind.extend(step.outs(&self.steps.jaxpr));
                groups.extend(step.group().cloned());
            } else if step.reads(&self.steps.tokens).any(|var| behind.contains(&var)) {
                behind.extend(step.outs(&self.steps.jaxpr));
                after.push(step);
            } else {
                before.push(step);
            }
        }
        let outs = self.read_by_others(&groups.iter().collect::<Vec<&Group>>());
        let there = first + before.len();
        let blocks = Step::Blocks(Blocks { groups, space, outs });
        let all = before.into_iter().chain([blocks]).chain(after);
        for (at, step) in (first..=last).zip(all) {
            self.rest[at] = Some(step);
        }
        self.is_changed = true;
        there + 1
    }
}

/// How many elements the values of a loop have that it gives to others.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// One at each position of the space, or it reduces those.
    Full,
    /// One for each position along the dimension.
    Kept,
}

/// The positions before, along and after the one dimension that a reduction keeps, if there are many.
fn space(group: &Group) -> Option<[usize; 3]> {
    let (shape, axes) = group.reduction.as_ref()?;
    let kept: Vec<usize> = (0..shape.len()).filter(|d| !axes.contains(d) && shape[*d] != 1).collect();
    let (first, last) = (*kept.first()?, *kept.last()?);
    let is_one = (first..=last).all(|d| shape[d] == 1 || kept.contains(&d));
    let size = |dims: &[usize]| dims.iter().product::<usize>();
    let space = [size(&shape[..first]), size(&shape[first..=last]), size(&shape[last + 1..])];
    let is_large = space[1] >= LEAST_POSITIONS && space[2] > 1 && size(shape) >= LEAST_ELEMENTS;
    (is_one && is_large).then_some(space)
}

fn kind(group: &Group, over: [usize; 3]) -> Option<Kind> {
    let all = over.iter().product::<usize>();
    match (&group.reduction, group.columns, group.rows) {
        (Some(_), None, _) => (space(group) == Some(over)).then_some(Kind::Full),
        (None, None, rows) if rows == all => Some(Kind::Full),
        (None, None, rows) if rows == over[1] => Some(Kind::Kept),
        _ => None,
    }
}

/// Whether a loop is one over this space, and reads of these variables, which loops over it compute, what belongs to the positions that it computes.
pub(super) fn fits(jaxpr: &Jaxpr, group: &Group, space: [usize; 3], inside: &[Var]) -> bool {
    let Some(kind) = kind(group, space) else { return false };
    let all = space.iter().product::<usize>();
    let is_in_order =
        |layout: &Layout, size: usize| layout.is_contiguous() && layout.offset == 0 && layout.size() == size;
    group.members.iter().flat_map(|m| &m.operands).all(|operand| match operand {
        Value::View { base, layout } if inside.contains(base) => match (kind, jaxpr.avals[*base].size()) {
            (Kind::Full, size) if size == all => is_in_order(layout, all),
            (Kind::Full, size) if size == space[1] => {
                layout.size() == all && layout.offset == 0 && repeats(layout, space)
            }
            (Kind::Kept, size) if size == space[1] => is_in_order(layout, size),
            _ => false,
        },
        _ => true,
    })
}

/// Whether the element at each position is that of its position along the dimension.
fn repeats(layout: &Layout, space: [usize; 3]) -> bool {
    layout.reshaped(&space).is_some_and(|layout| {
        let strides = layout.strides.iter().zip(&layout.shape).zip([0, 1, 0]);
        strides.into_iter().all(|((&stride, &n), expected)| n == 1 || stride == expected)
    })
}
