//! Units: future steps, and the dependencies between them.

use oxc_index::{IndexVec, define_index_type};
use remat_ir::{Error, ErrorKind, Result, Var};

use super::Fusion;
use crate::ids::EqnId;
use crate::steps::ir::{FusedLoop, Member, Step, Tokens, Value};
use crate::steps::order::order;

define_index_type! {
    /// A unit.
    pub(in crate::steps) struct UnitId = u32;
}

/// The closing position of a unit on which nothing outside depends yet.
const OPEN: EqnId = EqnId::from_raw_unchecked(u32::MAX);

/// A unit: a future step.
pub(super) struct Unit {
    pub(super) kind: Kind,
    /// Its last equation.
    pub(super) last: EqnId,
    /// The first equation outside of it that may depend on it.
    pub(super) closed: EqnId,
    /// The last step of one equation that it depends on, or that it is: the loops and copies behind it can run from there on.
    pub(super) ready: EqnId,
    /// The units that it reads, which are closed no later than it is.
    reads: Vec<UnitId>,
}

pub(super) enum Kind {
    Step(Step),
    /// A loop that was merged into this one.
    Merged(UnitId),
}

impl Fusion {
    /// A new unit, which computes these variables.
    pub(super) fn push(&mut self, step: Step, at: EqnId, outs: &[Var]) -> UnitId {
        let ready = match step {
            Step::Equation { .. } | Step::Barrier { .. } => at,
            Step::Copy { .. } | Step::Iota { .. } | Step::Loop(_) | Step::Blocks(_) => EqnId::new(0),
        };
        let unit = self.units.push(Unit { kind: Kind::Step(step), last: at, closed: OPEN, ready, reads: Vec::new() });
        for &out in outs {
            self.unit[out] = Some(unit);
        }
        unit
    }

    /// The units that an equation depends on: those that compute its operands, and the barriers that it waits for.
    pub(super) fn sources(&self, at: EqnId, operands: &[Value]) -> Vec<UnitId> {
        let vars = operands.iter().filter_map(Value::base).chain(self.tokens.of(at).iter().copied());
        sorted(vars.filter_map(|var| self.unit[var]))
    }

    /// Records that an equation of a unit reads these operands, and closes the units that compute them.
    pub(super) fn read(&mut self, at: EqnId, operands: &[Value], reader: UnitId) {
        for unit in self.sources(at, operands).into_iter().filter(|&u| u != reader) {
            if !self.units[reader].reads.contains(&unit) {
                self.units[reader].reads.push(unit);
            }
            self.units[reader].ready = self.units[reader].ready.max(self.units[unit].ready);
            self.close(unit, at.min(self.units[reader].closed));
        }
    }

    /// Closes a unit, and the units that it reads, at a position.
    fn close(&mut self, unit: UnitId, at: EqnId) {
        let mut stack = vec![unit];
        while let Some(unit) = stack.pop() {
            if self.units[unit].closed > at {
                self.units[unit].closed = at;
                stack.extend(&self.units[unit].reads);
            }
            if let Kind::Merged(into) = self.units[unit].kind {
                stack.push(into);
            }
        }
    }

    /// Whether none of these units, except those in `excluded`, depends on the unit.
    pub(super) fn is_free(&self, unit: UnitId, sources: &[UnitId], excluded: &[UnitId]) -> bool {
        let closed = self.units[unit].closed;
        let mut outside = sources.iter().filter(|u| !excluded.contains(u));
        outside.all(|&u| self.units[u].last < closed)
    }

    /// The loop of a unit, if it is one.
    pub(super) fn fused_loop(&self, unit: UnitId) -> Option<&FusedLoop> {
        match &self.units[unit].kind {
            Kind::Step(Step::Loop(fused_loop)) => Some(fused_loop),
            _ => None,
        }
    }

    pub(super) fn fused_loop_mut(&mut self, unit: UnitId) -> Option<&mut FusedLoop> {
        match &mut self.units[unit].kind {
            Kind::Step(Step::Loop(fused_loop)) => Some(fused_loop),
            _ => None,
        }
    }

