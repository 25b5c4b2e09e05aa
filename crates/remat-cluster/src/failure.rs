//! The failure of the cluster, as soon as this process knows of it.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use remat_ir::{Error, Result};

/// The time between heartbeats.
pub(crate) fn interval(failure_timeout: Duration) -> Duration {
    (failure_timeout / 4).min(Duration::from_secs(1))
}

/// The first failure of the cluster. It ends all waits for other nodes.
#[derive(Default)]
pub(crate) struct Failure {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    error: Option<Error>,
    /// Connections to other nodes. A failure closes them, so that no thread waits for data that will not come.
    connections: Vec<Weak<TcpStream>>,
    exits: bool,
}

impl Failure {
    /// Records a failure; the first one stays.
    pub(crate) fn set(&self, error: Error) {
        let mut state = self.lock();
        if state.error.is_some() {
            return;
        }
        if state.exits {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
        for connection in state.connections.drain(..).filter_map(|connection| connection.upgrade()) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.error = Some(error);
        self.changed.notify_all();
    }

    /// From now on a failure ends the process, not only its waits for other nodes.
    pub(crate) fn exit(&self) {
        let mut state = self.lock();
        state.exits = true;
        if let Some(error) = state.error.take() {
            drop(state);
            self.set(error);
        }
    }

    /// Registers a connection to be closed when the cluster fails.
    pub(crate) fn close(&self, connection: &Arc<TcpStream>) -> std::io::Result<()> {
        let mut state = self.lock();
        if state.error.is_some() {
            return connection.shutdown(Shutdown::Both);
        }
        state.connections.push(Arc::downgrade(connection));
        Ok(())
    }

    /// # Errors
    /// The failure, if there is one.
    pub(crate) fn check(&self) -> Result<()> {
        self.lock().error.clone().map_or(Ok(()), Err)
    }

    /// The error that ended the cluster, if it is known within this time, else `otherwise`.
    pub(crate) fn reason(&self, timeout: Duration, otherwise: impl FnOnce() -> Error) -> Error {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.error.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.error.clone().unwrap_or_else(otherwise)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
