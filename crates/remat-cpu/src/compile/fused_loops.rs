//! The kernels of fused loops.

use std::collections::HashMap;

use remat_ir::{Error, ErrorKind, Op, Prim, Result, Var};
use remat_kernels::{
    BlockedLoops, Extent, Layout, LoopEquation, LoopInput, LoopOperand, LoopPhase, LoopSource, LoopSpec, PhaseMemory,
};

use super::kernels::{BufferSlice, Kernels};
use crate::steps::{Blocks, FusedLoop, Steps, Value};

/// The operands of a loop without duplicates. A buffer is one input of the kernel, even if the loop reads it through several layouts.
#[derive(Default)]
struct Operands {
    /// The variables whose buffers are the inputs.
    inputs: Vec<Var>,
    operands: Vec<LoopOperand>,
    /// The operand that reads a buffer through a layout.
    known: HashMap<(Var, Layout, Extent), usize>,
}

impl Operands {
    /// Adds an operand and returns its number.
    fn add(&mut self, steps: &Steps, value: &Value, extent: Extent) -> usize {
        let (base, layout) = match value {
            Value::Splat { literal, .. } => {
                let source = LoopSource::Literal(*literal);
                self.operands.push(LoopOperand { dtype: literal.dtype(), extent, source });
                return self.operands.len() - 1;
            }
            Value::View { base, layout } => (*base, layout),
        };
        let dtype = steps.jaxpr.avals[base].dtype;
        let input = self.inputs.iter().position(|&input| input == base).unwrap_or_else(|| {
            self.inputs.push(base);
            self.inputs.len() - 1
        });
        let Operands { operands, known, .. } = self;
        *known.entry((base, layout.clone(), extent)).or_insert_with(|| {
            let source = LoopSource::Input { input, layout: layout.clone() };
            operands.push(LoopOperand { dtype, extent, source });
            operands.len() - 1
        })
    }
}

/// The first operation of a loop, for messages.
fn name(steps: &Steps, fused_loop: &FusedLoop) -> &'static str {
    fused_loop.members.first().map_or("loop", |m| steps.eqn(m.eqn).op.name())
}

/// The specification of a loop, and the variables whose buffers are its inputs.
///
/// # Errors
/// If it has a call, or stores a value that it does not compute: defects of fusion.
fn spec(steps: &Steps, fused_loop: &FusedLoop) -> Result<(LoopSpec, Vec<Var>)> {
    let internal = |message| Error::new(ErrorKind::Internal, name(steps, fused_loop), message);
    let number: HashMap<Var, usize> = fused_loop.members.iter().enumerate().map(|(i, m)| (m.out, i)).collect();
    let mut operands = Operands::default();
    let mut equations = Vec::with_capacity(fused_loop.members.len());
    for member in &fused_loop.members {
        let Op::Prim(op) = &steps.eqn(member.eqn).op else {
            return Err(internal("a call cannot be part of a loop"));
        };
        let extent = if matches!(op, Prim::Reduce(_)) { Extent::Full } else { member.extent };
        let input = |value: &Value| match value.base().and_then(|base| number.get(&base)) {
            Some(&equation) => LoopInput::Equation(equation),
            None => LoopInput::Operand(operands.add(steps, value, extent)),
        };
        let ins = member.operands.iter().map(input).collect();
        let dtype = steps.jaxpr.avals[member.out].dtype;
        equations.push(LoopEquation { op: op.clone(), ins, dtype, extent: member.extent });
    }
    let Operands { inputs, operands, .. } = operands;
    let (rows, columns, reduction) = (fused_loop.rows, fused_loop.columns, fused_loop.reduction.clone());
    let outs: Option<Vec<usize>> = fused_loop.outs.iter().map(|out| number.get(out).copied()).collect();
    let outs = outs.ok_or_else(|| internal("a loop stores a value that it does not compute"))?;
    Ok((LoopSpec { operands, equations, outs, rows, columns, reduction }, inputs))
}

