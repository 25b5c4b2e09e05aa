//! From a jaxpr to a compiled program: lowering, kernels, schedule, memory plan.

use std::collections::HashMap;
use std::sync::Arc;

use remat_ir::{
    Aval, DType, Error, ErrorKind, Jaxpr, Literal, LiveKind, LiveValue, Loc, Op, Operation, Prim, Result, Var, VarMap,
};
use remat_kernels::{Extent, Kernel, Layout, LoopEquation, LoopInput, LoopOperand, LoopSource, LoopSpec, Threads};
use remat_opt::pipeline;

use crate::control;
use crate::plan::{self, Plan};
use crate::program::{CompiledStep, Memory, Out, Place, Program};
use crate::schedule::{BufferKind, BufferNode, Graph, InPlace, StepNode, aligned, schedule};
use crate::steps::{Group, Step, Steps, Value};

/// Who runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A user, to whom an argument can be given back as an output.
    User,
    /// A loop or a branch, which has the memory of every output ready.
    Control,
}

/// Compiles a program for so many threads.
///
/// # Errors
/// If an operation cannot be run.
pub(crate) fn compile(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<Program> {
    let steps = Steps::of(pipeline::run(pipeline::CPU, jaxpr)?)?;
    let mut compiler = Compiler {
        buffers: VarMap::filled(steps.flat.avals.len(), None),
        steps: &steps,
        graph: Graph::default(),
        avals: Vec::new(),
        arguments: HashMap::new(),
        outputs: Vec::new(),
        constants: Vec::new(),
        constant_of: HashMap::new(),
        compiled: Vec::new(),
        threads,
    };
    compiler.declare();
    for step in &steps.steps {
        compiler.step(step)?;
    }
    let outs = compiler.outs(caller);
    Ok(compiler.finish(jaxpr, outs))
}

struct Compiler<'a> {
    steps: &'a Steps,
    /// The buffer of each variable that has one.
    buffers: VarMap<Option<usize>>,
    graph: Graph,
    /// The aval of each buffer.
    avals: Vec<Aval>,
    /// The argument that a buffer is.
    arguments: HashMap<usize, usize>,
    /// The buffers of outputs.
    outputs: Vec<usize>,
    constants: Vec<u64>,
    /// The buffer of each constant, and its place among the constants.
    constant_of: HashMap<Literal, (usize, usize)>,
    compiled: Vec<Compiled>,
    threads: &'a Threads,
}

/// A step before its operands have places.
struct Compiled {
    kernel: Box<dyn Kernel>,
    ins: Vec<Part>,
    outs: Vec<usize>,
    /// The equation that it computes, or the last of them.
    eqn: Option<usize>,
}

/// What a kernel reads of a buffer.
#[derive(Clone, Copy)]
struct Part {
    buffer: usize,
    dtype: DType,
    /// In bytes.
    offset: usize,
    bytes: usize,
}

/// An operand: a buffer, and how the elements lie there.
struct Operand {
    buffer: usize,
    dtype: DType,
    layout: Layout,
}

impl Part {
    /// Where this part of a buffer is.
    fn place(&self, whole: Place) -> Place {
        Place { bytes: self.bytes, offset: whole.offset + self.offset, ..whole }
    }
}

impl Operand {
    /// What a kernel is given, and the layout in it: a row-major part of a buffer is given as if it were one.
    fn part(self, avals: &[Aval]) -> (Part, Layout) {
        let Operand { buffer, dtype, mut layout } = self;
        if layout.is_contiguous() {
            let part =
                Part { buffer, dtype, offset: layout.offset * dtype.size(), bytes: layout.size() * dtype.size() };
            layout.offset = 0;
            return (part, layout);
        }
        (Part { buffer, dtype, offset: 0, bytes: avals[buffer].bytes() }, layout)
    }
}

