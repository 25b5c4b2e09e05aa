//! Runs several jobs at one time, on threads that take the next job when they finish one.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Result, anyhow};

use crate::machine;

/// Bytes of memory reserved for a compiler: those for TPUs and GPUs took up to 1.5 GiB for a model of 3 B parameters.
const COMPILER: usize = 3 << 30;

/// How many compilers may run at one time: one per core, as far as free memory allows.
pub(super) fn at_once() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    machine::available().map_or(1, |bytes| bytes / COMPILER).clamp(1, cores)
}

/// The results of `f` for all items, in order. `done` receives each result as it arrives. After an error no further item is started.
///
/// # Errors
/// The first error of `f`.
pub(super) fn each<T: Sync, R: Send>(
    things: &[T],
    at_once: usize,
    f: impl Fn(&T) -> Result<R> + Sync,
    mut done: impl FnMut(&R),
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once.min(things.len()) {
            let (send, f, next) = (send.clone(), &f, &next);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(thing) = things.get(at) else { break };
                    let result = f(thing);
                    if result.is_err() {
                        next.store(things.len(), Ordering::Relaxed);
                    }
                    if send.send((at, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut results: Vec<Option<R>> = things.iter().map(|_| None).collect();
        for (at, result) in receive {
            let result = result?;
            done(&result);
            results[at] = Some(result);
        }
        // A thread that panicked has sent no result; its panic is passed on when the scope ends.
        results.into_iter().map(|result| result.ok_or_else(|| anyhow!("a thread has ended early"))).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_order_and_told_as_they_come() {
        // The first one waits until the second result has arrived.
        let (told, is_told) = (AtomicUsize::new(0), Barrier::new(2));
        let f = |&n: &usize| {
            if n == 7 {
                is_told.wait();
            }
            Ok(n)
        };
        let done = |&n: &usize| {
            if told.fetch_add(1, Ordering::Relaxed) == 0 {
                assert_eq!(n, 8);
                is_told.wait();
            }
        };
        assert_eq!(each(&[7, 8], 2, f, done).unwrap(), [7, 8]);
        assert_eq!(told.into_inner(), 2);
        assert!(each(&[], 2, f, |_| ()).unwrap().is_empty());
    }

    #[test]
    fn nothing_is_begun_after_an_error() {
        let begun = AtomicUsize::new(0);
        let error = each(
            &[1, 2, 3, 4],
            1,
            |&n| {
                begun.fetch_add(1, Ordering::Relaxed);
                if n == 2 { Err(anyhow!("no {n}")) } else { Ok(n) }
            },
            |_| (),
        );
        assert_eq!(error.unwrap_err().to_string(), "no 2");
        assert_eq!(begun.into_inner(), 2);
    }
}
