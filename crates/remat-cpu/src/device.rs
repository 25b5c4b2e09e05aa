//! The engine as a device.

// Outputs are computed into memory whose addresses programs are given.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard};

use oxc_index::IndexVec;
use remat_ir::{
    Array, Aval, CompileOptions, Device, Error, ErrorKind, Executable, Jaxpr, LiveRanges, MemoryReport, MemoryStats,
    Moves, Pass, Profile, Rematerialization, Result, Value, expect_arguments,
};
use remat_kernels::{Threads, forced_algorithms, matmul_precision, max_cpu_isa};
use remat_opt::pipeline;
use remat_plan::Graph;

use crate::arena::{self, Arena};
use crate::compile::{Caller, Constraints, Donated, compile, graph, listing, moves, pareto};
use crate::ids::{ArgId, ResultId};
use crate::peak::Programs;
use crate::pool::Pool;
use crate::profile::profiled;
use crate::program::{CompiledProgram, ProgramResult, Run};

/// The native engine.
///
/// A compiled program keeps its arena between runs, since clearing new memory often takes longer than a run. The arena is freed with the
/// last handle of the executable (with the `Jit` that owns it). A second run at the same time gets its own memory, and one of the two
/// blocks is kept.
///
/// Results are those of the reference evaluator, except for the order of sums and the last bits of some functions. There is one more
/// exception: zeros that a program pads around an operand of a matrix product are not multiplied (derivatives of slices are such products).
/// An infinity or a NaN of the other operand that would meet only these zeros therefore does not spread.
///
/// ```
/// use std::sync::Arc;
/// use remat_cpu::Cpu;
/// use remat_ir::{Array, Device, Jaxpr};
/// let program: Jaxpr = "{ lambda ; a:f32[2]. let b:f32[2] = neg a in (b,) }".parse()?;
/// let executable = Cpu::default().compile(&Arc::new(program))?;
/// let x = Array::from_vec(vec![1.0f32, -2.0], [2])?;
/// assert_eq!(executable.run(vec![x])?[0].as_slice::<f32>(), Some(&[-1.0, 2.0][..]));
/// assert_eq!(executable.memory().arguments, 8);
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct Cpu {
    /// Threads of this engine alone, or `None` for those that all engines share.
    threads: Option<Threads>,
    /// The memory that all its programs share, or `None` if each keeps its own.
    memory: Option<SpareArena>,
    /// The memory of discarded arrays. Without [`Cpu::discard`] it stays empty.
    pool: Pool,
}

impl Cpu {
    /// The name of the engine in reports.
    pub const NAME: &str = "cpu";

    /// An engine with `count` threads, shared by all programs that it compiles.
    ///
    /// ```
    /// use remat_cpu::Cpu;
    /// assert!(Cpu::with_threads(2).is_ok());
    /// let error = Cpu::with_threads(0).err().map(|error| error.to_string());
    /// assert_eq!(error.as_deref(), Some("threads: an engine needs at least one thread"));
    /// ```
    ///
    /// # Errors
    /// If `count` is 0, or the system refuses to start the threads.
    pub fn with_threads(count: usize) -> Result<Cpu> {
        Ok(Cpu { threads: Some(Threads::new(count)?), ..Cpu::default() })
    }

    /// The same engine, whose programs share one arena between runs instead of keeping one each. Programs that run one after the other then
    /// need no more memory than the largest. Switching between programs costs new memory, which has to be cleared.
    ///
    /// ```
    /// use remat_cpu::Cpu;
    /// use remat_ir::Device;
    /// let cpu = Cpu::default().sharing_memory();
    /// assert_eq!(cpu.name(), Cpu::NAME);
    /// ```
    pub fn sharing_memory(self) -> Cpu {
        Cpu { memory: Some(SpareArena::default()), ..self }
    }