impl Compiler<'_> {
    fn buffer(&mut self, aval: &Aval, kind: BufferKind) -> usize {
        self.graph.buffers.push(BufferNode { bytes: aval.bytes(), kind });
        self.avals.push(aval.clone());
        self.graph.buffers.len() - 1
    }

    /// Makes the buffers of arguments, and of the outputs that are computed into memory of the caller.
    fn declare(&mut self) {
        let steps = self.steps;
        for (i, &var) in steps.flat.ins.iter().enumerate() {
            let buffer = self.buffer(&steps.flat.avals[var], BufferKind::Argument);
            self.buffers[var] = Some(buffer);
            self.arguments.insert(buffer, i);
        }
        for &out in &steps.flat.outs {
            if let Some(base) = self.whole(out.var().map(|v| &steps.values[v]))
                && self.buffers[base].is_none()
            {
                let buffer = self.buffer(&steps.flat.avals[base], BufferKind::Output);
                self.buffers[base] = Some(buffer);
                self.outputs.push(buffer);
            }
        }
    }

    /// The variable whose buffer a value is, all of it and in order.
    fn whole(&self, value: Option<&Value>) -> Option<Var> {
        match value? {
            Value::View { base, layout } => {
                let is_whole = layout.is_contiguous() && layout.size() == self.steps.flat.avals[*base].size();
                is_whole.then_some(*base)
            }
            Value::Splat { .. } => None,
        }
    }

    /// The outputs of the program; what is not computed into an output buffer is copied there.
    fn outs(&mut self, caller: Caller) -> Vec<Out> {
        let steps = self.steps;
        let mut taken = Vec::new();
        let mut outs = Vec::new();
        for &out in &steps.flat.outs {
            let value = self.value(out);
            let buffer = self.whole(Some(&value)).and_then(|base| self.buffers[base]);
            let argument = buffer.and_then(|b| self.arguments.get(&b).copied());
            match (buffer, argument, caller) {
                (_, Some(argument), Caller::User) => outs.push(Out::Argument(argument)),
                (Some(buffer), None, _) if !taken.contains(&buffer) => {
                    taken.push(buffer);
                    outs.push(Out::Buffer(self.output(buffer)));
                }
                (Some(buffer), None, Caller::User) => {
                    let first = Out::Buffer(self.output(buffer));
                    outs.push(Out::Output(outs.iter().position(|&out| out == first).unwrap_or(0)));
                }
                _ => {
                    let aval = steps.flat.atom_aval(out);
                    let to = self.buffer(&aval, BufferKind::Output);
                    self.outputs.push(to);
                    taken.push(to);
                    self.copy(None, &value, to);
                    outs.push(Out::Buffer(self.outputs.len() - 1));
                }
            }
        }
        outs
    }

    /// The number of an output buffer.
    fn output(&self, buffer: usize) -> usize {
        self.outputs.iter().position(|&b| b == buffer).unwrap_or(0)
    }

    fn value(&self, atom: remat_ir::Atom) -> Value {
        match atom {
            remat_ir::Atom::Var(var) => self.steps.values[var].clone(),
            remat_ir::Atom::Lit(literal) => Value::Splat { literal, shape: [].into_iter().collect() },
        }
    }

    /// The buffer of a variable that has its own, made where there is none yet.
    fn own(&mut self, var: Var) -> usize {
        let steps = self.steps;
        self.buffers[var].unwrap_or_else(|| {
            let buffer = self.buffer(&steps.flat.avals[var], BufferKind::Temporary);
            self.buffers[var] = Some(buffer);
            buffer
        })
    }

    /// A buffer that holds one number.
    fn constant(&mut self, literal: Literal) -> usize {
        if let Some(&(buffer, _)) = self.constant_of.get(&literal) {
            return buffer;
        }
        let buffer = self.buffer(&literal.aval(), BufferKind::Constant);
        self.constant_of.insert(literal, (buffer, self.constants.len() * 8));
        let mut bytes = [0; 8];
        let bits = literal.bits().to_ne_bytes();
        let width = literal.dtype().size();
        let from = if cfg!(target_endian = "big") { 8 - width } else { 0 };
        bytes[..width].copy_from_slice(&bits[from..from + width]);
        self.constants.push(u64::from_ne_bytes(bytes));
        buffer
    }

    fn operand(&mut self, value: &Value) -> Operand {
        match value {
            Value::View { base, layout } => {
                let dtype = self.steps.flat.avals[*base].dtype;
                Operand { buffer: self.own(*base), dtype, layout: layout.clone() }
            }
            Value::Splat { literal, shape } => {
                Operand { buffer: self.constant(*literal), dtype: literal.dtype(), layout: Layout::splat(shape) }
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let steps = self.steps;
        match step {
            Step::Equation { eqn: number, operands } => {
                let eqn = &steps.flat.eqns[*number];
                let operands = operands.iter().map(|x| self.operand(x).part(&self.avals)).collect::<Vec<_>>();
                let out_avals: Vec<Aval> = eqn.outs.iter().map(|&v| steps.flat.avals[v].clone()).collect();
                let ins: Vec<(DType, &Layout)> = operands.iter().map(|(part, layout)| (part.dtype, layout)).collect();
                let kernel = self.kernel(&eqn.op, &ins, &out_avals).map_err(|e| e.at(eqn.loc))?;
                let outs = eqn.outs.iter().map(|&v| self.own(v)).collect();
                self.push(Some(*number), kernel, operands.into_iter().map(|(part, _)| part).collect(), outs);
            }
            Step::Copy { eqn, operand, out } => {
                let to = self.own(*out);
                self.copy(Some(*eqn), operand, to);
            }
            Step::Count { eqn, out, iota } => {
                let to = self.own(*out);
                let kernel = self.kernel(&Op::from(iota.clone()), &[], &[steps.flat.avals[*out].clone()])?;
                self.push(Some(*eqn), kernel, Vec::new(), vec![to]);
            }
            Step::Loop(group) => self.fused(group)?,
        }
        Ok(())
    }

    fn kernel(&self, op: &Op, ins: &[(DType, &Layout)], outs: &[Aval]) -> Result<Box<dyn Kernel>> {
        match op {
            Op::Prim(op) => remat_kernels::kernel(op, ins, outs).ok_or_else(|| internal(op, ins)),
            Op::Call(op) => control::kernel(op, self.threads),
        }
    }

    fn copy(&mut self, eqn: Option<usize>, value: &Value, to: usize) {
        let (part, layout) = self.operand(value).part(&self.avals);
        let kernel = remat_kernels::copy(part.dtype, &layout);
        self.push(eqn, kernel, vec![part], vec![to]);
    }

    /// One loop. Each buffer is one input of its kernel, through however many layouts it is read.
    fn fused(&mut self, group: &Group) -> Result<()> {
        let steps = self.steps;
        let eqns = &steps.flat.eqns;
        let number: HashMap<Var, usize> = group.members.iter().enumerate().map(|(i, m)| (m.out, i)).collect();
        let mut inputs: Vec<Part> = Vec::new();
        let mut operands: Vec<LoopOperand> = Vec::new();
        let mut known: HashMap<(usize, Layout, Extent), usize> = HashMap::new();
        let mut equations = Vec::new();
        for member in &group.members {
            let Op::Prim(op) = &eqns[member.eqn].op else {
                return Err(Error::new(ErrorKind::Internal, eqns[member.eqn].op.name(), "is in a loop of tiles"));
            };
            let extent = if matches!(op, Prim::Reduce(_)) { Extent::Full } else { member.extent };
            let mut ins = Vec::new();
            for value in &member.operands {
                let inside = value.base().and_then(|base| number.get(&base));
                if let Some(&equation) = inside {
                    ins.push(LoopInput::Equation(equation));
                    continue;
                }
                let operand = match value {
                    Value::Splat { literal, .. } => {
                        let source = LoopSource::Literal(*literal);
                        operands.push(LoopOperand { dtype: literal.dtype(), extent, source });
                        operands.len() - 1
                    }
                    Value::View { layout, .. } => {
                        let x = self.operand(value);
                        let input = inputs.iter().position(|y| y.buffer == x.buffer);
                        let (dtype, buffer) = (x.dtype, x.buffer);
                        let input = input.unwrap_or_else(|| {
                            inputs.push(Part { buffer, dtype, offset: 0, bytes: self.avals[buffer].bytes() });
                            inputs.len() - 1
                        });
                        *known.entry((buffer, layout.clone(), extent)).or_insert_with(|| {
                            let source = LoopSource::Input { input, layout: layout.clone() };
                            operands.push(LoopOperand { dtype, extent, source });
                            operands.len() - 1
                        })
                    }
                };
                ins.push(LoopInput::Operand(operand));
            }
            let dtype = steps.flat.avals[member.out].dtype;
            equations.push(LoopEquation { op: op.clone(), ins, dtype, extent: member.extent });
        }
        let (rows, columns, reduction) = (group.rows, group.columns, group.reduction.clone());
        let outs = group.outs.iter().map(|out| number[out]).collect();
        let spec = LoopSpec { operands, equations, outs, rows, columns, reduction };
        let kernel = spec.kernel().ok_or_else(|| {
            let first = group.members.first().map_or("loop", |m| eqns[m.eqn].op.name());
            Error::new(ErrorKind::Internal, first, "there is no function for the tiles of this loop")
        })?;
        let outs = group.outs.iter().map(|&v| self.own(v)).collect();
        self.push(group.members.last().map(|m| m.eqn), kernel, inputs, outs);
        Ok(())
    }

    /// Adds a step to the graph.
    fn push(&mut self, eqn: Option<usize>, kernel: Box<dyn Kernel>, ins: Vec<Part>, outs: Vec<usize>) {
        let mut node = StepNode { scratch: kernel.scratch(self.threads.count()), ..StepNode::default() };
        for part in &ins {
            if !node.reads.contains(&part.buffer) {
                node.reads.push(part.buffer);
            }
        }
        node.writes = outs.iter().copied().collect();
        for &(i, k) in kernel.in_place() {
            let from = ins[i].buffer;
            let is_read_once = ins.iter().filter(|part| part.buffer == from).count() == 1;
            let is_whole = ins[i].bytes == self.avals[from].bytes() && ins[i].bytes == self.avals[outs[k]].bytes();
            if is_read_once && is_whole && !node.in_place.contains(&(from, outs[k])) {
                node.in_place.push((from, outs[k]));
            }
        }
        self.graph.steps.push(node);
        self.compiled.push(Compiled { kernel, ins, outs, eqn });
    }

    fn finish(self, jaxpr: &Jaxpr, outs: Vec<Out>) -> Program {
        let order = schedule(&self.graph);
        let plan = plan::plan(&self.graph, &order);
        let donors = self.donors(&plan);
        let live = self.live(&plan);
        let table = self.compiled.iter().map(|c| Program::table(c.ins.len(), c.outs.len())).max().unwrap_or(0);
        let (arena, tables) =
            if table > 0 { (aligned(plan.arena + table), Some(plan.arena)) } else { (plan.arena, None) };
        let place = |buffer: usize| self.place(buffer, &plan);
        let mut compiled: Vec<Option<Compiled>> = Vec::new();
        let places: Vec<(Vec<Place>, Vec<Place>)> = self
            .compiled
            .iter()
            .map(|c| {
                (c.ins.iter().map(|x| x.place(place(x.buffer))).collect(), c.outs.iter().map(|&b| place(b)).collect())
            })
            .collect();
        let buffers = self.outputs.iter().map(|&b| self.avals[b].clone()).collect();
        let mut places: Vec<Option<(Vec<Place>, Vec<Place>)>> = places.into_iter().map(Some).collect();
        compiled.extend(self.compiled.into_iter().map(Some));
        let steps = order.iter().filter_map(|&step| {
            let (kernel, (ins, outs)) = (compiled[step].take()?.kernel, places[step].take()?);
            let scratch = plan.scratch[step]..plan.scratch[step] + self.graph.steps[step].scratch;
            Some(CompiledStep { kernel, ins, outs, scratch })
        });
        let steps = steps.collect();
        let constants = self.constants;
        Program {
            ins: jaxpr.in_avals(),
            outs,
            out_avals: jaxpr.out_avals(),
            buffers,
            steps,
            constants,
            arena,
            tables,
            donors,
            live,
        }
    }

    /// What is live at the peak.
    fn live(&self, plan: &Plan) -> Vec<LiveValue> {
        let flat = &self.steps.flat;
        let mut names: Vec<Option<Arc<str>>> = vec![None; self.avals.len()];
        // The equation that a buffer's value is the result of: in a loop, the one of its members that is stored.
        let mut eqns: Vec<Option<usize>> = vec![None; self.avals.len()];
        for (var, &buffer) in self.buffers.iter() {
            if let Some(buffer) = buffer {
                names[buffer] = self.steps.names[var].clone();
            }
        }
        for compiled in &self.compiled {
            for &out in &compiled.outs {
                eqns[out] = compiled.eqn;
            }
        }
        for (e, eqn) in flat.eqns.iter().enumerate() {
            for buffer in eqn.outs.iter().filter_map(|&v| self.buffers[v]) {
                eqns[buffer] = Some(e);
            }
        }
        let value = |buffer: usize, kind: LiveKind| {
            let eqn = eqns[buffer].map(|e| &flat.eqns[e]);
            LiveValue {
                bytes: self.avals[buffer].bytes(),
                aval: self.avals[buffer].clone(),
                kind,
                name: names[buffer].clone(),
                operation: eqn.map(|e| e.op.name()),
                loc: eqn.map_or(Loc::default(), |e| e.loc),
            }
        };
        let mut live: Vec<LiveValue> = Vec::new();
        for (&buffer, &i) in &self.arguments {
            live.push(value(buffer, LiveKind::Argument(i)));
        }
        live.extend(self.outputs.iter().map(|&buffer| value(buffer, LiveKind::Output)));
        for item in &plan.live {
            match *item {
                plan::Live::Buffer { buffer, .. } => live.push(value(buffer, LiveKind::Temporary)),
                plan::Live::Scratch { step, bytes } => {
                    let compiled = &self.compiled[step];
                    let inside = compiled.kernel.live();
                    live.extend(inside.iter().cloned());
                    let bytes = bytes - inside.iter().map(|value| value.bytes).sum::<usize>().min(bytes);
                    let eqn = compiled.eqn.map(|e| &flat.eqns[e]);
                    live.push(LiveValue {
                        bytes,
                        aval: Aval::new(DType::U8, [bytes]),
                        kind: LiveKind::Scratch,
                        name: None,
                        operation: eqn.map(|e| e.op.name()),
                        loc: eqn.map_or(Loc::default(), |e| e.loc),
                    });
                }
            }
        }
        live.retain(|value| value.bytes > 0);
        live
    }

    fn place(&self, buffer: usize, plan: &Plan) -> Place {
        let (dtype, bytes) = (self.avals[buffer].dtype, self.avals[buffer].bytes());
        let memory = match plan.places[buffer] {
            plan::Place::Arena(offset) => Memory::Arena(offset),
            plan::Place::Buffer(owner) => match self.graph.buffers[owner].kind {
                BufferKind::Argument => Memory::Argument(self.arguments[&owner]),
                BufferKind::Output => Memory::Output(self.output(owner)),
                BufferKind::Constant | BufferKind::Temporary => {
                    let offset = self.constant_of.values().find(|(b, _)| *b == owner).map_or(0, |(_, offset)| *offset);
                    Memory::Constant(offset)
                }
            },
        };
        Place { dtype, bytes, memory, offset: 0 }
    }

    /// For each output buffer the argument whose memory it may take: the plan's, but for those that are returned as they are,
    /// and those whose memory is that of another dtype.
    fn donors(&self, plan: &Plan) -> Vec<Option<usize>> {
        let is_returned = |argument: usize| {
            let base = Some(self.steps.flat.ins[argument]);
            let mut outs = self.steps.flat.outs.iter().filter_map(|out| out.var());
            outs.any(|var| self.steps.values[var].base() == base)
        };
        let donation = |pair: &InPlace| {
            let argument = *self.arguments.get(&pair.input)?;
            let plan::Place::Buffer(output) = plan.places[pair.output] else { return None };
            let fits = self.avals[pair.input].dtype == self.avals[output].dtype && !is_returned(argument);
            fits.then(|| (argument, self.output(output)))
        };
        let mut donors = vec![None; self.outputs.len()];
        for (argument, output) in plan.donations.iter().filter_map(donation) {
            donors[output] = Some(argument);
        }
        donors
    }
}

fn internal(op: &Prim, ins: &[(DType, &Layout)]) -> Error {
    let ins: Vec<String> = ins.iter().map(|(dtype, layout)| format!("{dtype}{:?}", layout.shape)).collect();
    Error::new(ErrorKind::Internal, op.name(), format!("there is no kernel for {}", ins.join(" ")))
}
