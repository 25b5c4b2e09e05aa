//! Engines: they compile a program and run it.

use std::sync::Arc;

use crate::{Array, Jaxpr, MemoryReport, MemoryStats, Result};

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
