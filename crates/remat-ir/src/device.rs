//! Engines: they compile a program and run it.

use std::sync::Arc;

use crate::{Array, Aval, Error, ErrorKind, Jaxpr, MemoryReport, MemoryStats, Result, Value, counted};

/// What an engine is told beside the program.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// For each argument, whether callers donate it; none of them where this is empty. An engine that has to know when it compiles makes results in
    /// their memory. A run takes the memory of those arguments alone that have no other reference, whatever is said here.
    pub donated: Vec<bool>,
}

/// A device and its engine, which compiles programs and runs them there.
pub trait Device: Send + Sync {
    /// The name that reports and errors print. Devices of one name have one memory.
    fn name(&self) -> &str;

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
        let CompileOptions { donated: _ } = options;
        self.compile(jaxpr)
    }

    /// The number of devices that a `shard_map` and shardings may use. Where it is 1, programs come without `shard_map`s: all shards are
    /// computed on the one device.
    fn devices(&self) -> usize {
        1
    }

    /// An array of the host as a value on this device. It is the array itself where the device has the host's memory.
    ///
    /// # Errors
    /// If the device has no memory for it.
    fn put(&self, array: &Array) -> Result<Value> {
        Ok(array.clone().into())
    }

    /// The compiled program as text for people: its steps in the order in which they run, with their memory.
    /// An engine that runs the equations as they are gives the program itself.
    ///
    /// # Errors
    /// As [`Device::compile`].
    fn steps(&self, jaxpr: &Arc<Jaxpr>) -> Result<String> {
        Ok(jaxpr.to_string())
    }
}

/// A compiled program.
pub trait Executable: Send + Sync {
    /// Runs it on arrays of the host, and waits. An argument without another reference may be overwritten.
    ///
    /// # Errors
    /// If the number of arguments or an aval is not the program's, or the run fails.
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>>;

    /// Runs it on values of the host and of its own device. An engine with a device of its own leaves results there, and may return
    /// before they are computed.
    ///
    /// # Errors
    /// If the number of arguments or an aval is not the program's, an argument is on another device, or the run fails; a run that
    /// fails after this has returned fails where a result is read.
    fn execute(&self, args: Vec<Value>) -> Result<Vec<Value>> {
        let args = args.into_iter().map(Value::into_host).collect::<Result<Vec<Array>>>()?;
        Ok(self.run(args)?.into_iter().map(Value::Host).collect())
    }

    /// A value where runs want this argument, for callers who give the same one to many: on the device, and cut over several as the program says. An
    /// engine that computes in the host's memory has nothing to move.
    ///
    /// # Errors
    /// If it is on another device, or there is no memory for it.
    fn place(&self, argument: usize, value: Value) -> Result<Value> {
        let _ = argument;
        Ok(value)
    }

    /// The bytes that a run needs, known before it.
    fn memory(&self) -> MemoryStats;

    /// The same bytes, and the values that are live at the peak.
    fn memory_report(&self) -> MemoryReport;

    /// The most bytes that are live in a run on these arguments, of which those without another reference are donated: what a memory limit is
    /// compared with. On the native engine it lies between [`MemoryStats::donated_peak`] and [`MemoryStats::peak`]; on XLA it is that of the
    /// executable for these arguments, which is compiled where it was not. An engine that does not know it gives the latter.
    fn peak_of(&self, args: &[Value]) -> usize {
        let _ = args;
        self.memory().peak
    }
}

/// Fails unless the arguments of a run have these avals, those of the program's inputs. Every engine asks this before it runs a program.
///
/// ```
/// use remat_ir::{Array, Aval, DType, expect_arguments};
/// let avals = [Aval::new(DType::F32, [2])];
/// let error = expect_arguments("run", avals.iter(), [Array::scalar(1i32).aval()]).unwrap_err();
/// assert_eq!(error.to_string(), "run: argument 0 is f32[2] and got i32[]");
/// ```
///
/// # Errors
/// An error of `operation` if the number of arguments or an aval is another.
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
            let message = format!("argument {i} is {aval} and got {arg}");
            return Err(Error::new(ErrorKind::Argument, operation, message));
        }
    }
    Ok(())
}
