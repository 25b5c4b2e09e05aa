//! The types of steps: values, loops, and the steps themselves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use remat_ir::{Atom, Eqn, Iota, Jaxpr, Literal, Shape, Var, VarMap};
use remat_kernels::{Extent, Layout};

use super::moves::Change;
use crate::ids::EqnId;

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    /// Elements of the buffer of a variable that has its own buffer.
    View { base: Var, layout: Layout },
    /// One number, repeated.
    Splat { literal: Literal, shape: Shape },
}

impl Value {
    /// Whether this reads no element of the buffer of a variable, or `size` elements of it in order.
    pub(super) fn is_other_or_whole(&self, var: Var, size: usize) -> bool {
        match self {
            Value::View { base, layout } => *base != var || (layout.is_contiguous() && layout.size() == size),
            Value::Splat { .. } => true,
        }
    }

    /// The variable that owns the buffer it is in.
    pub(crate) fn base(&self) -> Option<Var> {
        match self {
            Value::View { base, .. } => Some(*base),
            Value::Splat { .. } => None,
        }
    }

    /// Its shape.
    pub(crate) fn shape(&self) -> &Shape {
        match self {
            Value::View { layout, .. } => &layout.shape,
            Value::Splat { shape, .. } => shape,
        }
    }

    /// The view whose layout is `f` of this value's layout.
    pub(super) fn map(&self, shape: &Shape, f: impl FnOnce(&Layout) -> Option<Layout>) -> Option<Value> {
        match self {
            Value::View { base, layout } => Some(Value::View { base: *base, layout: f(layout)? }),
            Value::Splat { literal, .. } => Some(Value::Splat { literal: *literal, shape: shape.clone() }),
        }
    }
}

/// A step: work that runs at one time.
#[derive(Clone)]
pub(crate) enum Step {
    /// One equation, with its operands and its results. These are those of the program where it runs first.
    Equation { eqn: EqnId, operands: Vec<Value>, outs: Vec<Var> },
    /// Copies an operand into its own row-major buffer, for this equation.
    Copy { eqn: EqnId, operand: Value, out: Var },
    /// Writes the numbers from zero, for this equation.
    Iota { eqn: EqnId, out: Var, iota: Iota },
    /// A barrier, which runs nothing. It orders the readers of the token after the writers of the operands.
    Barrier { eqn: EqnId, operands: Vec<Value>, token: Var },
    /// Equations that share one loop.
    Loop(FusedLoop),
    /// Loops that are computed in blocks.
    Blocks(Blocks),
}

/// A program as steps, in an order in which they can run.
pub(crate) struct Steps {
    /// The program, after the passes.
    pub(crate) jaxpr: Jaxpr,
    /// The names that the user gave to values: the names of its labels.
    pub(crate) names: VarMap<Option<Arc<str>>>,
    /// The values that are not computed again, since their labels say so.
    pub(crate) kept: BTreeSet<Var>,
    /// The value of each variable.
    pub(crate) values: VarMap<Value>,
    pub(crate) steps: Vec<Step>,
    pub(crate) tokens: Tokens,
    /// The moves that lowering made.
    pub(crate) made: Vec<Change>,
}

/// The tokens of the barriers that equations wait for: those whose results they read, directly or through views. A token is a variable of
/// no bytes that the step of the barrier writes, so that scheduling and planning need not know about barriers.
#[derive(Clone, Default)]
pub(crate) struct Tokens(HashMap<EqnId, Vec<Var>>);

impl Tokens {
    /// The tokens that an equation waits for.
    pub(crate) fn of(&self, eqn: EqnId) -> &[Var] {
        self.0.get(&eqn).map_or(&[], Vec::as_slice)
    }

    /// Makes an equation wait for tokens.
    pub(super) fn wait(&mut self, eqn: EqnId, tokens: Vec<Var>) {
        if !tokens.is_empty() {
            self.0.insert(eqn, tokens);
        }
    }
}

/// An equation of a loop.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) eqn: EqnId,
    pub(crate) out: Var,
    pub(crate) operands: Vec<Value>,
    pub(crate) extent: Extent,
}

