//! Interrupting a run by Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

/// Whether the user has asked the run to stop, by Ctrl-C or a termination signal. A second one ends the process at once.
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    #[cfg(unix)]
    /// # Errors
    /// If the system rejects the handlers.
    pub(super) fn new() -> Result<Stop> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first signal finds the flag unset.
            signal_hook::flag::register_conditional_default(signal, asked.clone())?;
            signal_hook::flag::register(signal, asked.clone())?;
        }
        Ok(Stop(asked))
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> Result<Stop> {
        Ok(Stop(Arc::default()))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Stop {
    /// Once the steps are done, nobody asks whether to stop: the first signal ends the process.
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
