//! Views: values that are a layout of another value's buffer.
//!
//! A value has a buffer of its own, or is a view of another value's buffer, or is one number repeated. Reshapes,
//! transposes, broadcasts, reversals and slices are views: they cost nothing, and what reads them reads through strides.

use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{
    Array, Atom, Aval, DType, Eqn, Iota, Jaxpr, Literal, Op, Prim, Reduce, Result, Shape, Var, VarMap, eval_op,
};
use remat_kernels::Layout;

use super::check::check;
use super::fuse::Fusion;
use super::ir::{Steps, Value};
use super::recompute::recompute;
use crate::ids::EqnId;

/// The number of elements at which a loop's row stays in the cache of its core with all that is computed of it.
pub(crate) const LONGEST_ROW: usize = 1 << 14;

/// A part this many times smaller than its base is copied and not viewed, so that the base can die.
const SMALL_PART: usize = 8;

impl Steps {
    /// Lowers a program that went through [`CPU`](remat_opt::pipeline::CPU).
    ///
    /// # Errors
    /// If its steps cannot be put in order, or are wrong, which is a defect.
    pub(crate) fn of(mut jaxpr: Jaxpr) -> Result<Steps> {
        let mut values = VarMap::default();
        for (var, aval) in jaxpr.avals.iter() {
            values.push(Value::View { base: var, layout: Layout::from(aval) });
        }
        let mut names = jaxpr.var_map(None);
        for eqn in &jaxpr.eqns {
            if let (Op::Prim(Prim::Name(op)), Some(&Atom::Var(var))) = (&eqn.op, eqn.ins.first()) {
                names[var] = Some(op.name.clone());
            }
        }
        let eqns = std::mem::take(&mut jaxpr.eqns);
        let fusion = Fusion::new(&jaxpr, &eqns);
        let mut lowering = Lowering { jaxpr, names, values, fusion, counts: HashMap::new(), copies: HashMap::new() };
        for (at, eqn) in eqns.iter().enumerate() {
            lowering.equation(EqnId::new(at), eqn);
        }
        let Lowering { mut jaxpr, names, values, fusion, .. } = lowering;
        jaxpr.eqns = eqns;
        let steps = fusion.finish()?;
        let steps = recompute(Steps { jaxpr, names, values, steps });
        check(&steps)?;
        Ok(steps)
    }
}

struct Lowering {
    jaxpr: Jaxpr,
    names: VarMap<Option<Arc<str>>>,
    values: VarMap<Value>,
    fusion: Fusion,
    /// The numbers from zero, by dtype and count: one buffer serves every `iota` of a program.
    counts: HashMap<(DType, usize), Var>,
    /// The row-major copies that were made of views.
    copies: HashMap<(Var, Layout), Var>,
}

impl Lowering {
    fn equation(&mut self, at: EqnId, eqn: &Eqn) {
        // A label is not a step.
        if matches!(eqn.op, Op::Prim(Prim::Name(_))) {
            return;
        }
        let operands: Vec<Value> = eqn.ins.iter().map(|&a| self.value(a)).collect();
        if let Some(value) = self.view(at, eqn, &operands) {
            self.values[eqn.outs[0]] = value;
            return;
        }
        if self.fusion.fuse(&self.jaxpr, at, eqn, &operands) {
            return;
        }
        let is_strided = reads_strides(&eqn.op);
        let operands = operands.into_iter().map(|x| if is_strided { x } else { self.row_major(at, x) });
        let operands: Vec<Value> = operands.collect();
        self.fusion.alone(at, &eqn.outs, operands);
    }

    fn value(&self, atom: Atom) -> Value {
        match atom {
            Atom::Lit(literal) => Value::Splat { literal, shape: Shape::new() },
            Atom::Var(var) => self.values[var].clone(),
        }
    }

