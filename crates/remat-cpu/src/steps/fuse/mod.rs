//! Fusion: which elementwise equations and reductions one loop computes.
//!
//! Everything in a loop has the elements of one row-major space of `rows x columns`, in which reshapes mean nothing. A
//! value is *full* (an element at each place) or has one element per *row*: the reduction of a full value over its last
//! dimensions, or what is computed of such. A row value that is broadcast along the rows is used as it is. So a softmax
//! or a normalisation, and what comes before and after it, is one loop. Reductions over other dimensions, or over rows
//! too long for a cache, end a loop of their own kind, which keeps nothing but their accumulators.
//!
//! Equations are taken in program order, and each joins the loop that computes one of its operands if that makes no
//! cycle: no other operand may depend on the loop. This is known without a search. A loop is *closed* at the first
//! position from which on something outside may depend on it: that of the first equation outside that reads it, or the
//! one at which a loop that reads it is closed, if that is earlier. What was complete before cannot depend on it. (Loops
//! are grown as in XLA's instruction fusion, but over whole programs, and several results are kept.)

use oxc_index::{IndexVec, define_index_type, index_vec};
use remat_ir::{Eqn, Iota, Jaxpr, Op, Prim, Result, Var, VarMap};
use remat_kernels::{Extent, Layout};

use super::ir::{Group, Member, Step, Value};
use super::order::order;
use super::views::LONGEST_ROW;
use crate::ids::EqnId;

/// A loop has at most this many equations, so that what it computes stays in the first cache.
pub(super) const MOST_MEMBERS: usize = 64;

define_index_type! {
    /// A unit.
    pub(super) struct UnitId = u32;
}

/// The position at which a unit is closed that nothing outside depends on yet.
const OPEN: EqnId = EqnId::from_raw_unchecked(u32::MAX);

/// What may become a step.
struct Unit {
    kind: Kind,
    /// The last equation in it.
    last: EqnId,
    /// The equations that depend on it, outside of it, are this one or later ones.
    closed: EqnId,
    /// The units that it reads, which are closed no later than it is.
    reads: Vec<UnitId>,
}

enum Kind {
    Equation {
        eqn: EqnId,
        operands: Vec<Value>,
    },
    Copy {
        eqn: EqnId,
        operand: Value,
        out: Var,
    },
    Count {
        eqn: EqnId,
        out: Var,
        iota: Iota,
    },
    Group(Group),
    /// Merged into another one.
    Gone(UnitId),
}

pub(crate) struct Fusion {
    units: IndexVec<UnitId, Unit>,
    /// The unit that computes each variable; `None` for arguments and for what has no buffer.
    unit: VarMap<Option<UnitId>>,
    extent: VarMap<Extent>,
    /// The equations that read each variable.
    readers: VarMap<Vec<EqnId>>,
    /// What is an output of the program, or read by a copy.
    is_read: VarMap<bool>,
    /// What each equation became part of.
    part_of: IndexVec<EqnId, Option<UnitId>>,
    /// The first variable that each equation makes: the only one, if it is a change of layout.
    eqn_outs: IndexVec<EqnId, Var>,
}

/// How an equation fits into a group.
#[derive(Clone, Copy, PartialEq)]
struct Fit {
    extent: Extent,
    columns: Option<usize>,
    /// What the group has is per row of what the equation has.
    promotes: bool,
}

impl Fusion {
    pub(crate) fn new(jaxpr: &Jaxpr, eqns: &[Eqn]) -> Fusion {
        let len = jaxpr.avals.len();
        let mut readers = VarMap::filled(len, Vec::new());
        // A label is not a reader.
        for (at, eqn) in eqns.iter().enumerate().filter(|(_, eqn)| !matches!(eqn.op, Op::Prim(Prim::Name(_)))) {
            for var in eqn.ins.iter().filter_map(|a| a.var()) {
                readers[var].push(EqnId::new(at));
            }
        }
        let mut is_read = VarMap::filled(len, false);
        for var in jaxpr.outs.iter().filter_map(|a| a.var()) {
            is_read[var] = true;
        }
        Fusion {
            units: IndexVec::new(),
            unit: VarMap::filled(len, None),
            extent: VarMap::filled(len, Extent::Full),
            readers,
            is_read,
            part_of: index_vec![None; eqns.len()],
            eqn_outs: eqns.iter().map(|e| e.outs.first().copied().unwrap_or(Var(0))).collect(),
        }
    }

