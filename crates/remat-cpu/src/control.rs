//! Loops and branches as kernels: the body is a compiled program whose arena is scratch memory of the step.
//!
//! Iterations read slices of stacked arguments and write slices of stacked results in place. A carry that the body can compute in the
//! memory of its argument stays there. Any other carry alternates between the memory of the output and a second buffer.

// Bodies are run on addresses: slices of operands, and buffers in scratch memory.
#![allow(unsafe_code)]

use oxc_index::{IndexVec, index_vec};
use remat_ir::{
    Atom, Call, Cond, Element, Error, ErrorKind, Jaxpr, LiveKind, LiveValue, Operation, Result, Scan, While, with_dtype,
};
use remat_kernels::{Kernel, Source, Target, Threads};

use crate::align::aligned;
use crate::compile::{Caller, compile};
use crate::ids::{ArgId, OutId, ResultId};
use crate::program::{CompiledProgram, ProgramResult, Run};

/// The kernel of a loop or a branch.
///
/// # Errors
/// If a body cannot be compiled, if the operation has no evaluation, or if it is a call, which the passes inline.
pub(crate) fn kernel(op: &Call, threads: &Threads) -> Result<Box<dyn Kernel>> {
    Ok(match op {
        Call::Scan(op) => Box::new(ScanKernel::new(op, threads)?),
        Call::While(op) => Box::new(WhileKernel::new(op, threads)?),
        Call::Cond(op) => Box::new(CondKernel::new(op, threads)?),
        Call::CustomLin(op) => return Err(op.not_evaluated()),
        Call::Jit(_) | Call::Checkpoint(_) | Call::CustomJvp(_) | Call::CustomVjp(_) | Call::ShardMap(_) => {
            return Err(Error::new(ErrorKind::Internal, op.name(), "is not inlined"));
        }
    })
}

/// The bodies of a loop or a branch as the engine compiles them, with their names; empty for other calls.
pub(crate) fn bodies(op: &Call) -> Vec<(String, Jaxpr)> {
    match op {
        Call::Scan(op) => vec![("body".to_string(), without_constants(&op.jaxpr, op.num_consts, op.num_carry).0)],
        Call::While(op) => {
            let body = without_constants(&op.body, op.body_consts, op.body.outs.len()).0;
            vec![("condition".to_string(), Jaxpr::clone(&op.cond)), ("body".to_string(), body)]
        }
        Call::Cond(op) => {
            let branches = op.branches.iter().enumerate();
            branches.map(|(i, branch)| (format!("branch {i}"), Jaxpr::clone(branch))).collect()
        }
        Call::CustomLin(_) | Call::Jit(_) | Call::Checkpoint(_) => Vec::new(),
        Call::CustomJvp(_) | Call::CustomVjp(_) | Call::ShardMap(_) => Vec::new(),
    }
}

/// A body, compiled.
struct Body {
    program: CompiledProgram,
    /// The result of each output.
    result_of: IndexVec<OutId, ResultId>,
}

impl Body {
    fn new(jaxpr: &Jaxpr, threads: &Threads) -> Result<Body> {
        let program = compile(jaxpr, Caller::Control, threads)?.keeping;
        let mut result_of: IndexVec<OutId, Option<ResultId>> = index_vec![None; program.outputs.len()];
        for (number, result) in program.results.iter_enumerated() {
            let ProgramResult::Output(out) = *result else {
                return Err(internal(format!("{number} of a body is not computed into its own memory")));
            };
            result_of[out] = Some(number);
        }
        let number = |(out, result): (OutId, &Option<ResultId>)| {
            result.ok_or_else(|| internal(format!("{out} of a body is not a result")))
        };
        let result_of = result_of.iter_enumerated().map(number).collect::<Result<_>>()?;
        Ok(Body { program, result_of })
    }

    /// Whether a result can be computed in the memory of this argument.
    fn is_donated(&self, argument: usize, result: usize) -> bool {
        let mut outputs = self.program.donated.iter().zip(&self.result_of);
        outputs.any(|(&donated, &number)| donated == Some(ArgId::new(argument)) && number == ResultId::new(result))
    }

