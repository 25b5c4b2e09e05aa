//! What each equation that runs again would save.
//!
//! An equation dominates another if whatever the backward pass needs reaches the other only through it. If its results are kept, then
//! exactly the equations that it dominates need not run. The tree of dominators is found by the simple iteration of Cooper, Harvey and
//! Kennedy ("A simple, fast dominance algorithm", 2001).

use oxc_index::{IndexVec, index_vec};

use super::{Region, State};
use crate::ids::EquationId;

/// The equations that run again, as a tree of dominators.
pub(super) struct Dominators {
    /// The equations that run again, each behind its immediate dominator.
    pub(super) order: Vec<EquationId>,
    /// `None` for equations that the backward pass needs directly or by several ways.
    parent: IndexVec<EquationId, Option<EquationId>>,
    /// The cost of each equation and of those that it dominates.
    pub(super) gain: IndexVec<EquationId, u64>,
}

/// The position of the root, from which the backward pass needs its values.
const ROOT: usize = 0;

impl Dominators {
    pub(super) fn new(region: &Region, state: &State) -> Dominators {
        let order = order(region, state);
        // Positions in the order, counted from 1; the root has 0.
        let mut position: IndexVec<EquationId, usize> = index_vec![0; region.equations.len()];
        for (i, &equation) in order.iter().enumerate() {
            position[equation] = i + 1;
        }
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); order.len() + 1];
        for &value in &region.needed {
            readers[position[region.equation_of(value)]].push(ROOT);
        }
        for (i, &equation) in order.iter().enumerate() {
            for &operand in &region.equations[equation].operands {
                readers[position[region.equation_of(operand)]].push(i + 1);
            }
        }
        let mut parent: Vec<Option<usize>> = vec![None; order.len() + 1];
        parent[ROOT] = Some(ROOT);
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for at in 1..=order.len() {
                let mut nearest = None;
                for &reader in readers[at].iter().filter(|&&r| parent[r].is_some()) {
                    nearest = Some(nearest.map_or(reader, |other| common(&parent, reader, other)));
                }
                has_changed |= parent[at] != nearest;
                parent[at] = nearest;
            }
        }
        let mut gain: IndexVec<EquationId, u64> = index_vec![0; region.equations.len()];
        let mut parents = index_vec![None; region.equations.len()];
        for (i, &equation) in order.iter().enumerate().rev() {
            gain[equation] = gain[equation].saturating_add(region.equations[equation].cost);
            if let Some(above) = parent[i + 1].filter(|&p| p != ROOT) {
                let above = order[above - 1];
                parents[equation] = Some(above);
                gain[above] = gain[above].saturating_add(gain[equation]);
            }
        }
        Dominators { order, parent: parents, gain }
    }

    /// The dominators of an equation, nearest first, without itself.
    pub(super) fn above(&self, equation: EquationId) -> impl Iterator<Item = EquationId> {
        std::iter::successors(self.parent[equation], |&e| self.parent[e])
    }
}

/// The equations that run again, readers before what they read, but for loops.
fn order(region: &Region, state: &State) -> Vec<EquationId> {
    let mut seen: IndexVec<EquationId, bool> = index_vec![false; region.equations.len()];
    let mut finished = Vec::new();
    // Each entry is an equation, and the number of its operands that were followed.
    let mut stack: Vec<(EquationId, usize)> = Vec::new();
    for &value in &region.needed {
        let root = region.equation_of(value);
        if state.runs[root] && !std::mem::replace(&mut seen[root], true) {
            stack.push((root, 0));
        }
        while let Some((equation, next)) = stack.last_mut() {
            let Some(&operand) = region.equations[*equation].operands.get(*next) else {
                finished.push(*equation);
                stack.pop();
                continue;
            };
            *next += 1;
            let below = region.equation_of(operand);
            if state.runs[below] && !std::mem::replace(&mut seen[below], true) {
                stack.push((below, 0));
            }
        }
    }
    finished.reverse();
    finished
}

/// The nearest node that dominates both.
fn common(parent: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        let deeper = if a > b { &mut a } else { &mut b };
        *deeper = parent[*deeper].unwrap_or(ROOT);
    }
    a
}