/// The variables whose buffers some equations of a loop read and that none of them computes, in order.
pub(super) fn read_by<'a>(members: impl Iterator<Item = &'a Member> + Clone) -> Vec<Var> {
    let is_own = |var: &Var| members.clone().any(|m| m.out == *var);
    let bases = members.clone().flat_map(|m| &m.operands).filter_map(Value::base);
    let mut read: Vec<Var> = bases.filter(|var| !is_own(var)).collect();
    read.sort_unstable();
    read.dedup();
    read
}

/// A loop, and the equations that it computes.
#[derive(Clone)]
pub(crate) struct FusedLoop {
    pub(crate) members: Vec<Member>,
    /// The number of rows, or of all elements if there are no columns.
    pub(crate) rows: usize,
    /// Elements per row, once there are row values.
    pub(crate) columns: Option<usize>,
    /// The shape and axes of the reductions that end the loop, if it stores only accumulators.
    pub(crate) reduction: Option<(Shape, Shape)>,
    /// The members that others read.
    pub(crate) outs: Vec<Var>,
}

/// Loops over one space. Each reads results of earlier loops only at the positions, along one dimension, that it computes.
#[derive(Clone)]
pub(crate) struct Blocks {
    pub(crate) fused_loops: Vec<FusedLoop>,
    /// The numbers of positions before, along and after the dimension.
    pub(crate) space: [usize; 3],
    /// The results that other steps read.
    pub(crate) outs: Vec<Var>,
}

impl FusedLoop {
    pub(super) fn size(&self) -> usize {
        self.rows * self.columns.unwrap_or(1)
    }

    /// The results of its members, and those that it stores.
    fn written(&mut self) -> impl Iterator<Item = &mut Var> {
        self.members.iter_mut().map(|member| &mut member.out).chain(&mut self.outs)
    }

    /// Drops the equations on which no stored value depends.
    pub(super) fn prune(&mut self) {
        let mut needed: Vec<Var> = self.outs.clone();
        for member in self.members.iter().rev() {
            if needed.contains(&member.out) {
                needed.extend(member.operands.iter().filter_map(Value::base));
            }
        }
        self.members.retain(|m| needed.contains(&m.out));
    }
}

impl Step {
    /// The loop of the step, if it is one.
    pub(super) fn fused_loop(&self) -> Option<&FusedLoop> {
        match self {
            Step::Loop(fused_loop) => Some(fused_loop),
            _ => None,
        }
    }

    /// As [`Step::fused_loop`].
    pub(super) fn fused_loop_mut(&mut self) -> Option<&mut FusedLoop> {
        match self {
            Step::Loop(fused_loop) => Some(fused_loop),
            _ => None,
        }
    }

    /// The loops of the step, if it has any.
    pub(crate) fn fused_loops(&self) -> &[FusedLoop] {
        match self {
            Step::Loop(fused_loop) => std::slice::from_ref(fused_loop),
            Step::Blocks(blocks) => &blocks.fused_loops,
            _ => &[],
        }
    }

