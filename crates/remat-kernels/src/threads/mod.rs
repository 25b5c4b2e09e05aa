//! The threads of the engine.
//!
//! Sums are not cut by the number of threads, and each task computes its elements independently. So results are bitwise the same on any
//! number of threads. The elements of a task may depend on that number.

mod pool;

use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use remat_ir::{Error, ErrorKind, Result};

use pool::Pool;

/// The environment variable with the default number of threads.
const VARIABLE: &str = "REMAT_THREADS";

/// More threads than this are a mistake; the system would refuse them after starting thousands.
const MAX_THREADS: usize = 1 << 16;

/// The number of threads in the variable, or the number of cores if it is not set.
fn asked_for(variable: Option<OsString>) -> Result<usize> {
    let Some(value) = variable.filter(|value| !value.is_empty()) else {
        return Ok(std::thread::available_parallelism().map_or(1, |n| n.get()));
    };
    let value = value.to_string_lossy();
    value.trim().parse().ok().filter(|&count| count > 0).ok_or_else(|| {
        let message = format!("{VARIABLE} must be a number of threads, at least 1, and is {value:?}");
        Error::new(ErrorKind::Argument, "threads", message)
    })
}

/// A number of threads: the calling one and those of a pool, if there is one.
///
/// # Examples
///
/// ```
/// use remat_kernels::Threads;
///
/// let mut squares = [0; 10];
/// Threads::new(2)?.for_each_chunk(&mut squares, 4, |chunk, out| {
///     for (i, x) in out.iter_mut().enumerate() {
///         *x = (4 * chunk + i).pow(2);
///     }
/// });
/// assert_eq!(squares[9], 81);
/// # Ok::<(), remat_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct Threads {
    pool: Option<Arc<Pool>>,
}

impl Threads {
    /// The calling thread alone.
    pub const SERIAL: Threads = Threads { pool: None };

    /// `count` threads: the calling one, and `count - 1` new ones.
    ///
    /// # Errors
    /// If `count` is 0 or more than 65,536, or the system cannot start them.
    pub fn new(count: usize) -> Result<Threads> {
        match count {
            0 => Err(Error::new(ErrorKind::Argument, "threads", "an engine needs at least one thread")),
            _ if count > MAX_THREADS => {
                let message = format!("{count} threads are too many: an engine has at most {MAX_THREADS}");
                Err(Error::new(ErrorKind::Argument, "threads", message))
            }
            1 => Ok(Threads::SERIAL),
            _ => {
                let refused =
                    |e| Error::new(ErrorKind::Io, "threads", format!("{count} threads cannot be started: {e}"));
                Ok(Threads { pool: Some(Arc::new(Pool::new(count - 1).map_err(refused)?)) })
            }
        }
    }

    /// The number of threads in the environment variable `REMAT_THREADS`, or one per core. They are started once.
    ///
    /// # Errors
    /// If the variable is not a number of threads, or the system cannot start them.
    pub fn all() -> Result<Threads> {
        static ALL: LazyLock<Result<Threads>> = LazyLock::new(|| Threads::new(asked_for(std::env::var_os(VARIABLE))?));
        ALL.clone()
    }

    /// The number of tasks that can run at one time.
    pub fn count(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.workers() + 1)
    }

    /// Calls `f` for each of `tasks` tasks, in any order, on any thread.
    pub fn for_each(&self, tasks: usize, f: impl Fn(usize) + Send + Sync) {
        self.tasks(tasks, &f);
    }

    /// Calls `f` with the number and the elements of each chunk of `len` elements; the last may be shorter.
    pub fn for_each_chunk<T: Send>(&self, data: &mut [T], len: usize, f: impl Fn(usize, &mut [T]) + Send + Sync) {
        self.chunks(data, len, &f);
    }

    /// Calls `f` for each of `tasks` tasks with scratch memory that no other task uses at the same time. `scratch` is cut into one equal
    /// piece per thread; the content of a piece at the start of a task is unspecified.
    pub fn for_each_with_scratch<T: Send>(
        &self,
        tasks: usize,
        scratch: &mut [T],
        f: impl Fn(usize, &mut [T]) + Send + Sync,
    ) {
        self.with_scratch(tasks, scratch, &f);
    }

    /// Calls `f` for each of `tasks` items, in any order, on any thread.
    pub fn for_each_item<I: Iterator + Send>(&self, tasks: usize, items: I, f: impl Fn(I::Item) + Send + Sync) {
        self.items(tasks, items, &f);
    }

    /// Calls `f` for each of `tasks` items with scratch memory, as [`Threads::for_each_with_scratch`] does.
    pub fn for_each_item_with_scratch<I: Iterator + Send, T: Send>(
        &self,
        tasks: usize,
        items: I,
        scratch: &mut [T],
        f: impl Fn(I::Item, &mut [T]) + Send + Sync,
    ) {
        self.items_with_scratch(tasks, items, scratch, &f);
    }
}

