//! Operations outside of any program: each is a program of one equation, compiled once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use remat_ir::{Array, Aval, Builder, Executable, Jaxpr, Op, Result};

use crate::device::{Cpu, CpuExecutable, SpareArena};

type Key = (Op, Vec<Aval>);

/// A cache of compiled operations in two generations, which approximates LRU: a hit in `old` is promoted to `young`, and a full
/// `young` becomes `old`, whose programs are dropped. So a hit in `young` writes nothing.
#[derive(Default)]
struct Programs {
    young: HashMap<Key, Arc<CpuExecutable>>,
    old: HashMap<Key, Arc<CpuExecutable>>,
    /// The spare arena of all programs: they run one after the other as a rule.
    spare: SpareArena,
}

static PROGRAMS: LazyLock<Mutex<Programs>> = LazyLock::new(Mutex::default);

/// The most programs of a generation. One takes a few KiB, so that all take some MiB.
const MOST_PROGRAMS: usize = 1024;

/// The most bytes that are kept between calls, for all programs together.
const MOST_KEPT: usize = 1 << 20;

impl Programs {
    fn get(&mut self, key: &Key) -> Option<Arc<CpuExecutable>> {
        if let Some(program) = self.young.get(key) {
            return Some(program.clone());
        }
        let (key, program) = self.old.remove_entry(key)?;
        self.insert(key, program.clone());
        Some(program)
    }

    fn insert(&mut self, key: Key, program: Arc<CpuExecutable>) {
        if self.young.len() >= MOST_PROGRAMS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, program);
    }
}

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
    let programs = || PROGRAMS.lock().unwrap_or_else(|e| e.into_inner());
    let known = programs().get(&key);
    let executable = match known {
        Some(executable) => {
            // While the program runs, only the memory of its plan is allocated.
            drop(key);
            executable
        }
        None => {
            let spare = programs().spare.clone();
            let executable = compile(op, &key.1, spare)?;
            programs().insert(key, executable.clone());
            executable
        }
    };
    executable.run(ins)
}

/// Compiles a program, runs it once, and forgets it. Errors of the run have the name.
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
/// If the arguments are not the program's, or the run fails.
pub fn run(name: &'static str, jaxpr: &Jaxpr, args: Vec<Array>) -> Result<Vec<Array>> {
    Cpu::default().compile_for(name, jaxpr)?.run(args)
}

fn compile(op: &Op, avals: &[Aval], spare: SpareArena) -> Result<Arc<CpuExecutable>> {
    let mut builder = Builder::new();
    let ins: Vec<_> = avals.iter().map(|aval| builder.input(aval.clone())).collect();
    let outs = builder.emit(op.clone(), &ins)?;
    Ok(Arc::new(Cpu::default().compile_sharing(op.name(), &builder.finish(outs.to_vec()), spare, MOST_KEPT)?))
}

#[cfg(test)]
mod tests {
    use remat_ir::{DType, Unary};

    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut programs = Programs::default();
        let key = |size: usize| (Op::from(Unary::Neg), vec![Aval::new(DType::F32, [size])]);
        let program = compile(&key(1).0, &key(1).1, programs.spare.clone()).expect("a negation");
        for size in 0..5 * MOST_PROGRAMS {
            programs.insert(key(size), program.clone());
            assert!(programs.get(&key(0)).is_some(), "it was used a moment ago");
            assert!(programs.young.len() + programs.old.len() <= 2 * MOST_PROGRAMS);
        }
        assert!(programs.get(&key(MOST_PROGRAMS)).is_none());
        assert!(programs.get(&key(5 * MOST_PROGRAMS - 2)).is_some());
    }

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
