//! Reports for people, with names, operations and the user's lines: the live values at the peak, the values that a plan computes again, and
//! the moves that were made and refused.

use std::collections::HashSet;
use std::sync::Arc;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{
    Aval, Call, DType, Eqn, Keep, LiveKind, LiveValue, Loc, Move, Moves, Op, PeakOperation, Prim, RecomputedValue,
    Rematerialization, Role, Var, VarMap,
};
use remat_plan::{BufferId, Live, MemoryPlan, StepId};

use super::improve::{Decided, Outcome};
use super::kernels::Kernels;
use crate::ids::EqnId;
use crate::program::StepSource;
use crate::steps::{Part, Step, Steps};

/// The operation that runs at the peak.
pub(super) fn at(kernels: &Kernels<'_>, order: &[StepId], plan: &MemoryPlan) -> Option<PeakOperation> {
    // The first of equal peaks.
    let (step, _) = order.iter().zip(&plan.timeline).rev().max_by_key(|(_, live)| **live)?;
    let eqn = kernels.steps.eqn(kernels.calls[*step].eqn?);
    Some(PeakOperation { name: eqn.op.name(), loc: eqn.loc })
}

/// What the steps compute, in this order. A step that a plan repeats computes again what it has computed before, or one of several values.
pub(super) fn sources(kernels: &Kernels<'_>, order: &[StepId]) -> Vec<StepSource> {
    let mut has_run: HashSet<EqnId> = HashSet::new();
    let loops = |step: StepId| kernels.steps.steps.get(step.index()).map_or(&[][..], Step::fused_loops);
    let source = |&step: &StepId| {
        let call = &kernels.calls[step];
        let aval = |buffer: &BufferId| kernels.buffers.aval(*buffer).clone();
        let eqn = call.eqn.map(|eqn| kernels.steps.eqn(eqn));
        let mut loc = eqn.map_or(Loc::UNKNOWN, |eqn| eqn.loc);
        if call.eqn.is_some_and(|eqn| !has_run.insert(eqn)) {
            loc.role = loc.role.max(Role::Recomputed);
        }
        for fused_loop in loops(step) {
            let stored = fused_loop.members.iter().filter(|member| fused_loop.outs.contains(&member.out));
            has_run.extend(stored.map(|member| member.eqn));
        }
        StepSource {
            operation: eqn.map(|eqn| eqn.op.name()),
            algorithm: call.kernel.algorithm(),
            loc,
            aval: call.outs.iter().map(aval).max_by_key(Aval::bytes).unwrap_or_else(|| Aval::new(DType::U8, [0])),
            time: kernels.time(step),
        }
    };
    order.iter().map(source).collect()
}

/// What each buffer of a program holds.
pub(super) struct Stored<'k> {
    kernels: &'k Kernels<'k>,
    names: IndexVec<BufferId, Option<Arc<str>>>,
    /// The equation whose result each buffer holds; for a loop, the stored member.
    eqns: IndexVec<BufferId, Option<EqnId>>,
    /// The buffers of values that a policy must keep.
    kept: HashSet<BufferId>,
}

impl<'k> Stored<'k> {
    pub(super) fn new(kernels: &'k Kernels<'k>) -> Stored<'k> {
        let (steps, buffers) = (&*kernels.steps, &kernels.buffers);
        let mut names: IndexVec<BufferId, Option<Arc<str>>> = index_vec![None; buffers.len()];
        for (var, buffer) in buffers.owners() {
            names[buffer] = steps.names[var].clone();
        }
        let mut eqns: IndexVec<BufferId, Option<EqnId>> = index_vec![None; buffers.len()];
        for call in &kernels.calls {
            for &out in &call.outs {
                eqns[out] = call.eqn;
            }
        }
        let makers = makers(steps);
        for (var, buffer) in buffers.owners().filter(|&(var, _)| makers[var].is_some()) {
            eqns[buffer] = makers[var];
        }
        let stacked = steps.jaxpr.eqns.iter().flat_map(kept_stacks).filter_map(|out| steps.values[out].base());
        let kept = steps.kept.iter().copied().chain(stacked).filter_map(|var| buffers.of_var(var)).collect();
        Stored { kernels, names, eqns, kept }
    }

    /// The value in a buffer.
    pub(super) fn value(&self, buffer: BufferId, kind: LiveKind) -> LiveValue {
        let (aval, name) = (self.kernels.buffers.aval(buffer).clone(), self.names[buffer].clone());
        let value = live_value(kind, aval, name, self.eqns[buffer].map(|eqn| self.kernels.steps.eqn(eqn)));
        LiveValue { must_be_kept: self.kept.contains(&buffer), ..value }
    }

    /// The equation that computes the value in a buffer.
    pub(super) fn eqn(&self, buffer: BufferId) -> Option<EqnId> {
        self.eqns[buffer]
    }

    /// Arguments and outputs in their order.
    pub(super) fn of_callers(&self) -> impl Iterator<Item = LiveValue> {
        let buffers = &self.kernels.buffers;
        let arguments = buffers.arguments.iter_enumerated();
        let arguments = arguments.map(|(i, &buffer)| self.value(buffer, LiveKind::Argument(i.index())));
        arguments.chain(buffers.outputs.iter().map(|&buffer| self.value(buffer, LiveKind::Output)))
    }

    /// Scratch memory of a step.
    pub(super) fn scratch(&self, step: StepId, bytes: usize) -> LiveValue {
        let eqn = self.kernels.calls[step].eqn.map(|eqn| self.kernels.steps.eqn(eqn));
        live_value(LiveKind::Scratch, Aval::new(DType::U8, [bytes]), None, eqn)
    }
}

