//! Signals that end the command: it prints the rows that are done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Result;

/// The signal that has told the command to end, or 0. Compilations end with it; a second signal ends the process at once.
pub(super) struct Stop(Arc<AtomicU8>);

impl Stop {
    /// # Errors
    /// If the system rejects the handlers.
    #[cfg(unix)]
    pub(super) fn new() -> Result<Stop> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let given = Arc::new(AtomicU8::new(0));
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        let told = given.clone();
        std::thread::spawn(move || {
            for signal in &mut signals {
                let signal = u8::try_from(signal).unwrap_or(u8::MAX);
                if told.swap(signal, Ordering::Relaxed) != 0 {
                    std::process::exit(128 + i32::from(signal));
                }
                remat_xla::stop_ahead();
            }
        });
        Ok(Stop(given))
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> Result<Stop> {
        Ok(Stop(Arc::default()))
    }

    /// The signal that was given.
    pub(super) fn signal(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }
}
