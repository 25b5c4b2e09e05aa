//! Engines: they compile a program and run it.

use std::sync::Arc;

use crate::{Array, Aval, Error, ErrorKind, Jaxpr, MemoryReport, MemoryStats, Result, counted};

/// An engine.
pub trait Device: Send + Sync {
    /// The name that reports print.
    fn name(&self) -> &str;

    /// Compiles a program.
    ///
    /// # Errors
    /// If the engine cannot run it.
    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>>;

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
    /// Runs it. An argument without another reference may be overwritten.
    ///
    /// # Errors
    /// If the number of arguments or an aval is not the program's, or the run fails.
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>>;

    /// The bytes that a run needs, known before it.
    fn memory(&self) -> MemoryStats;

    /// The same bytes, and the values that are live at the peak.
    fn memory_report(&self) -> MemoryReport;
}

/// Fails unless the arguments of a run have these avals, those of the program's inputs. Every engine asks this before it runs a program.
///
/// ```
/// use remat_ir::{Array, Aval, DType, expect_arguments};
/// let avals = [Aval::new(DType::F32, [2])];
/// let error = expect_arguments("run", avals.iter(), &[Array::scalar(1i32)]).unwrap_err();
/// assert_eq!(error.to_string(), "run: argument 0 is f32[2] and got i32[]");
/// ```
///
/// # Errors
/// An error of `operation` if the number of arguments or an aval is another.
pub fn expect_arguments<'a>(
    operation: &str,
    avals: impl ExactSizeIterator<Item = &'a Aval>,
    args: &[Array],
) -> Result<()> {
    if args.len() != avals.len() {
        let message = format!("the program takes {} and got {}", counted(avals.len(), "argument"), args.len());
        return Err(Error::new(ErrorKind::Argument, operation, message));
    }
    for (i, (aval, arg)) in avals.zip(args).enumerate() {
        if arg.aval() != aval {
            let message = format!("argument {i} is {aval} and got {}", arg.aval());
            return Err(Error::new(ErrorKind::Argument, operation, message));
        }
    }
    Ok(())
}