    /// Makes room for a new variable.
    pub(crate) fn var(&mut self) {
        self.unit.push(None);
        self.extent.push(Extent::Full);
        self.readers.push(Vec::new());
        self.is_read.push(false);
    }

    /// An equation that runs alone.
    pub(crate) fn alone(&mut self, eqn: EqnId, outs: &[Var], operands: Vec<Value>) {
        let unit = self.push(Kind::Equation { eqn, operands: operands.clone() }, eqn, outs);
        self.part_of[eqn] = Some(unit);
        self.read(eqn, &operands, unit);
    }

    /// A copy for an equation.
    pub(crate) fn copy(&mut self, eqn: EqnId, operand: Value, out: Var) {
        if let Some(base) = operand.base() {
            self.is_read[base] = true;
        }
        let unit = self.push(Kind::Copy { eqn, operand: operand.clone(), out }, eqn, &[out]);
        self.read(eqn, &[operand], unit);
    }

    /// The numbers from zero, for an equation.
    pub(crate) fn count(&mut self, eqn: EqnId, out: Var, iota: Iota) {
        self.push(Kind::Count { eqn, out, iota }, eqn, &[out]);
    }

    fn push(&mut self, kind: Kind, at: EqnId, outs: &[Var]) -> UnitId {
        let unit = self.units.push(Unit { kind, last: at, closed: OPEN, reads: Vec::new() });
        for &out in outs {
            self.unit[out] = Some(unit);
        }
        unit
    }

    /// Notes that an equation of a unit reads these.
    fn read(&mut self, at: EqnId, operands: &[Value], reader: UnitId) {
        for base in operands.iter().filter_map(Value::base) {
            if let Some(unit) = self.unit[base].filter(|&u| u != reader) {
                if !self.units[reader].reads.contains(&unit) {
                    self.units[reader].reads.push(unit);
                }
                self.close(unit, at.min(self.units[reader].closed));
            }
        }
    }

    /// Closes a unit at a position, and what it reads.
    fn close(&mut self, unit: UnitId, at: EqnId) {
        let mut stack = vec![unit];
        while let Some(unit) = stack.pop() {
            if self.units[unit].closed > at {
                self.units[unit].closed = at;
                stack.extend(&self.units[unit].reads);
            }
            if let Kind::Gone(into) = self.units[unit].kind {
                stack.push(into);
            }
        }
    }

    /// Takes an elementwise equation or a reduction into a loop; false if it is neither.
    pub(crate) fn fuse(&mut self, jaxpr: &Jaxpr, at: EqnId, eqn: &Eqn, operands: &[Value]) -> bool {
        match &eqn.op {
            Op::Prim(
                Prim::Unary(_)
                | Prim::IntegerPow(_)
                | Prim::Binary(_)
                | Prim::Compare(_)
                | Prim::SelectN(_)
                | Prim::Clamp(_),
            ) => {}
            Op::Prim(Prim::ConvertElementType(_) | Prim::ReducePrecision(_)) => {}
            Op::Prim(Prim::BitcastConvertType(op)) if jaxpr.atom_aval(eqn.ins[0]).dtype.size() == op.dtype.size() => {}
            Op::Prim(Prim::Reduce(op)) => {
                self.reduce(jaxpr, at, eqn, &operands[0], &op.axes);
                return true;
            }
            _ => return false,
        }
        let size = self.size(jaxpr, eqn.outs[0]);
        let mut candidates: Vec<UnitId> = operands.iter().filter_map(|x| self.unit[x.base()?]).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let mut joined: Option<(UnitId, Fit)> = None;
        for &unit in candidates.iter().rev() {
            let Some(fit) = self.fits(unit, size, operands) else { continue };
            match joined {
                None if self.is_free(unit, operands, &[unit]) => {
                    self.adjust(unit, fit);
                    joined = Some((unit, fit));
                }
                Some((into, chosen)) if self.can_merge(into, unit, chosen, fit, operands) => {
                    self.merge(into, unit, fit)
                }
                _ => {}
            }
        }
        let member = |extent| Member { eqn: at, out: eqn.outs[0], operands: operands.to_vec(), extent };
        match joined {
            Some((unit, fit)) => self.join(unit, member(fit.extent)),
            None => {
                let group = Group { members: Vec::new(), rows: size, columns: None, reduction: None, outs: Vec::new() };
                let unit = self.push(Kind::Group(group), at, &[]);
                self.join(unit, member(Extent::Full));
            }
        }
        if let Some(unit) = self.unit[eqn.outs[0]] {
            self.read(at, operands, unit);
        }
        true
    }

