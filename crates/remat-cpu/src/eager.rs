//! Operations outside of any program: each is a program of one equation, compiled once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use remat_ir::{Array, Aval, Builder, Executable, Jaxpr, Op, Result};

use crate::device::{Compiled, Cpu};

type Key = (Op, Vec<Aval>);

static PROGRAMS: LazyLock<Mutex<HashMap<Key, Arc<Compiled>>>> = LazyLock::new(Mutex::default);

/// Programs are kept up to this number, and then all forgotten: whoever makes operands of ever new shapes compiles anyway.
const MOST_PROGRAMS: usize = 4096;

/// The most bytes of temporaries that the program of an operation keeps between calls.
const MOST_KEPT: usize = 1 << 16;

/// Applies one operation to arrays, on the threads of [`Cpu::default`].
///
/// ```
/// use remat_ir::{Array, Binary, Op};
/// let x = Array::from_vec(vec![1.0f32, 2.0], [2])?;
/// let y = remat_cpu::apply(&Op::Binary(Binary::Add), vec![x.clone(), x])?;
/// assert_eq!(y[0].as_slice::<f32>(), Some(&[2.0, 4.0][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the operation does not take operands of these avals, or there is no memory for its results.
pub fn apply(op: &Op, ins: Vec<Array>) -> Result<Vec<Array>> {
    let key = (op.clone(), ins.iter().map(|x| x.aval().clone()).collect::<Vec<Aval>>());
    let known = PROGRAMS.lock().unwrap_or_else(|e| e.into_inner()).get(&key).cloned();
    let executable = match known {
        Some(executable) => {
            // A run has nothing beside that its plan does not know of.
            drop(key);
            executable
        }
        None => {
            let executable = compile(op, &key.1)?;
            let mut programs = PROGRAMS.lock().unwrap_or_else(|e| e.into_inner());
            if programs.len() >= MOST_PROGRAMS {
                programs.clear();
            }
            programs.insert(key, executable.clone());
            executable
        }
    };
    executable.run(ins)
}

/// Compiles a program, runs it once, and forgets it. Errors of the run bear the name.
///
/// # Errors
/// If the arguments are not the program's, or the run fails.
pub fn run(name: &'static str, jaxpr: &Jaxpr, args: Vec<Array>) -> Result<Vec<Array>> {
    Cpu::default().compile_for(name, jaxpr)?.run(args)
}

fn compile(op: &Op, avals: &[Aval]) -> Result<Arc<Compiled>> {
    let mut builder = Builder::new();
    let ins: Vec<_> = avals.iter().map(|aval| builder.input(aval.clone())).collect();
    let outs = builder.emit(op.clone(), &ins)?;
    Ok(Arc::new(Cpu::default().compile_keeping(op.name(), &builder.finish(outs.to_vec()), MOST_KEPT)?))
}
