//! This process as a node of its cluster.

use std::fmt;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use remat_ir::{Error, ErrorKind, Result};

use crate::config::ClusterConfig;
use crate::error;
use crate::failure::{Failure, interval};
use crate::frame::{self, PROTOCOL, is_timeout};
use crate::links::Links;
use crate::service::Service;
use crate::store::KeyValueStore;

/// This process as a node of its cluster. Clones are the same node, which leaves when the last of them is dropped.
///
/// The node of rank 0 runs the coordinator and leaves last: when it is dropped it waits until all others have left or a node has failed. A
/// thread that holds several nodes, as in a test, must drop that of rank 0 last.
///
/// When a node ends without leaving, all others know within a second or two. When its host or network is lost, they know within the failure
/// timeout and a second: 11 seconds by default ([`ClusterConfig`]). Every wait for other nodes then ends with an error that names the node,
/// and so do all later requests to the cluster. A panic counts as such an end.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    rank: usize,
    nodes: usize,
    failure: Arc<Failure>,
    /// `None` for a single process.
    member: Option<Member>,
}

/// The state of a node in a cluster of several. Fields are dropped in this order: the coordinator last.
pub(crate) struct Member {
    pub(crate) links: Mutex<Links>,
    pub(crate) store: Arc<KeyValueStore>,
    _heart: Heart,
    _service: Option<Service>,
}

impl Node {
    /// A single process: sums return their arguments.
    pub fn alone() -> Node {
        Node(Arc::new(Inner { rank: 0, nodes: 1, failure: Arc::default(), member: None }))
    }

    /// Joins a cluster, and waits until all of its nodes have joined. The node of rank 0 also runs the coordinator.
    ///
    /// # Errors
    /// If not all join within the start timeout (the error lists the missing ranks); if the coordinator cannot be reached; if nodes have
    /// different configurations, or programs of different versions.
    pub fn join(config: &ClusterConfig) -> Result<Node> {
        config.check()?;
        let &ClusterConfig { rank, nodes, start_timeout, failure_timeout, .. } = config;
        if nodes == 1 {
            return Ok(Node::alone());
        }
        let service = if rank == 0 { Some(Service::start(config)?) } else { None };
        let until = Instant::now() + start_timeout;
        let lost = |cause: std::io::Error| {
            let cause = match cause.kind() {
                _ if is_timeout(&cause) => "it does not answer".to_string(),
                std::io::ErrorKind::UnexpectedEof => "it has ended".to_string(),
                _ => cause.to_string(),
            };
            error(format!("node {rank} of {nodes} cannot join the coordinator at {}: {cause}", config.coordinator))
        };
        let mut stream = frame::connect(&config.coordinator, until, || true).map_err(lost)?;
        stream.set_read_timeout(Some(start_timeout.saturating_add(failure_timeout))).map_err(lost)?;
        stream.set_write_timeout(Some(failure_timeout)).map_err(lost)?;
        let hello = [PROTOCOL.to_string(), "join".to_string(), rank.to_string(), nodes.to_string()];
        frame::send(&mut stream, &hello.each_ref().map(|field| field.as_bytes())).map_err(lost)?;
        let answer = frame::receive(&mut stream).map_err(lost)?;
        let answer = answer.ok_or_else(|| lost(std::io::ErrorKind::UnexpectedEof.into()))?;
        let answer: Vec<String> = answer.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        let id = match &answer[..] {
            [ok, id] if ok == "ok" => id.clone(),
            [_, message] => return Err(error(message.clone())),
            _ => return Err(lost(std::io::ErrorKind::InvalidData.into())),
        };
        let address = stream.peer_addr().map_err(lost)?;
        let ip = stream.local_addr().map_err(lost)?.ip();
        let failure: Arc<Failure> = Arc::default();
        let heart = Heart::start(stream, failure_timeout, failure.clone(), &config.coordinator).map_err(lost)?;
        let idle = Mutex::default();
        let store = KeyValueStore { address, id, rank, nodes, failure_timeout, failure: failure.clone(), idle };
        let links = Links::new(&store, ip, config.is_local(), start_timeout)?;
        let member = Member { links: Mutex::new(links), store: Arc::new(store), _heart: heart, _service: service };
        Ok(Node(Arc::new(Inner { rank, nodes, failure, member: Some(member) })))
    }