    fn size(&self, jaxpr: &Jaxpr, var: Var) -> usize {
        jaxpr.avals[var].size()
    }

    fn group(&self, unit: UnitId) -> Option<&Group> {
        match &self.units[unit].kind {
            Kind::Group(group) => Some(group),
            _ => None,
        }
    }

    fn group_mut(&mut self, unit: UnitId) -> Option<&mut Group> {
        match &mut self.units[unit].kind {
            Kind::Group(group) => Some(group),
            _ => None,
        }
    }

    /// Whether no operand that is computed outside of `inside` depends on the unit.
    fn is_free(&self, unit: UnitId, operands: &[Value], inside: &[UnitId]) -> bool {
        let closed = self.units[unit].closed;
        let mut outside = operands.iter().filter_map(|x| self.unit[x.base()?]).filter(|u| !inside.contains(u));
        outside.all(|u| self.units[u].last < closed)
    }

    /// How an elementwise equation of `size` elements fits the shape of a group, if it does.
    fn fits(&self, unit: UnitId, size: usize, operands: &[Value]) -> Option<Fit> {
        let group = self.group(unit)?;
        if group.reduction.is_some() || group.members.len() >= MOST_MEMBERS {
            return None;
        }
        let inside = || {
            operands.iter().filter_map(|x| match x {
                Value::View { base, layout } if self.unit[*base] == Some(unit) => Some((self.extent[*base], layout)),
                _ => None,
            })
        };
        let mut rows = inside().map(|(extent, layout)| extent == Extent::Row && layout.is_contiguous());
        if group.columns.is_some() && size == group.rows && rows.all(|is_row| is_row) {
            return Some(Fit { extent: Extent::Row, columns: group.columns, promotes: false });
        }
        if size == group.size() {
            let mut columns = group.columns;
            let fits = inside().all(|(extent, layout)| match extent {
                Extent::Full => layout.is_contiguous() && layout.size() == size,
                Extent::Row => {
                    let repeats = repeats(layout, group.rows, size);
                    columns = columns.or(repeats);
                    repeats.is_some() && repeats == columns
                }
            });
            return fits.then_some(Fit { extent: Extent::Full, columns, promotes: false });
        }
        // What the group computed so far is one element per row of this.
        if group.columns.is_none() && group.rows > 0 && size > group.rows && size.is_multiple_of(group.rows) {
            let columns = size / group.rows;
            let fits = inside().all(|(_, layout)| repeats(layout, group.rows, size) == Some(columns));
            return (fits && columns <= LONGEST_ROW).then_some(Fit {
                extent: Extent::Full,
                columns: Some(columns),
                promotes: true,
            });
        }
        None
    }

    /// Makes a group what a fit says.
    fn adjust(&mut self, unit: UnitId, fit: Fit) {
        let Some(group) = self.group_mut(unit) else { return };
        if fit.promotes {
            group.columns = fit.columns;
            for member in &mut group.members {
                member.extent = Extent::Row;
            }
            let outs: Vec<Var> = group.members.iter().map(|m| m.out).collect();
            for out in outs {
                self.extent[out] = Extent::Row;
            }
        } else if group.columns != fit.columns
            && let Some(columns) = fit.columns
        {
            group.rows /= columns;
            group.columns = fit.columns;
        }
    }

