//! Fusion: decides which elementwise equations and reductions share one loop.
//!
//! All values of a loop have the elements of one row-major space of `rows x columns`, in which reshapes change nothing. A value is *full*
//! (one element per element of the space) or has one element per *row*: it is the reduction of a full value over its last dimensions, a value
//! that full values read broadcast along the rows, a scalar in a loop over one row, or computed from such values. The loop can read a row
//! value that is broadcast along the rows. So a softmax or a normalisation is one loop with the operations before and after it. Reductions
//! over other dimensions, or over rows too long for a cache, end a separate kind of loop that stores only their accumulators.
//!
//! A *unit* is a step under construction: a loop to which equations are added, or another step. Equations are taken in program order. Each
//! joins the loop that computes one of its operands if that makes no cycle: no other operand, and no barrier that the equation waits for,
//! may depend on the loop. This takes no search. A loop is *closed* at the position of the first outside equation that reads it, directly
//! or through another unit, since units may depend on it from there on. Units whose last equation is before that position cannot. (XLA's
//! instruction fusion grows loops in the same way; here whole programs are fused, and a loop may store several results.)

mod fit;
mod units;
mod wait;

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Eqn, Iota, Jaxpr, Op, Prim, Var, VarMap};
use remat_kernels::Extent;

use self::fit::Fit;
use self::units::Unit;
use super::ir::{FusedLoop, Member, Step, Tokens, Value};
use crate::ids::EqnId;

pub(super) use self::fit::{fits_shape, repeats};
pub(super) use self::units::UnitId;

/// The longest row of a loop, in elements, that stays in the cache of its core together with the values computed from it.
const LONGEST_ROW: usize = 1 << 14;

/// A loop has at most this many equations, so that its tiles stay in the first-level cache.
pub(super) const MOST_MEMBERS: usize = 64;

/// The units of a program under construction.
pub(super) struct Fusion {
    units: IndexVec<UnitId, Unit>,
    /// The unit that computes each variable; `None` for arguments and for views.
    unit: VarMap<Option<UnitId>>,
    extent: VarMap<Extent>,
    /// The equations that read each variable.
    readers: VarMap<Vec<EqnId>>,
    /// Whether each variable is an output of the program, or read by a copy.
    must_be_stored: VarMap<bool>,
    /// The unit of each equation.
    part_of: IndexVec<EqnId, Option<UnitId>>,
    /// Whether each equation adds two arrays.
    is_sum: IndexVec<EqnId, bool>,
    /// The first result of each equation, which is the only one of a change of layout.
    eqn_outs: IndexVec<EqnId, Option<Var>>,
    tokens: Tokens,
}

impl Fusion {
    pub(super) fn new(jaxpr: &Jaxpr, eqns: &[Eqn]) -> Fusion {
        let len = jaxpr.avals.len();
        let mut readers = VarMap::filled(len, Vec::new());
        // A label is not a reader.
        for (at, eqn) in eqns.iter().enumerate().filter(|(_, eqn)| !matches!(eqn.op, Op::Prim(Prim::Name(_)))) {
            for var in eqn.ins.iter().filter_map(|a| a.var()) {
                readers[var].push(EqnId::new(at));
            }
        }
        let mut must_be_stored = VarMap::filled(len, false);
        for var in jaxpr.outs.iter().filter_map(|a| a.var()) {
            must_be_stored[var] = true;
        }
        Fusion {
            units: IndexVec::new(),
            unit: VarMap::filled(len, None),
            extent: VarMap::filled(len, Extent::Full),
            readers,
            must_be_stored,
            part_of: index_vec![None; eqns.len()],
            is_sum: eqns.iter().map(wait::is_sum).collect(),
            eqn_outs: eqns.iter().map(|e| e.outs.first().copied()).collect(),
            tokens: Tokens::default(),
        }
    }

    /// Makes room for a new variable.
    pub(super) fn var(&mut self) {
        self.unit.push(None);
        self.extent.push(Extent::Full);
        self.readers.push(Vec::new());
        self.must_be_stored.push(false);
    }

    /// Makes an equation that is not yet added wait for the barriers of these tokens.
    pub(super) fn wait(&mut self, eqn: EqnId, tokens: Vec<Var>) {
        self.tokens.wait(eqn, tokens);
    }

    /// Adds an equation that runs alone.
    pub(super) fn alone(&mut self, eqn: EqnId, outs: &[Var], operands: Vec<Value>) {
        let unit = self.push(Step::Equation { eqn, operands: operands.clone(), outs: outs.to_vec() }, eqn, outs);
        self.part_of[eqn] = Some(unit);
        self.read(eqn, &operands, unit);
    }

    /// Adds a barrier, which writes its token.
    pub(super) fn barrier(&mut self, eqn: EqnId, operands: Vec<Value>, token: Var) {
        let unit = self.push(Step::Barrier { eqn, operands: operands.clone(), token }, eqn, &[token]);
        self.part_of[eqn] = Some(unit);
        self.read(eqn, &operands, unit);
    }