    /// The result of an equation that only changes a layout, or that is one number.
    fn view(&mut self, at: EqnId, eqn: &Eqn, operands: &[Value]) -> Option<Value> {
        let aval = self.jaxpr.avals[*eqn.outs.first()?].clone();
        let shape = &aval.shape;
        let x = operands.first();
        match &eqn.op {
            Op::Prim(Prim::Reshape(_) | Prim::Squeeze(_) | Prim::ExpandDims(_)) => {
                let x = x?;
                x.map(shape, |l| l.reshaped(shape)).or_else(|| {
                    let copy = self.row_major(at, x.clone());
                    copy.map(shape, |l| l.reshaped(shape))
                })
            }
            Op::Prim(Prim::Transpose(op)) => x?.map(shape, |l| Some(l.permuted(&op.permutation))),
            Op::Prim(Prim::BroadcastInDim(op)) => x?.map(shape, |l| Some(l.broadcast(shape, &op.dims))),
            Op::Prim(Prim::Rev(op)) => x?.map(shape, |l| Some(l.reversed(&op.axes))),
            Op::Prim(Prim::Slice(op)) => {
                let view = x?.map(shape, |l| Some(l.sliced(&op.start, &op.limit, &op.strides)))?;
                let base = view.base();
                let is_small = base.is_some_and(|b| aval.size() * SMALL_PART < self.jaxpr.avals[b].size());
                let is_input = base.is_some_and(|b| self.jaxpr.ins.contains(&b));
                Some(if is_small && !is_input { self.row_major(at, view) } else { view })
            }
            Op::Prim(Prim::Iota(op)) => {
                let count = self.count(at, op.dtype, op.shape[op.axis]);
                let value = self.values[count].clone();
                value.map(shape, |l| Some(l.broadcast(shape, &[op.axis])))
            }
            Op::Prim(Prim::Reduce(op)) if op.axes.is_empty() => x.cloned(),
            Op::Prim(Prim::Reduce(op)) if x?.shape().contains(&0) => {
                // What nothing is reduced to.
                let whole = Reduce { kind: op.kind, axes: [0].into_iter().collect() };
                let nothing = Array::full(Literal::from_bits(aval.dtype, 0), [0]);
                let literal = eval_op(&whole.into(), &[nothing]).ok()?.first()?.to_literal()?;
                Some(Value::Splat { literal, shape: shape.clone() })
            }
            Op::Prim(Prim::ConvertElementType(_) | Prim::BitcastConvertType(_)) => {
                (self.jaxpr.atom_aval(eqn.ins[0]).dtype == aval.dtype).then(|| x.cloned())?
            }
            _ => None,
        }
    }

    /// The numbers from zero to `len`.
    fn count(&mut self, at: EqnId, dtype: DType, len: usize) -> Var {
        if let Some(&var) = self.counts.get(&(dtype, len)) {
            return var;
        }
        let var = self.buffer(&Aval::new(dtype, [len]));
        self.counts.insert((dtype, len), var);
        self.fusion.count(at, var, Iota { dtype, shape: [len].into_iter().collect(), axis: 0 });
        var
    }

    /// The value, copied into a buffer of its own unless it is one, or a row-major part of one.
    fn row_major(&mut self, at: EqnId, value: Value) -> Value {
        let (key, aval) = match &value {
            Value::View { layout, .. } if layout.is_contiguous() => return value,
            Value::View { base, layout } => {
                let aval = self.jaxpr.avals[*base].with_shape(layout.shape.iter().copied());
                (Some((*base, layout.clone())), aval)
            }
            Value::Splat { literal, shape } => (None, Aval::new(literal.dtype(), shape.iter().copied())),
        };
        // One number is a constant of the program, and needs no step.
        if key.is_none() && aval.size() == 1 {
            return value;
        }
        if let Some(&copy) = key.as_ref().and_then(|key| self.copies.get(key)) {
            return self.values[copy].clone();
        }
        let out = self.buffer(&aval);
        if let Some(key) = key {
            self.copies.insert(key, out);
        }
        self.fusion.copy(at, value, out);
        self.values[out].clone()
    }

    /// A new variable with a buffer.
    fn buffer(&mut self, aval: &Aval) -> Var {
        let var = self.jaxpr.avals.push(aval.clone());
        self.names.push(None);
        self.fusion.var();
        self.values.push(Value::View { base: var, layout: Layout::from(aval) })
    }
}

/// Whether the kernel of an operation reads its operands through strides.
fn reads_strides(op: &Op) -> bool {
    matches!(
        op,
        Op::Prim(
            Prim::DotGeneral(_) | Prim::Conv(_) | Prim::DotProductAttention(_) | Prim::DotProductAttentionCotangent(_)
        )
    )
}
