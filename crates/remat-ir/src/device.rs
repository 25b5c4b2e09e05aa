//! Engines, which compile programs and run them.

use std::sync::Arc;

use crate::{
    Array, Aval, Error, ErrorKind, Jaxpr, LiveRanges, MemoryReport, MemoryStats, Moves, Pass, Profile,
    Rematerialization, Result, StepSchedule, Value, counted,
};

/// Options for compiling a program.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// For each argument, whether callers donate it; empty if that is not known, which is none where the engine has to know it (XLA). It
    /// lets an engine that plans memory at compile time place results in donated arguments first. A run takes only the memory of arguments
    /// without other references, whatever this says.
    pub donated: Vec<bool>,
    /// The most bytes that a run may need, including arguments, results and overhead, when the arguments that `donated` marks are donated,
    /// or all arguments if it is empty. An engine that plans memory recomputes values until the program fits, or until it can save
    /// no more; compiling succeeds either way, and the caller compares [`Executable::peak_of`] with the limit. Other engines ignore it.
    pub memory_limit: Option<usize>,
    /// The steps to run, as this engine chose them for the same program and callers ([`Executable::rematerialization`],
    /// [`Device::pareto`]). Without such steps, or with those of another program, the engine looks for some. Other engines ignore it.
    pub schedule: Option<Arc<StepSchedule>>,
}

/// A device and its engine, which compiles programs and runs them there.
pub trait Device: Send + Sync {
    /// The name that reports and errors print. Devices with the same name have the same memory.
    fn name(&self) -> &str;

    /// The passes with which compiling begins, in their order, for reports. The list is empty if the engine takes programs as they are.
    fn passes(&self) -> &'static [Pass] {
        &[]
    }

    /// Whether the engine plans the memory of programs, in the memory of the host: it obeys [`CompileOptions::memory_limit`], overwrites
    /// donated arrays of the host, and has [`Device::pareto`], [`Device::moves`] and [`Executable::profile`].
    fn plans_memory(&self) -> bool {
        false
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// If the engine cannot run it.
    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>>;

    /// As [`Device::compile`], with options.
    ///
    /// # Errors
    /// As [`Device::compile`].
    fn compile_with(&self, jaxpr: &Arc<Jaxpr>, options: &CompileOptions) -> Result<Arc<dyn Executable>> {
        let CompileOptions { donated: _, memory_limit: _, schedule: _ } = options;
        self.compile(jaxpr)
    }

    /// Ways to run a program in less memory, from the least bytes that the engine reaches to those of a program without a limit: about
    /// `points` of them, each faster than those with fewer bytes. `donated` is that of [`CompileOptions`]. The list is empty if the engine
    /// cannot run steps again.
    ///
    /// # Errors
    /// As [`Device::compile`].
    fn pareto(&self, jaxpr: &Arc<Jaxpr>, donated: &[bool], points: usize) -> Result<Vec<Rematerialization>> {
        let _ = (jaxpr, donated, points);
        Ok(Vec::new())
    }

    /// The number of devices that a `shard_map` and shardings may use. If it is 1, `shard_map`s are removed before compiling: all shards
    /// are computed on the one device.
    fn devices(&self) -> usize {
        1
    }

    /// The number of threads that run a program, on which the bytes of its scratch memory depend: 1 if that is not the engine's choice.
    ///
    /// # Errors
    /// If the system does not start them.
    fn threads(&self) -> Result<usize> {
        Ok(1)
    }

    /// Copies an array of the host to this device. It is the array itself if the device uses the host's memory.
    ///
    /// # Errors
    /// If the device has no memory for it.
    fn put(&self, array: &Array) -> Result<Value> {
        Ok(array.clone().into())
    }

    /// The compiled program as text for people: its steps in the order in which they run, with their memory. An engine that runs equations
    /// directly prints the program itself.
    ///
    /// # Errors
    /// As [`Device::compile`].
    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        Ok(jaxpr.to_string())
    }

    /// The decisions of the engine about the steps of a program, those that it made and those that it refused, with their reasons. None if
    /// the engine has no steps of its own.
    ///
    /// # Errors
    /// As [`Device::compile_with`].
    fn moves(&self, jaxpr: &Arc<Jaxpr>, options: &CompileOptions) -> Result<Moves> {
        let _ = (jaxpr, options);
        Ok(Moves::default())
    }
}

/// A compiled program.
pub trait Executable: Send + Sync {
    /// Runs it on arrays of the host, and waits. An argument without another reference may be overwritten.
    ///
    /// # Errors
    /// If the number of arguments or the aval of one is not the program's, or the run fails.
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>>;

