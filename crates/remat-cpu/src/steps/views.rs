//! Views: values that read another value's buffer through a layout.
//!
//! A value has its own buffer, is a view of another value's buffer, or is one number repeated. Reshapes, transposes, broadcasts, reversals
//! and slices are views: they cost nothing, and their readers read through strides. The results of a barrier are its operands, and their
//! readers wait for its token.
//!
//! A barrier is a step without a kernel that reads its operands and writes a *token* of no bytes, which the readers of its results read,
//! too. So fusion, schedule and plan need not know about barriers. An effect, such as a print, writes a token besides its results, and waits
//! for the token of the effect before it: effects run in the order of the program.

use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{
    Array, Atom, Aval, DType, Eqn, Iota, Jaxpr, Keep, Literal, Op, Prim, Reduce, Result, Shape, Var, VarMap, eval_op,
};
use remat_kernels::Layout;

use super::form::{Form, form};
use super::fuse::Fusion;
use super::ir::{Steps, Value};
use crate::ids::EqnId;

/// A slice this many times smaller than its base is copied instead of viewed, so that the base can die.
const SMALL_SLICE: usize = 8;

/// Lowers a program: each equation becomes a view or joins the fusion.
///
/// # Errors
/// If its steps cannot be put in order, which is a defect.
pub(super) fn fused(mut jaxpr: Jaxpr) -> Result<Steps> {
    let mut values = VarMap::default();
    for (var, aval) in jaxpr.avals.iter() {
        values.push(Value::View { base: var, layout: Layout::from(aval) });
    }
    let mut names = jaxpr.var_map(None);
    for eqn in &jaxpr.eqns {
        if let (Op::Prim(Prim::Name(op)), Some(&Atom::Var(var))) = (&eqn.op, eqn.ins.first()) {
            names[var] = op.label().cloned().or(names[var].take());
        }
    }
    let eqns = std::mem::take(&mut jaxpr.eqns);
    let fusion = Fusion::new(&jaxpr, &eqns);
    let (iotas, copies, behind) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut lowering = Lowering { jaxpr, names, values, fusion, iotas, copies, behind, effect: None };
    for (at, eqn) in eqns.iter().enumerate() {
        lowering.equation(EqnId::new(at), eqn);
    }
    let Lowering { mut jaxpr, names, values, fusion, .. } = lowering;
    let is_kept = |eqn: &&Eqn| matches!(&eqn.op, Op::Prim(Prim::Name(op)) if op.keep != Keep::Choice);
    let kept = eqns.iter().filter(is_kept).filter_map(|eqn| values[eqn.ins[0].var()?].base()).collect();
    jaxpr.eqns = eqns;
    let (steps, tokens) = fusion.finish()?;
    Ok(Steps { jaxpr, names, kept, values, steps, tokens, made: Vec::new() })
}

struct Lowering {
    jaxpr: Jaxpr,
    names: VarMap<Option<Arc<str>>>,
    values: VarMap<Value>,
    fusion: Fusion,
    /// The numbers from zero, by dtype and length: one buffer serves every `iota` of a program.
    iotas: HashMap<(DType, usize), Var>,
    /// The row-major copies of views.
    copies: HashMap<(Var, Layout), Var>,
    /// The tokens that readers of a variable wait for: the readers of a barrier's results and of views of them.
    behind: HashMap<Var, Vec<Var>>,
    /// The token of the last effect, for which the next one waits.
    effect: Option<Var>,
}

impl Lowering {
    fn equation(&mut self, at: EqnId, eqn: &Eqn) {
        let form = form(&self.jaxpr, eqn);
        if form == Form::Label {
            return;
        }
        let operands: Vec<Value> = eqn.ins.iter().map(|&a| self.value(a)).collect();
        let mut tokens = self.tokens(eqn);
        let mut outs = eqn.outs.clone();
        if eqn.op.has_effect() {
            let token = self.buffer(&Aval::new(DType::U8, [0]));
            tokens.extend(self.effect.replace(token));
            outs.push(token);
        }
        self.fusion.wait(at, tokens.clone());
        if let Some(value) = self.view(at, eqn, &operands) {
            self.values[eqn.outs[0]] = value;
            self.follow(eqn.outs[0], tokens);
            return;
        }
        match form {
            Form::Barrier => self.barrier(at, eqn, operands),
            Form::Elementwise => self.fusion.elementwise(&self.jaxpr, at, eqn, &operands),
            Form::Reduction(axes) => self.fusion.reduce(&self.jaxpr, at, eqn, &operands[0], axes),
            Form::Strided => self.fusion.alone(at, &outs, operands),
            Form::Label | Form::View | Form::RowMajor => {
                let operands: Vec<Value> = operands.into_iter().map(|x| self.row_major(at, x)).collect();
                self.fusion.alone(at, &outs, operands);
            }
        }
    }

