//! Compiled functions.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use remat_ir::{Aval, Device, Error, ErrorKind, Executable, Jaxpr, Loc, MemoryStats, Reference, Result};

use crate::trace::{
    Output, Program, Repr, Structure, Tensor, Tracer, Tree, bind_at, concrete, current_loc, rebuild, short_type_name,
    structure, trace_tree,
};
use crate::transform::{cse, dce, fold_literals};

/// Options of [`jit_with`].
#[derive(Clone, Default)]
pub struct JitOptions {
    /// The name that programs and reports print; the function's own where it is `None`.
    pub name: Option<String>,
    /// The engine; the default one where it is `None`.
    pub device: Option<Arc<dyn Device>>,
}

/// A function that is traced and compiled once for each structure, static fields and avals of its argument.
///
/// It can be called from several threads if what the function captures can be shared between threads.
pub struct Jit<A, R: Output, F> {
    f: F,
    name: Arc<str>,
    device: Arc<dyn Device>,
    loc: Loc,
    cache: Mutex<HashMap<Key, Arc<Entry<R::Tree>>>>,
    marker: PhantomData<fn(&A) -> R>,
}

type Key = (Structure, Vec<Aval>);

/// A traced function, and its executable once it was needed.
struct Entry<T> {
    program: Program,
    like: T,
    executable: Mutex<Option<Arc<dyn Executable>>>,
}

/// Compiles a function on its first call, and again for an argument of another structure or other avals.
///
/// ```
/// use remat::{Tensor, jit};
/// let step = jit(|x: &Tensor| x * 2.0 + 1.0);
/// assert_eq!(step.call(Tensor::from(3.0f32))?.item::<f32>()?, 7.0);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn jit<A: Tree, R: Output, F: Fn(&A) -> R>(f: F) -> Jit<A, R, F> {
    jit_with(JitOptions::default(), f)
}

/// As [`jit`] with options.
#[track_caller]
pub fn jit_with<A: Tree, R: Output, F: Fn(&A) -> R>(options: JitOptions, f: F) -> Jit<A, R, F> {
    Jit {
        f,
        name: options.name.unwrap_or_else(short_type_name::<F>).into(),
        device: options.device.unwrap_or_else(|| Arc::new(Reference)),
        loc: current_loc(),
        cache: Mutex::new(HashMap::new()),
        marker: PhantomData,
    }
}

impl<A: Tree, R: Output, F: Fn(&A) -> R> Jit<A, R, F> {
    /// Runs the function. The argument is moved in: a buffer that nobody else holds may be overwritten.
    ///
    /// While a trace is open the call becomes an equation of it.
    ///
    /// # Errors
    /// The first error inside the function; a failed tensor in the argument.
    pub fn call(&self, args: A) -> Result<R::Tree> {
        let (leaves, structure) = structure(&args);
        let entry = self.entry(&args, &leaves, structure)?;
        drop(args);
        let operands: Vec<Tensor> = entry.program.captured.iter().cloned().chain(leaves).collect();
        let outs = if Tracer::is_open() {
            let op = remat_ir::Jit { name: self.name.clone(), jaxpr: entry.program.jaxpr.clone() };
            let operands: Vec<&Tensor> = operands.iter().collect();
            let outs = bind_at(op, &operands, entry.program.jaxpr.outs.len(), self.loc);
            match outs.iter().find_map(Tensor::error) {
                Some(error) => return Err(error.clone()),
                None => outs,
            }
        } else {
            let executable = self.executable(&entry)?;
            let arrays = concrete(&operands)?;
            drop(operands);
            executable.run(arrays)?.into_iter().map(Tensor::from_array).collect()
        };
        rebuild(&entry.like, outs)
    }

    /// Traces the function for an argument of this structure and avals, whose values are not read.
    ///
    /// # Errors
    /// The first error inside the function.
    pub fn trace(&self, args: &A) -> Result<Traced> {
        let (leaves, structure) = structure(args);
        let entry = self.entry(args, &leaves, structure)?;
        Ok(Traced { program: entry.program.clone(), device: self.device.clone() })
    }

