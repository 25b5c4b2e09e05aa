//! What steps cost. The time of a step is that of the cost model that all engines share. Moves of equations between loops are weighed by the
//! bytes that travel to and from memory, with equations counted as bytes.

use remat_ir::{Aval, Call, Class, Keep, Op, Prim, Var};
use remat_opt::cost::{Machine, SMALL_BYTES, cost};

use super::facts::outside;
use super::ir::{Member, Step, Steps, Value, read_by};
use crate::ids::EqnId;

/// The bytes that arrive from memory in the time a loop takes to compute one equation for one element.
const BYTES_OF_EQUATION: usize = 1;

impl Steps {
    /// The large values that equations of a loop read from memory, in order.
    pub(super) fn large_reads<'a>(&self, members: impl Iterator<Item = &'a Member> + Clone) -> Vec<Var> {
        let mut read = read_by(members);
        read.retain(|&var| self.is_large(var));
        read
    }

    /// The bytes that a loop of this many elements reads for these equations, and those that the equations count as.
    pub(super) fn read_bytes<'a>(&self, members: impl Iterator<Item = &'a Member> + Clone, size: usize) -> usize {
        let read: usize = self.large_reads(members.clone()).into_iter().map(|var| self.bytes(var)).sum();
        read + equation_bytes(members.count(), size)
    }

    /// The bytes that travel where a value is stored: a store first reads its cache line.
    pub(super) fn store_bytes(&self, var: Var) -> usize {
        2 * self.bytes(var)
    }

    /// Whether a value is large enough that a move for it can pay.
    pub(super) fn is_large(&self, var: Var) -> bool {
        self.bytes(var) >= SMALL_BYTES
    }

    /// The bytes of a variable.
    pub(super) fn bytes(&self, var: Var) -> usize {
        self.jaxpr.avals[var].bytes()
    }

    /// The time of steps in picoseconds.
    pub(super) fn time_of<'a>(&self, steps: impl IntoIterator<Item = &'a Step>) -> i64 {
        steps.into_iter().map(|step| self.time(step) as i64).sum()
    }

    /// The time of a step in picoseconds.
    pub(crate) fn time(&self, step: &Step) -> u64 {
        let (flops, bytes) = match step {
            Step::Barrier { .. } => (0, 0),
            Step::Equation { eqn, operands, outs } => {
                let ins: Vec<Aval> = operands.iter().map(|value| self.aval(value)).collect();
                let cost = cost(&self.eqn(*eqn).op, &ins, &self.out_avals(outs));
                (cost.flops, cost.bytes())
            }
            Step::Copy { out, .. } => (0, 2 * self.bytes(*out) as u64),
            Step::Iota { out, .. } => (0, self.bytes(*out) as u64),
            // A loop reads and writes each buffer once, whatever its equations do in between.
            Step::Loop(_) | Step::Blocks(_) => {
                let members = step.fused_loops().iter().flat_map(|fused_loop| &fused_loop.members);
                let flops = members.map(|member| {
                    let ins: Vec<Aval> = member.operands.iter().map(|value| self.aval(value)).collect();
                    cost(&self.eqn(member.eqn).op, &ins, &[self.jaxpr.avals[member.out].clone()]).flops
                });
                let moved = outside(step).into_iter().chain(step.outs());
                (flops.sum(), moved.map(|var| self.bytes(var) as u64).sum())
            }
        };
        let seconds = (flops as f64 / Machine::CORE.flops).max(bytes as f64 / Machine::CORE.bytes);
        (seconds * 1e12) as u64
    }

    /// Whether a step must not run a second time.
    pub(crate) fn runs_once(&self, step: &Step) -> bool {
        let is_once = |eqn: EqnId| runs_once(&self.eqn(eqn).op);
        let is_kept = step.outs().any(|var| self.kept.contains(&var));
        is_kept || matches!(step, Step::Barrier { .. }) || step.eqns().any(is_once)
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

/// The bytes that this many equations count as, for this many elements.
pub(super) fn equation_bytes(equations: usize, size: usize) -> usize {
    equations * size * BYTES_OF_EQUATION
}

/// Whether an operation must not run a second time: a collective, which other devices wait for, an effect, a loop whose length is not known,
/// and the label of a value that is to be kept. The same holds for an operation with one of them in a body.
fn runs_once(op: &Op) -> bool {
    let is_one = match op {
        Op::Call(Call::While(_)) => true,
        Op::Prim(Prim::Name(op)) => op.keep != Keep::Choice,
        _ => matches!(op.class(), Class::Collective | Class::Effect),
    };
    is_one || op.bodies().into_iter().any(|body| body.eqns.iter().any(|eqn| runs_once(&eqn.op)))
}

#[cfg(test)]
mod tests {
    use remat_ir::Jaxpr;

    use super::*;

    #[test]
    fn what_must_run_once_does_wherever_it_is() {
        let unknown = "while[cond_jaxpr={ lambda ; e:f32[]. let f:bool[] = lt e 9.0:f32[] in (f,) } cond_nconsts=0 \
                       body_jaxpr={ lambda ; g:f32[]. let h:f32[] = mul g 2.0:f32[] in (h,) } body_nconsts=0]";
        let scan = |op: &str| {
            let body = format!("{{ lambda ; c:f32[]. let d:f32[] = {op} c in (d,) }}");
            format!("scan[jaxpr={body} length=3 num_carry=1 num_consts=0 reverse=False unroll=1]")
        };
        let (kept, named) = ("name[keep=planner name=x]", "name[name=x]");
        let once = [unknown.to_string(), scan(unknown), kept.to_string(), scan(kept)].map(|op| (op, true));
        let again = ["neg".to_string(), scan("neg"), scan(named)].map(|op| (op, false));
        for (op, expected) in once.into_iter().chain(again) {
            let text = format!("{{ lambda ; a:f32[]. let b:f32[] = {op} a in (b,) }}");
            let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(runs_once(&jaxpr.eqns[0].op), expected, "{text}");
        }
    }
}
