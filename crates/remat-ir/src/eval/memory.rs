//! The reference evaluator as a device, and the memory that it needs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::{eval, last_uses};
use crate::{
    Array, Atom, Aval, Call, Cond, Device, Eqn, Executable, Jaxpr, LiveKind, LiveValue, Loc, MemoryReport, MemoryStats,
    Op, Prim, Result, Scan, ShardMap, Unary, VarMap, While,
};

/// The reference evaluator: slow, but runs every program. Other engines are tested against it.
///
/// ```
/// use remat_ir::{Array, Aval, Builder, DType, Device, Reference, Unary};
/// let mut b = Builder::new();
/// let x = b.input(Aval::new(DType::F32, [2]));
/// let y = b.emit1(Unary::Exp.into(), &[x])?;
/// let z = b.emit1(Unary::Sin.into(), &[y])?;
/// let executable = Reference.compile(&b.finish(vec![z]).into())?;
/// let memory = executable.memory();
/// assert_eq!((memory.arguments, memory.outputs, memory.temporaries, memory.peak), (8, 8, 0, 16));
/// assert_eq!(executable.run(vec![Array::from_vec(vec![0.0f32, 1.0], [2])?])?[0].shape(), [2]);
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reference;

impl Device for Reference {
    fn name(&self) -> &str {
        "reference"
    }

    /// Any number, since the evaluator computes the shards of all devices together.
    fn devices(&self) -> usize {
        usize::MAX
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Evaluation { jaxpr: jaxpr.clone(), memory: memory(jaxpr) }))
    }
}

struct Evaluation {
    jaxpr: Arc<Jaxpr>,
    memory: MemoryStats,
}

impl Executable for Evaluation {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        eval(&self.jaxpr, args)
    }

    fn memory(&self) -> MemoryStats {
        self.memory
    }

    fn memory_report(&self) -> MemoryReport {
        report(&self.jaxpr)
    }
}

/// The bytes of a run whose caller keeps the arguments. It simulates the evaluator's steps with buffers that have sizes but no elements.
/// Scratch memory of operations is not counted, and the results of branches count as new.
fn memory(jaxpr: &Jaxpr) -> MemoryStats {
    // Only the end shows which buffers are outputs, so a first run finds them for the second.
    let (_, outputs) = Heap::default().follow(jaxpr);
    let heap = Heap { outputs, ..Heap::default() };
    heap.follow(jaxpr).0
}

/// The same, and the values that are live when the peak is first reached, which is known after a first run.
fn report(jaxpr: &Jaxpr) -> MemoryReport {
    let (stats, outputs) = Heap::default().follow(jaxpr);
    let heap = Heap { outputs, census: Some(Census { peak: stats.peak, ..Census::default() }), ..Heap::default() };
    let (stats, _) = heap.follow(jaxpr);
    MemoryReport::new(stats, heap.census.and_then(|census| census.found.into_inner()).unwrap_or_default())
}

/// Simulated memory: the bytes that are live now, and the most that were.
#[derive(Default)]
struct Heap {
    /// The indices of the buffers that are outputs of the program.
    outputs: BTreeSet<usize>,
    /// The number of buffers created so far.
    count: Cell<usize>,
    live: Rc<Live>,
    peak: Cell<usize>,
    temporaries: Cell<usize>,
    census: Option<Census>,
}

/// Live bytes, in total and of outputs; and for a census, a description of each buffer by its index.
#[derive(Default)]
struct Live {
    all: Cell<usize>,
    outputs: Cell<usize>,
    values: RefCell<BTreeMap<usize, LiveValue>>,
}

/// Finds the values that are live at the peak.
#[derive(Default)]
struct Census {
    /// The bytes of the peak.
    peak: usize,
    /// The equation that runs now.
    now: RefCell<Origin>,
    found: RefCell<Option<Vec<LiveValue>>>,
}

/// The origin of a value: the equation that computes it.
#[derive(Clone, Default)]
struct Origin {
    operation: Option<&'static str>,
    loc: Loc,
    name: Option<Arc<str>>,
}

/// A shared buffer, freed with its last reference.
#[derive(Clone)]
struct Buffer(Rc<Block>);

struct Block {
    number: usize,
    bytes: usize,
    is_output: bool,
    live: Rc<Live>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.live.all.update(|n| n - self.bytes);
        if self.is_output {
            self.live.outputs.update(|n| n - self.bytes);
        }
        self.live.values.borrow_mut().remove(&self.number);
    }
}