    /// The values that are live in the arena at the peak of the body.
    fn live(&self) -> impl Iterator<Item = LiveValue> + '_ {
        let is_inside = |value: &&LiveValue| matches!(value.kind, LiveKind::Temporary | LiveKind::Scratch);
        self.program.live.iter().filter(is_inside).cloned()
    }

    fn scratch(&self) -> usize {
        self.program.memory()
    }

    /// Runs the body.
    ///
    /// # Safety
    /// `scratch` has [`Body::scratch`] bytes, initialised and aligned to a cache line; else as for [`CompiledProgram::run`], with the addresses that `ins` and `outs` give.
    unsafe fn run(
        &self,
        scratch: *mut u8,
        threads: &Threads,
        ins: impl Fn(usize) -> *const u8,
        outs: impl Fn(usize) -> *mut u8,
    ) {
        // SAFETY: the scratch memory has the bytes that the program needs; the caller promises the rest.
        unsafe {
            let (in_addresses, out_addresses, arena) = self.program.parts(scratch);
            for (i, address) in in_addresses.iter_mut_enumerated() {
                *address = ins(i.index());
            }
            for (address, &result) in out_addresses.iter_mut().zip(&self.result_of) {
                *address = outs(result.index());
            }
            self.program.run(Run { ins: in_addresses, outs: out_addresses, arena, threads });
        }
    }
}

