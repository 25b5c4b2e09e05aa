//! Operations outside of any program. Each is compiled once, as a program of one equation.
//!
//! The programs share one block of memory, of which at most a MiB is kept between calls, and some two thousand of them are kept, the most
//! recently used.

use std::sync::{Arc, LazyLock, Mutex};

use remat_ir::{Array, Aval, Builder, Executable, Jaxpr, Op, Result};
use remat_opt::lru::Lru;

use crate::compile::Constraints;
use crate::device::{Cpu, CpuExecutable, SpareArena};

/// The compiled operations and the spare arena that they share, since they usually run one after the other.
#[derive(Default)]
struct CompiledOps {
    cache: Lru<(Op, Vec<Aval>), Arc<CpuExecutable>>,
    spare: SpareArena,
}

static COMPILED: LazyLock<Mutex<CompiledOps>> = LazyLock::new(Mutex::default);

/// The most bytes that are kept between calls, for all programs together.
const MOST_KEPT: usize = 1 << 20;

/// Applies one operation to arrays, on the threads of [`Cpu::default`].
///
/// ```
/// use remat_ir::{Array, Binary};
/// let x = Array::from_vec(vec![1.0f32, 2.0], [2])?;
/// let y = remat_cpu::apply(&Binary::Add.into(), vec![x.clone(), x])?;
/// assert_eq!(y[0].as_slice::<f32>(), Some(&[2.0, 4.0][..]));
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If the operation does not take operands of these avals, or there is no memory for its results.
pub fn apply(op: &Op, ins: Vec<Array>) -> Result<Vec<Array>> {
    let key = (op.clone(), ins.iter().map(|x| x.aval().clone()).collect::<Vec<Aval>>());
    let compiled = || COMPILED.lock().unwrap_or_else(|e| e.into_inner());
    let known = compiled().cache.get(&key);
    let executable = match known {
        Some(executable) => {
            // While the program runs, only the memory of its plan is allocated.
            drop(key);
            executable
        }
        None => {
            let spare = compiled().spare.clone();
            let executable = compile(op, &key.1, spare)?;
            compiled().cache.insert(key, executable.clone());
            executable
        }
    };
    executable.run(ins)
}

/// Compiles a program, runs it once and drops it. Errors of the run start with `name`.
///
/// ```
/// use remat_ir::{Array, Jaxpr};
/// let program: Jaxpr = "{ lambda ; a:f64[2]. let b:f64[] = reduce_sum[axes=(0,)] a in (b,) }".parse()?;
/// let sum = remat_cpu::run("sum", &program, vec![Array::from_vec(vec![1.0, 2.5], [2])?])?;
/// assert_eq!(sum[0].as_slice::<f64>(), Some(&[3.5][..]));
/// let error = remat_cpu::run("sum", &program, vec![]).unwrap_err();
/// assert_eq!(error.to_string(), "sum: the program takes 1 argument and got 0");
/// # Ok::<(), remat_ir::Error>(())
/// ```
///
/// # Errors
/// If an operation cannot be run, the number of arguments or the aval of one is not the program's, or the run fails.
pub fn run(name: &'static str, jaxpr: &Jaxpr, args: Vec<Array>) -> Result<Vec<Array>> {
    Cpu::default().compile_for(name, jaxpr)?.run(args)
}

fn compile(op: &Op, avals: &[Aval], spare: SpareArena) -> Result<Arc<CpuExecutable>> {
    let mut builder = Builder::new();
    let ins: Vec<_> = avals.iter().map(|aval| builder.input(aval.clone())).collect();
    let outs = builder.emit(op.clone(), &ins)?;
    Ok(Arc::new(Cpu::default().compile_sharing(
        op.name(),
        &builder.finish(outs.to_vec()),
        spare,
        Some(MOST_KEPT),
        &Constraints::default(),
    )?))
}

#[cfg(test)]
mod tests {
    use remat_ir::DType;

    use super::*;

    #[test]
    fn one_block_of_memory_serves_all_programs() {
        let spare = SpareArena::default();
        let kept = || spare.lock().expect("no thread panicked").as_ref().map(crate::arena::Arena::len);
        let run = |size: usize, axis: usize| {
            let op = Op::from(remat_ir::Cumulative { kind: remat_ir::CumulativeKind::Sum, axis, reverse: false });
            let x = Array::full(remat_ir::Literal::from_f64(DType::F32, 1.0), [size, 3]);
            let program = compile(&op, std::slice::from_ref(x.aval()), spare.clone()).expect("a sum");
            let sums = program.run(vec![x]).expect("it has the aval");
            assert_eq!(sums[0].shape(), [size, 3]);
        };
        run(100, 0);
        let first = kept();
        run(1, 0);
        assert!(first.is_some() && kept() == first);
    }
}