impl Heap {
    /// The statistics of a program, and the indices of the buffers of its outputs that are not arguments.
    fn follow(&self, jaxpr: &Jaxpr) -> (MemoryStats, BTreeSet<usize>) {
        let arg = |(i, &v)| self.allocate(jaxpr.aval(v), LiveKind::Argument(i));
        let args: Vec<Buffer> = jaxpr.ins.iter().enumerate().map(arg).collect();
        let arguments = self.live.all.get();
        // There are no temporaries until the first allocation.
        self.temporaries.set(0);
        self.peak.set(arguments);
        self.look();
        let outs = self.run(jaxpr, args.clone(), arguments);
        let mut outputs = BTreeSet::new();
        let mut bytes = 0;
        for Buffer(out) in &outs {
            if out.number >= args.len() && outputs.insert(out.number) {
                bytes += out.bytes;
            }
        }
        let (temporaries, peak) = (self.temporaries.get(), self.peak.get());
        (MemoryStats { arguments, outputs: bytes, temporaries, overhead: 0, peak, donated_peak: peak }, outputs)
    }

    fn allocate(&self, aval: &Aval, kind: LiveKind) -> Buffer {
        let number = self.count.replace(self.count.get() + 1);
        let is_output = self.outputs.contains(&number);
        let bytes = aval.bytes();
        self.live.all.update(|n| n + bytes);
        if is_output {
            self.live.outputs.update(|n| n + bytes);
        }
        self.describe(number, aval, kind);
        Buffer(Rc::new(Block { number, bytes, is_output, live: self.live.clone() }))
    }

    /// Records the value that a buffer holds from now on.
    fn describe(&self, number: usize, aval: &Aval, kind: LiveKind) {
        let Some(census) = &self.census else { return };
        let kind = if self.outputs.contains(&number) { LiveKind::Output } else { kind };
        let Origin { operation, loc, name } = match kind {
            LiveKind::Argument(_) | LiveKind::Constant => Origin::default(),
            LiveKind::Output | LiveKind::Temporary | LiveKind::Scratch => census.now.borrow().clone(),
        };
        let value =
            LiveValue { bytes: aval.bytes(), aval: aval.clone(), kind, name, operation, loc, must_be_kept: false };
        self.live.values.borrow_mut().insert(number, value);
    }

    /// A new buffer for a result.
    fn result(&self, aval: &Aval) -> Buffer {
        self.allocate(aval, LiveKind::Temporary)
    }

    /// Updates the peak. `arguments` are the bytes of the arguments, which are live throughout.
    fn note(&self, arguments: usize) {
        let all = self.live.all.get();
        if all > self.peak.get() {
            self.peak.set(all);
            self.temporaries.set(all - arguments - self.live.outputs.get());
            self.look();
        }
    }

    /// Records the live values, if this is the peak.
    fn look(&self) {
        if let Some(census) = self.census.as_ref().filter(|census| census.peak == self.live.all.get()) {
            let values = self.live.values.borrow();
            let live = values.values().filter(|value| value.bytes > 0).cloned();
            census.found.replace(Some(live.collect()));
        }
    }

    /// The names of values.
    fn names(&self, jaxpr: &Jaxpr) -> VarMap<Option<Arc<str>>> {
        if self.census.is_none() {
            return VarMap::default();
        }
        let mut names = jaxpr.var_map(None);
        for eqn in &jaxpr.eqns {
            if let (Op::Prim(Prim::Name(op)), Some(var)) = (&eqn.op, eqn.ins.first().and_then(|atom| atom.var())) {
                names[var] = op.label().cloned().or(names[var].take());
            }
        }
        names
    }

    /// Records the equation that runs now.
    fn enter(&self, eqn: &Eqn, names: &VarMap<Option<Arc<str>>>, ins: &[Buffer]) {
        let Some(census) = &self.census else { return };
        if let (Op::Prim(Prim::Name(op)), [Buffer(block)]) = (&eqn.op, ins) {
            let mut values = self.live.values.borrow_mut();
            if let Some(value) = values.get_mut(&block.number).filter(|v| v.operation.is_some()) {
                value.name = op.label().cloned().or(value.name.take());
            }
        }
        let name = eqn.outs.first().and_then(|&var| names[var].clone());
        census.now.replace(Origin { operation: Some(eqn.op.name()), loc: eqn.loc, name });
    }