    /// The variables that its loops compute.
    pub(crate) fn loop_results(&self) -> impl Iterator<Item = Var> + '_ {
        self.fused_loops().iter().flat_map(|fused_loop| &fused_loop.members).map(|member| member.out)
    }

    /// Replaces the buffer of one variable by that of another in all operands.
    pub(super) fn replace(&mut self, old: Var, new: Var) {
        let operands: Vec<&mut Value> = match self {
            Step::Equation { operands, .. } | Step::Barrier { operands, .. } => operands.iter_mut().collect(),
            Step::Copy { operand, .. } => vec![operand],
            Step::Iota { .. } => Vec::new(),
            Step::Loop(fused_loop) => fused_loop.members.iter_mut().flat_map(|m| &mut m.operands).collect(),
            Step::Blocks(Blocks { fused_loops, .. }) => fused_loops
                .iter_mut()
                .flat_map(|fused_loop| &mut fused_loop.members)
                .flat_map(|m| &mut m.operands)
                .collect(),
        };
        for operand in operands {
            if let Value::View { base, .. } = operand
                && *base == old
            {
                *base = new;
            }
        }
    }

    /// Makes it write another variable instead of one that it writes, and read that where it reads its own result.
    pub(super) fn rename(&mut self, old: Var, new: Var) {
        self.replace(old, new);
        let written: Vec<&mut Var> = match self {
            Step::Equation { outs, .. } => outs.iter_mut().collect(),
            Step::Copy { out, .. } | Step::Iota { out, .. } | Step::Barrier { token: out, .. } => vec![out],
            Step::Loop(fused_loop) => fused_loop.written().collect(),
            Step::Blocks(Blocks { fused_loops, outs, .. }) => {
                fused_loops.iter_mut().flat_map(FusedLoop::written).chain(outs).collect()
            }
        };
        written.into_iter().filter(|var| **var == old).for_each(|var| *var = new);
    }

    /// The values that it reads. A loop computes some of them itself.
    pub(crate) fn operands(&self) -> Box<dyn Iterator<Item = &Value> + '_> {
        match self {
            Step::Equation { operands, .. } | Step::Barrier { operands, .. } => Box::new(operands.iter()),
            Step::Copy { operand, .. } => Box::new(std::iter::once(operand)),
            Step::Iota { .. } => Box::new(std::iter::empty()),
            Step::Loop(_) | Step::Blocks(_) => {
                Box::new(self.fused_loops().iter().flat_map(|fused_loop| &fused_loop.members).flat_map(|m| &m.operands))
            }
        }
    }

    /// The equations that it computes, or for which it prepares an operand.
    pub(crate) fn eqns(&self) -> Box<dyn Iterator<Item = EqnId> + '_> {
        match self {
            Step::Equation { eqn, .. }
            | Step::Copy { eqn, .. }
            | Step::Iota { eqn, .. }
            | Step::Barrier { eqn, .. } => Box::new(std::iter::once(*eqn)),
            Step::Loop(_) | Step::Blocks(_) => {
                Box::new(self.fused_loops().iter().flat_map(|fused_loop| &fused_loop.members).map(|m| m.eqn))
            }
        }
    }

    /// The variables that it writes.
    pub(crate) fn outs(&self) -> Box<dyn Iterator<Item = Var> + '_> {
        match self {
            Step::Equation { outs, .. } => Box::new(outs.iter().copied()),
            Step::Copy { out, .. } | Step::Iota { out, .. } | Step::Barrier { token: out, .. } => {
                Box::new(std::iter::once(*out))
            }
            Step::Loop(fused_loop) => Box::new(fused_loop.outs.iter().copied()),
            Step::Blocks(blocks) => Box::new(blocks.outs.iter().copied()),
        }
    }

    /// The tokens that it waits for.
    pub(crate) fn tokens<'a>(&'a self, tokens: &'a Tokens) -> impl Iterator<Item = Var> + 'a {
        let eqns = if tokens.0.is_empty() { Box::new(std::iter::empty()) } else { self.eqns() };
        eqns.flat_map(|eqn| tokens.of(eqn)).copied()
    }

    /// The variables that it reads: those that own the buffers of its operands, and tokens.
    pub(super) fn reads<'a>(&'a self, tokens: &'a Tokens) -> impl Iterator<Item = Var> + 'a {
        self.operands().filter_map(Value::base).chain(self.tokens(tokens))
    }
}

impl Steps {
    /// The program with these steps.
    pub(super) fn with(&self, steps: Vec<Step>) -> Steps {
        let Steps { jaxpr, names, kept, values, tokens, made, .. } = self;
        let (jaxpr, names, kept, values) = (jaxpr.clone(), names.clone(), kept.clone(), values.clone());
        Steps { jaxpr, names, kept, values, tokens: tokens.clone(), steps, made: made.clone() }
    }

    /// A new variable, with a buffer of its own, of the aval and the name of another.
    pub(super) fn var_like(&mut self, like: Var) -> Var {
        let aval = self.jaxpr.avals[like].clone();
        let var = self.jaxpr.avals.push(aval.clone());
        self.names.push(self.names[like].clone());
        self.values.push(Value::View { base: var, layout: Layout::from(&aval) });
        var
    }

    /// The value of an atom.
    pub(crate) fn value(&self, atom: Atom) -> Value {
        match atom {
            Atom::Var(var) => self.values[var].clone(),
            Atom::Lit(literal) => Value::Splat { literal, shape: Shape::new() },
        }
    }

    /// An equation of the program.
    pub(crate) fn eqn(&self, eqn: EqnId) -> &Eqn {
        &self.jaxpr.eqns[eqn.index()]
    }
}
