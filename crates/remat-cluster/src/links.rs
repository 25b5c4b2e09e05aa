//! Connections between nodes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use remat_ir::{Error, Result};

use crate::error;
use crate::failure::{Failure, interval};
use crate::frame::{self, PROTOCOL};
use crate::service::unspecified;
use crate::store::KeyValueStore;

/// The connections to all other nodes, by rank; `None` for the node itself.
pub(crate) struct Links(Vec<Option<Link>>);

/// A connection to another node. Data to send wait in a queue, from which a thread writes. Otherwise two nodes that send each other more
/// than the system buffers hold would deadlock. Dropping it waits until the queue is written.
pub(crate) struct Link {
    stream: Arc<TcpStream>,
    /// Both are there until it is dropped.
    queue: Option<Sender<Queued>>,
    writing: Option<JoinHandle<()>>,
}

/// What the thread of a link does next.
enum Queued {
    Bytes(Arc<Vec<u8>>),
    /// Tells that all before it is written.
    Mark(Sender<()>),
}

impl Links {
    /// Connects all nodes: each listens at an address that it puts into the store, and connects to those of lower rank. `ip` is the node's
    /// own address on its connection to the coordinator; `is_local` says whether all nodes are on this machine.
    ///
    /// # Errors
    /// If not all are connected in time.
    pub(crate) fn new(store: &KeyValueStore, ip: IpAddr, is_local: bool, timeout: Duration) -> Result<Links> {
        let (rank, nodes, until) = (store.rank, store.nodes, Instant::now() + timeout);
        let failed = |other: usize, cause: io::Error| {
            store.failure.reason(2 * interval(store.failure_timeout), || {
                error(format!("there is no connection between node {rank} and node {other}: {cause}"))
            })
        };
        let bound = match is_local {
            true => store.address.ip(),
            false if is_beside_coordinator(rank, ip) => unspecified(ip),
            false => ip,
        };
        let listener = TcpListener::bind((bound, 0)).map_err(|cause| failed(rank, cause))?;
        let port = listener.local_addr().map_err(|cause| failed(rank, cause))?.port();
        let address = SocketAddr::new(ip, port);
        store.put(&key(rank), address.to_string().as_bytes())?;
        let mut links: Vec<Option<Link>> = (0..nodes).map(|_| None).collect();
        for (other, link) in links.iter_mut().enumerate().take(rank) {
            let missing = || error(format!("node {other} has given no address within {} s", timeout.as_secs()));
            let address =
                store.get(&key(other), until.saturating_duration_since(Instant::now()))?.ok_or_else(missing)?;
            let address: SocketAddr = String::from_utf8_lossy(&address)
                .parse()
                .map_err(|_| failed(other, io::ErrorKind::InvalidData.into()))?;
            let ip = if is_beside_coordinator(other, address.ip()) { store.address.ip() } else { address.ip() };
            let address = SocketAddr::new(ip, address.port()).to_string();
            let keep_on = || store.failure.check().is_ok();
            let connected = frame::connect(&address, until, keep_on).and_then(|mut stream| {
                let rank = rank.to_string();
                frame::send(&mut stream, &[PROTOCOL.as_bytes(), b"link", store.id.as_bytes(), rank.as_bytes()])?;
                Link::new(stream, other, &store.failure)
            });
            *link = Some(connected.map_err(|cause| failed(other, cause))?);
        }
        let (greeted, greetings) = channel();
        let first_missing = |links: &[Option<Link>]| (rank + 1..nodes).find(|&other| links[other].is_none());
        while let Some(missing) = first_missing(&links) {
            store.failure.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(missing, io::ErrorKind::TimedOut.into()));
            }
            greet(&listener, store, &greeted).map_err(|cause| failed(missing, cause))?;
            let Ok((other, stream)) = greetings.recv_timeout(POLL) else { continue };
            if let Some(place) = links.get_mut(other).filter(|place| other > rank && place.is_none()) {
                *place = Some(Link::new(stream, other, &store.failure).map_err(|cause| failed(other, cause))?);
            }
        }
        Ok(Links(links))
    }

    /// The connection to a node.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn to(&mut self, rank: usize) -> Result<&mut Link> {
        let link = self.0.get_mut(rank).and_then(Option::as_mut);
        link.ok_or_else(|| Error::new(remat_ir::ErrorKind::Internal, "cluster", format!("there is no link to {rank}")))
    }

    /// Waits until all that was sent is written, or cannot be: a process that ends at once would take it along.
    pub(crate) fn flush(&self) {
        let marks = self.0.iter().flatten().filter_map(Link::mark);
        for mark in marks.collect::<Vec<_>>() {
            // An error is that of a lost connection, whose thread has ended.
            let _ = mark.recv();
        }
    }

    /// The ranks of the other nodes, in order.
    pub(crate) fn others(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|&rank| self.0[rank].is_some()).collect()
    }
}

