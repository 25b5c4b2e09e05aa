//! The time of a step, by the cost model that all engines share.

use remat_ir::{Aval, Call, Class, Op, Var};
use remat_opt::cost::{Machine, cost};
use remat_plan::StepNode;

use crate::ids::EqnId;
use crate::steps::{Step, Steps, Value};

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
            Step::Copy { out, .. } => (0, 2 * self.jaxpr.avals[*out].bytes() as u64),
            Step::Iota { out, .. } => (0, self.jaxpr.avals[*out].bytes() as u64),
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
        let seconds = (flops as f64 / Machine::CORE.flops).max(bytes as f64 / Machine::CORE.bytes);
        node.cost = (seconds * 1e12) as u64;
        let is_once = |eqn: EqnId| runs_once(&self.eqn(eqn).op);
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

/// Whether an operation must not run a second time: a collective, which other devices wait for, and a loop whose length is not known. The
/// same holds for an operation with one of them in a body.
fn runs_once(op: &Op) -> bool {
    let is_one = op.class() == Class::Collective || matches!(op, Op::Call(Call::While(_)));
    is_one || op.bodies().into_iter().any(|body| body.eqns.iter().any(|eqn| runs_once(&eqn.op)))
}

#[cfg(test)]
mod tests {
    use remat_ir::Jaxpr;

    use super::*;

    #[test]
    fn loops_of_unknown_length_run_once_wherever_they_are() {
        let unknown = "while[cond_jaxpr={ lambda ; e:f32[]. let f:bool[] = lt e 9.0:f32[] in (f,) } cond_nconsts=0 \
                       body_jaxpr={ lambda ; g:f32[]. let h:f32[] = mul g 2.0:f32[] in (h,) } body_nconsts=0]";
        let scan = |op: &str| {
            let body = format!("{{ lambda ; c:f32[]. let d:f32[] = {op} c in (d,) }}");
            format!("scan[jaxpr={body} length=3 num_carry=1 num_consts=0 reverse=False unroll=1]")
        };
        for (op, expected) in [(unknown, true), (&*scan(unknown), true), (&*scan("neg"), false), ("neg", false)] {
            let text = format!("{{ lambda ; a:f32[]. let b:f32[] = {op} a in (b,) }}");
            let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(runs_once(&jaxpr.eqns[0].op), expected, "{text}");
        }
    }
}
