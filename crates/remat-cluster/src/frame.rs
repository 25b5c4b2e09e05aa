//! Messages: lists of fields, each with its length.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The beginning of every first message. The number changes with the format of messages.
pub(crate) const PROTOCOL: &str = concat!("remat-cluster 2 of ", env!("CARGO_PKG_VERSION"));

/// The most bytes of a message. The longest are descriptions of trees, and what XLA exchanges about devices.
pub(crate) const MAX_FRAME: usize = 1 << 26;

/// The most bytes of the first message of a connection, which anyone may send.
const MAX_FIRST: usize = 1 << 12;

/// The most fields of a message.
const MAX_FIELDS: usize = 8;

/// Sends a message.
///
/// # Errors
/// If it is too long, or the connection is lost.
pub(crate) fn send(stream: &mut impl Write, fields: &[&[u8]]) -> io::Result<()> {
    stream.write_all(&encoded(fields)?)
}

/// A message as bytes.
///
/// # Errors
/// If it is too long.
pub(crate) fn encoded(fields: &[&[u8]]) -> io::Result<Vec<u8>> {
    let len = fields.iter().map(|field| 4 + field.len()).sum::<usize>();
    if len > MAX_FRAME || fields.len() > MAX_FIELDS {
        let message = format!("a message of {len} bytes is longer than {MAX_FRAME} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut bytes = Vec::with_capacity(4 + len);
    bytes.extend((len as u32).to_le_bytes());
    for field in fields {
        bytes.extend((field.len() as u32).to_le_bytes());
        bytes.extend_from_slice(field);
    }
    Ok(bytes)
}

/// The fields of the next message; `None` if the other side has closed the connection after a message.
///
/// # Errors
/// If the connection is lost or silent for longer than its timeout, or the data are not a message.
pub(crate) fn receive(stream: &mut impl Read) -> io::Result<Option<Vec<Vec<u8>>>> {
    receive_up_to(MAX_FRAME, stream)
}

/// The fields of the first message of a connection, which is short and comes within this time, since the other side is not known yet. The
/// timeout of later reads is not set.
///
/// # Errors
/// As [`receive`]; if the whole message does not come in time.
pub(crate) fn receive_first(stream: &TcpStream, timeout: Duration) -> io::Result<Option<Vec<Vec<u8>>>> {
    receive_up_to(MAX_FIRST, &mut Until { stream, until: Instant::now() + timeout })
}

/// A connection that is read up to a time, however slowly the other side sends.
struct Until<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut &*self.stream).read(bytes)
    }
}

fn receive_up_to(max: usize, stream: &mut impl Read) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut len = [0; 4];
    let read = loop {
        match stream.read(&mut len[..1]) {
            // A signal has interrupted a read with a timeout; `read_exact` and `read_to_end` retry by themselves.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if read == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut len[1..])?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the received bytes are not a message");
    let len = u32::from_le_bytes(len) as usize;
    if len > max {
        return Err(invalid());
    }
    // Memory grows with the bytes that arrive, since the length comes from an unknown sender.
    let mut bytes = Vec::new();
    if stream.by_ref().take(len as u64).read_to_end(&mut bytes)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (mut fields, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((len, after)) = rest.split_first_chunk::<4>().filter(|_| fields.len() < MAX_FIELDS) {
        let (field, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize).ok_or_else(invalid)?;
        fields.push(field.to_vec());
        rest = after;
    }
    if rest.is_empty() { Ok(Some(fields)) } else { Err(invalid()) }
}

/// Connects within this time; messages are sent without delay (`TCP_NODELAY`).
///
/// # Errors
/// The error of the last attempt, if none succeeds in time. A name that cannot be resolved yet is tried again too: names of pods appear
/// some seconds after the pods.
pub(crate) fn connect(address: &str, until: Instant, keep_on: impl Fn() -> bool) -> io::Result<TcpStream> {
    use std::net::ToSocketAddrs;
    loop {
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), CONNECT);
        let attempt = address.to_socket_addrs().and_then(|addresses| {
            let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
            for address in addresses {
                outcome = TcpStream::connect_timeout(&address, left);
                if outcome.is_ok() {
                    break;
                }
            }
            outcome
        });
        match attempt {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if Instant::now() >= until || !keep_on() => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The time of one attempt to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// Whether a read ended by its timeout.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_were_sent() {
        let fields: [&[u8]; 3] = [b"put", b"", &[0, 255, 10, 13]];
        let mut bytes = Vec::new();
        send(&mut bytes, &fields).unwrap();
        send(&mut bytes, &[]).unwrap();
        let mut stream = &bytes[..];
        assert_eq!(receive(&mut stream).unwrap().unwrap(), fields);
        assert_eq!(receive(&mut stream).unwrap(), Some(vec![]));
        assert_eq!(receive(&mut stream).unwrap(), None);
    }

    #[test]
    fn what_is_not_a_message_is_an_error() {
        let error = |bytes: &[u8]| receive(&mut &bytes[..]).unwrap_err().kind();
        assert_eq!(error(b"GET / HTTP/1.1\r\n\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(error(&[6, 0, 0, 0, 9, 0, 0, 0, 1, 2]), io::ErrorKind::InvalidData);
        assert_eq!(error(&[2, 0, 0, 0, 1, 2]), io::ErrorKind::InvalidData);
        assert_eq!(error(&[9, 0, 0, 0, 1]), io::ErrorKind::UnexpectedEof);
        assert_eq!(error(&[9, 0]), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            error(&[[36, 0, 0, 0], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4]].concat()),
            io::ErrorKind::InvalidData
        );
    }

    /// A stream in which a signal interrupts every other read.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.read(bytes) }
        }
    }

    #[test]
    fn signals_do_not_end_a_message() {
        let bytes = encoded(&[b"put", b"k"]).unwrap();
        let mut stream = Interrupted(&bytes, false);
        assert_eq!(receive(&mut stream).unwrap().unwrap(), [&b"put"[..], b"k"]);
        assert_eq!(receive(&mut stream).unwrap(), None);
    }

    #[test]
    fn first_messages_are_short() {
        let of = |len| encoded(&[&vec![0; len]]).unwrap();
        assert!(receive_up_to(MAX_FIRST, &mut &of(MAX_FIRST - 4)[..]).is_ok());
        let error = receive_up_to(MAX_FIRST, &mut &of(MAX_FIRST - 3)[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    /// The time is that of the whole message, not of each byte.
    #[test]
    fn first_messages_come_in_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let writing = std::thread::spawn(move || {
            // Until the other side closes the connection.
            for byte in encoded(&[&[7; 1000]]).unwrap() {
                if slow.write_all(&[byte]).is_err() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        });
        let error = receive_first(&stream, Duration::from_millis(200)).unwrap_err();
        assert!(is_timeout(&error), "{error}");
        drop(stream);
        assert!(writing.join().unwrap(), "the whole message was waited for");
    }

    #[test]
    fn messages_have_a_greatest_length() {
        let long = vec![0; MAX_FRAME - 3];
        let error = send(&mut Vec::new(), &[&long]).unwrap_err();
        assert_eq!(error.to_string(), "a message of 67108865 bytes is longer than 67108864 bytes");
        assert!(send(&mut Vec::new(), &[&long[1..]]).is_ok());
    }
}