/// Whether a node is on the machine of the coordinator. Others reach it at the coordinator's address, since its own address may be known
/// only to its machine, for example where `/etc/hosts` maps the machine's name to 127.0.1.1.
fn is_beside_coordinator(rank: usize, ip: IpAddr) -> bool {
    rank == 0 || ip.is_loopback()
}

fn key(rank: usize) -> Vec<u8> {
    format!("remat/links/{rank}").into_bytes()
}

/// How long to wait for a node that connects, until the next look at the listener and at failures.
const POLL: Duration = Duration::from_millis(5);

/// Accepts the connections that have come. Each is greeted in a thread of its own, so that one that is slow or silent, which may be a stranger,
/// keeps no node from connecting. Those of nodes of this cluster are passed on with their ranks, others are closed.
fn greet(listener: &TcpListener, store: &KeyValueStore, to: &Sender<(usize, TcpStream)>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let (id, within, to) = (store.id.clone(), store.failure_timeout, to.clone());
        let greeting = thread::Builder::new().name("remat-greeting".to_string());
        greeting.spawn(move || {
            if let Ok(Some(rank)) = greeted(&stream, &id, within) {
                // All nodes may be connected by now.
                let _ = to.send((rank, stream));
            }
        })?;
    }
}

/// The rank that the other side of a connection gives; `None` if it is not a node of this cluster.
fn greeted(stream: &TcpStream, id: &str, timeout: Duration) -> io::Result<Option<usize>> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let hello = frame::receive_first(stream, timeout)?.unwrap_or_default();
    stream.set_read_timeout(None)?;
    Ok(match &hello.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
        [protocol, b"link", of, rank] if *protocol == PROTOCOL.as_bytes() && *of == id.as_bytes() => {
            std::str::from_utf8(rank).ok().and_then(|rank| rank.parse().ok())
        }
        _ => None,
    })
}

impl Link {
    fn new(stream: TcpStream, other: usize, failure: &Failure) -> io::Result<Link> {
        let stream = Arc::new(stream);
        failure.close(&stream)?;
        let (queue, queued) = channel();
        let to = stream.clone();
        let writing = thread::Builder::new().name(format!("remat-link-{other}"));
        let writing = writing.spawn(move || write_all(&to, &queued))?;
        Ok(Link { stream, queue: Some(queue), writing: Some(writing) })
    }

    /// Sends these bytes, in the order of calls.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) fn send(&self, bytes: Arc<Vec<u8>>) -> io::Result<()> {
        let sent = self.queue.as_ref().and_then(|queue| queue.send(Queued::Bytes(bytes)).ok());
        sent.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// A receiver that gets a message when all that was sent before is written.
    fn mark(&self) -> Option<Receiver<()>> {
        let (written, mark) = channel();
        self.queue.as_ref()?.send(Queued::Mark(written)).ok()?;
        Some(mark)
    }

