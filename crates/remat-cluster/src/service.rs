//! The coordinator: keys and values, barriers, and the liveness of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use remat_ir::{Result, counted};

use crate::config::ClusterConfig;
use crate::error;
use crate::failure::interval;
use crate::frame::{self, PROTOCOL, is_timeout};

/// The service that the node of rank 0 runs. When dropped it waits for the other nodes to leave, as long as they send heartbeats.
pub(crate) struct Service {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    nodes: usize,
    start_timeout: Duration,
    failure_timeout: Duration,
    /// The name of this cluster, by which its nodes recognise each other.
    id: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    barriers: BTreeMap<Vec<u8>, Barrier>,
    joined: BTreeMap<usize, SocketAddr>,
    left: BTreeSet<usize>,
    /// Why the cluster cannot go on.
    failure: Option<String>,
    /// The open connections, by number.
    connections: BTreeMap<u64, TcpStream>,
    accepted: u64,
    closed: bool,
}

#[derive(Default)]
struct Barrier {
    waiting: BTreeSet<usize>,
    /// How often all nodes have met at it.
    met: u64,
}

/// The answer to a request: fields, or an error message.
type Answer = std::result::Result<Vec<Vec<u8>>, String>;

impl Service {
    /// Listens at the address of the coordinator: only at that address if it is a loopback address or `localhost`, otherwise on every
    /// network of this machine. A name may resolve to a router's address elsewhere, and to 127.0.1.1 on its own machine.
    ///
    /// # Errors
    /// If the address is not known, or the port is used.
    pub(crate) fn start(config: &ClusterConfig) -> Result<Service> {
        let failed = |e: io::Error| error(format!("the coordinator cannot listen at {}: {e}", config.coordinator));
        let mut named = config.coordinator.to_socket_addrs().map_err(failed)?;
        let named = named.next().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let ip = if config.is_local() { named.ip() } else { unspecified(named.ip()) };
        let listener = TcpListener::bind((ip, named.port())).map_err(failed)?;
        let mut address = listener.local_addr().map_err(failed)?;
        if ip.is_unspecified() {
            address.set_ip(if ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        let random = RandomState::new();
        let shared = Arc::new(Shared {
            nodes: config.nodes,
            start_timeout: config.start_timeout,
            failure_timeout: config.failure_timeout,
            id: format!("{:016x}{:016x}", random.hash_one(0), random.hash_one(1)),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let sharing = shared.clone();
        let accepting = thread::Builder::new().name("remat-coordinator".to_string());
        let accepting = accepting.spawn(move || sharing.accept(&listener)).map_err(failed)?;
        Ok(Service { shared, address, accepting: Some(accepting) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let shared = &self.shared;
        let state = shared.lock();
        // After a failure no node waits for another, and a silent node is a failure.
        let present = |state: &mut State| state.failure.is_none() && state.left.len() < state.joined.len();
        let mut state = if state.joined.len() == shared.nodes {
            shared.changed.wait_while(state, present).unwrap_or_else(PoisonError::into_inner)
        } else {
            // Nodes that have not joined never will, and those that wait for them get an error.
            let waited = shared.changed.wait_timeout_while(state, shared.failure_timeout, present);
            waited.unwrap_or_else(PoisonError::into_inner).0
        };
        // The others learn of a failure with their next heartbeat.
        if state.failure.is_some() {
            let interval = interval(shared.failure_timeout);
            let present = |state: &mut State| state.left.len() < state.joined.len();
            let waited = shared.changed.wait_timeout_while(state, 2 * interval, present);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.closed = true;
        for connection in std::mem::take(&mut state.connections).into_values() {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        shared.changed.notify_all();
        // The thread that accepts connections notices the end at the next connection.
        if TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            // The thread does not panic.
            let _ = accepting.join();
        }
    }
}

/// A detached thread.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_string()).spawn(run).map(drop)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // For example too many open files, which may pass.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let mut state = self.lock();
            if state.closed {
                return;
            }
            let Ok(clone) = stream.try_clone() else { continue };
            let number = state.accepted;
            state.accepted += 1;
            state.connections.insert(number, clone);
            drop(state);
            let shared = self.clone();
            // Without a thread the connection is closed, and its node gets an error.
            let started = spawn("remat-coordinator", move || {
                // Errors of a connection are reported elsewhere: by its node, and by `heartbeats`.
                let _ = shared.serve(stream);
                shared.close(number);
            });
            if started.is_err() {
                self.close(number);
            }
        }
    }

    fn close(&self, number: u64) {
        if let Some(connection) = self.lock().connections.remove(&number) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Serves a connection until it ends. Its first message gives its purpose.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(self.failure_timeout))?;
        let Some(hello) = frame::receive_first(&stream, self.failure_timeout)? else { return Ok(()) };
        stream.set_read_timeout(Some(self.failure_timeout))?;
        let hello: Vec<String> = hello.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        let hello: Vec<&str> = hello.iter().map(String::as_str).collect();
        match hello[..] {
            [PROTOCOL, "join", rank, nodes] => match self.join(&stream, rank, nodes) {
                Ok(rank) => {
                    frame::send(&mut stream, &[b"ok", self.id.as_bytes()])?;
                    self.heartbeats(stream, rank);
                    Ok(())
                }
                Err(message) => frame::send(&mut stream, &[b"error", message.as_bytes()]),
            },
            [PROTOCOL, "calls", id, rank] if id == self.id => {
                stream.set_read_timeout(None)?;
                let rank = rank.parse().unwrap_or_default();
                while let Some(request) = frame::receive(&mut stream)? {
                    let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
                    match self.answer(rank, &request) {
                        Ok(fields) => {
                            let fields = fields.iter().map(Vec::as_slice);
                            frame::send(&mut stream, &[&b"ok"[..]].into_iter().chain(fields).collect::<Vec<_>>())?;
                        }
                        Err(message) => frame::send(&mut stream, &[b"error", message.as_bytes()])?,
                    }
                }
                Ok(())
            }
            [protocol, ..] => {
                let message = format!("the coordinator speaks `{PROTOCOL}`, and not `{protocol}`");
                frame::send(&mut stream, &[b"error", message.as_bytes()])
            }
            [] => Ok(()),
        }
    }

    /// Registers a node, and waits until all have joined.
    fn join(&self, stream: &TcpStream, rank: &str, nodes: &str) -> std::result::Result<usize, String> {
        if nodes != self.nodes.to_string() {
            return Err(format!("node {rank} is configured for {nodes} nodes, and the coordinator for {}", self.nodes));
        }
        let rank = rank.parse().ok().filter(|&rank| rank < self.nodes);
        let rank = rank.ok_or_else(|| format!("there are {} nodes, numbered from 0", self.nodes))?;
        let peer = stream.peer_addr().map_err(|e| e.to_string())?;
        let until = Instant::now() + self.start_timeout;
        let mut state = self.lock();
        if let Some(other) = state.joined.get(&rank) {
            return Err(format!("there are two nodes of rank {rank}: the other has joined from {other}"));
        }
        state.joined.insert(rank, peer);
        self.changed.notify_all();
        while state.joined.len() < self.nodes && !state.closed {
            let waited = self.changed.wait_timeout(state, Duration::from_millis(250));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.joined.len() == self.nodes {
                break;
            }
            // A node that ended while it waited may be started again.
            if is_closed(stream) {
                state.joined.remove(&rank);
                return Err("the node has ended".to_string());
            }
            if Instant::now() >= until {
                state.joined.remove(&rank);
                let missing =
                    ranks((0..self.nodes).filter(|other| *other != rank && !state.joined.contains_key(other)));
                let seconds = self.start_timeout.as_secs();
                return Err(format!(
                    "not all of {} nodes have joined within {seconds} s; missing: {missing}",
                    self.nodes
                ));
            }
        }
        if state.closed { Err("the coordinator has ended".to_string()) } else { Ok(rank) }
    }

    /// Receives the heartbeats of a node until it leaves or ends.
    fn heartbeats(&self, mut stream: TcpStream, rank: usize) {
        let of = format!("node {rank} of {}", self.nodes);
        let ended = loop {
            match frame::receive(&mut stream) {
                Ok(Some(message)) if message == [b"leave"] => {
                    self.lock().left.insert(rank);
                    self.changed.notify_all();
                    // A node that does not wait for the answer has left as well.
                    let _ = frame::send(&mut stream, &[b"ok"]);
                    return;
                }
                Ok(Some(_)) => {
                    let failure = self.lock().failure.clone();
                    let sent = match &failure {
                        None => frame::send(&mut stream, &[b"ok"]),
                        Some(failure) => frame::send(&mut stream, &[b"failed", failure.as_bytes()]),
                    };
                    if sent.is_err() || failure.is_some() {
                        break format!("{of} has ended without leaving the cluster");
                    }
                }
                Err(error) if is_timeout(&error) => {
                    break format!("{of} has not been heard from for {} s", self.failure_timeout.as_secs());
                }
                Ok(None) | Err(_) => break format!("{of} has ended without leaving the cluster"),
            }
        };
        let mut state = self.lock();
        state.left.insert(rank);
        if !state.closed {
            state.failure.get_or_insert(ended);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The answer to a request of a node.
    fn answer(&self, rank: usize, request: &[&[u8]]) -> Answer {
        match *request {
            [b"put", key, value] => self.put(key, value),
            [b"get", key, timeout] => self.get(key, milliseconds(timeout)?),
            [b"barrier", name, timeout] => self.barrier(rank, name, milliseconds(timeout)?),
            _ => Err("the coordinator does not know this request".to_string()),
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Answer {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.values.get(key).is_some_and(|other| other != value) {
            return Err(format!("the key `{}` has another value already", String::from_utf8_lossy(key)));
        }
        state.values.insert(key.to_vec(), value.to_vec());
        self.changed.notify_all();
        Ok(Vec::new())
    }

    /// The value of a key, waiting for it up to this time; no field if there is none.
    fn get(&self, key: &[u8], timeout: Duration) -> Answer {
        let missing = |state: &mut State| state.failure.is_none() && !state.closed && !state.values.contains_key(key);
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, missing);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.values.get(key), &state.failure) {
            (_, Some(failure)) => Err(failure.clone()),
            (value, None) => Ok(value.into_iter().cloned().collect()),
        }
    }

    /// Waits until all nodes are at this barrier.
    fn barrier(&self, rank: usize, name: &[u8], timeout: Duration) -> Answer {
        let mut state = self.lock();
        let barrier = state.barriers.entry(name.to_vec()).or_default();
        let met = barrier.met;
        if !barrier.waiting.insert(rank) {
            return Err(format!("node {rank} is at the barrier `{}` twice", String::from_utf8_lossy(name)));
        }
        if barrier.waiting.len() == self.nodes {
            barrier.waiting.clear();
            barrier.met += 1;
            self.changed.notify_all();
            return Ok(Vec::new());
        }
        let open = |state: &State| state.barriers.get(name).is_some_and(|barrier| barrier.met == met);
        let waits =
            |state: &mut State| open(state) && state.failure.is_none() && state.left.is_empty() && !state.closed;
        let (mut state, _) =
            self.changed.wait_timeout_while(state, timeout, waits).unwrap_or_else(PoisonError::into_inner);
        if !open(&state) {
            return Ok(Vec::new());
        }
        let barrier = state.barriers.entry(name.to_vec()).or_default();
        let missing = ranks((0..self.nodes).filter(|other| !barrier.waiting.contains(other)));
        barrier.waiting.remove(&rank);
        let name = String::from_utf8_lossy(name);
        Err(match (&state.failure, state.left.first()) {
            (Some(failure), _) => failure.clone(),
            (None, Some(left)) => format!("node {left} of {} has left before the barrier `{name}`", self.nodes),
            (None, None) => {
                format!("the barrier `{name}` was reached by all but {missing} within {} s", timeout.as_secs_f64())
            }
        })
    }
}

/// All networks of this machine, for addresses of this family.
pub(crate) fn unspecified(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Whether the other side has closed a connection on which nothing has to be read yet.
fn is_closed(stream: &TcpStream) -> bool {
    let closed = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0])).is_ok_and(|read| read == 0);
    stream.set_nonblocking(false).is_err() || closed
}

fn milliseconds(field: &[u8]) -> std::result::Result<Duration, String> {
    let number = std::str::from_utf8(field).ok().and_then(|text| text.parse().ok());
    number.map(Duration::from_millis).ok_or_else(|| "a timeout is not a number of milliseconds".to_string())
}

/// `node 1`, `nodes 1, 2`; of many the first ones.
fn ranks(ranks: impl Iterator<Item = usize>) -> String {
    const SHOWN: usize = 8;
    let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
    let shown = ranks[..ranks.len().min(SHOWN)].join(", ");
    match ranks.len() {
        1 => format!("node {shown}"),
        n if n > SHOWN => format!("nodes {shown} and {}", counted(n - SHOWN, "other")),
        _ => format!("nodes {shown}"),
    }
}