    /// Simulates [`eval`].
    fn run(&self, jaxpr: &Jaxpr, args: Vec<Buffer>, arguments: usize) -> Vec<Buffer> {
        let last = last_uses(jaxpr);
        let names = self.names(jaxpr);
        let mut env: VarMap<Option<Buffer>> = jaxpr.var_map(None);
        for (&var, arg) in jaxpr.ins.iter().zip(args) {
            env[var] = last[var].map(|_| arg);
        }
        let read = |env: &VarMap<Option<Buffer>>, atom: Atom| match atom {
            Atom::Var(var) => env[var].clone().unwrap_or_else(|| self.result(jaxpr.aval(var))),
            Atom::Lit(literal) => self.allocate(&literal.aval(), LiveKind::Constant),
        };
        for (i, eqn) in jaxpr.eqns.iter().enumerate() {
            let ins: Vec<Buffer> = eqn.ins.iter().map(|&a| read(&env, a)).collect();
            for var in eqn.ins.iter().filter_map(|a| a.var()) {
                if last[var] == Some(i) {
                    env[var] = None;
                }
            }
            self.enter(eqn, &names, &ins);
            let in_avals: Vec<Aval> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
            let out_avals: Vec<&Aval> = eqn.outs.iter().map(|&v| jaxpr.aval(v)).collect();
            let outs = self.step(&eqn.op, ins, &in_avals, &out_avals, arguments);
            for (&var, out) in eqn.outs.iter().zip(outs) {
                env[var] = last[var].map(|_| out);
            }
        }
        jaxpr.outs.iter().map(|&a| read(&env, a)).collect()
    }

    /// Simulates one operation.
    fn step(&self, op: &Op, ins: Vec<Buffer>, avals: &[Aval], outs: &[&Aval], arguments: usize) -> Vec<Buffer> {
        match op {
            Op::Prim(op) => self.prim(op, ins, avals, outs, arguments),
            Op::Call(op) => self.call(op, ins, outs, arguments),
        }
    }

    fn call(&self, op: &Call, ins: Vec<Buffer>, outs: &[&Aval], arguments: usize) -> Vec<Buffer> {
        match op {
            Call::Jit(op) => self.run(&op.jaxpr, ins, arguments),
            Call::Checkpoint(op) => self.run(&op.jaxpr, ins, arguments),
            Call::CustomJvp(op) => self.run(&op.call, ins, arguments),
            Call::CustomVjp(op) => self.run(&op.call, ins, arguments),
            Call::Scan(op) => self.scan(op, ins, outs, arguments),
            Call::While(op) => self.while_loop(op, ins, arguments),
            Call::Cond(op) => {
                self.cond(op, &ins, arguments);
                self.results(outs, arguments)
            }
            Call::CustomLin(_) => self.results(outs, arguments),
            Call::ShardMap(op) => {
                self.shard_map(op, arguments);
                drop(ins);
                self.results(outs, arguments)
            }
        }
    }

    fn prim(&self, op: &Prim, ins: Vec<Buffer>, avals: &[Aval], outs: &[&Aval], arguments: usize) -> Vec<Buffer> {
        match op {
            Prim::Name(_)
            | Prim::StopGradient(_)
            | Prim::OptimizationBarrier(_)
            | Prim::DevicePut(_)
            | Prim::ShardingConstraint(_) => return ins,
            Prim::DebugPrint(_) => return Vec::new(),
            Prim::Reshape(_) | Prim::Squeeze(_) | Prim::ExpandDims(_) => return ins,
            Prim::ConvertElementType(op) if avals[0].dtype == op.dtype => return ins,
            Prim::BitcastConvertType(op) if avals[0].dtype == op.dtype => return ins,
            Prim::Reduce(op) if op.axes.is_empty() => return ins,
            Prim::Unary(op) if *op != Unary::IsFinite => {
                return vec![self.overwrite(ins, avals, outs[0], &[0], arguments)];
            }
            Prim::IntegerPow(_) => return vec![self.overwrite(ins, avals, outs[0], &[0], arguments)],
            Prim::Binary(_) => return vec![self.overwrite(ins, avals, outs[0], &[0, 1], arguments)],
            Prim::DynamicUpdateSlice(_) | Prim::Scatter(_) => {
                return vec![self.overwrite(ins, avals, outs[0], &[0], arguments)];
            }
            Prim::Clamp(_) => return vec![self.overwrite(ins, avals, outs[0], &[1, 0], arguments)],
            Prim::Unary(_) | Prim::Compare(_) | Prim::SelectN(_) => {}
            Prim::ConvertElementType(_) | Prim::BitcastConvertType(_) | Prim::ReducePrecision(_) => {}
            Prim::BroadcastInDim(_)
            | Prim::Transpose(_)
            | Prim::Rev(_)
            | Prim::Concatenate(_)
            | Prim::Pad(_)
            | Prim::Iota(_) => {}
            Prim::Slice(_) | Prim::DynamicSlice(_) | Prim::Gather(_) => {}
            Prim::Reduce(_) | Prim::ArgReduce(_) | Prim::Cumulative(_) | Prim::Sort(_) | Prim::TopK(_) => {}
            Prim::DotGeneral(_) | Prim::Conv(_) | Prim::ReduceWindow(_) | Prim::ArgReduceWindow(_) => {}
            Prim::DotProductAttention(_)
            | Prim::DotProductAttentionTangent(_)
            | Prim::DotProductAttentionCotangent(_) => {}
            Prim::TriangularSolve(_) | Prim::Cholesky(_) => {}
            Prim::CrossEntropyTangent(_) | Prim::Threefry2x32(_) => {}
            Prim::AllReduce(_)
            | Prim::AllGather(_)
            | Prim::ReduceScatter(_)
            | Prim::AllToAll(_)
            | Prim::Ppermute(_)
            | Prim::AxisIndex(_) => {}
        }
        self.results(outs, arguments)
    }

