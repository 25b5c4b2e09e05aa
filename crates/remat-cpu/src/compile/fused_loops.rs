//! The kernels of fused loops.

use std::collections::HashMap;

use remat_ir::{Error, ErrorKind, Result, Var};
use remat_kernels::{BlockedLoops, LoopPhase, PhaseMemory};

use super::kernels::{BufferSlice, Kernels};
use crate::steps::{Blocks, FusedLoop, aliases, no_function, spec};

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
        let aliases = aliases(&steps, &blocks.fused_loops, &blocks.outs, blocks.space, &specs)?;
        let mut buffers = BlockBuffers {
            aliases: &aliases,
            outs: Vec::new(),
            inside: Vec::new(),
            full: Vec::new(),
            inputs: Vec::new(),
        };
        for (at, &out) in blocks
            .fused_loops
            .iter()
            .enumerate()
            .flat_map(|(at, fused_loop)| fused_loop.outs.iter().map(move |out| (at, out)))
        {
            let target = buffers.alias_target(out);
            let of_kind = if blocks.outs.contains(&target) {
                &mut buffers.outs
            } else if steps.jaxpr.avals[target].size() == blocks.space[1] {
                &mut buffers.inside
            } else {
                let last = specs.iter().rposition(|(_, inputs)| inputs.contains(&target)).unwrap_or(at);
                buffers.put_in_block(target, at, last);
                continue;
            };
            if !of_kind.contains(&target) {
                of_kind.push(target);
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
        for (&var, &target) in aliases.iter().filter(|(_, target)| blocks.outs.contains(target)) {
            self.buffers.share(var, target);
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
    aliases: &'a HashMap<Var, Var>,
    outs: Vec<Var>,
    inside: Vec<Var>,
    /// Values with one element per position of the space, each with the number of its memory and the last loop that reads it.
    full: Vec<(Var, usize, usize)>,
    inputs: Vec<Var>,
}

impl BlockBuffers<'_> {
    /// The variable whose memory this variable shares, or itself.
    fn alias_target(&self, var: Var) -> Var {
        self.aliases.get(&var).copied().unwrap_or(var)
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
        let target = self.alias_target(var);
        let position = |vars: &[Var]| vars.iter().position(|&other| other == target);
        if let Some(out) = position(&self.outs) {
            return PhaseMemory::Output(out);
        }
        if let Some(value) = position(&self.inside) {
            return PhaseMemory::Inside(value);
        }
        if let Some(&(_, number, _)) = self.full.iter().find(|value| value.0 == target) {
            return PhaseMemory::Block(number);
        }
        PhaseMemory::Input(position(&self.inputs).unwrap_or_else(|| {
            self.inputs.push(target);
            self.inputs.len() - 1
        }))
    }
}
