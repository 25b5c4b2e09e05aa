//! What an engine is: it compiles a program and runs it.

use std::sync::Arc;

use crate::{Array, Jaxpr, Result};

/// Bytes that a compiled program needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemoryStats {
    /// Bytes of the inputs.
    pub arguments: usize,
    /// Bytes of the outputs.
    pub outputs: usize,
    /// Bytes of everything else that is live at the peak.
    pub temporaries: usize,
    /// The most bytes that are live at one time.
    pub peak: usize,
}

/// An engine.
pub trait Device: Send + Sync {
    /// The name that reports print.
    fn name(&self) -> &str;

    /// Compiles a program.
    ///
    /// # Errors
    /// If the engine cannot run it.
    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>>;
}

/// A compiled program.
pub trait Executable: Send + Sync {
    /// Runs it. An argument that nobody else holds may be overwritten.
    ///
    /// # Errors
    /// If the number of arguments or an aval is not the program's, or the run fails.
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>>;

    /// The bytes that a run needs, known before it.
    fn memory(&self) -> MemoryStats;
}