    /// Traces and simplifies: short for [`Jit::trace`] and [`Traced::lower`].
    ///
    /// # Errors
    /// The first error inside the function.
    pub fn lower(&self, args: &A) -> Result<Lowered> {
        self.trace(args)?.lower()
    }

    /// The number of programs that were traced so far.
    pub fn cache_size(&self) -> usize {
        self.cache.lock().unwrap_or_else(|e| e.into_inner()).len()
    }

    fn entry(&self, args: &A, leaves: &[Tensor], structure: Structure) -> Result<Arc<Entry<R::Tree>>> {
        let avals = super::differentiate::avals(leaves).map_err(|e| e.at(self.loc))?;
        let key = (structure, avals);
        if let Some(entry) = self.cache.lock().unwrap_or_else(|e| e.into_inner()).get(&key) {
            return Ok(entry.clone());
        }
        // Traced without the lock: the function may call this very function again.
        let (program, like) = trace_tree(args, self.loc, &self.f)?;
        // What belongs to a trace that is open now cannot be used in another one.
        let is_cacheable = program.captured.iter().all(|t| matches!(t.0, Repr::Concrete(_)));
        let entry = Arc::new(Entry { program, like, executable: Mutex::new(None) });
        if is_cacheable {
            self.cache.lock().unwrap_or_else(|e| e.into_inner()).insert(key, entry.clone());
        }
        Ok(entry)
    }

    fn executable(&self, entry: &Entry<R::Tree>) -> Result<Arc<dyn Executable>> {
        let mut executable = entry.executable.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(executable) = &*executable {
            return Ok(executable.clone());
        }
        let traced = Traced { program: entry.program.clone(), device: self.device.clone() };
        let compiled = traced.lower()?.compile()?.executable;
        *executable = Some(compiled.clone());
        Ok(compiled)
    }
}

/// A traced function.
pub struct Traced {
    program: Program,
    device: Arc<dyn Device>,
}

impl Traced {
    /// The program: captured constants, then the leaves of the argument.
    pub fn jaxpr(&self) -> &Arc<Jaxpr> {
        &self.program.jaxpr
    }

    /// Simplifies the program: folds literals, merges common subexpressions, drops dead code.
    ///
    /// # Errors
    /// If a simplification fails, which is a defect.
    pub fn lower(&self) -> Result<Lowered> {
        let jaxpr = cse(&fold_literals(&self.program.jaxpr)?)?;
        let keep = vec![true; jaxpr.ins.len()];
        let jaxpr = Arc::new(dce(&jaxpr, &vec![true; jaxpr.outs.len()], &keep)?.jaxpr);
        Ok(Lowered { jaxpr, captured: self.program.captured.clone(), device: self.device.clone() })
    }
}

/// A program that is ready to be compiled.
pub struct Lowered {
    jaxpr: Arc<Jaxpr>,
    captured: Vec<Tensor>,
    device: Arc<dyn Device>,
}

impl Lowered {
    /// The program: captured constants, then the leaves of the argument.
    pub fn jaxpr(&self) -> &Arc<Jaxpr> {
        &self.jaxpr
    }

    /// Compiles it for the engine.
    ///
    /// # Errors
    /// If the engine cannot run the program.
    pub fn compile(&self) -> Result<Compiled> {
        Ok(Compiled { executable: self.device.compile(&self.jaxpr)?, captured: self.captured.clone() })
    }
}

/// A compiled program.
pub struct Compiled {
    executable: Arc<dyn Executable>,
    captured: Vec<Tensor>,
}

impl Compiled {
    /// The bytes that a run needs, known before it.
    pub fn memory(&self) -> MemoryStats {
        self.executable.memory()
    }

    /// Runs the program on the leaves of an argument.
    ///
    /// # Errors
    /// If their number or an aval is not the program's.
    pub fn call(&self, leaves: Vec<Tensor>) -> Result<Vec<Tensor>> {
        if Tracer::is_open() {
            let message = "a compiled program cannot be called while a function is traced; call the jitted function";
            return Err(Error::new(ErrorKind::Traced, "compiled", message).at(current_loc()));
        }
        let operands = concrete(self.captured.iter().chain(&leaves))?;
        Ok(self.executable.run(operands)?.into_iter().map(Tensor::from_array).collect())
    }
}