    /// Keeps the memory of an array that has no other reference for results of this engine, of its copies, and of programs that they compile.
    /// Arrays of 256 KiB and more are kept, the latest, and at most 512 MiB of them, until there is no memory for another one.
    ///
    /// ```
    /// use remat_cpu::Cpu;
    /// use remat_ir::{Aval, DType};
    /// let cpu = Cpu::default();
    /// let array = cpu.array(&Aval::new(DType::F32, [1 << 20]))?;
    /// let start = array.as_slice::<f32>().map(<[f32]>::as_ptr);
    /// cpu.discard(array);
    /// assert_eq!(cpu.array(&Aval::new(DType::F32, [1024, 1024]))?.as_slice::<f32>().map(<[f32]>::as_ptr), start);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    pub fn discard(&self, array: Array) {
        if let Ok(data) = array.try_into_data() {
            self.pool.give(data);
        }
    }

    /// Gives the memory of discarded arrays back to the system.
    pub fn free_discarded(&self) {
        self.pool.clear();
    }

    /// An array of any elements, to be overwritten.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn array(&self, aval: &Aval) -> Result<Array> {
        Array::new(aval.clone(), self.pool.elements(aval)?)
    }
}

impl Default for Cpu {
    /// The engine with the number of threads in the environment variable `REMAT_THREADS` when the first program is compiled, or else one
    /// per core. All such engines share their threads.
    fn default() -> Cpu {
        Cpu { threads: None, memory: None, pool: Pool::default() }
    }
}

impl Device for Cpu {
    fn name(&self) -> &str {
        Cpu::NAME
    }

    fn passes(&self) -> &'static [Pass] {
        pipeline::CPU
    }

    fn plans_memory(&self) -> bool {
        true
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(self.compile_for("run", jaxpr)?))
    }

    /// With a limit, a program that needs more computes values again until it fits, in the least time that is found. The same program gets
    /// the same steps, whatever the load of the machine.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use remat_cpu::Cpu;
    /// use remat_ir::{CompileOptions, Device, Jaxpr};
    /// // The first two sums are read at the end, and the first can be computed again by then.
    /// let program: Jaxpr = "{ lambda ; a:f32[64,64]. let
    ///     b:f32[64,64] = cumsum[axis=0 reverse=False] a
    ///     c:f32[64,64] = cumsum[axis=1 reverse=False] b
    ///     d:f32[64,64] = cumsum[axis=0 reverse=True] c
    ///     e:f32[64,64] = cumsum[axis=1 reverse=True] d
    ///     f:f32[64,64] = mul e c
    ///     g:f32[64,64] = cumsum[axis=0 reverse=False] f
    ///     h:f32[64,64] = mul g b
    ///   in (h,) }".parse()?;
    /// let program = Arc::new(program);
    /// let peak = Cpu::default().compile(&program)?.memory().peak;
    /// let options = CompileOptions { memory_limit: Some(peak - 4096), ..CompileOptions::default() };
    /// let limited = Cpu::default().compile_with(&program, &options)?.memory();
    /// assert!(limited.donated_peak <= peak - 4096, "{limited:?} {peak}");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    fn compile_with(&self, jaxpr: &Arc<Jaxpr>, options: &CompileOptions) -> Result<Arc<dyn Executable>> {
        let memory = self.memory.clone().unwrap_or_default();
        Ok(Arc::new(self.compile_sharing("run", jaxpr, memory, None, &Constraints::of(options))?))
    }

    fn pareto(&self, jaxpr: &Arc<Jaxpr>, donated: &[bool], points: usize) -> Result<Vec<Rematerialization>> {
        let threads = self.threads.clone().map_or_else(Threads::all, Ok)?;
        pareto(jaxpr, Donated(donated.to_vec()), &threads, points)
    }

    /// The moves of equations between loops that lowering makes, then those that need a plan. With a limit, the values that are computed again
    /// come first.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use remat_cpu::Cpu;
    /// use remat_ir::{CompileOptions, Device, Jaxpr};
    /// // The exponential is read by two loops, each of which computes it.
    /// let program: Jaxpr = "{ lambda ; a:f32[64,64]. let
    ///     b:f32[64,64] = mul a 2.0:f32[]
    ///     c:f32[64,64] = cumsum[axis=0 reverse=False] b
    ///     d:f32[64,64] = mul c b
    ///   in (d,) }".parse()?;
    /// let moves = Cpu::default().moves(&Arc::new(program), &CompileOptions::default())?;
    /// for a_move in &moves.0 {
    ///     println!("{}: {}, {} bytes", a_move.kind, a_move.value, a_move.bytes);
    /// }
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    fn moves(&self, jaxpr: &Arc<Jaxpr>, options: &CompileOptions) -> Result<Moves> {
        let threads = self.threads.clone().map_or_else(Threads::all, Ok)?;
        moves(jaxpr, &threads, &Constraints::of(options))
    }

    /// ```
    /// use remat_cpu::Cpu;
    /// use remat_ir::Device;
    /// assert_eq!(Cpu::with_threads(2)?.threads()?, 2);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    fn threads(&self) -> Result<usize> {
        Ok(self.threads.clone().map_or_else(Threads::all, Ok)?.count())
    }

    /// The steps with the offset in bytes of each temporary in the arena.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use remat_cpu::Cpu;
    /// use remat_ir::{Device, Jaxpr};
    /// let program: Jaxpr = "{ lambda ; a:f32[2,3]. let
    ///     b:f32[2,3] = exp a
    ///     c:f32[2] = reduce_sum[axes=(1,)] b
    ///     d:f32[3,2] = transpose[permutation=(1, 0)] b
    ///     e:f32[3,2] = cumsum[axis=0 reverse=False] d
    ///   in (c, e) }".parse()?;
    /// let expected = "\
    /// { steps[arena=128] ; arg0:f32[2,3]. let
    ///     loop[rows=2 columns=3]  # 64 bytes of scratch memory at 64
    ///       b3:f32[2,3]@0 = exp arg0
    ///       out0:f32[2] = reduce_sum[axes=(1,)] b3
    ///     b4:f32[3,2]@out1 = copy b3[shape=(3, 2) strides=(1, 3)]
    ///     out1:f32[3,2] = cumsum[axis=0 reverse=False] b4
    ///   in (out0, out1) }";
    /// assert_eq!(Cpu::with_threads(1)?.steps(&Arc::new(program))?, expected);
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        let threads = self.threads.clone().map_or_else(Threads::all, Ok)?;
        listing(jaxpr, Caller::User, &threads, 0)
    }
}

