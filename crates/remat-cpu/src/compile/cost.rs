//! The time of a step, by the cost model that all engines share.

use remat_ir::{Aval, Call, Class, Op, Var};
use remat_opt::cost::{Machine, cost};
use remat_plan::StepNode;

use crate::ids::EqnId;
use crate::steps::{Step, Steps, Value};

/// A core of a server CPU with 512-bit vectors, and its share of the memory's rate. Times of steps are compared with each other only, so what
/// matters is the ratio: how many operations pass while a byte is moved.
const CORE: Machine = Machine { flops: 200e9, bytes: 15e9 };

impl Steps {
    /// Fills in the time of a step, and whether it must not run a second time.
    pub(super) fn price(&self, step: &Step, node: &mut StepNode) {
        let (flops, bytes) = match step {
            Step::Barrier { .. } => (0, 0),
            Step::Equation { eqn, operands, outs } => {
                let ins: Vec<Aval> = operands.iter().map(|value| self.aval(value)).collect();
                let cost = cost(&self.eqn(*eqn).op, &ins, &self.out_avals(outs));
                (cost.flops, cost.bytes())
            }
            Step::Copy { out, .. } | Step::Iota { out, .. } => (0, 2 * self.jaxpr.avals[*out].bytes() as u64),
            // A loop reads and writes each buffer once, whatever its equations do in between.
            Step::Loop(_) | Step::Blocks(_) => {
                let members = step.fused_loops().iter().flat_map(|fused_loop| &fused_loop.members);
                let flops = members.map(|member| {
                    let ins: Vec<Aval> = member.operands.iter().map(|value| self.aval(value)).collect();
                    cost(&self.eqn(member.eqn).op, &ins, &[self.jaxpr.avals[member.out].clone()]).flops
                });
                let own: Vec<Var> = step.loop_results().collect();
                let mut moved: Vec<Var> =
                    step.operands().filter_map(Value::base).filter(|var| !own.contains(var)).collect();
                moved.sort_unstable();
                moved.dedup();
                moved.extend(step.outs());
                (flops.sum(), moved.iter().map(|&var| self.jaxpr.avals[var].bytes() as u64).sum())
            }
        };
        let seconds = (flops as f64 / CORE.flops).max(bytes as f64 / CORE.bytes);
        node.cost = (seconds * 1e12) as u64;
        let is_once = |eqn: EqnId| {
            let op = &self.eqn(eqn).op;
            op.class() == Class::Collective || matches!(op, Op::Call(Call::While(_)))
        };
        node.runs_once = matches!(step, Step::Barrier { .. }) || step.eqns().any(is_once);
    }

    fn aval(&self, value: &Value) -> Aval {
        let dtype = match value {
            Value::View { base, .. } => self.jaxpr.avals[*base].dtype,
            Value::Splat { literal, .. } => literal.dtype(),
        };
        Aval::new(dtype, value.shape().iter().copied())
    }

    fn out_avals(&self, outs: &[Var]) -> Vec<Aval> {
        outs.iter().map(|&var| self.jaxpr.avals[var].clone()).collect()
    }
}