/// A value that a loop hands from one iteration to the next.
struct Carry {
    /// The operand with the initial value.
    operand: usize,
    bytes: usize,
    kind: CarryKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CarryKind {
    /// The body returns its argument.
    Constant,
    /// The body computes it in place.
    InPlace,
    /// It alternates between the output and a second buffer, at this offset of the scratch memory.
    Alternating(usize),
}

impl Carry {
    /// Copies the initial value to the output, unless it is there.
    ///
    /// # Safety
    /// The operand is the one that the carry was made for, and `out` its output.
    unsafe fn begin(&self, operand: &Source<'_>, out: *mut u8) {
        if !operand.is_in_place() {
            // SAFETY: both have the bytes of the carry; an operand that is not in place has other memory.
            unsafe { std::ptr::copy_nonoverlapping(operand.as_ptr(), out, self.bytes) }
        }
    }
}

/// The carries of a body, and the bytes of their second buffers.
///
/// `first` is the operand of the first carry, and `argument` the argument of the body that reads it.
fn carries(
    jaxpr: &Jaxpr,
    body: &Body,
    first: usize,
    argument: usize,
    count: usize,
    is_constant: &[bool],
) -> (Vec<Carry>, usize) {
    let mut bytes_needed = 0;
    let mut computed = 0;
    let carries = (0..count).map(|c| {
        let bytes = jaxpr.aval(jaxpr.ins[argument + c]).bytes();
        let kind = if is_constant[c] {
            CarryKind::Constant
        } else {
            computed += 1;
            if body.is_donated(argument + c, computed - 1) {
                CarryKind::InPlace
            } else {
                bytes_needed += aligned(bytes);
                CarryKind::Alternating(bytes_needed - aligned(bytes))
            }
        };
        Carry { operand: first + c, bytes, kind }
    });
    (carries.collect(), bytes_needed)
}

/// A body without the carries that it returns unchanged, and a mask of those carries.
fn without_constants(jaxpr: &Jaxpr, argument: usize, count: usize) -> (Jaxpr, Vec<bool>) {
    let is_constant: Vec<bool> = (0..count).map(|c| jaxpr.outs[c] == Atom::Var(jaxpr.ins[argument + c])).collect();
    let mut jaxpr = jaxpr.clone();
    let mut at = 0;
    jaxpr.outs.retain(|_| {
        at += 1;
        !is_constant.get(at - 1).copied().unwrap_or(false)
    });
    (jaxpr, is_constant)
}

/// The pairs of operands and outputs that may share memory.
fn pairs(carries: &[Carry]) -> Vec<(usize, usize)> {
    let in_place = carries.iter().enumerate().filter(|(_, carry)| carry.kind == CarryKind::InPlace);
    in_place.map(|(c, carry)| (carry.operand, c)).collect()
}

struct ScanKernel {
    body: Body,
    length: usize,
    reverse: bool,
    consts: usize,
    carries: Vec<Carry>,
    /// The carries that the body computes.
    computed: Vec<usize>,
    /// Bytes of one slice of each stacked argument, and of each stacked result.
    xs: Vec<usize>,
    ys: Vec<usize>,
    /// Bytes of the second buffers.
    second: usize,
    in_place: Vec<(usize, usize)>,
    live: Vec<LiveValue>,
}

impl ScanKernel {
    fn new(op: &Scan, threads: &Threads) -> Result<ScanKernel> {
        let (jaxpr, is_constant) = without_constants(&op.jaxpr, op.num_consts, op.num_carry);
        let body = Body::new(&jaxpr, threads)?;
        let (carries, second) = carries(&jaxpr, &body, op.num_consts, op.num_consts, op.num_carry, &is_constant);
        let computed: Vec<usize> = (0..op.num_carry).filter(|&c| !is_constant[c]).collect();
        let bytes = |avals: Vec<remat_ir::Aval>| avals.iter().map(remat_ir::Aval::bytes).collect::<Vec<usize>>();
        Ok(ScanKernel {
            in_place: pairs(&carries),
            live: body.live().collect(),
            xs: bytes(op.jaxpr.in_avals().split_off(op.num_consts + op.num_carry)),
            ys: bytes(op.jaxpr.out_avals().split_off(op.num_carry)),
            body,
            length: op.length,
            reverse: op.reverse,
            consts: op.num_consts,
            carries,
            computed,
            second,
        })
    }
}

impl Kernel for ScanKernel {
    fn scratch(&self, _: usize) -> usize {
        self.second + self.body.scratch()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn live(&self) -> &[LiveValue] {
        &self.live
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let outs = &*outs;
        let scratch = scratch.as_mut_ptr();
        for (carry, out) in self.carries.iter().zip(outs) {
            if self.length == 0 || !matches!(carry.kind, CarryKind::Alternating(_)) {
                // SAFETY: operand and output of this carry.
                unsafe { carry.begin(&ins[carry.operand], out.as_ptr()) }
            }
        }
        for iteration in 0..self.length {
            let slice = if self.reverse { self.length - 1 - iteration } else { iteration };
            // The last iteration writes the output, the one before it the second buffer, and so on.
            let written = |c: usize, iteration: usize| match self.carries[c].kind {
                CarryKind::Alternating(offset) if (self.length - 1 - iteration) % 2 == 1 => {
                    scratch.wrapping_add(offset)
                }
                _ => outs[c].as_ptr(),
            };
            let argument = |i: usize| {
                if i < self.consts {
                    return ins[i].as_ptr();
                }
                let c = i - self.consts;
                match self.carries.get(c) {
                    Some(carry) if iteration == 0 && matches!(carry.kind, CarryKind::Alternating(_)) => ins[i].as_ptr(),
                    Some(carry) if carry.kind == CarryKind::Constant => outs[c].as_ptr().cast_const(),
                    Some(_) => written(c, iteration.saturating_sub(1)).cast_const(),
                    None => ins[i].as_ptr().wrapping_add(slice * self.xs[c - self.carries.len()]),
                }
            };
            let output = |o: usize| match self.computed.get(o) {
                Some(&c) => written(c, iteration),
                None => {
                    let y = o - self.computed.len();
                    outs[self.carries.len() + y].as_ptr().wrapping_add(slice * self.ys[y])
                }
            };
            // SAFETY: an iteration reads the buffers that the one before wrote, and writes its own slices and the other buffer
            // of each carry, or the same where the body allows it.
            unsafe { self.body.run(scratch.wrapping_add(self.second), threads, argument, output) }
        }
    }
}

struct WhileKernel {
    cond: Body,
    body: Body,
    cond_consts: usize,
    body_consts: usize,
    carries: Vec<Carry>,
    computed: Vec<usize>,
    /// Bytes of the second buffers.
    second: usize,
    in_place: Vec<(usize, usize)>,
    live: Vec<LiveValue>,
}

impl WhileKernel {
    fn new(op: &While, threads: &Threads) -> Result<WhileKernel> {
        let count = op.body.outs.len();
        let (jaxpr, is_constant) = without_constants(&op.body, op.body_consts, count);
        let body = Body::new(&jaxpr, threads)?;
        let first = op.cond_consts + op.body_consts;
        let (carries, second) = carries(&jaxpr, &body, first, op.body_consts, count, &is_constant);
        let cond = Body::new(&op.cond, threads)?;
        // Both have the same scratch memory, one after the other.
        let larger = if cond.scratch() > body.scratch() { &cond } else { &body };
        Ok(WhileKernel {
            in_place: pairs(&carries),
            live: larger.live().collect(),
            cond,
            body,
            cond_consts: op.cond_consts,
            body_consts: op.body_consts,
            computed: (0..count).filter(|&c| !is_constant[c]).collect(),
            carries,
            second,
        })
    }