/// The arena that one run leaves to the next.
pub(crate) type SpareArena = Arc<Mutex<Option<Arena>>>;

impl Cpu {
    /// The steps of a compiled program with their times by the cost model, its buffers with their bytes, and the bytes that a run needs.
    ///
    /// ```
    /// use remat_cpu::Cpu;
    /// use remat_ir::CompileOptions;
    /// let program = "{ lambda ; a:f32[64]. let b:f32[64] = exp a; c:f32[64] = sort[dimension=0 is_stable=True num_keys=1] b in (c,) }";
    /// let (graph, memory) = Cpu::default().graph(&program.parse()?, &CompileOptions::default())?;
    /// assert_eq!((graph.steps.len(), memory.arguments), (2, 256));
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an operation cannot be run.
    pub fn graph(&self, jaxpr: &Jaxpr, options: &CompileOptions) -> Result<(Graph, MemoryStats)> {
        let threads = self.threads.clone().map_or_else(Threads::all, Ok)?;
        let (graph, programs) = graph(jaxpr, &threads, &Constraints::of(options))?;
        Ok((graph, programs.memory(|_| false)))
    }

    /// Compiles a program. Its errors start with this name.
    pub(crate) fn compile_for(&self, name: &'static str, jaxpr: &Jaxpr) -> Result<CpuExecutable> {
        self.compile_sharing(name, jaxpr, self.memory.clone().unwrap_or_default(), None, &Constraints::default())
    }

    /// As [`Cpu::compile_for`], within constraints, for a program that shares its memory between runs with others. A run frees its arena afterwards if it is
    /// larger than `most_kept` bytes, the limit of single operations.
    pub(crate) fn compile_sharing(
        &self,
        name: &'static str,
        jaxpr: &Jaxpr,
        spare: SpareArena,
        most_kept: Option<usize>,
        constraints: &Constraints,
    ) -> Result<CpuExecutable> {
        let threads = self.threads.clone().map_or_else(Threads::all, Ok)?;
        matmul_precision()?;
        max_cpu_isa()?;
        forced_algorithms()?;
        let programs = compile(jaxpr, Caller::User, &threads, constraints)?;
        Ok(CpuExecutable { name, programs, threads, most_kept, spare, pool: self.pool.clone() })
    }
}

