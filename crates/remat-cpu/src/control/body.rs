//! A compiled body, which is run on addresses.

// Bodies read slices of operands and buffers in scratch memory.
#![allow(unsafe_code)]

use oxc_index::{IndexSlice, IndexVec};
use remat_ir::{Error, ErrorKind, Jaxpr, LiveKind, LiveValue, Result};
use remat_kernels::Threads;

use crate::compile::{Caller, Constraints, compile};
use crate::ids::{ArgId, OutId, ResultId};
use crate::program::{CompiledProgram, ProgramResult, Run};

/// A body, compiled.
pub(super) struct Body {
    program: CompiledProgram,
    /// The output of each result.
    out_of: IndexVec<ResultId, OutId>,
}

impl Body {
    pub(super) fn new(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<Body> {
        let program = compile(jaxpr, caller, threads, &Constraints::default())?.keeping;
        let out = |(number, result): (ResultId, &ProgramResult)| match *result {
            ProgramResult::Output(out) => Ok(out),
            _ => Err(internal(format!("{number} of a body is not computed into its own memory"))),
        };
        let out_of: IndexVec<ResultId, OutId> = program.results.iter_enumerated().map(out).collect::<Result<_>>()?;
        if let Some(out) = program.outputs.indices().find(|out| !out_of.contains(out)) {
            return Err(internal(format!("{out} of a body is not a result")));
        }
        Ok(Body { program, out_of })
    }

    /// Whether a result can be computed in the memory of this argument.
    pub(super) fn is_donated(&self, argument: usize, result: usize) -> bool {
        let out = self.out_of.get(ResultId::new(result));
        out.is_some_and(|&out| self.program.donated[out] == Some(ArgId::new(argument)))
    }

    /// The values that are live in the arena at the peak of the body.
    pub(super) fn live(&self) -> impl Iterator<Item = LiveValue> + '_ {
        let is_inside = |value: &&LiveValue| matches!(value.kind, LiveKind::Temporary | LiveKind::Scratch);
        self.program.live.iter().filter(is_inside).cloned()
    }

    /// The bytes of a frame's addresses.
    pub(super) fn addresses(&self) -> usize {
        self.program.addresses()
    }

    /// The bytes of the arena of a run.
    pub(super) fn arena(&self) -> usize {
        self.program.arena
    }

    /// A frame with the addresses that `ins` and `outs` give.
    ///
    /// # Safety
    /// `addresses` has [`Body::addresses`] bytes, initialised and aligned to a cache line, which nothing else uses while the frame lives.
    pub(super) unsafe fn frame<'a>(
        &'a self,
        addresses: *mut u8,
        ins: impl Fn(usize) -> *const u8,
        outs: impl Fn(usize) -> *mut u8,
    ) -> Frame<'a> {
        // SAFETY: promised by the caller.
        let (in_addresses, out_addresses) = unsafe { self.program.lists(addresses) };
        let mut frame = Frame { body: self, ins: in_addresses, outs: out_addresses };
        for (i, address) in frame.ins.iter_mut().enumerate() {
            *address = ins(i);
        }
        for result in self.out_of.indices() {
            frame.set_out(result.index(), outs(result.index()));
        }
        frame
    }
}

/// Where the arguments and the results of a body lie. A loop sets all addresses once, and between iterations those that change.
pub(super) struct Frame<'a> {
    body: &'a Body,
    ins: &'a mut IndexSlice<ArgId, [*const u8]>,
    outs: &'a mut IndexSlice<OutId, [*mut u8]>,
}

impl Frame<'_> {
    pub(super) fn argument(&self, i: usize) -> *const u8 {
        self.ins[ArgId::new(i)]
    }

    pub(super) fn set_argument(&mut self, i: usize, address: *const u8) {
        self.ins[ArgId::new(i)] = address;
    }

    pub(super) fn out(&self, result: usize) -> *mut u8 {
        self.outs[self.body.out_of[ResultId::new(result)]]
    }

    pub(super) fn set_out(&mut self, result: usize, address: *mut u8) {
        self.outs[self.body.out_of[ResultId::new(result)]] = address;
    }

    /// Runs the body.
    ///
    /// # Safety
    /// `arena` has [`Body::arena`] bytes, initialised and aligned to a cache line; else as for [`CompiledProgram::run`], with the addresses of
    /// this frame.
    pub(super) unsafe fn run(&self, arena: *mut u8, threads: &Threads) {
        // SAFETY: promised by the caller.
        unsafe { self.body.program.run(Run { ins: self.ins, outs: self.outs, arena, threads }) }
    }
}

pub(super) fn internal(fault: String) -> Error {
    Error::new(ErrorKind::Internal, "compile", fault)
}