// These do the work. They take the function as an object, so that they are compiled once for each type of elements or items and not for each
// function, and a function is compiled once, not once for several threads and once for one.
impl Threads {
    fn tasks(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        match &self.pool {
            Some(pool) if tasks > 1 => pool.run(tasks, f),
            _ => (0..tasks).for_each(f),
        }
    }

    fn chunks<T: Send>(&self, data: &mut [T], len: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let len = len.max(1);
        let tasks = data.len().div_ceil(len);
        self.items(tasks, data.chunks_mut(len).enumerate(), &|(i, chunk): (usize, &mut [T])| f(i, chunk));
    }

    fn with_scratch<T: Send>(&self, tasks: usize, scratch: &mut [T], f: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let workers = self.count().min(tasks);
        let piece = scratch.len() / self.count();
        if piece == 0 {
            return self.tasks(tasks, &|i| f(i, &mut []));
        }
        // A thread alone needs neither the lock nor the counter, which take as long as a small task.
        if workers <= 1 {
            return (0..tasks).for_each(|task| f(task, &mut scratch[..piece]));
        }
        let next_task = AtomicUsize::new(0);
        self.items(workers, scratch.chunks_mut(piece), &|scratch: &mut [T]| {
            loop {
                let task = next_task.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                f(task, scratch);
            }
        });
    }

    fn items_with_scratch<I: Iterator + Send, T: Send>(
        &self,
        tasks: usize,
        items: I,
        scratch: &mut [T],
        f: &(dyn Fn(I::Item, &mut [T]) + Sync),
    ) {
        let items = Mutex::new(items);
        self.with_scratch(tasks, scratch, &|_, scratch: &mut [T]| {
            if let Some(item) = next(&items) {
                f(item, scratch);
            }
        });
    }

    fn items<I: Iterator + Send>(&self, tasks: usize, items: I, f: &(dyn Fn(I::Item) + Sync)) {
        if self.count().min(tasks) <= 1 {
            return items.take(tasks).for_each(f);
        }
        let items = Mutex::new(items);
        self.tasks(tasks, &|_| {
            if let Some(item) = next(&items) {
                f(item);
            }
        });
    }
}

/// The next item, for the thread that asks first. If a thread has panicked, the panic is about to be passed on.
fn next<I: Iterator>(items: &Mutex<I>) -> Option<I::Item> {
    items.lock().unwrap_or_else(PoisonError::into_inner).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_how_many_threads() {
        let asked = |value: &str| asked_for(Some(value.into())).map_err(|e| e.to_string());
        assert_eq!(asked("3"), Ok(3));
        assert_eq!(asked(" 1 "), Ok(1));
        assert_eq!(asked(""), asked_for(None).map_err(|e| e.to_string()));
        for value in ["0", "-1", "two"] {
            let message = format!("threads: REMAT_THREADS must be a number of threads, at least 1, and is {value:?}");
            assert_eq!(asked(value), Err(message));
        }
        assert!(asked_for(None).is_ok_and(|count| count > 0));
    }

    #[test]
    fn absurd_numbers_of_threads_are_errors() {
        for count in [100_000_000_000, usize::MAX] {
            let message = format!("threads: {count} threads are too many: an engine has at most 65536");
            assert_eq!(Threads::new(count).err().map(|e| e.to_string()), Some(message));
        }
    }
}
