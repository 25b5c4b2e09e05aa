//! Inlines calls and drops what nobody needs: a program becomes one list of equations. The tangents of attention and of cross
//! entropy, which have no kernels, are inlined as calls of their definitions.
//!
//! Equations are never merged here. `jit` merges common subexpressions before, within each body; a recomputation is a
//! body of its own until it is inlined, and so it is never merged with its twin in the forward pass.

use std::sync::Arc;

use super::algebra::simplify;
use super::parts::products_of_parts;
use super::stacks::unstack;
use super::turned::turned_products;
use remat_ir::{Atom, Aval, Call, Eqn, Error, ErrorKind, Jaxpr, Loc, Op, Prim, Result, Var, VarMap};

/// A program without calls. Its operations are first-order, or loops and branches.
pub(crate) struct Flat {
    pub(crate) avals: VarMap<Aval>,
    /// The names that the user gave to values.
    pub(crate) names: VarMap<Option<Arc<str>>>,
    pub(crate) ins: Vec<Var>,
    pub(crate) eqns: Vec<Eqn>,
    pub(crate) outs: Vec<Atom>,
}

impl Flat {
    /// Inlines the calls of a program.
    ///
    /// # Errors
    /// If it has a linear map of which only the transpose is known.
    pub(crate) fn of(jaxpr: &Jaxpr) -> Result<Flat> {
        let mut flat = Flat {
            avals: VarMap::default(),
            names: VarMap::default(),
            ins: Vec::new(),
            eqns: Vec::with_capacity(jaxpr.eqns.len()),
            outs: Vec::new(),
        };
        flat.ins = jaxpr.ins.iter().map(|&v| flat.var(jaxpr.aval(v))).collect();
        let ins: Vec<Atom> = flat.ins.iter().map(|&v| v.into()).collect();
        flat.outs = flat.inline(jaxpr, &ins, None)?;
        simplify(&mut flat);
        flat.drop_dead();
        products_of_parts(&mut flat);
        turned_products(&mut flat);
        unstack(&mut flat)?;
        flat.sink();
        Ok(flat)
    }

    /// A new variable.
    pub(crate) fn var(&mut self, aval: &Aval) -> Var {
        self.names.push(None);
        self.avals.push(aval.clone())
    }

    /// The aval of an atom.
    pub(crate) fn atom_aval(&self, atom: Atom) -> Aval {
        match atom {
            Atom::Var(var) => self.avals[var].clone(),
            Atom::Lit(literal) => literal.aval(),
        }
    }

    /// Who reads each variable, by equation; outputs of the program are read by nobody in the list, at `usize::MAX`.
    pub(super) fn readers(&self) -> VarMap<Vec<usize>> {
        let mut readers = VarMap::filled(self.avals.len(), Vec::new());
        for (at, eqn) in self.eqns.iter().enumerate() {
            eqn.ins.iter().filter_map(|a| a.var()).for_each(|v| readers[v].push(at));
        }
        self.outs.iter().filter_map(|a| a.var()).for_each(|v| readers[v].push(usize::MAX));
        readers
    }

    /// Adds the equations of a program to which these operands are given; `call` is the place of the call, for equations
    /// that have none.
    fn inline(&mut self, jaxpr: &Jaxpr, ins: &[Atom], call: Option<Loc>) -> Result<Vec<Atom>> {
        let mut env: VarMap<Option<Atom>> = jaxpr.var_map(None);
        for (&var, &atom) in jaxpr.ins.iter().zip(ins) {
            env[var] = Some(atom);
        }
        let read = |env: &VarMap<Option<Atom>>, atom: Atom| match atom {
            Atom::Lit(literal) => Ok(Atom::Lit(literal)),
            Atom::Var(var) => env.get(var).copied().flatten().ok_or_else(|| undefined(var)),
        };
        for eqn in &jaxpr.eqns {
            let ins = eqn.ins.iter().map(|&a| read(&env, a)).collect::<Result<Vec<Atom>>>()?;
            let loc = if eqn.loc.site.is_some() { eqn.loc } else { call.unwrap_or(eqn.loc) };
            let outs: Vec<Atom> = match &eqn.op {
                Op::Call(Call::Jit(op)) => self.inline(&op.jaxpr, &ins, Some(loc))?,
                Op::Call(Call::Checkpoint(op)) => self.inline(&op.jaxpr, &ins, Some(loc))?,
                Op::Call(Call::CustomJvp(op)) => self.inline(&op.call, &ins, Some(loc))?,
                Op::Call(Call::CustomVjp(op)) => self.inline(&op.call, &ins, Some(loc))?,
                Op::Prim(Prim::DotProductAttentionTangent(op)) => {
                    self.inline(&op.definition(&avals(jaxpr, eqn))?, &ins, Some(loc))?
                }
                Op::Prim(Prim::CrossEntropyTangent(op)) => {
                    self.inline(&op.definition(&avals(jaxpr, eqn))?, &ins, Some(loc))?
                }
                Op::Prim(Prim::Name(op)) => {
                    if let Some(Atom::Var(var)) = ins.first() {
                        self.names[*var] = Some(op.name.clone());
                    }
                    ins
                }
                Op::Prim(Prim::StopGradient(_) | Prim::OptimizationBarrier(_) | Prim::DevicePut(_)) => ins,
                op => {
                    let outs: Vec<Var> = eqn.outs.iter().map(|&v| self.var(jaxpr.aval(v))).collect();
                    let ins = ins.into_iter().collect();
                    self.eqns.push(Eqn { outs: outs.iter().copied().collect(), op: op.clone(), ins, loc });
                    outs.into_iter().map(Atom::from).collect()
                }
            };
            for (&var, atom) in eqn.outs.iter().zip(outs) {
                env[var] = Some(atom);
            }
        }
        jaxpr.outs.iter().map(|&a| read(&env, a)).collect()
    }