    /// The number of this node, from 0.
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.0.nodes
    }

    /// Keys and values that all nodes share. After the node is dropped, the store finds no coordinator.
    ///
    /// # Errors
    /// If this is a single process.
    pub fn store(&self) -> Result<&Arc<KeyValueStore>> {
        let alone = || Error::new(ErrorKind::Argument, "cluster", "a single process has no key-value store");
        self.0.member.as_ref().map(|member| &member.store).ok_or_else(alone)
    }

    /// Waits until all nodes are at the barrier with this name, which may then be used again.
    ///
    /// # Errors
    /// If not all reach it in time (the error lists the missing ranks); if a node leaves before, or the cluster has failed.
    pub fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        self.0.member.as_ref().map_or(Ok(()), |member| member.store.barrier(name, timeout))
    }

    /// Returns an error if the cluster has failed, without waiting.
    ///
    /// # Errors
    /// The failure.
    pub fn check(&self) -> Result<()> {
        self.0.failure.check()
    }

    /// From now on this process exits with code 1, and a line on its standard error, when the cluster fails: for waits that cannot be ended
    /// otherwise, such as collectives of a GPU.
    pub fn exit_on_failure(&self) {
        self.0.failure.exit();
    }

    pub(crate) fn member(&self) -> Option<&Member> {
        self.0.member.as_ref()
    }

    pub(crate) fn failure(&self) -> &Failure {
        &self.0.failure
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of {}", self.rank(), self.nodes())
    }
}

/// The thread that sends heartbeats to the coordinator, and learns of failures of other nodes.
struct Heart {
    /// A message ends the thread; it says whether the node leaves.
    stop: Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    fn start(
        stream: TcpStream,
        failure_timeout: Duration,
        failure: Arc<Failure>,
        coordinator: &str,
    ) -> std::io::Result<Heart> {
        stream.set_read_timeout(Some(failure_timeout))?;
        let (stop, stopped) = channel();
        let coordinator = format!("the coordinator (node 0, at {coordinator})");
        let thread = thread::Builder::new().name("remat-heartbeat".to_string());
        let thread = thread.spawn(move || beat(stream, failure_timeout, &failure, &coordinator, &stopped))?;
        Ok(Heart { stop, thread: Some(thread) })
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        // A thread that has recorded a failure has ended, and takes no message.
        let _ = self.stop.send(!thread::panicking());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

fn beat(mut stream: TcpStream, timeout: Duration, failure: &Failure, coordinator: &str, stopped: &Receiver<bool>) {
    loop {
        let message: &[u8] = match stopped.recv_timeout(interval(timeout)) {
            Err(RecvTimeoutError::Timeout) => b"beat",
            Ok(true) => b"leave",
            Ok(false) | Err(RecvTimeoutError::Disconnected) => return,
        };
        let answer = frame::send(&mut stream, &[message]).and_then(|()| frame::receive(&mut stream));
        let ended = match answer.map(Option::unwrap_or_default).as_deref() {
            Ok([ok]) if ok == b"ok" && message == b"beat" => continue,
            // Whatever the coordinator answers, this node has left.
            _ if message == b"leave" => return,
            Ok([_, reason]) => String::from_utf8_lossy(reason).into_owned(),
            Err(error) if is_timeout(error) => {
                format!("{coordinator} has not been heard from for {} s", timeout.as_secs())
            }
            _ => format!("{coordinator} has ended"),
        };
        failure.set(error(ended));
        return;
    }
}
