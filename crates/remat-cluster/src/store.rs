//! The client of the coordinator.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remat_ir::{Error, Result};

use crate::error;
use crate::failure::{Failure, interval};
use crate::frame::{self, PROTOCOL, is_timeout};

/// Keys and values that all nodes of a cluster share; both are bytes. It may be used by several threads at a time.
///
/// A key and its value together have at most about 64 MiB.
///
/// ```
/// use std::time::Duration;
/// use remat_cluster::{ClusterConfig, Node};
/// # fn main() -> remat_ir::Result<()> {
/// # let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
/// # let Ok(free) = free else { return Ok(()) };
/// # let address = free.to_string();
/// let other = ClusterConfig::new(address.clone(), 1, 2);
/// let other = std::thread::spawn(move || Node::join(&other)?.store()?.put(b"greeting", b"hello"));
/// let node = Node::join(&ClusterConfig::new(address, 0, 2))?;
/// assert_eq!(node.store()?.get(b"greeting", Duration::from_secs(60))?.as_deref(), Some(&b"hello"[..]));
/// assert_eq!(node.store()?.try_get(b"answer")?, None);
/// # let _ = other.join();
/// # Ok(())
/// # }
/// ```
pub struct KeyValueStore {
    pub(crate) address: SocketAddr,
    pub(crate) id: String,
    pub(crate) rank: usize,
    pub(crate) nodes: usize,
    pub(crate) failure_timeout: Duration,
    pub(crate) failure: Arc<Failure>,
    /// Idle connections. A `get` waits in its own connection, so that a `put` need not wait for it.
    pub(crate) idle: Mutex<Vec<TcpStream>>,
}

impl KeyValueStore {
    /// The number of this node, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If it has another value already, the value is too long, or the cluster has failed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.call(&[b"put", key, value], Duration::ZERO).map(drop)
    }

    /// The value of a key, waiting for it up to this time; `None` if no node has set it by then.
    ///
    /// # Errors
    /// If the cluster has failed.
    pub fn get(&self, key: &[u8], timeout: Duration) -> Result<Option<Vec<u8>>> {
        let milliseconds = timeout.as_millis().min(u128::from(u32::MAX)) as u64;
        let answer = self.call(&[b"get", key, milliseconds.to_string().as_bytes()], timeout)?;
        Ok(answer.into_iter().next())
    }

    /// The value of a key, if it is set already.
    ///
    /// # Errors
    /// If the cluster has failed.
    pub fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(key, Duration::ZERO)
    }

    /// Waits until all nodes have called this with the same name.
    ///
    /// # Errors
    /// If not all have in time, one leaves or has left, or the cluster has failed.
    pub(crate) fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        let milliseconds = timeout.as_millis().min(u128::from(u32::MAX)) as u64;
        self.call(&[b"barrier", name.as_bytes(), milliseconds.to_string().as_bytes()], timeout).map(drop)
    }

    /// The fields of the answer to a request, which may take this long plus the failure timeout.
    fn call(&self, request: &[&[u8]], takes: Duration) -> Result<Vec<Vec<u8>>> {
        self.failure.check()?;
        let lost = |cause: io::Error| self.lost(&cause);
        let request = frame::encoded(request).map_err(|cause| error(cause.to_string()))?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut stream = idle.map_or_else(|| self.connect(), Ok).map_err(lost)?;
        let wait = takes.saturating_add(self.failure_timeout);
        stream.set_read_timeout(Some(wait)).map_err(lost)?;
        let answer = io::Write::write_all(&mut stream, &request).and_then(|()| frame::receive(&mut stream));
        let answer = answer.and_then(|answer| answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        let mut answer = answer.map_err(lost)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        match (answer.first().map(Vec::as_slice), answer.get(1)) {
            (Some(b"ok"), _) => Ok(answer.split_off(1)),
            (Some(b"error"), Some(message)) => Err(error(String::from_utf8_lossy(message))),
            _ => Err(error("the coordinator gave no answer to a request")),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.address, self.failure_timeout)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(self.failure_timeout))?;
        let rank = self.rank.to_string();
        frame::send(&mut stream, &[PROTOCOL.as_bytes(), b"calls", self.id.as_bytes(), rank.as_bytes()])?;
        Ok(stream)
    }

    /// The error of a lost connection: the failure of the cluster, if the heartbeats soon report one.
    fn lost(&self, cause: &io::Error) -> Error {
        let within = 2 * interval(self.failure_timeout);
        self.failure.reason(within, || {
            let cause = if is_timeout(cause) { "it does not answer".to_string() } else { cause.to_string() };
            error(format!("the coordinator at {} is lost: {cause}", self.address))
        })
    }
}