    /// Receives the next bytes from the other node.
    ///
    /// # Errors
    /// If the connection is lost.
    pub(crate) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        (&*self.stream).read_exact(bytes)
    }

    /// Receives the next message from the other node.
    ///
    /// # Errors
    /// If the connection is lost, or the data are not a message.
    pub(crate) fn receive_message(&mut self) -> io::Result<Vec<Vec<u8>>> {
        frame::receive(&mut &*self.stream)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if thread::panicking() {
            // A panic is a failure; closing the connection lets others notice sooner. It may be closed already.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        // The thread ends with the queue. If the other node ends without reading, the heartbeats detect it, and the failure closes the
        // connection.
        drop(self.queue.take());
        if let Some(writing) = self.writing.take() {
            // The thread does not panic.
            let _ = writing.join();
        }
    }
}

/// Writes the data of the queue, until its sender is dropped or the connection is lost.
fn write_all(mut stream: &TcpStream, queued: &Receiver<Queued>) {
    while let Ok(next) = queued.recv() {
        match next {
            Queued::Bytes(bytes) if stream.write_all(&bytes).is_err() => return,
            Queued::Bytes(_) => {}
            // Nobody may wait for it any more.
            Queued::Mark(written) => drop(written.send(())),
        }
    }
    // The other node reads the data, and then the end of the stream. The connection may be closed already.
    let _ = stream.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_queued_is_sent_before_a_link_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let link = Link::new(stream, 1, &Failure::default()).unwrap();
        // More than the system buffers hold.
        let sent = Arc::new(vec![7; 1 << 26]);
        let is_read = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                is_read.store(true, Ordering::SeqCst);
                let mut bytes = Vec::new();
                other.read_to_end(&mut bytes).unwrap();
                bytes
            });
            link.send(sent.clone()).unwrap();
            drop(link);
            assert!(is_read.load(Ordering::SeqCst), "the link has not waited");
            assert!(reading.join().unwrap() == *sent);
        });
    }

    /// A process that ends after it is not there to send the rest.
    #[test]
    fn a_flushed_link_has_written_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let links = Links(vec![None, Some(Link::new(stream, 1, &Failure::default()).unwrap())]);
        let is_read = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                is_read.store(true, Ordering::SeqCst);
                (&other).read_exact(&mut vec![0; 1 << 26])
            });
            links.0[1].as_ref().unwrap().send(Arc::new(vec![7; 1 << 26])).unwrap();
            links.flush();
            assert!(is_read.load(Ordering::SeqCst), "more was written than the system buffers hold");
            reading.join().unwrap().unwrap();
        });
        // One that is lost is not waited for.
        drop(other);
        links.0[1].as_ref().unwrap().send(Arc::new(vec![7; 1 << 26])).unwrap();
        links.flush();
    }

    /// Strangers that send a byte now and then keep no node waiting.
    #[test]
    fn slow_connections_hold_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let store = KeyValueStore {
            address,
            id: "id".to_string(),
            rank: 0,
            nodes: 2,
            failure_timeout: Duration::from_secs(60),
            failure: Arc::default(),
            idle: std::sync::Mutex::default(),
        };
        let is_over = AtomicBool::new(false);
        let mut strangers = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                // The beginning of a message of 100 bytes, and its first fields.
                let bytes = [&[100, 0, 0, 0, 90, 0, 0, 0][..], &[0; 80]].concat();
                for byte in bytes.iter().cycle().take_while(|_| !is_over.load(Ordering::SeqCst)) {
                    for stranger in &mut strangers {
                        // It may have been told to leave.
                        let _ = stranger.write_all(&[*byte]);
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let mut node = TcpStream::connect(address).unwrap();
            frame::send(&mut node, &[PROTOCOL.as_bytes(), b"link", b"id", b"1"]).unwrap();
            let (sender, greetings) = channel();
            let (rank, _) = loop {
                greet(&listener, &store, &sender).unwrap();
                if let Ok(greeting) = greetings.recv_timeout(POLL) {
                    break greeting;
                }
            };
            assert_eq!(rank, 1);
            is_over.store(true, Ordering::SeqCst);
        });
    }
}