impl Kernels<'_> {
    /// Adds the step of a loop.
    ///
    /// # Errors
    /// If there is no function for one of its operations, or as [`spec`].
    pub(super) fn fused_loop(&mut self, fused_loop: &FusedLoop) -> Result<()> {
        let steps = self.steps.clone();
        let (spec, inputs) = spec(&steps, fused_loop)?;
        let kernel = spec.kernel().ok_or_else(|| no_function(&steps, fused_loop))?;
        let inputs = inputs.into_iter().map(|input| self.whole(input)).collect();
        let outs = fused_loop.outs.iter().map(|&v| self.buffers.own(v)).collect();
        self.push(fused_loop.members.last().map(|m| m.eqn), kernel.into(), inputs, outs)
    }

    /// Adds the step of loops that are computed together.
    ///
    /// # Errors
    /// As for [`Kernels::fused_loop`].
    pub(super) fn blocks(&mut self, blocks: &Blocks) -> Result<()> {
        let steps = self.steps.clone();
        let specs = blocks.fused_loops.iter().map(|fused_loop| spec(&steps, fused_loop)).collect::<Result<Vec<_>>>()?;
        let homes = homes(&steps, blocks, &specs)?;
        let mut buffers =
            BlockBuffers { homes: &homes, outs: Vec::new(), inside: Vec::new(), full: Vec::new(), inputs: Vec::new() };
        for (at, &out) in blocks
            .fused_loops
            .iter()
            .enumerate()
            .flat_map(|(at, fused_loop)| fused_loop.outs.iter().map(move |out| (at, out)))
        {
            let home = buffers.home(out);
            let of_kind = if blocks.outs.contains(&home) {
                &mut buffers.outs
            } else if steps.jaxpr.avals[home].size() == blocks.space[1] {
                &mut buffers.inside
            } else {
                let last = specs.iter().rposition(|(_, inputs)| inputs.contains(&home)).unwrap_or(at);
                buffers.put_in_block(home, at, last);
                continue;
            };
            if !of_kind.contains(&home) {
                of_kind.push(home);
            }
        }
        let mut phases = Vec::new();
        for (fused_loop, (spec, ins)) in blocks.fused_loops.iter().zip(specs) {
            let ins = ins.into_iter().map(|var| buffers.memory(var)).collect();
            let outs = fused_loop.outs.iter().map(|&var| buffers.memory(var)).collect();
            phases.push(LoopPhase { spec, ins, outs });
        }
        let BlockBuffers { outs, inputs, .. } = buffers;
        let kernel = BlockedLoops { phases, space: blocks.space }.kernel();
        let last = blocks.fused_loops.last();
        let kernel =
            kernel.ok_or_else(|| Error::new(ErrorKind::Internal, "loop", "a loop cannot be computed in blocks"))?;
        let inputs = inputs.into_iter().map(|input| self.whole(input)).collect();
        let outs = outs.iter().map(|&v| self.buffers.own(v)).collect();
        for (&var, &home) in homes.iter().filter(|(_, home)| blocks.outs.contains(home)) {
            self.buffers.share(var, home);
        }
        self.push(last.and_then(|fused_loop| Some(fused_loop.members.last()?.eqn)), kernel.into(), inputs, outs)
    }

    /// The whole buffer of a variable.
    fn whole(&mut self, var: Var) -> BufferSlice {
        let buffer = self.buffers.own(var);
        let aval = self.buffers.aval(buffer);
        BufferSlice { buffer, dtype: aval.dtype, offset: 0, bytes: aval.bytes() }
    }
}

/// The memory in which the loops of a step find their operands.
struct BlockBuffers<'a> {
    homes: &'a HashMap<Var, Var>,
    outs: Vec<Var>,
    inside: Vec<Var>,
    /// Values with one element per position of the space, each with the number of its memory and the last loop that reads it.
    full: Vec<(Var, usize, usize)>,
    inputs: Vec<Var>,
}

impl BlockBuffers<'_> {
    /// The variable whose memory this variable shares, or itself.
    fn home(&self, var: Var) -> Var {
        self.homes.get(&var).copied().unwrap_or(var)
    }

    /// Gives a value of full size memory of the block: that of one which no loop reads any more when this loop computes it, if there is
    /// one.
    fn put_in_block(&mut self, var: Var, computed: usize, last: usize) {
        let is_taken = |n: usize| self.full.iter().any(|&(_, number, last)| number == n && last >= computed);
        let number = (0..).find(|&number| !is_taken(number)).unwrap_or(self.full.len());
        self.full.push((var, number, last));
    }

    /// The memory of a variable. A variable that none of the loops computes becomes an input.
    fn memory(&mut self, var: Var) -> PhaseMemory {
        let home = self.home(var);
        let position = |vars: &[Var]| vars.iter().position(|&other| other == home);
        if let Some(out) = position(&self.outs) {
            return PhaseMemory::Output(out);
        }
        if let Some(value) = position(&self.inside) {
            return PhaseMemory::Inside(value);
        }
        if let Some(&(_, number, _)) = self.full.iter().find(|value| value.0 == home) {
            return PhaseMemory::Block(number);
        }
        PhaseMemory::Input(position(&self.inputs).unwrap_or_else(|| {
            self.inputs.push(home);
            self.inputs.len() - 1
        }))
    }
}

/// Maps values that only the loops of this step read to the results that replace them in place: such a value shares the buffer of the
/// result that its last reader computes. Where in place is impossible (a reduction, another dtype), a value has memory of a block.
///
/// # Errors
/// If there is no function for an operation of a loop.
fn homes(steps: &Steps, blocks: &Blocks, specs: &[(LoopSpec, Vec<Var>)]) -> Result<HashMap<Var, Var>> {
    let mut homes: HashMap<Var, Var> = HashMap::new();
    for (at, (fused_loop, (spec, inputs))) in blocks.fused_loops.iter().zip(specs).enumerate().rev() {
        let mut taken = Vec::new();
        for (i, k) in BlockedLoops::in_place(spec).ok_or_else(|| no_function(steps, fused_loop))? {
            let (var, out) = (inputs[i], fused_loop.outs[k]);
            let is_inside = blocks.fused_loops[..at].iter().any(|fused_loop| fused_loop.outs.contains(&var))
                && !blocks.outs.contains(&var);
            let is_read_later = specs[at + 1..].iter().any(|(_, inputs)| inputs.contains(&var));
            let is_same = steps.jaxpr.avals[var].dtype == steps.jaxpr.avals[out].dtype;
            let home = homes.get(&out).copied().unwrap_or(out);
            let has_array = blocks.outs.contains(&home) || steps.jaxpr.avals[home].size() == blocks.space[1];
            if is_inside && !is_read_later && is_same && has_array && !homes.contains_key(&var) && !taken.contains(&out)
            {
                homes.insert(var, home);
                taken.push(out);
            }
        }
    }
    Ok(homes)
}

fn no_function(steps: &Steps, fused_loop: &FusedLoop) -> Error {
    Error::new(ErrorKind::Internal, name(steps, fused_loop), "there is no function for the tiles of this loop")
}