    /// Whether a second group can be merged into the one that the equation joins.
    fn can_merge(&self, into: UnitId, unit: UnitId, chosen: Fit, fit: Fit, operands: &[Value]) -> bool {
        let (Some(a), Some(b)) = (self.group(into), self.group(unit)) else { return false };
        // Without columns there are full values only, which fit any.
        let columns_agree = a.columns.is_none_or(|x| fit.columns.is_none_or(|y| x == y));
        chosen.extent == fit.extent
            && columns_agree
            && a.members.len() + b.members.len() < MOST_MEMBERS
            && self.units[unit].last < self.units[into].closed
            && self.units[into].last < self.units[unit].closed
            && self.is_free(into, operands, &[into, unit])
            && self.is_free(unit, operands, &[into, unit])
    }

    fn merge(&mut self, into: UnitId, unit: UnitId, fit: Fit) {
        self.adjust(unit, fit);
        let gone = std::mem::replace(&mut self.units[unit].kind, Kind::Gone(into));
        let reads = std::mem::take(&mut self.units[unit].reads);
        let (last, closed) = (self.units[unit].last, self.units[unit].closed.min(self.units[into].closed));
        self.units[into].last = self.units[into].last.max(last);
        self.units[into].closed = closed;
        self.units[into].reads.extend(reads);
        for other in self.units[into].reads.clone() {
            self.close(other, closed);
        }
        if let Kind::Group(other) = gone {
            for member in &other.members {
                self.unit[member.out] = Some(into);
                self.part_of[member.eqn] = Some(into);
            }
            if let Some(group) = self.group_mut(into) {
                if let (None, Some(columns)) = (group.columns, other.columns) {
                    (group.rows, group.columns) = (other.rows, Some(columns));
                }
                group.members.extend(other.members);
                group.members.sort_by_key(|m| m.eqn);
            }
        }
    }

    fn join(&mut self, unit: UnitId, member: Member) {
        self.unit[member.out] = Some(unit);
        self.extent[member.out] = member.extent;
        self.part_of[member.eqn] = Some(unit);
        self.units[unit].last = self.units[unit].last.max(member.eqn);
        if let Some(group) = self.group_mut(unit) {
            group.members.push(member);
        }
    }

    /// Takes a reduction into the loop that computes its operand, or into a new one.
    fn reduce(&mut self, jaxpr: &Jaxpr, at: EqnId, eqn: &Eqn, operand: &Value, axes: &[usize]) {
        let shape = operand.shape().clone();
        let (size, rows) = (shape.iter().product::<usize>(), self.size(jaxpr, eqn.outs[0]));
        let columns = size / rows.max(1);
        let kept_after = |axis: usize| (axis + 1..shape.len()).any(|d| shape[d] != 1 && !axes.contains(&d));
        let is_last = !axes.iter().any(|&axis| shape[axis] != 1 && kept_after(axis));
        let in_rows = is_last && columns <= LONGEST_ROW;
        let source = match operand {
            Value::View { base, layout } if layout.is_contiguous() && layout.size() == size => {
                self.unit[*base].filter(|&u| self.group(u).is_some() && self.extent[*base] == Extent::Full)
            }
            _ => None,
        };
        let operands = [operand.clone()];
        let source = source.filter(|&u| {
            let Some(group) = self.group(u) else { return false };
            let fits = match (in_rows, &group.reduction) {
                (true, None) => group.size() == size && group.columns.is_none_or(|c| c == columns),
                (false, None) => {
                    group.columns.is_none()
                        && self.ends_in(u, at)
                        && group.members.iter().all(|m| fits_shape(m, &shape))
                }
                (false, Some((s, a))) => *s == shape && a[..] == *axes,
                (true, Some(_)) => false,
            };
            fits && group.members.len() < MOST_MEMBERS && self.is_free(u, &operands, &[u])
        });
        let unit = source.unwrap_or_else(|| {
            let rows = if in_rows { rows } else { size };
            let group = Group { members: Vec::new(), rows, columns: None, reduction: None, outs: Vec::new() };
            self.push(Kind::Group(group), at, &[])
        });
        if let Some(group) = self.group_mut(unit) {
            if in_rows {
                (group.rows, group.columns) = (rows, Some(columns));
            } else {
                group.reduction = Some((shape, axes.into()));
            }
        }
        self.join(unit, Member { eqn: at, out: eqn.outs[0], operands: operands.to_vec(), extent: Extent::Row });
        self.read(at, &operands, unit);
    }

