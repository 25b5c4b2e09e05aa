//! The engine as a device.

// Outputs are computed into memory whose addresses programs are given.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex};

use remat_ir::{
    Array, Aval, Data, Device, Error, ErrorKind, Executable, Jaxpr, MemoryReport, MemoryStats, Result, counted,
};

use crate::arena::{self, Arena};
use crate::compile::{Caller, compile};
use crate::program::{Out, Program, Run};
use crate::threads::Threads;

/// The native engine.
#[derive(Clone)]
pub struct Cpu {
    /// Its own threads; those that all share where there are none.
    threads: Option<Threads>,
}

impl Cpu {
    /// The engine with so many threads, which all programs that it compiles share.
    ///
    /// # Errors
    /// If there are to be none, or the system refuses to start them.
    pub fn with_threads(count: usize) -> Result<Cpu> {
        Ok(Cpu { threads: Some(Threads::new(count)?) })
    }
}

impl Default for Cpu {
    /// The engine with as many threads as the environment variable `REMAT_THREADS` says when the first program is compiled, or
    /// as the machine has cores. All such engines share them.
    fn default() -> Cpu {
        Cpu { threads: None }
    }
}

impl Device for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(self.compile_for("run", jaxpr)?))
    }
}

impl Cpu {
    /// Compiles a program whose errors bear this name.
    pub(crate) fn compile_for(&self, name: &'static str, jaxpr: &Jaxpr) -> Result<Compiled> {
        self.compile_keeping(name, jaxpr, usize::MAX)
    }

    /// As [`Cpu::compile_for`], for a program that keeps its arena between runs if it has at most so many bytes.
    pub(crate) fn compile_keeping(&self, name: &'static str, jaxpr: &Jaxpr, most_kept: usize) -> Result<Compiled> {
        let threads = self.threads.clone().map_or_else(Threads::all, Ok)?;
        let program = compile(jaxpr, Caller::User, &threads)?;
        Ok(Compiled { name, program, threads, most_kept, idle: Mutex::new(None) })
    }
}

/// A program that the engine has compiled.
pub(crate) struct Compiled {
    /// What its errors are called by.
    name: &'static str,
    program: Program,
    threads: Threads,
    /// An arena of more bytes is given back after each run.
    most_kept: usize,
    /// The memory of the last run: kept, since to have it cleared anew would cost more than many a run.
    idle: Mutex<Option<State>>,
}

/// What a run needs beside its outputs.
struct State {
    arena: Arena,
    ins: Vec<*const u8>,
    outs: Vec<*mut u8>,
}

// SAFETY: the addresses mean something only during a run, which has the state for itself.
unsafe impl Send for State {}

impl Executable for Compiled {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        let program = &self.program;
        expect(&program.ins, &args).map_err(|e| self.named(e))?;
        let idle = self.idle.lock().unwrap_or_else(|e| e.into_inner()).take();
        let mut state = match idle {
            Some(state) => state,
            None => State {
                arena: Arena::new(program.arena).map_err(|e| self.named(e))?,
                ins: Vec::with_capacity(program.ins.len()),
                outs: Vec::with_capacity(program.buffers.len()),
            },
        };
        let result = execute(program, args, &mut state, &self.threads).map_err(|e| self.named(e));
        if program.arena <= self.most_kept {
            *self.idle.lock().unwrap_or_else(|e| e.into_inner()) = Some(state);
        }
        result
    }

    fn memory(&self) -> MemoryStats {
        let sum = |avals: &[Aval]| avals.iter().map(Aval::bytes).sum();
        let (arguments, outputs, temporaries) =
            (sum(&self.program.ins), sum(&self.program.buffers), self.program.arena);
        MemoryStats { arguments, outputs, temporaries, peak: arguments + outputs + temporaries }
    }

    fn memory_report(&self) -> MemoryReport {
        MemoryReport::new(self.memory(), self.program.live.clone())
    }
}

impl Compiled {
    fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), self.name, error.message())
    }
}

fn execute(program: &Program, args: Vec<Array>, state: &mut State, threads: &Threads) -> Result<Vec<Array>> {
    let mut args: Vec<Option<Array>> = args.into_iter().map(Some).collect();
    let mut buffers: Vec<Option<Data>> = program.buffers.iter().map(|_| None).collect();
    // What nobody else holds may become an output.
    for &(argument, buffer) in &program.donations {
        match args[argument].take().map(Array::try_into_data) {
            Some(Ok(data)) => buffers[buffer] = Some(data),
            Some(Err(array)) => args[argument] = Some(array),
            None => {}
        }
    }
    state.outs.clear();
    for (aval, buffer) in program.buffers.iter().zip(&mut buffers) {
        let data = match buffer {
            Some(data) => data,
            None => buffer.insert(arena::zeros(aval).map_err(|_| no_memory(program))?),
        };
        state.outs.push(arena::start_mut(data));
    }
    state.ins.clear();
    for (i, arg) in args.iter().enumerate() {
        let donated = || {
            let buffer = program.donations.iter().find(|(argument, _)| *argument == i);
            buffer.map_or(std::ptr::null(), |&(_, buffer)| state.outs[buffer].cast_const())
        };
        state.ins.push(arg.as_ref().map_or_else(donated, |array| arena::start(array.data())));
    }
    let run = Run { ins: &state.ins, outs: &state.outs, arena: state.arena.start(), threads };
    // SAFETY: arguments have the program's avals, outputs and arena its sizes; the state is this run's alone, and an output
    // is an argument only where the program allows it.
    unsafe { program.run(run) }
    let mut made: Vec<Option<Array>> = Vec::with_capacity(buffers.len());
    for (aval, data) in program.buffers.iter().zip(buffers) {
        let data = data.ok_or_else(|| Error::new(ErrorKind::Internal, "run", "an output has no memory"))?;
        made.push(Some(Array::new(aval.clone(), data)?));
    }
    let mut results = Vec::with_capacity(program.outs.len());
    for (out, aval) in program.outs.iter().zip(&program.out_avals) {
        let array = match out {
            Out::Argument(i) => args[*i].as_ref(),
            Out::Buffer(k) => made[*k].as_ref(),
        };
        let array = array.ok_or_else(|| Error::new(ErrorKind::Internal, "run", "an output has no memory"))?;
        results.push(match array.aval() == aval {
            true => array.clone(),
            false => array.reshaped(aval.shape.iter().copied())?.in_memory(aval.memory),
        });
    }
    Ok(results)
}

/// Fails unless the arguments have these avals.
fn expect(avals: &[Aval], args: &[Array]) -> Result<()> {
    if args.len() != avals.len() {
        let message = format!("the program takes {} and got {}", counted(avals.len(), "argument"), args.len());
        return Err(Error::new(ErrorKind::Argument, "run", message));
    }
    for (i, (aval, arg)) in avals.iter().zip(args).enumerate() {
        if arg.aval() != aval {
            let message = format!("argument {i} is {aval} and got {}", arg.aval());
            return Err(Error::new(ErrorKind::Argument, "run", message));
        }
    }
    Ok(())
}

/// The error of a program whose results do not fit into memory.
fn no_memory(program: &Program) -> Error {
    let outs: Vec<String> = program.out_avals.iter().map(Aval::to_string).collect();
    let bytes = program.out_avals.iter().fold(0usize, |sum, aval| sum.saturating_add(aval.bytes()));
    let message = format!("there is no memory for the result {}, of {bytes} bytes", outs.join(" "));
    Error::new(ErrorKind::Shape, "run", message)
}
