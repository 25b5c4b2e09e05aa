//! The buffers of a program, and their owners.

use std::collections::HashMap;
use std::rc::Rc;

use oxc_index::IndexVec;
use remat_ir::{Aval, Literal, Var, VarMap};
use remat_kernels::Layout;
use remat_plan::{BufferId, BufferKind, BufferNode};

use crate::ids::{ArgId, ConstId, OutId};
use crate::steps::{Steps, Value};

/// The owner of a buffer, and its index among the owner's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Argument(ArgId),
    Output(OutId),
    Constant(ConstId),
    /// The arena.
    Temporary,
}

impl Owner {
    fn kind(self) -> BufferKind {
        match self {
            Owner::Argument(_) => BufferKind::Argument,
            Owner::Output(_) => BufferKind::Output,
            Owner::Constant(_) => BufferKind::Constant,
            Owner::Temporary => BufferKind::Temporary,
        }
    }
}

/// A buffer.
pub(super) struct Buffer {
    pub(super) aval: Aval,
    pub(super) owner: Owner,
}

/// All buffers of a program.
pub(super) struct Buffers {
    steps: Rc<Steps>,
    all: IndexVec<BufferId, Buffer>,
    /// The buffer of each variable that has one.
    of_var: VarMap<Option<BufferId>>,
    /// The variables that share the buffer of another one.
    are_aliases: VarMap<bool>,
    pub(super) arguments: IndexVec<ArgId, BufferId>,
    pub(super) outputs: IndexVec<OutId, BufferId>,
    pub(super) constants: IndexVec<ConstId, Literal>,
    /// The buffer of each constant.
    constant_of: HashMap<Literal, BufferId>,
}

impl Buffers {
    /// The buffers of arguments, and of the outputs that steps compute into memory of the caller.
    pub(super) fn new(steps: &Rc<Steps>) -> Buffers {
        let mut buffers = Buffers {
            steps: steps.clone(),
            all: IndexVec::new(),
            of_var: VarMap::filled(steps.jaxpr.avals.len(), None),
            are_aliases: VarMap::filled(steps.jaxpr.avals.len(), false),
            arguments: IndexVec::new(),
            outputs: IndexVec::new(),
            constants: IndexVec::new(),
            constant_of: HashMap::new(),
        };
        for &var in &steps.jaxpr.ins {
            let owner = Owner::Argument(buffers.arguments.next_idx());
            let buffer = buffers.add(&steps.jaxpr.avals[var], owner);
            buffers.of_var[var] = Some(buffer);
            buffers.arguments.push(buffer);
        }
        for var in steps.jaxpr.outs.iter().filter_map(|out| out.var()) {
            if let Some(base) = buffers.whole(&steps.values[var])
                && buffers.of_var[base].is_none()
            {
                let out = buffers.output(&steps.jaxpr.avals[base]);
                buffers.of_var[base] = Some(buffers.outputs[out]);
            }
        }
        buffers
    }

    fn add(&mut self, aval: &Aval, owner: Owner) -> BufferId {
        self.all.push(Buffer { aval: aval.clone(), owner })
    }

    /// A new output.
    pub(super) fn output(&mut self, aval: &Aval) -> OutId {
        let buffer = self.add(aval, Owner::Output(self.outputs.next_idx()));
        self.outputs.push(buffer)
    }

    /// The variable's own buffer, created if it has none yet.
    pub(super) fn own(&mut self, var: Var) -> BufferId {
        self.of_var[var].unwrap_or_else(|| {
            let aval = self.steps.jaxpr.avals[var].clone();
            let buffer = self.add(&aval, Owner::Temporary);
            self.of_var[var] = Some(buffer);
            buffer
        })
    }

    /// Gives a variable the buffer of another one.
    pub(super) fn share(&mut self, var: Var, target: Var) {
        let buffer = self.own(target);
        self.of_var[var] = Some(buffer);
        self.are_aliases[var] = true;
    }

    /// The buffer of a scalar constant.
    pub(super) fn constant(&mut self, literal: Literal) -> BufferId {
        if let Some(&buffer) = self.constant_of.get(&literal) {
            return buffer;
        }
        let owner = Owner::Constant(self.constants.push(literal));
        let buffer = self.add(&literal.aval(), owner);
        self.constant_of.insert(literal, buffer);
        buffer
    }

    /// The buffer of a value and the layout of its elements there.
    pub(super) fn operand(&mut self, value: &Value) -> (BufferId, Layout) {
        match value {
            Value::View { base, layout } => (self.own(*base), layout.clone()),
            Value::Splat { literal, shape } => (self.constant(*literal), Layout::splat(shape)),
        }
    }

    /// The variable whose whole buffer this value covers, row-major.
    fn whole(&self, value: &Value) -> Option<Var> {
        match value {
            Value::View { base, layout } => {
                let is_whole = layout.is_contiguous() && layout.size() == self.steps.jaxpr.avals[*base].size();
                is_whole.then_some(*base)
            }
            Value::Splat { .. } => None,
        }
    }

    /// The buffer that this value covers as a whole, row-major.
    pub(super) fn whole_buffer(&self, value: &Value) -> Option<BufferId> {
        self.of_var(self.whole(value)?)
    }

    /// The buffer of a variable, if it has one.
    pub(super) fn of_var(&self, var: Var) -> Option<BufferId> {
        self.of_var.get(var).copied().flatten()
    }

    /// The variables that have a buffer of their own, with it.
    pub(super) fn owners(&self) -> impl Iterator<Item = (Var, BufferId)> {
        self.of_var.iter().filter(|(var, _)| !self.are_aliases[*var]).filter_map(|(var, &buffer)| Some((var, buffer?)))
    }

    /// The aval of a buffer.
    pub(super) fn aval(&self, buffer: BufferId) -> &Aval {
        &self.all[buffer].aval
    }

    /// The owner of a buffer.
    pub(super) fn owner(&self, buffer: BufferId) -> Owner {
        self.all[buffer].owner
    }

    /// The number of buffers.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The buffers as nodes of the graph.
    pub(super) fn nodes(&self) -> IndexVec<BufferId, BufferNode> {
        let node = |buffer: &Buffer| BufferNode { bytes: buffer.aval.bytes(), kind: buffer.owner.kind() };
        self.all.iter().map(node).collect()
    }
}