    /// Puts cheap equations just before the first equation that needs them. Transformations write what a backward pass
    /// computes again at its beginning, for all layers; and a forward pass computes what only the backward pass reads.
    fn sink(&mut self) {
        let mut first = VarMap::filled(self.avals.len(), usize::MAX);
        for var in self.outs.iter().filter_map(|a| a.var()) {
            first[var] = 0;
        }
        let mut keys: Vec<(usize, usize)> = Vec::with_capacity(self.eqns.len());
        for (at, eqn) in self.eqns.iter().enumerate().rev() {
            let reader = eqn.outs.iter().map(|&v| first[v]).min().unwrap_or(0);
            // An equation goes before the one at its place, and else after those that sink to that place.
            let place = if is_cheap(&eqn.op) && reader > at { reader } else { at };
            for var in eqn.ins.iter().filter_map(|a| a.var()) {
                first[var] = first[var].min(place);
            }
            keys.push((place, at));
        }
        keys.reverse();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&i| keys[i]);
        let mut eqns: Vec<Option<Eqn>> = std::mem::take(&mut self.eqns).into_iter().map(Some).collect();
        self.eqns = order.into_iter().filter_map(|i| eqns[i].take()).collect();
    }

    /// Keeps the equations whose results reach an output.
    fn drop_dead(&mut self) {
        let mut needed = VarMap::filled(self.avals.len(), false);
        for var in self.outs.iter().filter_map(|a| a.var()) {
            needed[var] = true;
        }
        let mut kept: Vec<bool> = self
            .eqns
            .iter()
            .rev()
            .map(|eqn| {
                let keep = eqn.outs.iter().any(|&v| needed[v]);
                if keep {
                    for var in eqn.ins.iter().filter_map(|a| a.var()) {
                        needed[var] = true;
                    }
                }
                keep
            })
            .collect();
        self.eqns.retain(|_| kept.pop().unwrap_or(true));
    }
}

/// The avals of an equation's operands in its own program. What stands for an operand here may be of another memory space,
/// since nothing is moved.
fn avals(jaxpr: &Jaxpr, eqn: &Eqn) -> Vec<Aval> {
    eqn.ins.iter().map(|&atom| jaxpr.atom_aval(atom)).collect()
}

/// Whether an equation costs next to nothing when it is a part of the loop that reads its result.
pub(super) fn is_cheap(op: &Op) -> bool {
    let is_elementwise = matches!(
        op,
        Op::Prim(
            Prim::Unary(_)
                | Prim::IntegerPow(_)
                | Prim::Binary(_)
                | Prim::Compare(_)
                | Prim::SelectN(_)
                | Prim::Clamp(_)
        )
    );
    let is_conversion =
        matches!(op, Op::Prim(Prim::ConvertElementType(_) | Prim::BitcastConvertType(_) | Prim::ReducePrecision(_)));
    let is_view =
        matches!(op, Op::Prim(Prim::BroadcastInDim(_) | Prim::Reshape(_) | Prim::Transpose(_) | Prim::Squeeze(_)))
            || matches!(op, Op::Prim(Prim::ExpandDims(_) | Prim::Rev(_) | Prim::Slice(_) | Prim::Iota(_)));
    is_elementwise || is_conversion || is_view
}

fn undefined(var: Var) -> Error {
    Error::new(ErrorKind::Check, "compile", format!("variable {} is used before it is defined", var.0))
}
