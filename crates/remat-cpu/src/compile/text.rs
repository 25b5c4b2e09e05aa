//! The text form of a compiled program: its steps in the order in which they run, with the memory of each value.
//!
//! ```text
//! { steps[arena=192] ; arg0:f32[4,8] arg1:f32[8,4]. let
//!     b3:f32[4,4]@0 = dot_general[small][...] arg0 arg1
//!     loop[rows=4 columns=4]
//!       x0 = exp b3
//!       out0:f32[4] = reduce_sum[axes=(1,)] x0
//!   in (out0, arg0) }
//! ```
//!
//! A temporary has its offset in bytes in the arena after an `@`; a value that lies in the memory of the output that it becomes has the name of
//! that output there, and one in an output that no step has written yet also its offset, as in `@out0+64`. A value that a loop does not store
//! is an `x`. An operation that has several algorithms has the name of the chosen one in brackets. An operand that is a view has its layout in
//! brackets, in elements. Scratch memory and the barriers that a step waits for follow in a comment. The steps of loop and branch bodies are
//! listed below their step.

use remat_ir::{Eqn, Op, Result, Var};
use remat_kernels::{Layout, Threads};
use remat_plan::{BufferId, Location, StepId};

use super::buffers::Owner;
use super::candidate::Candidate;
use super::{donation, listing};
use crate::control;
use crate::ids::ResultId;
use crate::program::ProgramResult;
use crate::steps::{FusedLoop, Step, Value};