/// A program that the engine has compiled.
pub(crate) struct CpuExecutable {
    /// The name in its errors.
    name: &'static str,
    programs: Programs,
    threads: Threads,
    /// The bytes of the largest arena that is kept after a run of a single operation. Programs keep theirs.
    most_kept: Option<usize>,
    /// Kept between runs, since clearing new memory often takes longer than a run.
    spare: SpareArena,
    /// Of its engine.
    pool: Pool,
}

impl Executable for CpuExecutable {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        // SAFETY: it gets a run of the program.
        self.run_by(args, |program, run| unsafe { program.run(run) })
    }

    fn profile(&self, args: Vec<Value>) -> Result<(Vec<Value>, Profile)> {
        let args = args.into_iter().map(Value::into_host).collect::<Result<Vec<Array>>>()?;
        let mut profile = Profile::default();
        // SAFETY: it gets a run of the program.
        let outs = self.run_by(args, |program, run| profile = unsafe { profiled(program, run) })?;
        Ok((outs.into_iter().map(Value::Host).collect(), profile))
    }

    fn memory(&self) -> MemoryStats {
        self.programs.memory(|_| false)
    }

    fn memory_report(&self) -> MemoryReport {
        let donating = self.programs.for_donated(|_| true);
        let live = self.programs.for_donated(|_| false).live.clone();
        MemoryReport::new(self.memory(), live)
            .with_donated(donating.live_where_donated())
            .running(self.programs.for_donated(|_| false).at, donating.at)
            .over_time(donating.timeline.clone())
    }

    fn memory_where_donated(&self, donated: &[bool]) -> MemoryStats {
        let donated = Donated(donated.to_vec());
        self.programs.memory(|argument| donated.contains(argument))
    }

    fn live_ranges(&self, donated: &[bool]) -> Option<LiveRanges> {
        let donated = Donated(donated.to_vec());
        let is_donated = |argument| donated.contains(argument);
        Some(self.programs.for_donated(is_donated).live_ranges(is_donated))
    }

    fn rematerialization(&self) -> Option<Arc<Rematerialization>> {
        self.programs.rematerialization.clone()
    }

    fn peak_of(&self, args: &[Value]) -> usize {
        let is_donated = |argument: ArgId| args.get(argument.index()).is_some_and(is_unique);
        self.programs.for_donated(is_donated).peak(is_donated)
    }
}

impl CpuExecutable {
    /// Runs the program on these arguments, as `run` does it, which gets addresses of memory as the program asks for.
    fn run_by(&self, args: Vec<Array>, run: impl FnOnce(&CompiledProgram, Run<'_>)) -> Result<Vec<Array>> {
        let avals = self.programs.keeping.ins.iter();
        expect_arguments("run", avals, args.iter().map(Array::aval)).map_err(|e| self.named(e))?;
        let program = self.programs.for_donated(|argument| args[argument.index()].is_donated());
        let spare = self.spare_for(program);
        let new = || {
            Arena::new(program.memory_bytes()).or_else(|_| {
                self.pool.clear();
                Arena::new(program.memory_bytes())
            })
        };
        let mut memory = spare.map_or_else(new, Ok).map_err(|e| self.named(e))?;
        let result = execute(program, args, &mut memory, &self.pool, &self.threads, run).map_err(|e| self.named(e));
        let mut spare = self.spare();
        if self.most_kept.is_none_or(|most| memory.len() <= most)
            && spare.as_ref().is_none_or(|spare| spare.len() < memory.len())
        {
            *spare = Some(memory);
        }
        result
    }

    /// The memory of the last run, if it fits this one; otherwise it is freed before new memory is allocated. A program gets the planned
    /// bytes and no more. Only single operations take any block that is large enough, so that a small one after a large one allocates
    /// nothing.
    fn spare_for(&self, program: &CompiledProgram) -> Option<Arena> {
        let is_operation = self.most_kept.is_some();
        let mut spare = self.spare();
        match spare.as_ref().map(Arena::len) {
            Some(len) if len == program.memory_bytes() || is_operation && len > program.memory_bytes() => spare.take(),
            Some(_) if is_operation => None,
            _ => {
                *spare = None;
                None
            }
        }
    }

    fn spare(&self) -> MutexGuard<'_, Option<Arena>> {
        self.spare.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), self.name, error.message())
    }
}

