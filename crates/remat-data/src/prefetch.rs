//! Makes batches ahead of their steps, on a separate thread.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use remat::layer::location;
use remat::{Error, ErrorKind, Result};

/// The operation that errors name.
const PREFETCH: &str = "Prefetch";

/// Computes a function of the step, such as a batch, for the next steps on another thread while the caller works on the current step.
/// Values and errors come in the order of the steps. The thread ends when this is dropped.
///
/// ```
/// use remat_data::{Batches, Prefetch, Tokens};
///
/// let tokens = Tokens::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 9)?;
/// let batches = Batches::new(tokens, [1, 4], 0)?;
/// let direct = batches.clone();
/// let ahead = Prefetch::new(3, 2, move |step| batches.get(step))?;
/// for step in 3..6 {
///     assert_eq!(ahead.next()?.tokens.to_vec::<i32>()?, direct.get(step)?.tokens.to_vec::<i32>()?);
/// }
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Debug)]
pub struct Prefetch<T> {
    /// Dropped before the thread is joined, which stops the thread.
    values: Option<Receiver<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Computes `make(first)`, `make(first + 1)`, and so on. At most `ahead` values wait for the caller, besides the one that is being
    /// computed.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    #[track_caller]
    pub fn new(
        first: u64,
        ahead: usize,
        mut make: impl FnMut(u64) -> Result<T> + Send + 'static,
    ) -> Result<Prefetch<T>> {
        let loc = location();
        let (sender, values) = sync_channel(ahead);
        let work = move || {
            for step in first.. {
                let value = make(step);
                let is_last = value.is_err();
                if sender.send(value).is_err() || is_last {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("remat prefetch".into())
            .spawn(work)
            .map_err(|error| Error::new(ErrorKind::Io, PREFETCH, format!("cannot start a thread: {error}")).at(loc))?;
        Ok(Prefetch { values: Some(values), thread: Some(thread) })
    }

    /// Waits for the value of the next step.
    ///
    /// # Errors
    /// The error of the function, after which there are no more values; if the function panicked.
    #[track_caller]
    pub fn next(&self) -> Result<T> {
        let value = self.values.as_ref().and_then(|values| values.recv().ok());
        value.unwrap_or_else(|| {
            let message = "there are no more values: the function has given an error, or panicked";
            Err(Error::new(ErrorKind::Internal, PREFETCH, message).at(location()))
        })
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.values = None;
        // The caller of `next` was told of a panic of the function.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