impl Candidate<'_> {
    /// The text. All lines except the first are indented by this many spaces.
    ///
    /// # Errors
    /// If the body of a loop or a branch cannot be compiled.
    pub(super) fn text(&self, threads: &Threads, indent: usize) -> Result<String> {
        let arguments = self.kernels.buffers.arguments.iter();
        let arguments: Vec<String> = arguments.map(|&buffer| self.definition(buffer)).collect();
        let mut text = format!("{{ steps[arena={}] ; {}. let", self.keeping.plan.arena, arguments.join(" "));
        for &step in &self.keeping.order {
            self.step(step, threads, indent + 4, &mut text)?;
        }
        let donated = donation::donated_arguments(&self.kernels, &self.keeping.plan);
        for (out, argument) in donated.iter_enumerated().filter_map(|(out, argument)| Some((out, (*argument)?))) {
            line(&mut text, indent + 4, &format!("# {out} is in the memory of {argument} where the caller donates it"));
        }
        let results: Vec<String> = self.results.indices().map(|result| self.result(result)).collect();
        let comma = if results.len() == 1 { "," } else { "" };
        line(&mut text, indent + 2, &format!("in ({}{comma}) }}", results.join(", ")));
        Ok(text)
    }

    /// The name of a result.
    fn result(&self, result: ResultId) -> String {
        match self.results[result] {
            ProgramResult::Argument(argument) => argument.to_string(),
            ProgramResult::Output(out) => out.to_string(),
            ProgramResult::Same(other) => self.result(other),
        }
    }

    fn step(&self, number: StepId, threads: &Threads, indent: usize, text: &mut String) -> Result<()> {
        let call = &self.kernels.calls[number];
        let mut notes = Vec::new();
        if call.scratch > 0 {
            notes.push(format!("{} bytes of scratch memory at {}", call.scratch, self.keeping.plan.scratch[number]));
        }
        let barriers = self.barriers(number);
        if !barriers.is_empty() {
            notes.push(format!("after {}", barriers.join(" ")));
        }
        let note = if notes.is_empty() { String::new() } else { format!("  # {}", notes.join(", ")) };
        let outs: Vec<String> = call.outs.iter().map(|&out| self.definition(out)).collect();
        let outs = outs.join(" ");
        let steps = &self.kernels.steps;
        // Each step has one call, in order. The calls after those copy values into outputs.
        match steps.steps.get(number.index()) {
            Some(Step::Equation { eqn, operands, .. }) => {
                let eqn = steps.eqn(*eqn);
                let operands = self.operands(operands);
                let op = with_algorithm(&eqn.op.to_string(), call.kernel.algorithm());
                line(text, indent, &format!("{outs} = {op}{operands}{note}"));
                self.bodies(eqn, threads, indent + 2, text)?;
            }
            Some(Step::Copy { operand, .. }) => {
                line(text, indent, &format!("{outs} = copy {}{note}", self.operand(operand, &[])));
            }
            Some(Step::Iota { iota, .. }) => {
                line(text, indent, &format!("{outs} = {}{note}", Op::from(iota.clone())));
            }
            Some(Step::Barrier { eqn, operands, token }) => {
                let (token, op) = (self.var(*token, &[]), &steps.eqn(*eqn).op);
                line(text, indent, &format!("{token} = {op}{}{note}", self.operands(operands)));
            }
            Some(Step::Loop(fused_loop)) => {
                self.fused_loop(fused_loop, std::slice::from_ref(fused_loop), &note, indent, text)
            }
            Some(Step::Blocks(blocks)) => {
                line(text, indent, &format!("blocks[space={}]{note}", tuple(&blocks.space)));
                let fused_loops = &blocks.fused_loops;
                fused_loops
                    .iter()
                    .for_each(|fused_loop| self.fused_loop(fused_loop, fused_loops, "", indent + 2, text));
            }
            None => {
                let value = call.outs.first().and_then(|&out| self.copied(out));
                let value = value.map_or_else(String::new, |value| format!(" {}", self.operand(&value, &[])));
                line(text, indent, &format!("{outs} = copy{value}{note}"));
            }
        }
        Ok(())
    }

    /// The steps of the bodies of a loop or a branch.
    fn bodies(&self, eqn: &Eqn, threads: &Threads, indent: usize, text: &mut String) -> Result<()> {
        let Op::Call(op) = &eqn.op else { return Ok(()) };
        for (name, jaxpr, caller) in control::bodies(op) {
            let body = listing(&jaxpr, caller, threads, indent)?;
            line(text, indent, &format!("{name}: {body}"));
        }
        Ok(())
    }

    /// The equations of a loop, one of `all`. Stored results are printed as definitions of buffers.
    fn fused_loop(&self, fused_loop: &FusedLoop, all: &[FusedLoop], note: &str, indent: usize, text: &mut String) {
        let mut params = vec![format!("rows={}", fused_loop.rows)];
        params.extend(fused_loop.columns.map(|columns| format!("columns={columns}")));
        if let Some((shape, axes)) = &fused_loop.reduction {
            params.push(format!("shape={} axes={}", tuple(shape), tuple(axes)));
        }
        line(text, indent, &format!("loop[{}]{note}", params.join(" ")));
        for member in &fused_loop.members {
            let stored =
                fused_loop.outs.contains(&member.out).then(|| self.kernels.buffers.of_var(member.out)).flatten();
            let out = stored.map_or_else(|| self.var(member.out, all), |buffer| self.definition(buffer));
            let operands: Vec<String> = member.operands.iter().map(|x| self.operand(x, all)).collect();
            let op = &self.kernels.steps.eqn(member.eqn).op;
            line(text, indent + 2, &format!("{out} = {op} {}", operands.join(" ")));
        }
    }

    /// The tokens of the barriers that a step waits for.
    fn barriers(&self, number: StepId) -> Vec<String> {
        let steps = &self.kernels.steps;
        let tokens = steps.steps.get(number.index()).into_iter().flat_map(|step| step.tokens(&steps.tokens));
        let mut tokens: Vec<Var> = tokens.collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens.into_iter().map(|token| self.var(token, &[])).collect()
    }

    /// The value that is copied into an output because it is a result.
    fn copied(&self, buffer: BufferId) -> Option<Value> {
        let Owner::Output(out) = self.kernels.buffers.owner(buffer) else { return None };
        let result = self.results.indices().find(|&result| self.results[result] == ProgramResult::Output(out))?;
        let atom = self.kernels.steps.jaxpr.outs[result.index()];
        Some(self.kernels.steps.value(atom))
    }

    fn operands(&self, operands: &[Value]) -> String {
        operands.iter().map(|x| format!(" {}", self.operand(x, &[]))).collect()
    }

    /// The name of a value, and its layout if it is not the whole buffer in order.
    fn operand(&self, value: &Value, loops: &[FusedLoop]) -> String {
        match value {
            Value::Splat { literal, shape } if shape.is_empty() => literal.to_string(),
            Value::Splat { literal, shape } => format!("{literal}[shape={}]", tuple(shape)),
            Value::View { base, layout } => {
                let name = self.var(*base, loops);
                let size = self.kernels.steps.jaxpr.avals[*base].size();
                if layout.is_contiguous() && layout.size() == size { name } else { name + &view(layout) }
            }
        }
    }

    /// The name of a variable: its buffer, or its number among the values of these loops.
    fn var(&self, var: Var, loops: &[FusedLoop]) -> String {
        let is_stored = loops.iter().any(|fused_loop| fused_loop.outs.contains(&var));
        let number = loops.iter().flat_map(|fused_loop| &fused_loop.members).position(|member| member.out == var);
        match (number, self.kernels.buffers.of_var(var)) {
            (Some(i), None) => format!("x{i}"),
            (Some(i), Some(_)) if !is_stored => format!("x{i}"),
            (_, Some(buffer)) => self.name(buffer),
            (None, None) => "_".to_string(),
        }
    }

    fn name(&self, buffer: BufferId) -> String {
        match self.kernels.buffers.owner(buffer) {
            Owner::Argument(argument) => argument.to_string(),
            Owner::Output(out) => out.to_string(),
            Owner::Constant(constant) => self.kernels.buffers.constants[constant].to_string(),
            Owner::Temporary => buffer.to_string(),
        }
    }

    /// The name, the aval and the memory of a buffer.
    fn definition(&self, buffer: BufferId) -> String {
        let memory = match self.keeping.plan.locations[buffer] {
            Location::Arena(offset) => format!("@{offset}"),
            Location::Buffer(target) if target == buffer => String::new(),
            Location::Buffer(target) => format!("@{}", self.name(target)),
            Location::Within { output, offset } => format!("@{}+{offset}", self.name(output)),
        };
        format!("{}:{}{memory}", self.name(buffer), self.kernels.buffers.aval(buffer))
    }
}

/// Adds a line.
fn line(text: &mut String, indent: usize, content: &str) {
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', indent));
    text.push_str(content);
}

/// The text of an operation, with the algorithm of its kernel before its parameters.
fn with_algorithm(op: &str, algorithm: Option<&str>) -> String {
    match (algorithm, op.split_once('[')) {
        (Some(algorithm), Some((name, parameters))) => format!("{name}[{algorithm}][{parameters}"),
        (Some(algorithm), None) => format!("{op}[{algorithm}]"),
        (None, _) => op.to_string(),
    }
}

/// The layout of a view. A row-major slice has no strides.
fn view(layout: &Layout) -> String {
    let mut text = format!("[shape={}", tuple(&layout.shape));
    if !layout.is_contiguous() {
        text.push_str(&format!(" strides={}", tuple(&layout.strides)));
    }
    if layout.offset > 0 {
        text.push_str(&format!(" offset={}", layout.offset));
    }
    text + "]"
}

/// `(2, 3)`; one element prints `(2,)`.
fn tuple(items: &[impl std::fmt::Display]) -> String {
    let comma = if items.len() == 1 { "," } else { "" };
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("({}{comma})", items.join(", "))
}