    /// Whether everything that a group computes is read by the group itself and by this equation only.
    fn ends_in(&self, unit: UnitId, at: EqnId) -> bool {
        let Some(group) = self.group(unit) else { return false };
        group.members.iter().all(|m| !self.leaves(m.out, unit, Some(at)))
    }

    /// Whether something outside of a unit, other than one equation, reads a value or a view of it.
    fn leaves(&self, var: Var, unit: UnitId, except: Option<EqnId>) -> bool {
        let mut stack = vec![var];
        while let Some(var) = stack.pop() {
            if self.is_read[var] {
                return true;
            }
            for &reader in &self.readers[var] {
                match self.part_of[reader] {
                    _ if except == Some(reader) => {}
                    Some(u) if u == unit => {}
                    Some(_) => return true,
                    // A change of layout that was seen, or an equation that is still to come.
                    None if except.is_none_or(|at| reader < at) => stack.push(self.eqn_outs[reader]),
                    None => return true,
                }
            }
        }
        false
    }

    /// The steps, in an order in which they can run.
    ///
    /// # Errors
    /// If there is none, which is a defect: loops were made that depend on each other.
    pub(crate) fn finish(mut self) -> Result<Vec<Step>> {
        for unit in self.units.indices() {
            let Some(group) = self.group(unit) else { continue };
            let outs = group.members.iter().map(|m| m.out).filter(|&out| self.leaves(out, unit, None)).collect();
            if let Some(group) = self.group_mut(unit) {
                group.outs = outs;
            }
        }
        let reads = self.units.iter_enumerated().map(|(i, unit)| {
            let mut reads: Vec<UnitId> = unit.kind.operands().filter_map(|x| self.unit[x.base()?]).collect();
            reads.sort_unstable();
            reads.dedup();
            reads.retain(|&u| u != i);
            reads
        });
        let positions: IndexVec<UnitId, EqnId> = self.units.iter().map(|unit| unit.last.min(unit.closed)).collect();
        let order = order(&reads.collect(), &positions)?;
        let mut kinds: IndexVec<UnitId, Kind> = self.units.into_iter().map(|unit| unit.kind).collect();
        // `order` gives each unit once.
        let steps = order.into_iter().filter_map(|u| match std::mem::replace(&mut kinds[u], Kind::Gone(u)) {
            Kind::Equation { eqn, operands } => Some(Step::Equation { eqn, operands }),
            Kind::Copy { eqn, operand, out } => Some(Step::Copy { eqn, operand, out }),
            Kind::Count { eqn, out, iota } => Some(Step::Count { eqn, out, iota }),
            Kind::Group(group) => Some(Step::Loop(group)),
            Kind::Gone(_) => None,
        });
        Ok(steps.collect())
    }
}

impl Kind {
    fn operands(&self) -> Box<dyn Iterator<Item = &Value> + '_> {
        match self {
            Kind::Equation { operands, .. } => Box::new(operands.iter()),
            Kind::Copy { operand, .. } => Box::new(std::iter::once(operand)),
            Kind::Group(group) => Box::new(group.members.iter().flat_map(|m| &m.operands)),
            Kind::Count { .. } | Kind::Gone(_) => Box::new(std::iter::empty()),
        }
    }
}

/// How often a layout of `size` elements repeats each of the `rows` elements of a row-major buffer before the next.
fn repeats(layout: &Layout, rows: usize, size: usize) -> Option<usize> {
    let columns = size.checked_div(rows)?;
    let is_scalar = layout.size() == 1 && rows == 1;
    let is_repeated = layout.size() == size
        && match layout.merged().as_slice() {
            [] => rows == 1,
            [(_, 0)] => rows == 1,
            [(n, 1)] => *n == rows,
            [(n, 1), (_, 0)] => *n == rows,
            _ => false,
        };
    (layout.offset == 0 && (is_scalar || is_repeated)).then_some(columns)
}

/// Whether everything that a member reads can be read in the dimensions of this shape.
fn fits_shape(member: &Member, shape: &[usize]) -> bool {
    member.operands.iter().all(|x| match x {
        Value::View { layout, .. } => layout.size() == 1 || layout.reshaped(shape).is_some(),
        Value::Splat { .. } => true,
    })
}
