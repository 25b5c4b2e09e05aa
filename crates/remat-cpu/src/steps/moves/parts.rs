//! Loops in parts, one for each result, so that a plan can compute each result again by itself.
//!
//! Fusion puts into one loop what reads the same values: a norm and the sum before it, say. A plan that runs this loop a second time needs
//! the operands of the sum, which may be gone, though the norm follows from the sum alone. So a plan is made for parts: each computes one
//! result and reads the results before it. Parts of one loop that run one after the other are then one loop again.

use remat_ir::Var;
use remat_kernels::Extent;

use crate::steps::ir::{FusedLoop, Step, Steps};

/// What a step of a plan is: a step of the program, or one result of a loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The position of the step among those of the program.
    pub(crate) step: usize,
    /// The result, if the step is a loop with several.
    pub(crate) out: Option<Var>,
}

impl Steps {
    /// The steps in this order of their positions, with each result of a loop a step of its own; and what each step is.
    pub(crate) fn in_parts(&self, order: &[usize]) -> (Steps, Vec<Part>) {
        let (mut steps, mut parts) = (Vec::new(), Vec::new());
        for &at in order {
            let step = &self.steps[at];
            let several =
                step.fused_loop().filter(|fused_loop| fused_loop.outs.len() > 1 && fused_loop.reduction.is_none());
            let Some(fused_loop) = several else {
                steps.push(step.clone());
                parts.push(Part { step: at, out: None });
                continue;
            };
            for member in fused_loop.members.iter().filter(|member| fused_loop.outs.contains(&member.out)) {
                steps.push(Step::Loop(fused_loop.part(&[member.out])));
                parts.push(Part { step: at, out: Some(member.out) });
            }
        }
        (self.with(steps), parts)
    }
}

impl FusedLoop {
    /// The loop that computes these results of this one, and reads the others.
    pub(in crate::steps) fn part(&self, outs: &[Var]) -> FusedLoop {
        let mut part = self.clone();
        part.members.retain(|member| !self.outs.contains(&member.out) || outs.contains(&member.out));
        part.outs.retain(|out| outs.contains(out));
        part.prune();
        if part.members.iter().all(|member| member.extent == Extent::Full) {
            (part.rows, part.columns) = (self.size(), None);
        }
        part
    }
}