    /// The offsets in the scratch memory of the condition's result and of the bodies' memory.
    fn offsets(&self) -> (usize, usize) {
        (self.second, self.second + aligned(1))
    }
}

impl Kernel for WhileKernel {
    fn scratch(&self, _: usize) -> usize {
        self.offsets().1 + self.cond.scratch().max(self.body.scratch())
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &self.in_place
    }

    fn live(&self) -> &[LiveValue] {
        &self.live
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let outs = &*outs;
        let scratch = scratch.as_mut_ptr();
        let (holds, memory) = (scratch.wrapping_add(self.offsets().0), scratch.wrapping_add(self.offsets().1));
        for (carry, out) in self.carries.iter().zip(outs) {
            if !matches!(carry.kind, CarryKind::Alternating(_)) {
                // SAFETY: operand and output of this carry.
                unsafe { carry.begin(&ins[carry.operand], out.as_ptr()) }
            }
        }
        // The first iteration writes the outputs, the next the second buffers, and so on.
        let written = |c: usize, iteration: usize| match self.carries[c].kind {
            CarryKind::Alternating(offset) if iteration % 2 == 1 => scratch.wrapping_add(offset),
            _ => outs[c].as_ptr(),
        };
        let mut iteration = 0;
        loop {
            let read = |c: usize| match self.carries[c].kind {
                CarryKind::Alternating(_) if iteration == 0 => ins[self.carries[c].operand].as_ptr(),
                _ => written(c, iteration.max(1) - 1).cast_const(),
            };
            let consts = self.cond_consts;
            let argument = |i: usize| if i < consts { ins[i].as_ptr() } else { read(i - consts) };
            // SAFETY: the condition reads constants and carries, and writes one bool.
            let is_true = unsafe {
                self.cond.run(memory, threads, argument, |_| holds);
                holds.read() != 0
            };
            if !is_true {
                for (c, carry) in
                    self.carries.iter().enumerate().filter(|(_, c)| matches!(c.kind, CarryKind::Alternating(_)))
                {
                    let (from, to) = (read(c), outs[c].as_ptr());
                    if from != to.cast_const() {
                        // SAFETY: both have the bytes of the carry and are different buffers.
                        unsafe { std::ptr::copy_nonoverlapping(from, to, carry.bytes) }
                    }
                }
                return;
            }
            let consts = self.body_consts;
            let argument = |i: usize| if i < consts { ins[self.cond_consts + i].as_ptr() } else { read(i - consts) };
            // SAFETY: an iteration reads the buffers that the one before wrote, and writes the other buffer of each carry, or
            // the same where the body allows it.
            unsafe { self.body.run(memory, threads, argument, |o| written(self.computed[o], iteration)) }
            iteration += 1;
        }
    }
}

struct CondKernel {
    branches: Vec<Body>,
    /// Those of the branch with the most scratch memory.
    live: Vec<LiveValue>,
}

impl CondKernel {
    fn new(op: &Cond, threads: &Threads) -> Result<CondKernel> {
        let branches = op.branches.iter().map(|branch| Body::new(branch, threads));
        let branches = branches.collect::<Result<Vec<Body>>>()?;
        let largest = branches.iter().max_by_key(|body| body.scratch());
        let largest = largest.ok_or_else(|| internal("a cond has no branches".to_string()))?;
        Ok(CondKernel { live: largest.live().collect(), branches })
    }
}

impl Kernel for CondKernel {
    fn scratch(&self, _: usize) -> usize {
        self.branches.iter().map(Body::scratch).max().unwrap_or(0)
    }

    fn live(&self) -> &[LiveValue] {
        &self.live
    }

    fn run(&self, ins: &[Source<'_>], outs: &mut [Target<'_>], scratch: &mut [u8], threads: &Threads) {
        let outs = &*outs;
        let index = with_dtype!(ins[0].dtype(), T => ins[0].slice::<T>().first().and_then(|i| i.literal().as_i128()));
        let last = self.branches.len().saturating_sub(1);
        let branch = index.unwrap_or(0).clamp(0, last as i128) as usize;
        if let Some(body) = self.branches.get(branch) {
            // SAFETY: the branch reads operands and writes outputs, and no output is an operand.
            unsafe { body.run(scratch.as_mut_ptr(), threads, |i| ins[i + 1].as_ptr(), |o| outs[o].as_ptr()) }
        }
    }
}

fn internal(fault: String) -> Error {
    Error::new(ErrorKind::Internal, "compile", fault)
}