/// The stacked outputs of a scan whose slices a policy must keep: their labels are in its body.
fn kept_stacks(eqn: &Eqn) -> Vec<Var> {
    let Op::Call(Call::Scan(scan)) = &eqn.op else { return Vec::new() };
    let mut kept: HashSet<Var> = HashSet::new();
    for eqn in &scan.jaxpr.eqns {
        if matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep != Keep::Choice) {
            kept.extend(eqn.ins.iter().filter_map(|operand| operand.var()).chain(eqn.outs.iter().copied()));
        }
        kept.extend(kept_stacks(eqn));
    }
    let stacked = eqn.outs.iter().zip(&scan.jaxpr.outs).skip(scan.num_carry);
    stacked.filter(|(_, slice)| slice.var().is_some_and(|var| kept.contains(&var))).map(|(&out, _)| out).collect()
}

/// The live values at the peak: arguments and outputs in their order, then temporaries and scratch memory by size.
pub(super) fn live(kernels: &Kernels<'_>, plan: &MemoryPlan) -> Vec<LiveValue> {
    let stored = Stored::new(kernels);
    let mut live: Vec<LiveValue> = stored.of_callers().collect();
    for item in &plan.live {
        match *item {
            Live::Buffer { buffer, .. } => live.push(stored.value(buffer, LiveKind::Temporary)),
            Live::Scratch { step, bytes } => {
                let inside = kernels.calls[step].kernel.live();
                live.extend(inside.iter().cloned());
                let bytes = bytes - inside.iter().map(|value| value.bytes).sum::<usize>().min(bytes);
                live.push(stored.scratch(step, bytes));
            }
        }
    }
    live.retain(|value| value.bytes > 0);
    live
}

/// A value of a program, computed by this equation.
fn temporary(steps: &Steps, var: Var, eqn: Option<&Eqn>) -> LiveValue {
    live_value(LiveKind::Temporary, steps.jaxpr.avals[var].clone(), steps.names[var].clone(), eqn)
}

/// A value, computed by this equation.
fn live_value(kind: LiveKind, aval: Aval, name: Option<Arc<str>>, eqn: Option<&Eqn>) -> LiveValue {
    let (operation, loc) = (eqn.map(|eqn| eqn.op.name()), eqn.map_or(Loc::default(), |eqn| eqn.loc));
    LiveValue { bytes: aval.bytes(), aval, kind, name, operation, loc, must_be_kept: false }
}

/// The equation that computes each variable of the program.
fn makers(steps: &Steps) -> VarMap<Option<EqnId>> {
    let mut makers: VarMap<Option<EqnId>> = VarMap::filled(steps.jaxpr.avals.len(), None);
    for (e, eqn) in steps.jaxpr.eqns.iter().enumerate() {
        eqn.outs.iter().for_each(|&out| makers[out] = Some(EqnId::new(e)));
    }
    makers
}

/// The values that a part of a program computes, which runs some more times than once, for this time each.
pub(super) fn recomputed(steps: &Steps, part: &Part, times: usize, time: u64) -> Vec<RecomputedValue> {
    let step = &steps.steps[part.step];
    let outs: Vec<Var> = part.out.map_or_else(|| step.outs().collect(), |out| vec![out]);
    let maker = |out: Var| steps.jaxpr.eqns.iter().find(|eqn| eqn.outs.contains(&out));
    let first = || step.eqns().last().map(|eqn| steps.eqn(eqn));
    let value = |&out: &Var| {
        let value = temporary(steps, out, maker(out).or_else(first));
        RecomputedValue { value, times, time: (time * times as u64) / outs.len().max(1) as u64 }
    };
    outs.iter().map(value).collect()
}

/// Moves for people: those of a plan first, since the others change the steps that it repeats.
pub(super) fn moves(steps: &Steps, decided: &[Decided], plan: Option<&Rematerialization>) -> Moves {
    let mut makers = makers(steps);
    // Copies of values have no equations of their own.
    for member in steps.steps.iter().flat_map(Step::fused_loops).flat_map(|fused_loop| &fused_loop.members) {
        makers[member.out] = Some(member.eqn);
    }
    let repeated = plan.into_iter().flat_map(|plan| &plan.recomputed).map(|RecomputedValue { value, time, .. }| Move {
        kind: "repeat",
        time: -(*time as i64),
        bytes: -(value.bytes as i64),
        value: value.clone(),
        is_made: true,
        reason: "it is computed again so that the program fits its limit",
    });
    let others = decided.iter().map(|Decided { change, outcome }| Move {
        kind: change.kind.name,
        value: temporary(steps, change.value, makers[change.value].map(|eqn| steps.eqn(eqn))),
        time: change.time,
        bytes: change.bytes,
        is_made: *outcome == Outcome::Made,
        reason: match outcome {
            Outcome::Made => change.kind.why,
            Outcome::NeedsMemory => "there is no memory for it where it is live or runs",
            Outcome::WithOthers => "it does not fit together with others of its kind",
        },
    });
    Moves(repeated.chain(others).collect())
}
