//! The values of a checkpointed region that a budget of bytes keeps.
//!
//! A [`Region`] is the forward pass of a checkpointed region as the backward pass sees it: equations with a cost, their results with bytes,
//! and the results that the backward pass needs. A needed value is either kept or computed again; then its equation runs again and needs its
//! operands. Inputs of the region are free and are not part of the graph. [`Region::save`] chooses what to keep, so that the kept
//! values take at most the budget and the equations that run again cost little.
//!
//! - With a price per byte instead of a budget, the best choice is a minimum cut (project selection: Rhys, "A selection problem of shared
//!   fixed costs and network flows", 1970). PyTorch's partitioner of forward and backward graphs cuts the same graph, with bytes alone
//!   (Horace He, "Min-cut optimal(*) recomputation", 2022).
//! - The price is found by Lagrangian relaxation: the line through the best choice within the budget and the best one beyond it gives the
//!   next price (Everett 1963; Handler and Zang, "A dual algorithm for the constrained shortest path problem", 1980). It ends at the two
//!   neighbours of the budget on the convex hull of all choices.
//! - Between these two, what is left of the budget is filled greedily by cost per byte, and exchanges improve the result. What a value saves
//!   is the cost of all equations that it dominates: those that no other needed value needs (Lengauer and Tarjan 1979).
//!
//! All numbers are integers and ties are broken by number, so the choice is the same everywhere.

mod cut;
mod dominators;
mod improve;
#[cfg(test)]
mod tests;

use oxc_index::{IndexVec, index_vec};

use crate::ids::{EquationId, ValueId};

/// The forward pass of a checkpointed region.
///
/// ```
/// use remat_plan::saved::Region;
/// // A product of 10 ps, and its sine of 2 ps. The backward pass needs both.
/// let mut region = Region::default();
/// let product = region.equation(10, []);
/// let x = region.value(product, Some(8));
/// let sine = region.equation(2, [x]);
/// let y = region.value(sine, Some(8));
/// region.need(x);
/// region.need(y);
/// let kept = |budget| -> Vec<bool> { region.save(budget).kept.into_iter().collect() };
/// assert_eq!(kept(16), [true, true]);
/// assert_eq!(kept(8), [true, false]);
/// assert_eq!(kept(7), [false, false]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Region {
    equations: IndexVec<EquationId, Equation>,
    values: IndexVec<ValueId, Value>,
    needed: Vec<ValueId>,
}

#[derive(Clone, Debug)]
struct Equation {
    cost: u64,
    operands: Vec<ValueId>,
    results: Vec<ValueId>,
}

#[derive(Clone, Debug)]
struct Value {
    equation: EquationId,
    /// `None` if it cannot be kept.
    bytes: Option<u64>,
}

/// What a budget keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    /// The equations whose needed results are kept, so that they do not run again.
    pub kept: IndexVec<EquationId, bool>,
    /// The equations that run again.
    pub repeated: IndexVec<EquationId, bool>,
    /// The bytes of the results of each equation that are needed: those that are kept, or would be.
    pub bytes_of: IndexVec<EquationId, u64>,
    /// Of an equation that is kept the cost of what would run again without it; of one that runs again the cost that keeping it would
    /// save; of others 0.
    pub gain: IndexVec<EquationId, u64>,
    /// The bytes of all that is kept.
    pub bytes: u64,
    /// The cost of all that runs again.
    pub cost: u64,
}

impl Region {
    /// Adds an equation. Its operands are results of other equations; inputs of the region are left out.
    pub fn equation(&mut self, cost: u64, operands: impl IntoIterator<Item = ValueId>) -> EquationId {
        self.equations.push(Equation { cost, operands: operands.into_iter().collect(), results: Vec::new() })
    }

    /// Adds a result of an equation. Without bytes it cannot be kept, and neither can the other results of its equation.
    pub fn value(&mut self, equation: EquationId, bytes: Option<u64>) -> ValueId {
        let value = self.values.push(Value { equation, bytes });
        self.equations[equation].results.push(value);
        value
    }

    /// Adds an operand to an equation. It may come from a later equation: a carry comes from the iteration before.
    pub fn operand(&mut self, equation: EquationId, operand: ValueId) {
        self.equations[equation].operands.push(operand);
    }

    /// Marks a value as needed by the backward pass.
    pub fn need(&mut self, value: ValueId) {
        self.needed.push(value);
    }

    /// The equation of a value.
    pub fn equation_of(&self, value: ValueId) -> EquationId {
        self.values[value].equation
    }

    /// The values to keep in at most `budget` bytes.
    pub fn save(&self, budget: u64) -> Saved {
        let state = improve::best(self, budget);
        let gains = improve::gains(self, &state);
        let bytes_of = self.equations.indices().map(|e| self.needed_bytes(&state, e)).collect();
        Saved { kept: state.kept, repeated: state.runs, bytes_of, gain: gains, bytes: state.bytes, cost: state.cost }
    }

    /// What runs again, and what is kept, if these equations do not run again. Those that nothing needs are not kept.
    fn state(&self, kept: IndexVec<EquationId, bool>) -> State {
        let mut state = State {
            kept: index_vec![false; self.equations.len()],
            needed: index_vec![false; self.values.len()],
            runs: index_vec![false; self.equations.len()],
            bytes: 0,
            cost: 0,
        };
        let mut stack = self.needed.clone();
        while let Some(value) = stack.pop() {
            if std::mem::replace(&mut state.needed[value], true) {
                continue;
            }
            let Value { equation, bytes } = self.values[value];
            if kept[equation] {
                state.kept[equation] = true;
                state.bytes = state.bytes.saturating_add(bytes.unwrap_or(u64::MAX));
            } else if !std::mem::replace(&mut state.runs[equation], true) {
                state.cost = state.cost.saturating_add(self.equations[equation].cost);
                stack.extend(&self.equations[equation].operands);
            }
        }
        state
    }

    /// Whether the results of an equation can be kept.
    fn can_be_kept(&self, equation: EquationId) -> bool {
        self.equations[equation].results.iter().all(|&v| self.values[v].bytes.is_some())
    }

    /// The bytes of the results of an equation that are needed.
    fn needed_bytes(&self, state: &State, equation: EquationId) -> u64 {
        let needed = self.equations[equation].results.iter().filter(|&&v| state.needed[v]);
        needed.fold(0, |sum, &v| sum.saturating_add(self.values[v].bytes.unwrap_or(u64::MAX)))
    }
}

/// The consequences of a choice.
#[derive(Clone, Debug)]
struct State {
    /// The equations whose needed results are kept.
    kept: IndexVec<EquationId, bool>,
    needed: IndexVec<ValueId, bool>,
    runs: IndexVec<EquationId, bool>,
    bytes: u64,
    cost: u64,
}

impl State {
    /// Whether this choice is better than another that fits: cheaper, or smaller at the same cost.
    fn is_better_than(&self, other: &State) -> bool {
        (self.cost, self.bytes) < (other.cost, other.bytes)
    }
}
