//! The stages of a jitted function, as in JAX: traced, lowered, compiled.

use std::sync::Arc;

use remat_ir::{Aval, Device, Error, ErrorKind, Executable, Jaxpr, LiveKind, MemoryReport, MemoryStats, Result};
use remat_opt::pipeline;

use super::limit::memory_limit;
use crate::trace::{Program, Tensor, Tracer, current_loc, expect_avals, into_arrays, operands};

/// What programs are compiled for.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) device: Arc<dyn Device>,
    pub(super) memory_limit: Option<usize>,
}

/// A traced function.
pub struct Traced {
    program: Program,
    paths: Arc<[Arc<str>]>,
    target: Target,
}

impl Traced {
    pub(super) fn new(program: Program, paths: Arc<[Arc<str>]>, target: Target) -> Traced {
        Traced { program, paths, target }
    }

    /// The program: captured constants, then the leaves of the argument.
    pub fn jaxpr(&self) -> &Arc<Jaxpr> {
        &self.program.jaxpr
    }

    /// Simplifies the program: folds literals, merges common subexpressions, drops dead code.
    ///
    /// # Errors
    /// If a simplification fails, which is a defect.
    pub fn lower(&self) -> Result<Lowered> {
        let jaxpr = Arc::new(pipeline::run(pipeline::JIT, &self.program.jaxpr)?);
        let Traced { program, paths, target } = self;
        Ok(Lowered { jaxpr, captured: program.captured.clone(), paths: paths.clone(), target: target.clone() })
    }
}

/// A program that is ready to be compiled.
pub struct Lowered {
    jaxpr: Arc<Jaxpr>,
    captured: Vec<Tensor>,
    paths: Arc<[Arc<str>]>,
    target: Target,
}

impl Lowered {
    /// The program: captured constants, then the leaves of the argument.
    pub fn jaxpr(&self) -> &Arc<Jaxpr> {
        &self.jaxpr
    }

    /// The steps that the engine makes of it, in the order in which they run, with the memory of each value. The text is for
    /// people, and says what each engine wants to say.
    ///
    /// # Errors
    /// If the engine cannot run the program.
    pub fn steps(&self) -> Result<String> {
        self.target.device.steps(&self.jaxpr)
    }

    /// Compiles it for the engine.
    ///
    /// # Errors
    /// If the engine cannot run the program; if the program needs more memory than [`JitOptions::memory_limit`](crate::JitOptions::memory_limit).
    #[track_caller]
    pub fn compile(&self) -> Result<Compiled> {
        let loc = current_loc();
        let limit = memory_limit(self.target.memory_limit).map_err(|error| error.at(loc))?;
        let avals = self.jaxpr.in_avals().split_off(self.captured.len());
        let executable = self.target.device.compile(&self.jaxpr)?;
        let compiled = Compiled { executable, captured: self.captured.clone(), paths: self.paths.clone(), avals };
        match limit {
            Some(limit) if compiled.memory().peak > limit => Err(compiled.memory_report().over_limit(limit).at(loc)),
            _ => Ok(compiled),
        }
    }
}

/// A compiled program.
pub struct Compiled {
    executable: Arc<dyn Executable>,
    captured: Vec<Tensor>,
    /// The paths of the leaves.
    paths: Arc<[Arc<str>]>,
    /// The avals of the leaves.
    avals: Vec<Aval>,
}

impl Compiled {
    pub(super) fn into_executable(self) -> Arc<dyn Executable> {
        self.executable
    }

    /// The bytes that a run needs, known before it.
    pub fn memory(&self) -> MemoryStats {
        self.executable.memory()
    }

    /// The same bytes, and the values that are live at the peak.
    pub fn memory_report(&self) -> MemoryReport {
        let mut report = self.executable.memory_report();
        for value in &mut report.live {
            if let LiveKind::Argument(i) = value.kind {
                match i.checked_sub(self.captured.len()) {
                    Some(leaf) => value.name = self.paths.get(leaf).filter(|path| !path.is_empty()).cloned(),
                    None => value.kind = LiveKind::Constant,
                }
            }
        }
        report
    }

    /// Runs the program on the leaves of an argument.
    ///
    /// # Errors
    /// If their number or an aval is not the program's.
    #[track_caller]
    pub fn call(&self, leaves: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let loc = current_loc();
        self.run(leaves).map_err(|error| error.at(loc))
    }

    fn run(&self, leaves: Vec<Tensor>) -> Result<Vec<Tensor>> {
        if Tracer::is_open() {
            let message = "a compiled program cannot be called while a function is traced; call the jitted function";
            return Err(Error::new(ErrorKind::Traced, "compiled", message));
        }
        expect_avals("compiled", "leaf", &leaves, self.avals.iter())?;
        let arrays = into_arrays("compiled", operands(&self.captured, leaves))?;
        Ok(self.executable.run(arrays)?.into_iter().map(Tensor::from_array).collect())
    }
}