    /// Adds an equation to a loop.
    pub(super) fn join(&mut self, unit: UnitId, member: Member) {
        self.unit[member.out] = Some(unit);
        self.extent[member.out] = member.extent;
        self.part_of[member.eqn] = Some(unit);
        self.units[unit].last = self.units[unit].last.max(member.eqn);
        if let Some(fused_loop) = self.fused_loop_mut(unit) {
            fused_loop.members.push(member);
        }
    }

    /// Merges a loop into another, which keeps its rows and columns if it has columns, and takes those of the merged loop otherwise.
    pub(super) fn merge(&mut self, target: UnitId, unit: UnitId) {
        let merged = std::mem::replace(&mut self.units[unit].kind, Kind::Merged(target));
        let reads = std::mem::take(&mut self.units[unit].reads);
        let (last, closed) = (self.units[unit].last, self.units[unit].closed.min(self.units[target].closed));
        self.units[target].last = self.units[target].last.max(last);
        self.units[target].ready = self.units[target].ready.max(self.units[unit].ready);
        self.units[target].closed = closed;
        self.units[target].reads.extend(reads);
        for other in self.units[target].reads.clone() {
            self.close(other, closed);
        }
        if let Kind::Step(Step::Loop(other)) = merged {
            for member in &other.members {
                self.unit[member.out] = Some(target);
                self.part_of[member.eqn] = Some(target);
            }
            if let Some(fused_loop) = self.fused_loop_mut(target) {
                if let (None, Some(columns)) = (fused_loop.columns, other.columns) {
                    (fused_loop.rows, fused_loop.columns) = (other.rows, Some(columns));
                }
                fused_loop.members.extend(other.members);
                fused_loop.members.sort_by_key(|m| m.eqn);
            }
        }
    }

    /// Whether an equation outside of a unit, other than `except`, reads a variable of it or a view of that.
    pub(super) fn escapes(&self, var: Var, unit: UnitId, except: Option<EqnId>) -> bool {
        let mut stack = vec![var];
        while let Some(var) = stack.pop() {
            if self.must_be_stored[var] {
                return true;
            }
            for &reader in &self.readers[var] {
                match self.part_of[reader] {
                    _ if except == Some(reader) => {}
                    Some(u) if u == unit => {}
                    Some(_) => return true,
                    // A change of layout that was visited, or an equation that is still to come.
                    None if except.is_none_or(|at| reader < at) => stack.extend(self.eqn_outs[reader]),
                    None => return true,
                }
            }
        }
        false
    }

    /// The steps, in an order in which they can run.
    ///
    /// # Errors
    /// If there is none because loops depend on each other, which is a defect.
    pub(in crate::steps) fn finish(mut self) -> Result<(Vec<Step>, Tokens)> {
        for unit in self.units.indices() {
            let Some(fused_loop) = self.fused_loop(unit) else { continue };
            let outs = fused_loop.members.iter().map(|m| m.out).filter(|&out| self.escapes(out, unit, None)).collect();
            if let Some(fused_loop) = self.fused_loop_mut(unit) {
                fused_loop.outs = outs;
            }
        }
        let reads = self.units.iter_enumerated().map(|(i, unit)| match &unit.kind {
            Kind::Step(step) => {
                let units = step.reads(&self.tokens).filter_map(|var| self.unit[var]);
                sorted(units.filter(|&u| u != i))
            }
            Kind::Merged(_) => Vec::new(),
        });
        let positions: IndexVec<UnitId, EqnId> = self.units.iter().map(|unit| unit.last.min(unit.closed)).collect();
        let order = order(&reads.collect(), &positions)?;
        let mut units: IndexVec<UnitId, Option<Unit>> = self.units.into_iter().map(Some).collect();
        let mut steps = Vec::new();
        for unit in order {
            let unit = units[unit]
                .take()
                .ok_or_else(|| Error::new(ErrorKind::Internal, "compile", "fusion ordered a step twice"))?;
            if let Kind::Step(step) = unit.kind {
                steps.push(step);
            }
        }
        Ok((steps, self.tokens))
    }
}

/// The units, sorted and without duplicates.
fn sorted(units: impl Iterator<Item = UnitId>) -> Vec<UnitId> {
    let mut units: Vec<UnitId> = units.collect();
    units.sort_unstable();
    units.dedup();
    units
}