    /// The tokens of an equation's operands, each once.
    fn tokens(&self, eqn: &Eqn) -> Vec<Var> {
        if self.behind.is_empty() {
            return Vec::new();
        }
        let operands = eqn.ins.iter().filter_map(|a| self.behind.get(&a.var()?));
        let mut tokens: Vec<Var> = operands.flatten().copied().collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// Makes readers of a variable wait for these tokens.
    fn follow(&mut self, var: Var, tokens: Vec<Var>) {
        if !tokens.is_empty() {
            self.behind.insert(var, tokens);
        }
    }

    /// Lowers a barrier: its results are its operands, behind a new token.
    fn barrier(&mut self, at: EqnId, eqn: &Eqn, operands: Vec<Value>) {
        let token = self.buffer(&Aval::new(DType::U8, [0]));
        for (&out, operand) in eqn.outs.iter().zip(&operands) {
            // A name of the result becomes a name of the operand, whose buffer reports list.
            if let (Some(base), Some(name)) = (operand.base(), &self.names[out])
                && self.names[base].is_none()
            {
                self.names[base] = Some(name.clone());
            }
            self.values[out] = operand.clone();
            self.follow(out, vec![token]);
        }
        self.fusion.barrier(at, operands, token);
    }

    fn value(&self, atom: Atom) -> Value {
        match atom {
            Atom::Lit(literal) => Value::Splat { literal, shape: Shape::new() },
            Atom::Var(var) => self.values[var].clone(),
        }
    }

    /// The result of an equation that only changes a layout, or whose elements are all one number.
    fn view(&mut self, at: EqnId, eqn: &Eqn, operands: &[Value]) -> Option<Value> {
        let aval = self.jaxpr.avals[*eqn.outs.first()?].clone();
        let shape = &aval.shape;
        let x = operands.first();
        let Op::Prim(op) = &eqn.op else { return None };
        match op {
            Prim::Reshape(_) | Prim::Squeeze(_) | Prim::ExpandDims(_) => {
                let x = x?;
                x.map(shape, |l| l.reshaped(shape)).or_else(|| {
                    let copy = self.row_major(at, x.clone());
                    copy.map(shape, |l| l.reshaped(shape))
                })
            }
            Prim::Transpose(op) => x?.map(shape, |l| Some(l.permuted(&op.permutation))),
            Prim::BroadcastInDim(op) => x?.map(shape, |l| Some(l.broadcast(shape, &op.dims))),
            Prim::Rev(op) => x?.map(shape, |l| Some(l.reversed(&op.axes))),
            Prim::Slice(op) => {
                let view = x?.map(shape, |l| Some(l.sliced(&op.start, &op.limit, &op.strides)))?;
                let base = view.base();
                let is_small = base.is_some_and(|b| aval.size() * SMALL_SLICE < self.jaxpr.avals[b].size());
                let is_input = base.is_some_and(|b| self.jaxpr.ins.contains(&b));
                Some(if is_small && !is_input { self.row_major(at, view) } else { view })
            }
            Prim::Iota(op) => {
                let count = self.count(at, op.dtype, op.shape[op.axis]);
                let value = self.values[count].clone();
                value.map(shape, |l| Some(l.broadcast(shape, &[op.axis])))
            }
            Prim::Reduce(op) if op.axes.is_empty() => x.cloned(),
            Prim::Reduce(op) if x?.shape().contains(&0) => {
                // A reduction of no elements.
                let whole = Reduce { kind: op.kind, axes: [0].into_iter().collect() };
                let nothing = Array::full(Literal::from_bits(aval.dtype, 0), [0]);
                let literal = eval_op(&whole.into(), &[nothing]).ok()?.first()?.to_literal()?;
                Some(Value::Splat { literal, shape: shape.clone() })
            }
            Prim::ConvertElementType(_) | Prim::BitcastConvertType(_) => {
                (self.jaxpr.atom_aval(eqn.ins[0]).dtype == aval.dtype).then(|| x.cloned())?
            }
            _ => None,
        }
    }

    /// The numbers from zero to `len`.
    fn count(&mut self, at: EqnId, dtype: DType, len: usize) -> Var {
        if let Some(&var) = self.iotas.get(&(dtype, len)) {
            return var;
        }
        let var = self.buffer(&Aval::new(dtype, [len]));
        self.iotas.insert((dtype, len), var);
        self.fusion.iota(at, var, Iota { dtype, shape: [len].into_iter().collect(), axis: 0 });
        var
    }

    /// The value, copied into its own buffer unless it already is a buffer or a row-major slice of one.
    fn row_major(&mut self, at: EqnId, value: Value) -> Value {
        let (key, aval) = match &value {
            Value::View { layout, .. } if layout.is_contiguous() => return value,
            Value::View { base, layout } => {
                let aval = self.jaxpr.avals[*base].with_shape(layout.shape.iter().copied());
                (Some((*base, layout.clone())), aval)
            }
            Value::Splat { literal, shape } => (None, Aval::new(literal.dtype(), shape.iter().copied())),
        };
        // A single number is a constant of the program and needs no step.
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
