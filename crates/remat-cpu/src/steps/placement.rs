//! Where the values of loops are: what a kernel of loops reads and writes, and which values it computes in place of others.

use std::collections::HashMap;

use remat_ir::{Error, ErrorKind, Op, Prim, Result, Var};
use remat_kernels::{BlockedLoops, Extent, Layout, LoopEquation, LoopInput, LoopOperand, LoopSource, LoopSpec};

use super::ir::{FusedLoop, Steps, Value};

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
pub(crate) fn spec(steps: &Steps, fused_loop: &FusedLoop) -> Result<(LoopSpec, Vec<Var>)> {
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

/// Maps values that only the loops of this step read to the results that replace them in place: such a value shares the buffer of the
/// result that its last reader computes. Where in place is impossible (a reduction, another dtype), a value has memory of a block.
///
/// # Errors
/// If there is no function for an operation of a loop.
pub(crate) fn aliases(
    steps: &Steps,
    fused_loops: &[FusedLoop],
    outs: &[Var],
    space: [usize; 3],
    specs: &[(LoopSpec, Vec<Var>)],
) -> Result<HashMap<Var, Var>> {
    let mut aliases: HashMap<Var, Var> = HashMap::new();
    for (at, (fused_loop, (spec, inputs))) in fused_loops.iter().zip(specs).enumerate().rev() {
        let mut taken = Vec::new();
        for (i, k) in BlockedLoops::in_place(spec).ok_or_else(|| no_function(steps, fused_loop))? {
            let (var, out) = (inputs[i], fused_loop.outs[k]);
            let is_inside =
                fused_loops[..at].iter().any(|fused_loop| fused_loop.outs.contains(&var)) && !outs.contains(&var);
            let is_read_later = specs[at + 1..].iter().any(|(_, inputs)| inputs.contains(&var));
            let is_same = steps.jaxpr.avals[var].dtype == steps.jaxpr.avals[out].dtype;
            let target = aliases.get(&out).copied().unwrap_or(out);
            let has_array = outs.contains(&target) || steps.jaxpr.avals[target].size() == space[1];
            if is_inside
                && !is_read_later
                && is_same
                && has_array
                && !aliases.contains_key(&var)
                && !taken.contains(&out)
            {
                aliases.insert(var, target);
                taken.push(out);
            }
        }
    }
    Ok(aliases)
}

pub(crate) fn no_function(steps: &Steps, fused_loop: &FusedLoop) -> Error {
    Error::new(ErrorKind::Internal, name(steps, fused_loop), "there is no function for the tiles of this loop")
}
