//! The kernels of fused loops.

use std::collections::HashMap;

use remat_ir::{Error, ErrorKind, Op, Prim, Result, Var};
use remat_kernels::{Extent, Layout, LoopEquation, LoopInput, LoopOperand, LoopSource, LoopSpec};

use super::kernels::{BufferSlice, Kernels};
use crate::ids::BufferId;
use crate::steps::{Group, Value};

/// The operands of a loop, each once: a buffer is one input of the kernel, also if it is read through several layouts.
#[derive(Default)]
struct Operands {
    inputs: Vec<BufferSlice>,
    operands: Vec<LoopOperand>,
    /// The operand that reads a buffer through a layout.
    known: HashMap<(BufferId, Layout, Extent), usize>,
}

impl Operands {
    /// The number of an operand.
    fn add(&mut self, kernels: &mut Kernels<'_>, value: &Value, extent: Extent) -> usize {
        let (base, layout) = match value {
            Value::Splat { literal, .. } => {
                let source = LoopSource::Literal(*literal);
                self.operands.push(LoopOperand { dtype: literal.dtype(), extent, source });
                return self.operands.len() - 1;
            }
            Value::View { base, layout } => (*base, layout),
        };
        let buffer = kernels.buffers.own(base);
        let aval = kernels.buffers.aval(buffer);
        let dtype = aval.dtype;
        let input = self.inputs.iter().position(|slice| slice.buffer == buffer).unwrap_or_else(|| {
            self.inputs.push(BufferSlice { buffer, dtype, offset: 0, bytes: aval.bytes() });
            self.inputs.len() - 1
        });
        let Operands { operands, known, .. } = self;
        *known.entry((buffer, layout.clone(), extent)).or_insert_with(|| {
            let source = LoopSource::Input { input, layout: layout.clone() };
            operands.push(LoopOperand { dtype, extent, source });
            operands.len() - 1
        })
    }
}

impl Kernels<'_> {
    /// Adds the step of a loop.
    ///
    /// # Errors
    /// If there is no function for one of its operations, or it stores a value that it does not compute: defects of fusion.
    pub(super) fn fused(&mut self, group: &Group) -> Result<()> {
        let steps = self.steps;
        let name = group.members.first().map_or("loop", |m| steps.eqn(m.eqn).op.name());
        let internal = |message| Error::new(ErrorKind::Internal, name, message);
        let number: HashMap<Var, usize> = group.members.iter().enumerate().map(|(i, m)| (m.out, i)).collect();
        let mut operands = Operands::default();
        let mut equations = Vec::with_capacity(group.members.len());
        for member in &group.members {
            let Op::Prim(op) = &steps.eqn(member.eqn).op else {
                return Err(internal("a call cannot be part of a loop"));
            };
            let extent = if matches!(op, Prim::Reduce(_)) { Extent::Full } else { member.extent };
            let input = |value: &Value| match value.base().and_then(|base| number.get(&base)) {
                Some(&equation) => LoopInput::Equation(equation),
                None => LoopInput::Operand(operands.add(self, value, extent)),
            };
            let ins = member.operands.iter().map(input).collect();
            let dtype = steps.jaxpr.avals[member.out].dtype;
            equations.push(LoopEquation { op: op.clone(), ins, dtype, extent: member.extent });
        }
        let Operands { inputs, operands, .. } = operands;
        let (rows, columns, reduction) = (group.rows, group.columns, group.reduction.clone());
        let outs: Option<Vec<usize>> = group.outs.iter().map(|out| number.get(out).copied()).collect();
        let outs = outs.ok_or_else(|| internal("a loop stores a value that it does not compute"))?;
        let spec = LoopSpec { operands, equations, outs, rows, columns, reduction };
        let kernel = spec.kernel().ok_or_else(|| internal("there is no function for the tiles of this loop"))?;
        let outs = group.outs.iter().map(|&v| self.buffers.own(v)).collect();
        self.push(group.members.last().map(|m| m.eqn), kernel.into(), inputs, outs)
    }
}
