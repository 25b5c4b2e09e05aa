//! A compiled body, which is run on addresses.

// Bodies read slices of operands and buffers in scratch memory.
#![allow(unsafe_code)]

use oxc_index::{IndexVec, index_vec};
use remat_ir::{Error, ErrorKind, Jaxpr, LiveKind, LiveValue, Result};
use remat_kernels::Threads;

use crate::compile::{Caller, compile};
use crate::ids::{ArgId, OutId, ResultId};
use crate::program::{CompiledProgram, ProgramResult, Run};

/// A body, compiled.
pub(super) struct Body {
    program: CompiledProgram,
    /// The result of each output.
    result_of: IndexVec<OutId, ResultId>,
}

impl Body {
    pub(super) fn new(jaxpr: &Jaxpr, caller: Caller, threads: &Threads) -> Result<Body> {
        let program = compile(jaxpr, caller, threads, None)?.keeping;
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
    pub(super) fn is_donated(&self, argument: usize, result: usize) -> bool {
        let mut outputs = self.program.donated.iter().zip(&self.result_of);
        outputs.any(|(&donated, &number)| donated == Some(ArgId::new(argument)) && number == ResultId::new(result))
    }

    /// The values that are live in the arena at the peak of the body.
    pub(super) fn live(&self) -> impl Iterator<Item = LiveValue> + '_ {
        let is_inside = |value: &&LiveValue| matches!(value.kind, LiveKind::Temporary | LiveKind::Scratch);
        self.program.live.iter().filter(is_inside).cloned()
    }

    pub(super) fn scratch(&self) -> usize {
        self.program.memory_bytes()
    }

    /// Runs the body.
    ///
    /// # Safety
    /// `scratch` has [`Body::scratch`] bytes, initialised and aligned to a cache line; else as for [`CompiledProgram::run`], with the
    /// addresses that `ins` and `outs` give.
    pub(super) unsafe fn run(
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

pub(super) fn internal(fault: String) -> Error {
    Error::new(ErrorKind::Internal, "compile", fault)
}