/// Runs a program, as `run` does it. Besides the elements of outputs it allocates only their headers and their list.
fn execute(
    program: &CompiledProgram,
    args: Vec<Array>,
    memory: &mut Arena,
    pool: &Pool,
    threads: &Threads,
    run: impl FnOnce(&CompiledProgram, Run<'_>),
) -> Result<Vec<Array>> {
    // SAFETY: the memory was allocated for the program and belongs to this run alone.
    let (ins, outs, arena) = unsafe { program.parts(memory.start()) };
    for (address, arg) in ins.iter_mut().zip(&args) {
        *address = arena::start(arg.data());
    }
    let mut args: IndexVec<ArgId, Array> = args.into();
    let mut results: IndexVec<ResultId, Array> = IndexVec::with_capacity(program.results.len());
    for (result, aval) in program.results.iter().zip(&program.result_avals) {
        let result = match *result {
            ProgramResult::Argument(i) => args[i].viewed(aval.clone())?,
            ProgramResult::Same(i) => results[i].viewed(aval.clone())?,
            ProgramResult::Output(k) => {
                // An argument without other references may become an output.
                let donated = program.donated[k].and_then(|i| Some((i, arena::start_mut(args[i].data_mut()?))));
                if let Some((i, start)) = donated {
                    (ins[i], outs[k]) = (start, start);
                    args[i].viewed(aval.clone())?
                } else {
                    let mut data = pool.elements(aval).map_err(|_| no_memory(program))?;
                    outs[k] = arena::start_mut(&mut data);
                    Array::new(aval.clone(), data)?
                }
            }
        };
        results.push(result);
    }
    // Arguments have the program's avals, outputs and arena its sizes; the results have no reader before the end, and an output is an argument
    // only where the program allows it: what `CompiledProgram::run` asks for.
    run(program, Run { ins, outs, arena, threads });
    Ok(results.raw)
}

/// Whether an argument has the host's memory and no other reference.
fn is_unique(value: &Value) -> bool {
    matches!(value, Value::Host(array) if array.is_donated())
}

/// The error of a program whose results do not fit into memory.
fn no_memory(program: &CompiledProgram) -> Error {
    let outs: Vec<String> = program.result_avals.iter().map(Aval::to_string).collect();
    let bytes = program.result_avals.iter().fold(0usize, |sum, aval| sum.saturating_add(aval.bytes()));
    let message = format!("there is no memory for the result {}, of {bytes} bytes", outs.join(" "));
    Error::new(ErrorKind::Memory, "run", message)
}

#[cfg(test)]
mod tests {
    use remat_ir::{DType, Literal};

    use super::*;

    #[test]
    fn programs_that_share_memory_keep_what_the_last_one_needs() {
        let cpu = Cpu::with_threads(1).expect("one thread").sharing_memory();
        let kept = || {
            let spare = cpu.memory.as_ref().expect("it is shared").lock().expect("no thread panicked");
            spare.as_ref().map_or(0, Arena::len)
        };
        let program = |rows: usize| {
            let text = format!(
                "{{ lambda ; a:f32[{rows},3]. let b:f32[{rows},3] = cumsum[axis=0 reverse=False] a; \
                 c:f32[3] = reduce_sum[axes=(0,)] b in (c,) }}"
            );
            let jaxpr = Arc::new(text.parse::<Jaxpr>().expect("a program"));
            let executable = cpu.compile(&jaxpr).expect("it compiles");
            let x = Array::full(Literal::from_f64(DType::F32, 1.0), [rows, 3]);
            move || {
                let sums = executable.run(vec![x.clone()]).expect("it has the aval");
                assert_eq!(sums[0].as_slice::<f32>(), Some(&[(rows * (rows + 1) / 2) as f32; 3][..]));
            }
        };
        let (large, small) = (program(100), program(10));
        assert_eq!(kept(), 0);
        large();
        let most = kept();
        small();
        let least = kept();
        assert!(0 < least && least < most, "{least} {most}");
        large();
        assert_eq!(kept(), most);
    }
}
