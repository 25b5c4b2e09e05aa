//! Sums of many terms, which are added as they come.
//!
//! The cotangent of an array that is read T times is a sum of T terms, and each may be the result of a step far from that of the next. One
//! loop over all of them would wait for the last, and all T would be in memory until then. A loop that adds each term to the sum, in place,
//! needs memory for the sum and the newest term alone.

use remat_ir::{Binary, Eqn, Jaxpr, Op, Prim, Var};

use super::Fusion;
use super::units::UnitId;
use crate::ids::EqnId;
use crate::steps::ir::Value;

impl Fusion {
    /// The loops that compute an operand of a sum, itself a sum, and that would wait for the other operand if the equation joined them,
    /// while they keep more bytes in memory than that operand has. The equation reads their sum from memory instead.
    pub(super) fn would_wait(&self, jaxpr: &Jaxpr, at: EqnId, operands: &[Value]) -> Vec<UnitId> {
        let [x, y] = operands else { return Vec::new() };
        if !self.is_sum[at] {
            return Vec::new();
        }
        let waits = |sum: &Value, term: &Value| {
            let (sum, term) = (sum.base()?, term.base()?);
            let (unit, other) = (self.unit[sum]?, self.unit[term]?);
            let member = self.fused_loop(unit)?.members.iter().find(|m| m.out == sum)?;
            let is_newer = unit != other && self.units[other].ready > self.units[unit].ready;
            let is_chain = is_newer && self.is_sum[member.eqn];
            (is_chain && self.kept(jaxpr, at, unit) > jaxpr.avals[sum].bytes()).then_some(unit)
        };
        [waits(x, y), waits(y, x)].into_iter().flatten().collect()
    }

    /// The bytes of the temporaries that only this loop and this equation read.
    fn kept(&self, jaxpr: &Jaxpr, at: EqnId, unit: UnitId) -> usize {
        let Some(fused_loop) = self.fused_loop(unit) else { return 0 };
        let operands = fused_loop.members.iter().flat_map(|m| &m.operands).filter_map(Value::base);
        let mut read: Vec<Var> = operands.filter(|&var| self.unit[var].is_some_and(|of| of != unit)).collect();
        read.sort_unstable();
        read.dedup();
        read.into_iter().filter(|&var| !self.escapes(var, unit, Some(at))).map(|var| jaxpr.avals[var].bytes()).sum()
    }
}

/// Whether an equation adds two arrays.
pub(super) fn is_sum(eqn: &Eqn) -> bool {
    matches!(eqn.op, Op::Prim(Prim::Binary(Binary::Add | Binary::AddAny)))
}