    /// Adds a copy for an equation.
    pub(super) fn copy(&mut self, eqn: EqnId, operand: Value, out: Var) {
        if let Some(base) = operand.base() {
            self.must_be_stored[base] = true;
        }
        let unit = self.push(Step::Copy { eqn, operand: operand.clone(), out }, eqn, &[out]);
        self.read(eqn, &[operand], unit);
    }

    /// Adds the numbers from zero for an equation.
    pub(super) fn iota(&mut self, eqn: EqnId, out: Var, iota: Iota) {
        self.push(Step::Iota { eqn, out, iota }, eqn, &[out]);
    }

    /// Adds an elementwise equation to the loop that computes one of its operands, or to a new one. Loops that compute its other operands
    /// are merged with it, except for sums that would wait for the newest term.
    pub(super) fn elementwise(&mut self, jaxpr: &Jaxpr, at: EqnId, eqn: &Eqn, operands: &[Value]) {
        let out = eqn.outs[0];
        let size = jaxpr.avals[out].size();
        let sources = self.sources(at, operands);
        let waiting = self.would_wait(jaxpr, at, operands);
        let mut joined: Option<(UnitId, Fit)> = None;
        for &unit in sources.iter().rev().filter(|unit| !waiting.contains(unit)) {
            let Some(fit) = self.fits(unit, size, operands) else { continue };
            match joined {
                None if self.is_free(unit, &sources, &[unit]) => {
                    self.adjust(unit, fit);
                    joined = Some((unit, fit));
                }
                Some((into, chosen)) if self.can_merge(into, unit, chosen, fit, &sources) => {
                    let [chosen, fit] = self.with_one_extent([(into, chosen), (unit, fit)]);
                    self.adjust(unit, fit);
                    self.merge(into, unit);
                    joined = Some((into, chosen));
                }
                _ => {}
            }
        }
        let (unit, extent) = match joined {
            Some((unit, fit)) => (unit, fit.extent),
            None => (self.new_loop(at, size), Extent::Full),
        };
        self.join(unit, Member { eqn: at, out, operands: operands.to_vec(), extent });
        self.read(at, operands, unit);
    }

    /// A loop without equations and with this many rows.
    fn new_loop(&mut self, at: EqnId, rows: usize) -> UnitId {
        let fused_loop = FusedLoop { members: Vec::new(), rows, columns: None, reduction: None, outs: Vec::new() };
        self.push(Step::Loop(fused_loop), at, &[])
    }

    /// Adds a reduction to the loop that computes its operand, or to a new one.
    pub(super) fn reduce(&mut self, jaxpr: &Jaxpr, at: EqnId, eqn: &Eqn, operand: &Value, axes: &[usize]) {
        let shape = operand.shape().clone();
        let (size, rows) = (shape.iter().product::<usize>(), jaxpr.avals[eqn.outs[0]].size());
        let columns = size / rows.max(1);
        let kept_after = |axis: usize| (axis + 1..shape.len()).any(|d| shape[d] != 1 && !axes.contains(&d));
        let is_last = !axes.iter().any(|&axis| shape[axis] != 1 && kept_after(axis));
        let in_rows = is_last && columns <= LONGEST_ROW;
        let source = match operand {
            Value::View { base, layout } if layout.is_contiguous() && layout.size() == size => {
                self.unit[*base].filter(|&u| self.fused_loop(u).is_some() && self.extent[*base] == Extent::Full)
            }
            _ => None,
        };
        let operands = [operand.clone()];
        let sources = self.sources(at, &operands);
        let source = source.filter(|&u| {
            let Some(fused_loop) = self.fused_loop(u) else { return false };
            let fits = match (in_rows, &fused_loop.reduction) {
                (true, None) => fused_loop.size() == size && fused_loop.columns.is_none_or(|c| c == columns),
                (false, None) => {
                    fused_loop.columns.is_none()
                        && self.ends_in(u, at)
                        && fused_loop.members.iter().all(|m| fits_shape(m, &shape))
                }
                (false, Some((s, a))) => *s == shape && a[..] == *axes,
                (true, Some(_)) => false,
            };
            fits && fused_loop.members.len() < MOST_MEMBERS && self.is_free(u, &sources, &[u])
        });
        let unit = source.unwrap_or_else(|| self.new_loop(at, if in_rows { rows } else { size }));
        if let Some(fused_loop) = self.fused_loop_mut(unit) {
            if in_rows {
                (fused_loop.rows, fused_loop.columns) = (rows, Some(columns));
            } else {
                fused_loop.reduction = Some((shape, axes.into()));
            }
        }
        self.join(unit, Member { eqn: at, out: eqn.outs[0], operands: operands.to_vec(), extent: Extent::Row });
        self.read(at, &operands, unit);
    }
}