    /// New buffers for these results.
    fn results(&self, outs: &[&Aval], arguments: usize) -> Vec<Buffer> {
        let new = outs.iter().map(|a| self.result(a)).collect();
        self.note(arguments);
        new
    }

    /// The first operand without other references that has the result's shape, or a new buffer.
    fn overwrite(&self, ins: Vec<Buffer>, avals: &[Aval], out: &Aval, operands: &[usize], arguments: usize) -> Buffer {
        let free = operands.iter().find(|&&i| Rc::strong_count(&ins[i].0) == 1 && avals[i] == *out);
        let buffer = match free {
            Some(&i) => {
                self.describe(ins[i].0.number, out, LiveKind::Temporary);
                ins[i].clone()
            }
            None => self.result(out),
        };
        self.note(arguments);
        buffer
    }

    fn scan(&self, op: &Scan, mut ins: Vec<Buffer>, outs: &[&Aval], arguments: usize) -> Vec<Buffer> {
        let _xs = ins.split_off(op.num_consts + op.num_carry);
        let mut carry = ins.split_off(op.num_consts);
        let slices = op.jaxpr.in_avals().split_off(op.num_consts + op.num_carry);
        let ys: Vec<Buffer> = outs[op.num_carry..].iter().map(|a| self.result(a)).collect();
        self.note(arguments);
        self.repeat(op.length.min(op.num_carry + 2), || {
            let mut args = ins.clone();
            args.append(&mut carry);
            args.extend(slices.iter().map(|a| self.result(a)));
            self.note(arguments);
            carry = self.run(&op.jaxpr, args, arguments);
            carry.truncate(op.num_carry);
        });
        carry.extend(ys);
        carry
    }

    fn while_loop(&self, op: &While, mut ins: Vec<Buffer>, arguments: usize) -> Vec<Buffer> {
        let mut carry = ins.split_off(op.cond_consts + op.body_consts);
        let body_consts = ins.split_off(op.cond_consts);
        self.repeat(carry.len() + 2, || {
            self.run(&op.cond, ins.iter().chain(&carry).cloned().collect(), arguments);
            let mut args = body_consts.clone();
            args.append(&mut carry);
            carry = self.run(&op.body, args, arguments);
        });
        carry
    }

    fn cond(&self, op: &Cond, ins: &[Buffer], arguments: usize) {
        for branch in &op.branches {
            self.run(branch, ins[1..].to_vec(), arguments);
        }
    }

    /// Simulates the body with the shards of all devices at once, since they are computed together.
    fn shard_map(&self, op: &ShardMap, arguments: usize) {
        let devices = op.mesh.devices();
        let all = |aval: &Aval| aval.with_shape(std::iter::once(devices).chain(aval.shape.iter().copied()));
        let mut body = Jaxpr { avals: VarMap::default(), ..(*op.jaxpr).clone() };
        for (_, aval) in op.jaxpr.avals.iter() {
            body.avals.push(all(aval));
        }
        let shards = body.in_avals().iter().map(|aval| self.result(aval)).collect();
        self.note(arguments);
        self.run(&body, shards, arguments);
    }

    /// Simulates iterations until one changes nothing. The first ones differ, since they free the initial carries.
    fn repeat(&self, most: usize, mut iteration: impl FnMut()) {
        for _ in 0..most {
            let before = (self.live.all.get(), self.peak.get());
            iteration();
            if before == (self.live.all.get(), self.peak.get()) {
                return;
            }
        }
    }
}