    /// Runs it on values of the host and of its own device. An engine with its own device leaves results there, and may return before they
    /// are computed.
    ///
    /// # Errors
    /// If the number of arguments or the aval of one is not the program's, an argument is on another device, or the run fails. A run that
    /// fails after this has returned reports the error when a result is read.
    fn execute(&self, args: Vec<Value>) -> Result<Vec<Value>> {
        let args = args.into_iter().map(Value::into_host).collect::<Result<Vec<Array>>>()?;
        Ok(self.run(args)?.into_iter().map(Value::Host).collect())
    }

    /// As [`Executable::execute`], and waits; with the time of each step. The default is an error: the engine cannot tell.
    ///
    /// # Errors
    /// As [`Executable::execute`]; of kind [`ErrorKind::Argument`] if the engine has no profiles.
    fn profile(&self, args: Vec<Value>) -> Result<(Vec<Value>, Profile)> {
        drop(args);
        Err(Error::new(
            ErrorKind::Argument,
            "profile",
            "the engine of the program has no profiles; the native engine has",
        ))
    }

    /// Moves a value to where runs want this argument, for callers who pass the same value to many runs: to the device, cut over several
    /// devices as the program says. An engine that computes in the host's memory moves nothing.
    ///
    /// # Errors
    /// If it is on another device, or there is no memory for it.
    fn place(&self, argument: usize, value: Value) -> Result<Value> {
        let _ = argument;
        Ok(value)
    }

    /// The bytes that a run needs, known before the run.
    fn memory(&self) -> MemoryStats;

    /// The same bytes, and the values that are live at the peak.
    fn memory_report(&self) -> MemoryReport;

    /// The steps, and when each value is live in a run whose caller donates these arguments, or all of them if the list is empty. The bytes
    /// in the arena at each step are those of [`MemoryReport::timeline`] if all arguments are donated. None if the engine does not report them.
    fn live_ranges(&self, donated: &[bool]) -> Option<LiveRanges> {
        let _ = donated;
        None
    }

    /// The most bytes that are live in a run on these arguments, of which those without other references are donated. A memory limit is
    /// compared with this. On the native engine it is between [`MemoryStats::donated_peak`] and [`MemoryStats::peak`]. On XLA it is that of
    /// the executable for these arguments, which is compiled if necessary. The default is the peak.
    fn peak_of(&self, args: &[Value]) -> usize {
        let _ = args;
        self.memory().peak
    }

    /// The bytes that a run needs whose caller donates these arguments, or all of them if the list is empty. The outputs are those that take
    /// the memory of no argument, and the peak is the sum of them, arguments, temporaries and overhead. The default knows no more than the
    /// peak: that of callers who keep their arguments, unless all are donated.
    fn memory_where_donated(&self, donated: &[bool]) -> MemoryStats {
        let memory = self.memory();
        let peak = if donated.contains(&false) { memory.peak } else { memory.donated_peak };
        MemoryStats { peak, ..memory }
    }

    /// How it was made to fit its memory limit; `None` if it fits without running steps again.
    fn rematerialization(&self) -> Option<Arc<Rematerialization>> {
        None
    }
}

/// Fails unless the arguments of a run have these avals, the avals of the program's inputs. Every engine calls this before it runs a
/// program.
///
/// ```
/// use remat_ir::{Array, Aval, DType, expect_arguments};
/// let avals = [Aval::new(DType::F32, [2])];
/// let error = expect_arguments("run", avals.iter(), [Array::scalar(1i32).aval()]).unwrap_err();
/// assert_eq!(error.to_string(), "run: argument 0 is i32[] and the program takes f32[2]");
/// ```
///
/// # Errors
/// An error of `operation` if the number of arguments or the aval of one differs.
pub fn expect_arguments<'a, 'b>(
    operation: &str,
    avals: impl ExactSizeIterator<Item = &'a Aval>,
    args: impl IntoIterator<Item = &'b Aval, IntoIter: ExactSizeIterator>,
) -> Result<()> {
    let args = args.into_iter();
    if args.len() != avals.len() {
        let message = format!("the program takes {} and got {}", counted(avals.len(), "argument"), args.len());
        return Err(Error::new(ErrorKind::Argument, operation, message));
    }
    for (i, (aval, arg)) in avals.zip(args).enumerate() {
        if arg != aval {
            let message = format!("argument {i} is {arg} and the program takes {aval}");
            return Err(Error::new(ErrorKind::Argument, operation, message));
        }
    }
    Ok(())
}
