//! What ended the cluster, as soon as this process knows.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use remat_ir::{Error, Result};

/// The time between heartbeats.
pub(crate) fn interval(failure_timeout: Duration) -> Duration {
    (failure_timeout / 4).min(Duration::from_secs(1))
}

/// The first failure of the cluster. It ends what waits for other nodes.
#[derive(Default)]
pub(crate) struct Failure {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    error: Option<Error>,
    /// Connections to other nodes: closed by a failure, so that nobody waits for what will not come.
    connections: Vec<Weak<TcpStream>>,
    exits: bool,
}

impl Failure {
    /// Notes a failure; the first one stays.
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
            // One that is closed already need not be.
            let _ = connection.shutdown(Shutdown::Both);
        }
        state.error = Some(error);
        self.changed.notify_all();
    }

    /// A failure ends the process from now on, and not only what it does with other nodes.
    pub(crate) fn exit(&self) {
        let mut state = self.lock();
        state.exits = true;
        if let Some(error) = state.error.take() {
            drop(state);
            self.set(error);
        }
    }

    /// Closes this connection when the cluster fails, if it is in use then.
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

    /// What ended the cluster: what is known within this time, and otherwise this.
    pub(crate) fn reason(&self, within: Duration, otherwise: impl FnOnce() -> Error) -> Error {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, within, |state| state.error.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.error.clone().unwrap_or_else(otherwise)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
